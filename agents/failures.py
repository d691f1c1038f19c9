"""Ending a run whose verifier fails too often, or whose weights are lost, instead of learning from what is left."""

from __future__ import annotations

from collections import deque

from .rollout import Rollout

ENOUGH = 100  # episodes: fewer say little of a share


class VerifierError(RuntimeError):
    """The verifier failed on too many episodes; the message says how many and why."""


class DivergedError(RuntimeError):
    """The weights are not finite any more; the message says which."""


class FailureWatch:
    """Counts the episodes of the last rollouts, at least a hundred, whose verifier failed.

    Args:
        max_share: of them, 0 to 1.
    """

    def __init__(self, max_share: float) -> None:
        self.max_share = max_share
        self._recent: deque[tuple[int, int, int]] = deque()  # episodes, timeouts, errors

    def add(self, rollout: Rollout, reason: str) -> None:
        """Count a rollout.

        Args:
            rollout: the episodes.
            reason: why the verifier failed when it last did.

        Raises:
            VerifierError: if it failed on too many.
        """
        timeouts, errors = (int(rollout.extras[name].sum()) if name in rollout.extras else 0 for name in KINDS)
        self._recent.append((len(rollout), timeouts, errors))
        while sum(count for count, _, _ in self._recent) - self._recent[0][0] >= ENOUGH:
            self._recent.popleft()
        episodes, timeouts, errors = (sum(column) for column in zip(*self._recent, strict=True))
        if episodes >= ENOUGH and timeouts + errors > self.max_share * episodes:
            raise VerifierError(
                f"the verifier failed on {timeouts + errors} of the last {episodes} episodes ({timeouts} timeouts, "
                f"{errors} errors); allowed: {self.max_share:.0%} (max_failed_share). The last reason: {reason}"
            )


KINDS = ("timeout", "error")
