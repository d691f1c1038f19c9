"""The optimizer step: a learning rate schedule, clipped gradients, and no step on a gradient that is not finite."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .checks import check_choice, check_count, check_number
from .failures import DivergedError
from .policies import Policy

MAX_SKIPPED = 5
BETAS = (0.9, 0.95)  # of Adam; policy gradients are noisy and change fast, so their scale is remembered for ~20 steps
SCHEDULES = ("linear", "constant")


class PolicyOptimizer:
    """Adam on a policy's parameters.

    Args:
        policy: trained in place.
        learning_rate: a number or a function of the remaining progress (1 to 0).
        schedule: "linear" (a number falls to 0) or "constant".
        max_grad_norm: the actor's and the critic's gradient are each clipped to this norm, above 0.

    Attributes:
        adam: the optimizer of torch.
        rate: the present learning rate.
        skipped: updates in a row with a loss, a log-probability or a gradient that was not finite.
        total_skipped: all such updates.
    """

    def __init__(
        self, policy: Policy, learning_rate: float | Callable[[float], float], schedule: str, max_grad_norm: float
    ) -> None:
        if not callable(learning_rate):
            learning_rate = check_number("learning_rate", learning_rate, low=0.0, above=True)
        self.policy, self.learning_rate = policy, learning_rate
        self.schedule = check_choice("lr_schedule", schedule, SCHEDULES)
        self.max_grad_norm = check_number("max_grad_norm", max_grad_norm, low=0.0, above=True)
        self.rate = self._rate_at(1.0)
        trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
        self.adam = torch.optim.Adam(trained, lr=self.rate, betas=BETAS, eps=1e-5)
        self.sides = (policy.actor_parameters(), policy.critic_parameters())
        self.skipped = self.total_skipped = 0
        self._counted = False
        self.stepped = False  # whether the last step was taken, not skipped

    def set_progress(self, remaining: float) -> None:
        """Set the learning rate for this remaining progress (1 at the start, 0 at the end)."""
        self.rate = self._rate_at(remaining)
        for group in self.adam.param_groups:
            group["lr"] = self.rate

    def step(self, fault: str = "", new_update: bool = True) -> float:
        """Clip and apply the gradient; return the actor's norm before clipping.

        If the gradient of the actor or the critic is exactly zero, its weights do not change, whatever Adam's momentum:
        no new evidence, no step. A step that is not finite is skipped.

        Args:
            fault: what was not finite before the gradient was made, "loss" or "log-probabilities"; empty if all was.
            new_update: whether this is the first step of an update; an update counts once, however many steps it skips.

        Raises:
            DivergedError: after several such updates in a row, or if the learning rate is too large for the weights'
                precision.
        """
        self._counted &= not new_update
        self.stepped = False
        norms = [float(torch.nn.utils.clip_grad_norm_(side, self.max_grad_norm)) for side in self.sides]
        if fault or not all(math.isfinite(norm) for norm in norms):
            self._skip(fault or "gradients")
            return norms[0]
        self.skipped = 0
        for side, norm in zip(self.sides, norms, strict=True):
            if norm == 0:
                for parameter in side:
                    parameter.grad = None
        try:
            self.adam.step()
        except RuntimeError as error:
            if "overflow" not in str(error):
                raise
            raise DivergedError(f"learning_rate={self.rate:g} makes weights that are not finite") from error
        self.stepped = True
        return norms[0]

    def _skip(self, fault: str) -> None:
        self.adam.zero_grad(set_to_none=True)
        self.skipped += not self._counted
        self.total_skipped += not self._counted
        self._counted = True
        if self.skipped >= MAX_SKIPPED:
            raise DivergedError(
                f"{self.skipped} updates in a row had non-finite {fault}; the weights are the last good ones: "
                f"lower learning_rate={self.rate:g}, or see whether observations and rewards are finite"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of Adam and the counts of skipped updates."""
        return {"adam": self.adam.state_dict(), "skipped": self.skipped, "total_skipped": self.total_skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for group in state["adam"]["param_groups"]:
            group["fused"] = None  # True in older checkpoints, which hides changes from autograd
        self.adam.load_state_dict(state["adam"])
        for group in self.adam.param_groups:
            for name, value in zip(
                ("lr", "eps", "beta", "beta"), (group["lr"], group["eps"], *group["betas"]), strict=True
            ):
                check_number(f"the optimizer's {name}", value, low=0.0)
            for parameter in group["params"]:
                for moment in ("exp_avg", "exp_avg_sq"):
                    found = self.adam.state.get(parameter, {}).get(moment, parameter)
                    if found.shape != parameter.shape:
                        raise ValueError(
                            f"the optimizer has moments {tuple(found.shape)} of {tuple(parameter.shape)} weights"
                        )
        self.skipped = check_count("skipped", state["skipped"], low=0)
        self.total_skipped = check_count("total_skipped", state["total_skipped"], low=0)

    def _rate_at(self, remaining: float) -> float:
        if callable(self.learning_rate):
            return self.learning_rate(remaining)
        return self.learning_rate * (remaining if self.schedule == "linear" else 1.0)


def half_precision(policy: Policy) -> str:
    """Return the name of the 16-bit type of the trained weights, "" if all have more bits."""
    halves = (torch.bfloat16, torch.float16)
    found = next((p.dtype for p in policy.parameters() if p.requires_grad and p.dtype in halves), "")
    return str(found).removeprefix("torch.")


def warn_of_half_precision(policy: Policy, stacklevel: int = 4) -> None:
    """Warn before training weights that most optimizer steps are too small to change.

    Args:
        policy: about to be trained.
        stacklevel: of the warning; by default that of the caller of `learn`.
    """
    name = half_precision(policy)
    if name:
        warnings.warn(
            f"training in {name} loses most updates: a step below about 0.2 % of a weight rounds to nothing; "
            "use policy_kwargs dtype='float32'",
            stacklevel=stacklevel,
        )
