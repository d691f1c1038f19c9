"""A curriculum: problems become harder as the policy solves them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

WINDOW = 256
NEWEST_SHARE = 0.5


class Curriculum:
    """Decides which levels are posed: first the lowest, then one more each time the newest is mastered.

    It is deterministic: the same verdicts in the same order lead to the same level.

    Args:
        levels: the levels of the problems, in any order; gaps are allowed.
        threshold: the newest level is mastered when this share of its last `window` verdicts are successes.
        window: number of verdicts that are considered.

    Raises:
        ValueError: for a threshold outside 0..1, or fewer than two levels.
    """

    def __init__(self, levels: Sequence[int], threshold: float, window: int = WINDOW) -> None:
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0.0 < threshold <= 1.0:
            raise ValueError(f"curriculum must be a success rate above 0 and at most 1, got {threshold!r}")
        self.levels = sorted(set(levels))
        if len(self.levels) < 2:
            raise ValueError(
                f"a curriculum needs problems of at least two levels; there are: {self.levels}; "
                "give the problems a column level, or the verifier an argument such as levels=3"
            )
        self.threshold = threshold
        self._newest = 0
        self._verdicts: deque[bool] = deque(maxlen=window)

    @property
    def level(self) -> int:
        """The newest level that is posed."""
        return self.levels[self._newest]

    def draw(self, rng: random.Random) -> int:
        """Return a level: the newest half of the time, else one of the earlier ones."""
        if self._newest == 0 or rng.random() < NEWEST_SHARE:
            return self.level
        return self.levels[rng.randrange(self._newest)]

    def record(self, level: int, success: bool) -> None:
        """Record a verdict on a problem of this level; only the newest level counts."""
        if level != self.level or self._newest == len(self.levels) - 1:
            return
        self._verdicts.append(success)
        mastered = sum(self._verdicts) >= self.threshold * len(self._verdicts)
        if len(self._verdicts) == self._verdicts.maxlen and mastered:
            self._newest += 1
            self._verdicts.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return its progress, in plain values."""
        return {"level": self.level, "verdicts": [int(success) for success in self._verdicts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: if the level is not among those of the problems.
        """
        self._newest = self.levels.index(state["level"])
        self._verdicts = deque(map(bool, state["verdicts"]), maxlen=self._verdicts.maxlen)
