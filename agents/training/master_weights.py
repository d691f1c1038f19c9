"""Float32 master weights of a model that acts and trains in 16 bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from ..devices import HALVES
from ..fsdp import local, spread


class MasterWeights:
    """The weights that an optimizer trains: a float32 copy of each 16-bit weight, and the other weights themselves.

    A step of an optimizer is often below half of a 16-bit weight's last digit, where it rounds to nothing. The copy
    adds up such steps until they count. Gradients are added up in float32 as well.

    Args:
        parameters: to be trained.

    Attributes:
        parameters: those given.
        masters: one for each; the parameter itself unless it has 16 bits.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.masters = [nn.Parameter(p.detach().float()) if p.dtype in HALVES else p for p in self.parameters]
        self._copied = [(p, m) for p, m in zip(self.parameters, self.masters, strict=True) if m is not p]
        self._master_of = {id(p): m for p, m in zip(self.parameters, self.masters, strict=True)}

    def of(self, parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        """Return the masters of some of the parameters."""
        return [self._master_of[id(parameter)] for parameter in parameters]

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
        """Restore what `state` returned.

        Raises:
            ValueError: if it is of other weights.
        """
        masters = self.state()
        if [saved.shape for saved in state] != [master.shape for master in masters]:
            raise ValueError(f"{len(state)} master weights do not fit the {len(masters)} weights of 16 bits")
        for master, saved in zip(masters, state, strict=True):
            master.copy_(spread(saved, master))
