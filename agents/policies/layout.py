"""What a decode step relies on besides the values of the weights: where they lie, and that modules do nothing more."""

from __future__ import annotations

from typing import Any

from torch import nn


def is_changed(module: nn.Module) -> bool:
    """Tell whether a module does more than its class says: it has a hook, or a forward pass of its own."""
    own = module.__dict__
    return bool(own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own)


class Layout:
    """Where the weights and buffers of a model lie and what its modules are, to be compared while it acts.

    In-place changes, such as an optimizer's, leave it as it is; new storage, precision, device, submodules, hooks and
    parametrizations do not.
    """

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        hooks = ("_forward_hooks", "_forward_pre_hooks")
        self._sized = [each for module in self.modules for each in (vars(module), *(vars(module)[k] for k in hooks))]
        self.seen, self.glimpsed = self._look(), self._glance()

    def holds(self, thorough: bool) -> bool:
        """Tell whether everything is as it was.

        Args:
            thorough: whether to look at every weight, which takes as long as a decode step of a small model. Otherwise
                only what somebody may change in the middle of an episode: hooks, parametrizations, forward passes.
        """
        return self.glimpsed == self._glance() and (not thorough or self.seen == self._look())

    def _glance(self) -> tuple[list[type], list[int]]:
        """Return the classes of all modules, and how many attributes and hooks each has."""
        return list(map(type, self.modules)), list(map(len, self._sized))

    def _look(self) -> list[Any]:
        seen: list[Any] = []
        for module in self.modules:  # a module's own dictionaries: attribute look-ups would cost as much again
            own = module.__dict__
            seen += map(id, own["_modules"].values())
            for tensors in (own["_parameters"], own["_buffers"]):
                seen += [(x.data_ptr(), x.dtype) for x in tensors.values() if x is not None]
            seen.append(is_changed(module))
        return seen
