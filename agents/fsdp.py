"""Where the weights of a policy are: whole in this process, or, after `sharding.deal_out`, a part of them.

For what has no gradients, such as acting, `gather_weights` puts all of them together, once and in place: the model is
then used like any other, without communication, until the next training pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, repeat
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

from . import processes
from .processes import is_dealt_out

T = TypeVar("T")

outlines: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()  # of each policy that is dealt out, without weights


# Policies. For one that is whole, and without one, these do nothing.


def has_part(policy: nn.Module) -> bool:
    """Return whether this process holds a part of the policy's weights only."""
    return policy in outlines


def frozen_from(policy: Any, make: Callable[[Any], Any]) -> Any:
    """Return the frozen policy that `make` makes of this one; both are dealt out, or none."""
    if not has_part(policy):
        return make(policy)
    sharding = import_module("rlenv.agents.sharding")  # slow to import, and for shards alone
    plain = sharding.unsharded(policy)
    return sharding.deal_out(lambda: make(plain).requires_grad_(False), policy.device)


def _units(policies: Iterable[nn.Module | None]) -> Iterator[tuple[bool, Any]]:
    """Yield the units of policies that are dealt out, each with whether it is a policy's rest."""
    for policy in policies:
        if policy is not None and has_part(policy):
            from torch.distributed.fsdp import FSDPModule

            yield from ((unit is policy, unit) for unit in policy.modules() if isinstance(unit, FSDPModule))


def gather_weights(*policies: nn.Module | None) -> None:
    """Put the whole weights together in every process, until `release_weights`; all processes call this together."""
    for _, unit in _units(policies):
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()


def release_weights(*policies: nn.Module | None) -> None:
    """Leave every process its part of the weights."""
    for is_rest, unit in _units(policies):
        unit.set_reshard_after_forward(not is_rest, recurse=False)  # the rest is needed first in the backward pass
        if is_rest:  # reshards all; forgets forward passes without gradients, which may differ between processes
            unit.reset_iter_state()


@contextmanager
def gathered(policy: Any) -> Iterator[Any]:
    """Within this context, every process has the whole weights of the yielded policy; all enter it together."""
    before = not is_dealt_out(next(policy.parameters(), None))
    gather_weights(policy)
    try:
        yield policy
    finally:
        if not before:
            release_weights(policy)


def passes(policy: nn.Module, parts: Iterable[T], spare: T) -> Iterator[tuple[T, bool]]:
    """Yield the parts of which this process makes training passes, each with whether it counts.

    With shards, every process needs as many passes as the one with the most parts.

    Args:
        policy: is trained.
        parts: of this process; they count.
        spare: does not.
    """
    if not has_part(policy):
        return zip(parts, repeat(True))
    release_weights(policy)
    mine = list(parts)
    missing = max(processes.gather(len(mine))) - len(mine)
    return chain(zip(mine, repeat(True)), repeat((spare, False), missing))


# Tensors.


def local(tensor: Any) -> torch.Tensor:
    """Return the rows that this process holds of a tensor, in the same memory."""
    return tensor.to_local() if is_dealt_out(tensor) else tensor


@torch.no_grad()
def full(tensor: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor; of one that is dealt out, all processes call this together."""
    return cast(Any, tensor.detach()).full_tensor() if is_dealt_out(tensor) else tensor


def spread(value: torch.Tensor, example: Any) -> torch.Tensor:
    """Return a copy of a whole tensor, which every process has, dealt out if an `example` of the same shape is."""
    if not is_dealt_out(example) or value.shape != example.shape:
        return value.clone()
    from torch.distributed.tensor import distribute_tensor  # not in every build of torch

    value = value.detach().to(example.device)
    return distribute_tensor(value, example.device_mesh, example.placements, src_data_rank=None)


def clip_gradients(parameters: list[nn.Parameter], most: float) -> torch.Tensor:
    """Clip the gradients of these parameters, all of them together, to a norm; return their norm before."""
    return full(torch.nn.utils.clip_grad_norm_(parameters, most))
