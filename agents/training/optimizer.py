"""The optimizer step: a learning rate schedule, clipped gradients, and no step on a gradient that is not finite.

Weights of 16 bits are trained through float32 copies, the master weights.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import increment_version

from rlenv._checks import check_count, check_number

from ..devices import HALVES, to_host
from ..errors import DivergedError
from ..fsdp import clip_gradients, local, spread
from ..policies.base import actor_parameters, critic_parameters

MAX_SKIPPED = 5
SCHEDULES: dict[str, Callable[[float], float]] = {  # share of the learning rate, given the remaining progress
    "linear": lambda remaining: remaining,
    "cosine": lambda remaining: 0.5 - 0.5 * math.cos(math.pi * remaining),
    "constant": lambda remaining: 1.0,
}


def rate_at(
    learning_rate: float | Callable[[float], float], schedule: str, warmup_updates: int, remaining: float, updates: int
) -> float:
    """Return the learning rate of an update.

    Args:
        learning_rate: a number or a function of the remaining progress (1 to 0).
        schedule: of a number: "linear" or "cosine" (it falls to 0), or "constant".
        warmup_updates: updates in which the rate rises linearly from 0 to its schedule.
        remaining: progress, 1 at the start and 0 at the end.
        updates: made so far.

    Raises:
        ValueError: if the function returns anything but a finite number of at least 0.
    """
    if callable(learning_rate):
        rate = check_number(f"learning_rate({remaining:g})", learning_rate(remaining), low=0.0)
    else:
        rate = learning_rate * SCHEDULES[schedule](remaining)
    return rate * min((updates + 1) / warmup_updates, 1.0) if warmup_updates else rate


class MasterWeights:
    """The weights that an optimizer trains: a float32 copy of each 16-bit weight, and the other weights themselves.

    A step of an optimizer is often below half of a 16-bit weight's last digit, where it rounds to nothing. The copy
    adds up such steps until they count. Gradients are added up in float32 as well.

    Args:
        parameters: to be trained.

    Attributes:
        parameters: the given ones.
        masters: one for each; the parameter itself unless it has 16 bits.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters: list[nn.Parameter] = []
        self.masters: list[nn.Parameter] = []
        self._copied: list[tuple[nn.Parameter, nn.Parameter]] = []
        self.add(parameters)

    def add(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make masters of further parameters."""
        for parameter in parameters:
            master = nn.Parameter(parameter.detach().float()) if parameter.dtype in HALVES else parameter
            self.parameters.append(parameter)
            self.masters.append(master)
            self._copied += [(parameter, master)] if master is not parameter else []

    def lacking(self, parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        """Return the parameters that are not among those to be trained."""
        known = set(map(id, self.parameters))  # not kept, since in a copy they are others
        return [parameter for parameter in parameters if id(parameter) not in known]

    def of(self, parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        """Return the masters of some of the parameters."""
        masters = dict(zip(map(id, self.parameters), self.masters, strict=True))
        return [masters[id(parameter)] for parameter in parameters]

    @torch.no_grad()
    def add_gradients(self) -> None:
        """Move the gradients of 16-bit weights to their masters, where the next backward pass adds to them exactly."""
        for parameter, master in self._copied:
            if parameter.grad is not None:
                more, parameter.grad = parameter.grad, None
                master.grad = more.float() if master.grad is None else master.grad.add_(more)

    @torch.no_grad()
    def follow(self) -> None:
        """Take over the 16-bit weights that something else has changed, such as a warm start."""
        own = [(local(parameter), local(master)) for parameter, master in self._copied]
        differ = [(master.to(parameter.dtype) != parameter).any() for parameter, master in own]
        if differ and bool(torch.stack(differ).any()):  # looked at once, not weight by weight
            for parameter, master in own:
                master.copy_(master.where(master.to(parameter.dtype) == parameter, parameter.float()))

    @torch.no_grad()
    def copy_down(self) -> None:
        """Round the masters to the weights that act, and drop their gradients, which are not read."""
        for parameter, master in self._copied:
            parameter.copy_(master)
            master.grad = None

    def state(self) -> list[torch.Tensor]:
        """Return the copies, for a checkpoint."""
        return [master for _, master in self._copied]

    @torch.no_grad()
    def load(self, state: Sequence[torch.Tensor]) -> None:
        """Restore the masters from `state`.

        Raises:
            ValueError: if it is of other weights.
        """
        masters = self.state()
        if [saved.shape for saved in state] != [master.shape for master in masters]:
            raise ValueError(f"{len(state)} master weights do not fit the {len(masters)} weights of 16 bits")
        for master, saved in zip(masters, state, strict=True):
            master.copy_(spread(saved, master))


class PolicyOptimizer:
    """Adam on a policy's trainable parameters, with float32 copies in place of 16-bit ones.

    Args:
        policy: trained in place; any module, such as a reward model.

    Attributes:
        adam: the optimizer.
        weights: the weights that it trains.
        skipped: updates in a row with a loss, a log-probability or a gradient that was not finite.
        total_skipped: all such updates.
        fault: what was not finite in the last one.
    """

    def __init__(self, policy: nn.Module) -> None:
        self.policy = policy
        self.weights = MasterWeights(p for p in policy.parameters() if p.requires_grad)
        self.adam = Adam(self.weights.masters)
        self.most_rate = min(torch.finfo(weight.dtype).max for weight in self.weights.masters)  # else weights overflow
        self.sides = [self.weights.of(actor_parameters(policy)), self.weights.of(critic_parameters(policy))]
        self.skipped = self.total_skipped = 0
        self.fault = ""
        self._counted = False
        self.stepped = False  # whether the last step was taken, not skipped

    def add(self, parameters: Iterable[nn.Parameter]) -> None:
        """Train further parameters, clipped by themselves, unless they are trained already."""
        if new := self.weights.lacking(parameters):
            self.weights.add(new)
            self.sides.append(self.weights.of(new))
            self.adam.add_param_group({"params": self.sides[-1]})

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self.adam.param_groups[0]["lr"])

    def zero_grad(self) -> None:
        """Drop all gradients."""
        self.adam.zero_grad(set_to_none=True)
        for parameter in self.weights.parameters:
            parameter.grad = None

    def step(
        self,
        rate: float,
        max_grad_norm: float,
        *,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        fault: str = "",
        new_update: bool = True,
    ) -> float:
        """Clip and apply the gradient; return the actor's norm before clipping.

        If the gradient of the actor or the critic is exactly zero, its weights do not change, whatever Adam's momentum:
        no new evidence, no step. A step that is not finite is skipped.

        Args:
            rate: the learning rate.
            max_grad_norm: the gradients of actor, critic and each `add` are clipped to this norm, above 0.
            weight_decay: λ; the weights are first multiplied by 1 - rate · λ (AdamW, Loshchilov & Hutter 2019,
                arXiv:1711.05101), except norms and biases: parameters with fewer than two dimensions.
            betas: decay of Adam's two moments; torch's by default, as for supervised training.
            eps: added to the root of the second moment.
            fault: the value that was not finite before the gradient was made, "loss" or "log-probabilities", or "".
            new_update: whether this is the first step of an update; an update counts once, however many steps it skips.

        Raises:
            DivergedError: after several such updates in a row, or if the learning rate is too large for the weights'
                precision.
        """
        self._counted &= not new_update
        self.stepped = False
        for group in self.adam.param_groups:
            group |= {"lr": rate, "betas": betas, "eps": eps}
        self.weights.follow()
        self.weights.add_gradients()
        norms = [norm.item() for norm in to_host(*(clip_gradients(side, max_grad_norm) for side in self.sides))]
        if fault or not all(math.isfinite(norm) for norm in norms):
            self._skip(fault or "gradients")
            return norms[0]
        self.skipped = 0
        for side, norm in zip(self.sides, norms, strict=True):
            if norm == 0:
                for parameter in side:
                    parameter.grad = None
        self._decay(rate * weight_decay)
        if rate > self.most_rate:
            raise DivergedError(f"learning_rate={rate:g} makes weights that are not finite")
        self.adam.step()
        self.weights.copy_down()
        self.stepped = True
        return norms[0]

    @torch.no_grad()
    def _decay(self, share: float) -> None:
        if share:
            for weight in self.weights.masters:
                if weight.ndim >= 2 and weight.grad is not None:
                    weight.mul_(1 - share)

    def _skip(self, fault: str) -> None:
        self.zero_grad()
        self.fault = fault
        self.skipped += not self._counted
        self.total_skipped += not self._counted
        self._counted = True
        if self.skipped >= MAX_SKIPPED:
            raise DivergedError(
                f"{self.skipped} updates in a row had non-finite {fault}; the weights are the last good ones: "
                f"lower learning_rate={self.rate:g}, or see whether observations and rewards are finite"
            )

    def conclude(self) -> None:
        """Warn if the training ends with updates that were skipped, before they are enough to end it."""
        if self.skipped:
            warnings.warn(
                f"nothing was learned in the last {'update' if self.skipped == 1 else f'{self.skipped} updates'}, with "
                f"non-finite {self.fault}: see whether observations and rewards are finite, or lower "
                f"learning_rate={self.rate:g}",
                stacklevel=5,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of Adam, the master weights of 16-bit ones, and the counts of skipped updates."""
        counts = {"skipped": self.skipped, "total_skipped": self.total_skipped}
        return {"adam": self.adam.state_dict(), "masters": self.weights.state(), **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        moments = {
            number: {name: spread(value, self.weights.masters[number]) for name, value in of.items()}
            for number, of in state["adam"]["state"].items()
        }
        self.adam.load_state_dict({**state["adam"], "state": moments})
        for weight, kept in self.adam.state.items():
            for found in (kept["exp_avg"], kept["exp_avg_sq"]):
                if found.shape != weight.shape:
                    raise ValueError(f"the optimizer has moments {tuple(found.shape)} of {tuple(weight.shape)} weights")
        self.weights.load(state["masters"])
        self.skipped = check_count("skipped", state["skipped"], low=0)
        self.total_skipped = check_count("total_skipped", state["total_skipped"], low=0)


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
        super().__init__(weights, fused=all(weight.device.type == "cpu" for weight in weights) or None, **settings)

    @property
    def _one_pass(self) -> bool:
        return bool(self.param_groups[0]["fused"])  # an attribute would not be in copies

    def step(self, closure: Any = None) -> Any:
        """Take a step on the gradients, as torch's Adam does."""
        result = super().step(closure)
        if self._one_pass:
            increment_version(
                weight for group in self.param_groups for weight in group["params"] if weight.grad is not None
            )
        return result

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict` of either kernel."""
        groups = [{**group, "fused": self._one_pass or None} for group in state["param_groups"]]
        super().load_state_dict({**state, "param_groups": groups})


def half_precision(policy: nn.Module) -> torch.dtype | None:
    """Return the 16-bit type of the trained weights, None if all have more bits."""
    return next((p.dtype for p in policy.parameters() if p.requires_grad and p.dtype in HALVES), None)


def warn_of_float16(policy: nn.Module) -> None:
    """Warn before training weights whose gradients underflow; the warning points to the caller of `learn`."""
    if half_precision(policy) is torch.float16:
        warnings.warn(
            "training in float16 loses gradients below 6e-8; use policy_kwargs dtype='bfloat16' or 'float32'",
            stacklevel=4,
        )
