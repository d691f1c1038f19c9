"""Watches over a run: one ends it when the verifier fails too often, one warns of an update that went too far."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from rlenv._status import FAILURES

from ..errors import VerifierError

ENOUGH = 100  # episodes; fewer give a poor estimate of a share
FAR_KL = 10.0  # nats per step between the policy before an update and the one trained; PPO's default stays below 0.1
FAR_ENTROPY = 3.0  # nats per step from one update to the next, for continuous actions
SOME_ENTROPY, NO_ENTROPY = 0.3, 1e-6  # nats per step
MEMORY = 4  # updates within which a policy of discrete actions loses all its entropy, and is seen without for two


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


class StabilityWatch:
    """Warns once, when one update changes the policy beyond recognition.

    Args:
        discrete: whether actions are from a finite set. An entropy of 0, estimated from the sampled actions, then means
            that no other actions are tried any more.

    Attributes:
        warns: whether it still warns.
        entropies: of the last updates, in nats per step.
    """

    def __init__(self, discrete: bool) -> None:
        self.discrete, self.warns = discrete, True
        self.entropies: list[float] = []

    def add(self, metrics: Mapping[str, float]) -> None:
        """Look at the metrics of an update."""
        if "train/entropy_loss" in metrics:
            self.entropies = [*self.entropies, -metrics["train/entropy_loss"]][-MEMORY:]
        found = self._far(metrics)
        if found and self.warns:
            self.warns = False
            advice = f"lower learning_rate={metrics['train/learning_rate']:g}"
            warnings.warn(f"one update changed the policy too much ({found}): {advice}", stacklevel=4)

    def _far(self, metrics: Mapping[str, float]) -> str:
        """Return the sign that an update went too far, or an empty string."""
        kl = metrics.get("train/approx_kl", 0.0)
        if kl > FAR_KL:  # NaN: the update was skipped, which is counted elsewhere
            return f"approx_kl {kl:.3g} nats per step, more than {FAR_KL:g}"
        if metrics.get("train/grad_norm") == 0.0 and metrics.get("train/policy_loss"):
            return "its gradient is exactly 0 though rewards differ"
        if len(self.entropies) < 2:
            return ""
        *before, last, now = self.entropies
        if self.discrete:
            far = max(last, now) < NO_ENTROPY and max(before, default=0.0) > SOME_ENTROPY
        else:
            far = not abs(now - last) <= FAR_ENTROPY
        return f"entropy from {max(before, default=last):.3g} to {now:.3g} nats per step" if far else ""
