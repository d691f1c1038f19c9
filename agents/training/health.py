"""Watches over a run: whether there is anything to learn from, and whether verdicts are missing. Without torch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from rlenv._status import FAILURES

from ..errors import VerifierError

ENOUGH = 100  # episodes; fewer give a poor estimate of a share
HARD = 0.02  # of the answers right: in most groups of a few rollouts, all get the same reward
FIRST = round(3 / HARD)  # episodes: if none of so many is right, fewer than HARD are, with a confidence of 95 %


class FailureWatch:
    """Counts the episodes of the last rollouts, at least a hundred, that got no verdict.

    Attributes:
        totals: episodes of the whole run without a verdict, by kind.
        reason: why the verifier failed the last time; empty if it never did.
        recent: the last rollouts: their episodes, and their episodes of each kind in `FAILURES`.
    """

    def __init__(self) -> None:
        self.totals = dict.fromkeys(FAILURES, 0)
        self.recent: list[tuple[int, ...]] = []
        self.reason = ""

    def add(self, statuses: Sequence[int], reason: str, max_share: float) -> None:
        """Count a rollout.

        Args:
            statuses: the number of its episodes with each of `STATUSES`.
            reason: why the verifier failed the last time.
            max_share: of timeouts and errors among the episodes, 0 to 1.

        Raises:
            VerifierError: if it failed on too many, or did not apply to any.
        """
        _, *missing = statuses
        self.reason = reason or self.reason
        for kind, count in zip(FAILURES, missing, strict=True):
            self.totals[kind] += count
        self.recent.append((sum(statuses), *missing))
        while sum(row[0] for row in self.recent) - self.recent[0][0] >= ENOUGH:
            del self.recent[0]
        episodes, timeouts, errors, silent = self._sums()
        if episodes >= ENOUGH and timeouts + errors > max_share * episodes:
            raise VerifierError(
                f"the verifier failed on {timeouts + errors} of the last {episodes} episodes ({timeouts} timeouts, "
                f"{errors} errors); allowed: {max_share:.0%} (max_failed_share). The last reason: {reason}"
            )
        if episodes >= ENOUGH and silent == episodes:
            raise VerifierError(
                f"the verifier did not apply (not_applicable) to any of the last {episodes} episodes, so nothing can "
                "be learned: use problems that it judges, or another verifier"
            )

    def conclude(self) -> None:
        """Warn at the end of a run too short to be stopped if none of its episodes got a verdict."""
        if not self.recent:
            return
        episodes, *missing = self._sums()
        if episodes < ENOUGH and sum(missing) == episodes:
            counts = ", ".join(f"{count} {kind}" for kind, count in zip(FAILURES, missing, strict=True) if count)
            why = f". The last reason: {self.reason}" if self.reason else ""
            warnings.warn(
                f"none of the {episodes} episodes got a verdict ({counts}): nothing was learned{why}", stacklevel=4
            )

    def _sums(self) -> list[int]:
        return [sum(column) for column in zip(*self.recent, strict=True)]


class StartWatch:
    """Warns once, when none of the first episodes is a success, and rewards that are compared are all equal.

    It looks no further after the first success or the first difference, and at no episodes whose success is unknown.

    Args:
        warns: whether the reward is the only signal.

    Attributes:
        warns: whether it still warns.
        looks: whether it still looks.
        episodes: without a success and without a difference, since the start.
    """

    def __init__(self, warns: bool = True) -> None:
        self.warns, self.looks, self.episodes = warns, warns, 0

    @property
    def hopeless(self) -> bool:
        """Whether so many episodes have taught nothing that few others will."""
        return self.looks and self.episodes >= FIRST

    def add(self, metrics: Mapping[str, float], episodes: int) -> None:
        """Look at the metrics of a rollout of so many episodes."""
        success = metrics.get("rollout/success_rate")
        if not self.looks or success is None:
            return
        grouped = metrics["rollout/group_size_min"] > 1
        differ = metrics["rollout/frac_reward_zero_std"] < 1 if grouped else metrics["rollout/reward_std"] > 0
        if success or differ:
            self.looks = False
            return
        self.episodes += episodes
        if self.hopeless and self.warns:
            self.warns = False
            warnings.warn(
                f"none of the first {self.episodes} answers is right, and those that are compared earn the same (on "
                f"average {metrics['rollout/ep_rew_mean']:.3g}): nothing is learned from that. Start from a policy "
                "that is sometimes right (rlenv.agents.warm_start, or a trained model), pose easier problems, or pay "
                "for parts of an answer",
                stacklevel=4,
            )
