"""Deals a language model's weights, gradients and optimizer state out to the processes, with PyTorch's FSDP2.

Each layer is a unit of `fully_shard`, and so is everything else together. In training, a unit's weights are gathered
for its forward pass and again for its backward pass, and the sum of its gradients is dealt out at once.
`fsdp.py` says where the weights are; only runs with `shard` need this file.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.utils._pytree import tree_map

from . import processes
from .devices import HALVES
from .fsdp import full, has_part, outlines, release_weights
from .language.reading import layers_of
from .processes import is_dealt_out

LATER = ("tokenizer", "stop_token_ids", "temperature")  # attributes of a policy that may be set after it was made
PASSES = ("evaluate", "values")  # of a policy, with gradients


def check_processes(count: int | None = None) -> None:
    """Check that weights can be dealt out to so many processes, by default to those of the run.

    Raises:
        ValueError: if there is only one, or this torch is too old.
    """
    if (count or processes.size()) == 1:
        raise ValueError(
            "shard deals the weights out to several processes, and this is the only one: start them with "
            "torchrun --nproc-per-node N -m rlenv train --shard ..., or pass shard=False (--no-shard)"
        )
    if not hasattr(FSDPModule, "reset_iter_state"):
        raise ValueError(f"shard needs FSDP2 of a newer PyTorch than this ({torch.__version__}): install one")


def deal_out(make: Callable[[], Any], device: torch.device) -> Any:
    """Return a policy of which every process holds its part of the weights; all processes call this together.

    The main process makes the policy, whole on its host. The others get everything but the weights from it. Then one
    unit after the other goes to the device, to all processes, which keep their rows.

    Args:
        make: returns the policy; called in the main process alone.
        device: of the parts.

    Raises:
        ValueError: for a policy without known layers, or one that is dealt out already.
    """
    made: list[Any] = []

    def whole_and_outline() -> Any:
        policy = make()
        if has_part(policy):
            raise ValueError("the policy is dealt out already, to another agent; save that agent and load it")
        if not layers_of(policy):
            raise ValueError(f"shard is for language models with known layers; omit it for a {type(policy).__name__}")
        made.extend((policy, _outline(policy)))
        return made[1]

    received = processes.on_main(whole_and_outline)
    policy, outline = made or (copy.deepcopy(received), received)
    _unshare(policy)
    policy.adapter = outline.adapter  # the other one knows the whole base
    outlines[policy] = outline
    _shard(policy, device)
    return policy


@torch.no_grad()
def unsharded(state: Any) -> Any:
    """Return nested dictionaries, lists and tuples with whole tensors and policies; all processes call this together.

    The main process gets dealt-out weights whole, on its host; the others get empty tensors, and no policies.
    """
    if isinstance(state, nn.Module) and has_part(state):
        return _whole_policy(state)
    if is_dealt_out(state):
        found = full(state)
        return found.cpu() if processes.is_main() else found.new_empty(0)
    if isinstance(state, dict):
        return {name: unsharded(value) for name, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(unsharded(value) for value in state)
    return state


def _whole_policy(policy: nn.Module) -> Any:
    parts, outline, weights = dict(policy.named_parameters()), outlines[policy], {}
    for name, empty in outline.named_parameters():
        found = full(parts[name])
        if processes.is_main():  # a copy, since gathered weights lose their memory when they are released
            weights[id(empty)] = nn.Parameter(found.to("cpu", copy=True), empty.requires_grad)
    if not processes.is_main():
        return None
    plain = copy.deepcopy(outline, weights)
    for name in LATER:
        setattr(plain, name, getattr(policy, name))
    return plain


def _shard(policy: Any, device: torch.device) -> None:
    """Deal out the main process's weights, in place; in the other processes they have no values yet."""
    mesh = init_device_mesh(device.type, (processes.size(),))
    heads = [] if policy.critic is None else [policy.critic.head]  # may have another precision than the model
    for unit in (*layers_of(policy), *heads, policy):
        _move(unit, device)
        processes.same_start(unit)
        halves = any(parameter.dtype in HALVES for parameter in unit.parameters())
        exact = MixedPrecisionPolicy(reduce_dtype=torch.float32 if halves else None)  # of the sum of gradients
        dealt: Any = fully_shard(unit, mesh=mesh, mp_policy=exact)
        dealt.set_gradient_divide_factor(1.0)
        dealt.set_force_sum_reduction_for_comms(True)  # never a mean: the weights of the loss have the denominators
    trained = any(parameter.requires_grad for parameter in policy.parameters())
    for name in PASSES if trained else ("_states",):  # the latter within a pass of the policy that is trained
        setattr(policy, name, partial(_without_views, getattr(policy, name)))
        register_fsdp_forward_method(policy, name)
    policy.begin = lambda: None
    register_fsdp_forward_method(policy, "begin")
    policy.begin()  # torch takes the unit that runs first for the root
    release_weights(policy)


def _unshare(policy: Any) -> None:
    """Give a critic copies of the frozen weights that it shares with the model: a weight is in one unit only."""
    if policy.critic is not None:
        models = {id(parameter) for parameter in policy.model.parameters()}
        for module, name, parameter in _places(policy.critic):
            if id(parameter) in models:
                module._parameters[name] = copy.deepcopy(parameter)


def _outline(policy: Any) -> Any:
    """Return a copy without weights, on torch's device "meta"."""
    empty = {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in policy.parameters()}
    return copy.deepcopy(policy, empty)


def _move(unit: nn.Module, device: torch.device) -> None:
    """Move the weights that are not dealt out yet to a device; weights on "meta" get memory there."""
    moved: dict[int, nn.Parameter] = {}  # a tied weight has several places
    for module, name, parameter in _places(unit):
        if not is_dealt_out(parameter):
            held = torch.empty_like(parameter, device=device) if parameter.is_meta else parameter.detach().to(device)
            module._parameters[name] = moved.setdefault(id(parameter), nn.Parameter(held, parameter.requires_grad))
    for module in unit.modules():
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.to(device)


def _places(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Yield where parameters are: module, name, parameter."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                yield part, name, parameter


def _without_views(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Return a method's result without views: FSDP2 starts the backward pass by a hook that they may lose."""
    is_view = lambda value: isinstance(value, torch.Tensor) and value.requires_grad and value._is_view()  # noqa: E731
    return tree_map(lambda value: value.clone() if is_view(value) else value, method(*args, **named))
