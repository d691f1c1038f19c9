"""The optimizer step: a learning rate schedule, clipped gradients, and no step on a gradient that is not finite."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import increment_version

from ..checks import check_count, check_number
from ..devices import HALVES, to_host
from ..errors import DivergedError
from ..fsdp import clip_gradients, spread_moments
from ..policies import Policy
from ..policies.base import actor_parameters, critic_parameters
from .master_weights import MasterWeights

MAX_SKIPPED = 5
BETAS = (0.9, 0.95)  # of Adam; policy gradients are noisy and change fast, so their scale is remembered for ~20 steps
EPS = 1e-5
SCHEDULES: dict[str, Callable[[float], float]] = {  # share of the learning rate, given the remaining progress
    "linear": lambda remaining: remaining,
    "cosine": lambda remaining: 0.5 - 0.5 * math.cos(math.pi * remaining),
    "constant": lambda remaining: 1.0,
}


class PolicyOptimizer:
    """Adam on a policy's trainable parameters, or on float32 copies of those of 16 bits.

    Args:
        policy: trained in place.
        learning_rate: a number or a function of the remaining progress (1 to 0).
        schedule: of a number: "linear" or "cosine" (it falls to 0), or "constant".
        max_grad_norm: the actor's and the critic's gradient are each clipped to this norm, above 0.
        warmup_updates: updates in which the rate rises linearly from 0 to its schedule.
        weight_decay: λ; a step first multiplies by 1 - rate · λ (AdamW, Loshchilov & Hutter 2019, arXiv:1711.05101),
            except norms and biases: parameters with fewer than two dimensions.
        betas: decay of Adam's two moments.
        eps: added to the root of the second moment.

    Attributes:
        adam: the optimizer.
        weights: what it trains; see `master_weights.py`.
        rate: the present learning rate.
        remaining: the progress that remains, 1 at the start and 0 at the end.
        skipped: updates in a row with a loss, a log-probability or a gradient that was not finite.
        total_skipped: all such updates.
    """

    def __init__(
        self,
        policy: Policy,
        learning_rate: float | Callable[[float], float],
        schedule: str,
        max_grad_norm: float,
        *,
        warmup_updates: int = 0,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = BETAS,
        eps: float = EPS,
    ) -> None:
        self.policy, self.learning_rate, self.schedule = policy, learning_rate, schedule
        self.max_grad_norm, self.warmup_updates, self.weight_decay = max_grad_norm, warmup_updates, weight_decay
        self.hyperparameters: dict[str, Any] = {"betas": betas, "eps": eps}
        self.remaining = 1.0
        self.rate = self._rate_at(1.0, 0)
        self.weights = MasterWeights(p for p in policy.parameters() if p.requires_grad)
        self.adam = Adam(self.weights.masters, lr=self.rate, **self.hyperparameters)
        self.most_rate = min(torch.finfo(weight.dtype).max for weight in self.weights.masters)  # else weights overflow
        self.sides = (self.weights.of(actor_parameters(policy)), self.weights.of(critic_parameters(policy)))
        self.skipped = self.total_skipped = 0
        self._counted = False
        self.stepped = False  # whether the last step was taken, not skipped

    def set_progress(self, remaining: float, updates: int = 0) -> None:
        """Set the learning rate.

        Args:
            remaining: progress, 1 at the start and 0 at the end.
            updates: made so far.
        """
        self.remaining = remaining
        self.rate = self._rate_at(remaining, updates)
        for group in self.adam.param_groups:
            group["lr"] = self.rate

    def path(self, updates: int) -> float:
        """Return the sum of the learning rates of a training of so many updates.

        Adam moves a weight by about the learning rate per update at most, so this is about the farthest it can get.
        """
        return sum(self._rate_at(1.0 - update / updates, update) for update in range(updates))

    def zero_grad(self) -> None:
        """Drop all gradients."""
        self.adam.zero_grad(set_to_none=True)
        for parameter in self.weights.parameters:
            parameter.grad = None

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
        self.weights.follow()
        self.weights.add_gradients()
        norms = [norm.item() for norm in to_host(*(clip_gradients(side, self.max_grad_norm) for side in self.sides))]
        if fault or not all(math.isfinite(norm) for norm in norms):
            self._skip(fault or "gradients")
            return norms[0]
        self.skipped = 0
        for side, norm in zip(self.sides, norms, strict=True):
            if norm == 0:
                for parameter in side:
                    parameter.grad = None
        self._decay()
        if self.rate > self.most_rate:
            raise DivergedError(f"learning_rate={self.rate:g} makes weights that are not finite")
        self.adam.step()
        self.weights.copy_down()
        self.stepped = True
        return norms[0]

    @torch.no_grad()
    def _decay(self) -> None:
        if self.weight_decay:
            for weight in self.weights.masters:
                if weight.ndim >= 2 and weight.grad is not None:
                    weight.mul_(1 - self.rate * self.weight_decay)

    def _skip(self, fault: str) -> None:
        self.zero_grad()
        self.skipped += not self._counted
        self.total_skipped += not self._counted
        self._counted = True
        if self.skipped >= MAX_SKIPPED:
            raise DivergedError(
                f"{self.skipped} updates in a row had non-finite {fault}; the weights are the last good ones: "
                f"lower learning_rate={self.rate:g}, or see whether observations and rewards are finite"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of Adam, the master weights of 16-bit ones, and the counts of skipped updates."""
        counts = {"skipped": self.skipped, "total_skipped": self.total_skipped}
        return {"adam": self.adam.state_dict(), "masters": self.weights.state(), **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.adam.load_state_dict(spread_moments(state["adam"], self.weights.masters))
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
            group |= self.hyperparameters  # those given to `Agent.load` replace the saved ones
        self.weights.load(state["masters"])
        self.skipped = check_count("skipped", state["skipped"], low=0)
        self.total_skipped = check_count("total_skipped", state["total_skipped"], low=0)

    def _rate_at(self, remaining: float, updates: int) -> float:
        if callable(self.learning_rate):
            rate = self.learning_rate(remaining)
        else:
            rate = self.learning_rate * SCHEDULES[self.schedule](remaining)
        return rate * min((updates + 1) / self.warmup_updates, 1.0) if self.warmup_updates else rate


class Adam(torch.optim.Adam):
    """torch's Adam; on a CPU with the fused kernel, which needs a third of the time.

    torch does not count that kernel's changes of a weight. Here they are counted, because whoever keeps something made
    of the weights, such as a KV cache or a packed copy, asks for the count.

    Args:
        weights: to be trained.
        settings: of `torch.optim.Adam`.
    """

    def __init__(self, weights: Iterable[nn.Parameter], **settings: Any) -> None:
        weights = list(weights)
        self._one_pass = all(weight.device.type == "cpu" for weight in weights)
        super().__init__(weights, fused=self._one_pass or None, **settings)

    def step(self, closure: Any = None) -> Any:
        """Take a step on the gradients, as torch's Adam does."""
        result = super().step(closure)
        if self._one_pass:
            increment_version(
                weight for group in self.param_groups for weight in group["params"] if weight.grad is not None
            )
        return result

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, of either kernel."""
        groups = [{**group, "fused": self._one_pass or None} for group in state["param_groups"]]
        super().load_state_dict({**state, "param_groups": groups})


def half_precision(policy: Policy) -> str:
    """Return the name of the 16-bit type of the trained weights, "" if all have more bits."""
    found = next((p.dtype for p in policy.parameters() if p.requires_grad and p.dtype in HALVES), "")
    return str(found).removeprefix("torch.")


def warn_of_float16(policy: Policy, stacklevel: int = 4) -> None:
    """Warn before training weights whose gradients underflow.

    Args:
        policy: about to be trained.
        stacklevel: of the warning; by default that of the caller of `learn`.
    """
    if half_precision(policy) == "float16":
        warnings.warn(
            "training in float16 loses gradients below 6e-8; use policy_kwargs dtype='bfloat16' or 'float32'",
            stacklevel=stacklevel,
        )
