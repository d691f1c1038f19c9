"""Noticing that an update went too far: the new policy is then unlike the old one, and rarely learns any more."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping
from typing import Any

FAR_KL = 10.0  # nats per step between the policy before an update and the one trained; PPO's default stays below 0.1
FAR_ENTROPY = 3.0  # nats per step from one update to the next, for continuous actions
SOME_ENTROPY, NO_ENTROPY = 0.3, 1e-6  # nats per step
MEMORY = 4  # updates within which a policy of discrete actions loses all its entropy, and is seen without for two


class StabilityWatch:
    """Warns once, when one update changes the policy beyond recognition.

    Args:
        discrete: whether actions are from a finite set. An entropy of 0, estimated from the sampled actions, then means
            that no other actions are tried any more.

    Attributes:
        warns: whether it still warns.
    """

    def __init__(self, discrete: bool) -> None:
        self.discrete, self.warns = discrete, True
        self._entropies: deque[float] = deque(maxlen=MEMORY)

    def state_dict(self) -> dict[str, Any]:
        """Return what it remembers, in plain values."""
        return {"warns": self.warns, "entropies": list(self._entropies)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.warns = state["warns"]
        self._entropies = deque(state["entropies"], maxlen=MEMORY)

    def add(self, metrics: Mapping[str, float], rate: float) -> None:
        """Look at the metrics of an update that was made with this learning rate."""
        if "train/entropy_loss" in metrics:
            self._entropies.append(-metrics["train/entropy_loss"])
        found = self._far(metrics)
        if found and self.warns:
            self.warns = False
            warnings.warn(
                f"one update changed the policy too much ({found}): lower learning_rate={rate:g}", stacklevel=4
            )

    def _far(self, metrics: Mapping[str, float]) -> str:
        """Return what shows that an update went too far, or an empty string."""
        kl = metrics.get("train/approx_kl", 0.0)
        if kl > FAR_KL:  # NaN: the update was skipped, which is counted elsewhere
            return f"approx_kl {kl:.3g} nats per step, more than {FAR_KL:g}"
        if metrics.get("train/grad_norm") == 0.0 and metrics.get("train/policy_loss"):
            return "its gradient is exactly 0 though rewards differ"
        if len(self._entropies) < 2:
            return ""
        *before, last, now = self._entropies
        if self.discrete:
            far = max(last, now) < NO_ENTROPY and max(before, default=0.0) > SOME_ENTROPY
        else:
            far = not abs(now - last) <= FAR_ENTROPY
        return f"entropy from {max(before, default=last):.3g} to {now:.3g} nats per step" if far else ""
