"""Ending a run whose verifier fails too often or never applies, or whose weights are not finite."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..errors import VerifierError
from ..rollout import FAILURES

ENOUGH = 100  # episodes; fewer give a poor estimate of a share


class FailureWatch:
    """Counts the episodes of the last rollouts, at least a hundred, that got no verdict.

    Args:
        max_share: of timeouts and errors among them, 0 to 1.

    Attributes:
        totals: episodes of the whole run without a verdict, by kind.
    """

    def __init__(self, max_share: float) -> None:
        self.max_share = max_share
        self.totals = dict.fromkeys(FAILURES, 0)
        self._recent: deque[tuple[int, ...]] = deque()  # episodes, then how many of each kind in FAILURES

    def add(self, statuses: Sequence[int], reason: str) -> None:
        """Count a rollout.

        Args:
            statuses: the number of its episodes with each of `STATUSES`.
            reason: why the verifier failed the last time.

        Raises:
            VerifierError: if it failed on too many, or did not apply to any.
        """
        _, *missing = statuses
        for kind, count in zip(FAILURES, missing, strict=True):
            self.totals[kind] += count
        self._recent.append((sum(statuses), *missing))
        while sum(row[0] for row in self._recent) - self._recent[0][0] >= ENOUGH:
            self._recent.popleft()
        episodes, timeouts, errors, silent = self._sums()
        if episodes >= ENOUGH and timeouts + errors > self.max_share * episodes:
            raise VerifierError(
                f"the verifier failed on {timeouts + errors} of the last {episodes} episodes ({timeouts} timeouts, "
                f"{errors} errors); allowed: {self.max_share:.0%} (max_failed_share). The last reason: {reason}"
            )
        if episodes >= ENOUGH and silent == episodes:
            raise VerifierError(
                f"the verifier did not apply (not_applicable) to any of the last {episodes} episodes, so nothing can "
                "be learned: use problems that it judges, or another verifier"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the counts of the last rollouts."""
        return {"recent": [list(row) for row in self._recent], "totals": dict(self.totals)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._recent, self.totals = deque(map(tuple, state["recent"])), dict(state["totals"])

    def conclude(self) -> None:
        """Warn at the end of a run too short to be stopped if none of its episodes got a verdict."""
        if not self._recent:
            return
        episodes, *missing = self._sums()
        if episodes < ENOUGH and sum(missing) == episodes:
            counts = ", ".join(f"{count} {kind}" for kind, count in zip(FAILURES, missing, strict=True) if count)
            warnings.warn(
                f"none of the {episodes} episodes got a verdict ({counts}): nothing was learned", stacklevel=4
            )

    def _sums(self) -> list[int]:
        return [sum(column) for column in zip(*self._recent, strict=True)]
