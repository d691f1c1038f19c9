"""The choice of problems: a curriculum of growing difficulty, or problems that are solved about half of the time."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

WINDOW = 256
NEWEST_SHARE = 0.5
TARGET = 0.5  # the success rate at which a group of rewards varies most
CANDIDATES = 16  # per choice
HALF_LIFE = 8.0  # verdicts per arm after which evidence counts half


class Curriculum:
    """Decides which levels are posed: first the lowest, then one more each time the newest is mastered.

    It is deterministic: the same verdicts in the same order lead to the same level. It changes at an `update` only.

    Args:
        levels: the levels of the problems, in any order; gaps are allowed.
        threshold: the newest level is mastered if this share of its last `window` verdicts are successes.
        window: number of verdicts that are considered.

    Raises:
        ValueError: for fewer than two levels.
    """

    def __init__(self, levels: Sequence[int], threshold: float, window: int = WINDOW) -> None:
        self.levels = sorted(set(levels))
        if len(self.levels) < 2:
            raise ValueError(
                f"a curriculum needs problems of at least two levels; there are: {self.levels}; "
                "give the problems a column level, or the verifier an argument such as levels=2"
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
        if level == self.level:
            self._verdicts.append(success)

    def update(self) -> None:
        """Begin the next level if the newest one is mastered and not the last."""
        mastered = sum(self._verdicts) >= self.threshold * len(self._verdicts)
        if len(self._verdicts) == self._verdicts.maxlen and mastered and self.level != self.levels[-1]:
            self._newest += 1
            self._verdicts.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return its progress, in plain values."""
        return {"level": self.level, "verdicts": [int(success) for success in self._verdicts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`.

        Raises:
            ValueError: if the level is not one of the problems' levels.
        """
        self._newest = self.levels.index(state["level"])
        self._verdicts = deque(map(bool, state["verdicts"]), maxlen=self._verdicts.maxlen)


class ThompsonChoice:
    """Chooses problems by draws from the posteriors of their success rates (after MoPPS, arXiv:2507.04632).

        p_a ~ Beta(1 + s_a, 1 + f_a)        chosen: the candidate a whose draw is nearest to 1/2

    s_a and f_a count the successes and failures of arm a, a problem or a level. There are 16 candidates per choice,
    drawn without replacement, or all arms if they are fewer. Any n verdicts multiply the evidence on all A arms by
    2^(-n / (8 A)), so that the belief follows a policy that changes: an arm that was found hopeless is tried again.

    Verdicts count from the next `update` on, all at once: their order does not matter, nor who recorded them.

    Args:
        arms: their numbers.
        half_life: verdicts per arm after which evidence counts half, above 0.
        candidates: per choice, at least 1.

    Attributes:
        level: None; a curriculum has one.

    Raises:
        ValueError: for fewer than two arms.
    """

    level: None = None

    def __init__(self, arms: Sequence[int], half_life: float = HALF_LIFE, candidates: int = CANDIDATES) -> None:
        self.arms = sorted(set(arms))
        if len(self.arms) < 2:
            raise ValueError(
                f"prompt_choice='thompson' chooses between problems of a list, or between levels of a verifier; "
                f"there is {len(self.arms)} to choose from"
            )
        self.half_life, self.candidates = half_life, min(candidates, len(self.arms))
        self._counts: dict[int, tuple[float, float]] = {}  # of arms with evidence: successes and failures
        self._recorded: Counter[tuple[int, bool]] = Counter()

    def posterior(self, arm: int) -> tuple[float, float]:
        """Return both parameters of the Beta distribution of an arm's success rate."""
        successes, failures = self._counts.get(arm, (0.0, 0.0))
        return 1.0 + successes, 1.0 + failures

    def draw(self, rng: random.Random) -> int:
        """Return the candidate whose draw is nearest to 1/2."""
        found = self.arms if self.candidates == len(self.arms) else rng.sample(self.arms, self.candidates)
        gaps = [abs(rng.betavariate(*self.posterior(arm)) - TARGET) for arm in found]
        return found[gaps.index(min(gaps))]

    def record(self, arm: int, success: bool) -> None:
        """Keep a verdict until the next `update`."""
        self._recorded[arm, bool(success)] += 1

    def update(self) -> None:
        """Add the verdicts recorded so far to the counts, and decay the earlier counts."""
        kept = 0.5 ** (self._recorded.total() / (self.half_life * len(self.arms)))
        arms = sorted(self._counts.keys() | {arm for arm, _ in self._recorded})
        before = {arm: self._counts.get(arm, (0.0, 0.0)) for arm in arms}
        self._counts = {
            arm: (kept * won + self._recorded[arm, True], kept * lost + self._recorded[arm, False])
            for arm, (won, lost) in before.items()
        }
        self._recorded = Counter()

    def state_dict(self) -> dict[str, Any]:
        """Return the beliefs, and the verdicts since, in plain values."""
        recorded = [[arm, int(success), count] for (arm, success), count in sorted(self._recorded.items()) if count]
        return {"counts": [[arm, *pair] for arm, pair in self._counts.items()], "recorded": recorded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self._counts = {int(arm): (float(won), float(lost)) for arm, won, lost in state["counts"]}
        self._recorded = Counter({(int(arm), bool(success)): int(count) for arm, success, count in state["recorded"]})
