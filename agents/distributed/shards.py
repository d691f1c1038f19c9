"""Tensors that are dealt out to several processes (DTensors of torch.distributed); everything else passes unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ..core.checks import check_flag
from . import parallel
from .parallel import is_dealt_out
from .parts import Part, library, put_in

Origin = Part | Callable[[int, int], torch.Tensor]  # of a tensor's values; the latter returns the rows [start, stop)


def check_shard(value: Any) -> bool:
    """Return whether weights are to be dealt out.

    Raises:
        ValueError: unless it is True or False; if there is only one process.
    """
    if check_flag("shard", value) and parallel.size() == 1:
        raise ValueError(
            "shard deals the weights out to several processes, and this is the only one: start them with "
            "torchrun --nproc-per-node N -m rlenv train --shard ..., or pass shard=False (--no-shard)"
        )
    return bool(value)


def check_sharded_checkpoints(value: Any, sharded: bool) -> bool:
    """Return whether each process writes its part of a checkpoint.

    Raises:
        ValueError: unless it is True or False; without `shard`, or if this torch cannot do it.
    """
    if not check_flag("sharded_checkpoints", value):
        return False
    if not sharded:
        raise ValueError(
            "sharded_checkpoints=True (--sharded-checkpoints) is for shard=True (--shard): pass both, or neither"
        )
    library()
    return True


def local(tensor: Any) -> torch.Tensor:
    """Return what this process holds of a tensor, in the same memory."""
    return tensor.to_local() if is_dealt_out(tensor) else tensor


def own_rows(length: int) -> tuple[int, int]:
    """Return the first of the rows that this process holds of a tensor of so many, and the one after the last."""
    most = -(-length // parallel.size())  # as FSDP2 and `torch.chunk` do it
    return min(parallel.rank() * most, length), min((parallel.rank() + 1) * most, length)


@torch.no_grad()
def read_rows(
    origins: Mapping[tuple[torch.nn.Module, str], Origin], device: torch.device
) -> list[tuple[Part, torch.Tensor]]:
    """Give shards without memory the rows that this process keeps, in place.

    Args:
        origins: where their values come from, by the module that has them and their name there.
        device: of the shards.

    Returns:
        Shards that are still to be read, from parts, with `read_equal`.
    """
    made: dict[int, torch.nn.Parameter] = {}  # a tied weight has several places
    left: list[tuple[Part, torch.Tensor]] = []
    for (module, name), origin in origins.items():
        empty: Any = module._parameters[name]
        if id(empty) not in made:
            made[id(empty)] = torch.nn.Parameter(torch.empty_like(empty, device=device), empty.requires_grad)
            start, stop = own_rows(len(empty))
            if isinstance(origin, Part):
                left.append((origin, made[id(empty)]))
            elif start < stop:
                local(made[id(empty)]).copy_(origin(start, stop))
        module._parameters[name] = made[id(empty)]
    return left


@torch.no_grad()
def read_equal(wanted: Iterable[tuple[Part, torch.Tensor]]) -> None:
    """Fill tensors with the parts that stand for them, of which several may have the same: a model and its critic."""
    first: dict[Part, torch.Tensor] = {}
    others = [(part, tensor) for part, tensor in wanted if first.setdefault(part, tensor) is not tensor]
    put_in(first)
    for part, tensor in others:
        local(tensor).copy_(local(first[part]))


def is_sharded(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether any of these is dealt out."""
    return any(is_dealt_out(tensor) for tensor in tensors)


def like(value: torch.Tensor, example: Any) -> torch.Tensor:
    """Return a whole tensor, which every process has, dealt out as `example` of the same shape is."""
    if not is_dealt_out(example) or is_dealt_out(value):
        return value
    from torch.distributed.tensor import distribute_tensor  # not in every build of torch

    value = value.detach().to(example.device)
    return distribute_tensor(value, example.device_mesh, example.placements, src_data_rank=None)


@torch.no_grad()
def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor; of one that is dealt out, all processes must call this together."""
    if not is_dealt_out(tensor):
        return tensor
    held: Any = tensor.detach()
    return held.full_tensor()


@torch.no_grad()
def whole(state: Any) -> Any:
    """Return nested dictionaries, lists and tuples with whole tensors.

    All processes must call this together. The main one gets whole tensors, on the host; the others' are empty.
    """
    if is_dealt_out(state):
        full = gathered(state)
        return full.cpu() if parallel.is_main() else full.new_empty(0)
    if isinstance(state, dict):
        return {name: whole(value) for name, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(whole(value) for value in state)
    return state


def deal_out(state: dict[str, Any], parameters: list[torch.nn.Parameter]) -> dict[str, Any]:
    """Return the state of an optimizer from a checkpoint with its moments dealt out as the parameters are.

    Args:
        state: the optimizer's `state_dict`; moments are whole, or `Part`s.
        parameters: of the optimizer.
    """
    sharded = is_sharded(parameters)
    wanted: dict[Part, torch.Tensor] = {}

    def own(value: Any, number: int) -> torch.Tensor:
        if isinstance(value, Part):
            return wanted.setdefault(value, torch.empty_like(parameters[number]))
        if not sharded:
            return value
        return like(value, parameters[number]) if value.shape == parameters[number].shape else value.clone()

    moments = {
        number: {name: own(value, number) for name, value in of.items()} for number, of in state["state"].items()
    }
    put_in(wanted)
    return {**state, "state": moments}


def clip_gradients(parameters: list[torch.nn.Parameter], most: float) -> torch.Tensor:
    """Clip the gradients of these parameters, all of them together, to a norm; return their norm before."""
    norm: Any = torch.nn.utils.clip_grad_norm_(parameters, most)
    return norm.full_tensor() if is_dealt_out(norm) else norm  # of DTensors: over all processes
