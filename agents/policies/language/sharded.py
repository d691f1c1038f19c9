"""A language model whose weights, gradients and optimizer state are dealt out to the processes, with FSDP2.

In training, each layer's weights are gathered for its forward pass and again for its backward pass, and the sum of its
gradients is dealt out at once. Acting, evaluating and saving use a plain copy of the policy with the whole weights:
the processes put it together once, and drop it at the next training pass. So acting needs no communication, and all
its fast paths work.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer
from typing_extensions import override

from ...core.devices import HALVES
from ...core.rollout import Obs, Rollout
from ...distributed import parallel, parts
from ...distributed.parts import Part
from ...distributed.shards import gathered, local, read_equal, read_rows
from ..base import Policy
from ..choosing import Source
from . import policy_folder
from .decoding.decoder import Decoder
from .models.unread import Unread, as_it_is, check_same_files, unread, weights_unread
from .policy import LanguageModelPolicy
from .training.reading import Reading


def made_in_parts(make: Callable[[], Any], device: torch.device) -> ShardedPolicy:
    """Deal out the policy that `make` makes; each process reads its part of the weights only, if files allow that."""
    with weights_unread():
        policy = make()
    return shard(policy, device)


def shard(policy: Any, device: torch.device) -> ShardedPolicy:
    """Deal a policy out to the processes, in place; one that is dealt out already stays as it is.

    Args:
        policy: a plain one. Of weights that were not read, each process reads its part; others are whole in every
            process, best on the host: its layers move to the device one by one.
        device: of the shards.

    Raises:
        ValueError: for a policy that cannot be dealt out.
    """
    from torch.distributed.device_mesh import init_device_mesh  # not in every build of torch
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    if isinstance(policy, ShardedPolicy):
        return policy
    if not isinstance(policy, LanguageModelPolicy):
        raise ValueError(f"shard is for language models; omit it (--shard) for a {type(policy).__name__}")
    units = [part for part in policy.modules() if isinstance(part, GradientCheckpointingLayer)]
    if not units:
        raise ValueError(f"shard has no meaning for {type(policy.model).__name__}: it has no known layers; omit it")
    if policy.critic is not None:
        units.append(policy.critic.head)  # may have another precision than the model
    check_same_files(policy)
    weights = _Weights(policy, device)
    policy.__class__ = ShardedPolicy
    sharded = cast(ShardedPolicy, policy)
    sharded.adapter, sharded.weights = weights.outline.adapter, weights
    _unshare(sharded)
    mesh = init_device_mesh(device.type, (parallel.size(),))
    in_parts: list[tuple[Part, torch.Tensor]] = []
    for unit in (*units, sharded):
        for tensor in (*unit.parameters(), *unit.buffers()):
            if not tensor.is_meta and not parallel.is_dealt_out(tensor):
                tensor.data = tensor.data.to(device)
        parallel.same_start(unit)
        origins = {(part, name): each.origin for part, name, each in _places(unit) if isinstance(each, Unread)}
        halves = any(parameter.dtype in HALVES for parameter in unit.parameters())
        exact = MixedPrecisionPolicy(reduce_dtype=torch.float32 if halves else None)  # of the sum of gradients
        dealt: FSDPModule = cast(Any, fully_shard(unit, mesh=mesh, mp_policy=exact))
        dealt.set_gradient_divide_factor(1.0)
        dealt.set_force_sum_reduction_for_comms(True)  # never a mean: the weights of the loss have the denominators
        in_parts += read_rows(origins, device)
    read_equal(in_parts)
    weights.take(sharded)
    if sharded.own_base is not None:
        sharded.own_base.check(weights.outline.adapter, weights.gathered)
        sharded.own_base = weights.outline.own_base = None
    return sharded


class ShardedPolicy(LanguageModelPolicy):
    """A `LanguageModelPolicy` after `shard`: its parameters are DTensors, of which each process holds 1 / W.

    With gradients, `evaluate_actions`, `predict_values` and `kl_divergence` use the shards: each call, and each
    backward pass, is one of all processes together. Without, they use the whole weights.
    """

    sharded = True
    weights: _Weights

    @override
    def whole(self) -> LanguageModelPolicy:
        cast(Any, self).reshard()  # embeddings and head stay gathered after a pass without a backward one
        plain = self.weights.whole()
        plain.tokenizer, plain.stop_token_ids = self.tokenizer, self.stop_token_ids
        if not self.tried:
            plain.try_out()
            for each in (self, self.weights.outline):
                each.tried, each.head_is_plain = True, plain.head_is_plain
        return plain

    @override
    def try_out(self) -> None:
        """Check the model, before its first use, with the whole weights."""
        if not self.tried:
            self.whole()
            self.release()

    @override
    def to_save(self) -> LanguageModelPolicy | None:
        plain = self.weights.put_together(torch.device("cpu"), parallel.is_main())
        if plain is not None:
            plain.tokenizer, plain.stop_token_ids = self.tokenizer, self.stop_token_ids
        return plain

    @override
    def save_parts(self, folder: Path) -> None:
        outline = self.weights.outline
        outline.tokenizer, outline.stop_token_ids = self.tokenizer, self.stop_token_ids
        if outline.adapter is not None and not outline.borrows_base:
            outline.adapter.base_digest(self.weights.gathered)  # known from then on
        parallel.on_main(lambda: policy_folder.write_outline(outline, folder))
        for file, tensors in policy_folder.tensors_of(outline).items():
            parts.write_parts({name: self.weights.held(tensor) for name, tensor in tensors.items()}, folder / file)

    @override
    def release(self) -> None:
        self.weights.release()

    # Acting, and everything else that is not trained: the whole policy does it.

    @override
    def initial_state(self, num_envs: int) -> Decoder:
        return self.whole().initial_state(num_envs)

    @override
    def act(
        self,
        obs: Obs,
        state: Decoder | None,
        episode_start: torch.Tensor,
        deterministic: bool = False,
        generator: Source = None,
        playing: torch.Tensor | None = None,
        appended: torch.Tensor | int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, Decoder]:
        return self.whole().act(obs, state, episode_start, deterministic, generator, playing, appended)

    @override
    def action_log_probs(
        self, obs: Obs, state: Decoder | None, episode_start: torch.Tensor
    ) -> tuple[torch.Tensor, Decoder]:
        return self.whole().action_log_probs(obs, state, episode_start)

    @override
    def save(self, folder: Path) -> None:
        self.whole().save(folder)

    @override
    def export(self, folder: Path, merge: bool = True) -> None:
        self.whole().export(folder, merge)

    @override
    def frozen_copy(self) -> Self:
        """Return a frozen copy, dealt out as well; with an adapter it has a separate base."""
        self.release()
        plain = self.whole()
        self.release()  # what becomes the copy is not to be acted with
        frozen = plain.requires_grad_(False) if plain.adapter is None else plain.frozen_copy()
        return cast(Self, shard(frozen, self.device))

    @override
    def load_frozen(self, folder: Path, observation_space: Any, action_space: Any) -> Self:
        if policy_folder.borrows_base(folder):
            frozen = self.weights.unread().load_frozen(folder, observation_space, action_space)
            return cast(Self, shard(frozen, self.device))
        read = partial(LanguageModelPolicy.load, folder, observation_space, action_space)
        return cast(Self, made_in_parts(lambda: read().requires_grad_(False), self.device))

    # Training.

    @override
    def evaluate_actions(self, rollout: Rollout, entropy: bool = True) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self._together("evaluate_actions", rollout, entropy)

    @override
    def score_norms(self, rollout: Rollout) -> torch.Tensor:
        with torch.no_grad():
            return self._together("score_norms", rollout)

    @override
    def predict_values(self, rollout: Rollout | Obs) -> torch.Tensor:
        return self._together("predict_values", rollout)

    @override
    def kl_divergence(self, reference: Policy, rollout: Rollout) -> torch.Tensor:
        if torch.is_grad_enabled():
            cast(ShardedPolicy, reference).try_out()
            reference.release()
            return self._together("kl_divergence", reference, rollout)
        return self._together("kl_divergence", reference.whole(), rollout)

    @override
    def _states(self, reading: Reading) -> torch.Tensor:
        if self.weights.frozen:  # a reference, within a pass of the policy that is trained
            return self("_states", reading)
        return super()._states(reading)

    def _together(self, method: str, *args: Any) -> Any:
        if not torch.is_grad_enabled():
            return getattr(self.whole(), method)(*args)
        self.try_out()
        self.release()
        return self(method, *args)

    def forward(self, method: str, *args: Any) -> Any:
        """Call a method of the plain policy: FSDP2 gathers weights around `forward` only."""
        made = getattr(LanguageModelPolicy, method)(self, *args)
        return tuple(map(_no_view, made)) if isinstance(made, tuple) else _no_view(made)


def _no_view(value: Any) -> Any:
    """Return a tensor that is not a view: FSDP2 starts the backward pass by a hook that views may lose."""
    is_view = isinstance(value, torch.Tensor) and value.requires_grad and value._is_view()
    return value.clone() if is_view else value


class _Weights:
    """What a sharded policy needs to put whole copies of itself together.

    Args:
        policy: before it is dealt out.
        device: of the copies that act.

    Attributes:
        outline: a copy without weights, on torch's device "meta".
        frozen: whether nothing in it is trained.
    """

    def __init__(self, policy: LanguageModelPolicy, device: torch.device) -> None:
        self.device = device
        named = list(policy.named_parameters())
        empty = {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for _, p in named}
        self.outline = policy.with_parameters(empty)
        self.frozen = not any(p.requires_grad for _, p in named)
        self._names = {name: id(empty[id(p)]) for name, p in named}
        self._shards: dict[int, nn.Parameter] = {}  # by the id of the outline's parameter
        self._whole: tuple[int, LanguageModelPolicy] | None = None

    def take(self, policy: nn.Module) -> None:
        """Remember the shards of the policy."""
        shards = dict(policy.named_parameters())
        self._shards = {key: shards[name] for name, key in self._names.items()}

    def held(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the shard of a parameter of the outline; any other tensor as it is."""
        return self._shards[id(tensor)].detach() if id(tensor) in self._shards else tensor

    def gathered(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the whole parameter of which the outline has the shape; all processes call this together."""
        return gathered(self.held(tensor))

    def unread(self) -> LanguageModelPolicy:
        """Return a copy whose values come from the shards of this one."""
        empty = {id(parameter): parameter for parameter in self.outline.parameters()}
        rows = {key: unread(empty[key], as_it_is(local(shard).detach())) for key, shard in self._shards.items()}
        return self.outline.with_parameters(dict(rows))

    def whole(self) -> LanguageModelPolicy:
        """Return the copy with the present weights; another one only if they have changed since the last call."""
        version = sum(shard._version for shard in self._shards.values())
        if self._whole is None or self._whole[0] != version:
            self._whole = None  # before the next one is made: two may not fit the memory
            plain = self.put_together(self.device, here=True)
            assert plain is not None
            self._whole = version, plain
        return self._whole[1]

    def release(self) -> None:
        """Drop the whole copy, and its memory."""
        self._whole = None

    @torch.no_grad()
    def put_together(self, device: torch.device, here: bool) -> LanguageModelPolicy | None:
        """Return a new whole copy on this device; all processes call this together, and None is returned if not `here`.

        One parameter after the other is gathered.
        """
        weights = {}
        for key, shard in self._shards.items():
            full = gathered(shard)
            if here:
                weights[key] = nn.Parameter(full.to(device), shard.requires_grad)
        return self.outline.with_parameters(weights).to(device) if here else None


def _unshare(policy: LanguageModelPolicy) -> None:
    """Give a critic copies of the frozen weights that it shares with the model: FSDP2 gathers layers one by one."""
    if policy.critic is None:
        return
    models = {id(parameter) for parameter in policy.model.parameters()}
    for module, name, parameter in _places(policy.critic):
        if id(parameter) in models:
            module._parameters[name] = copy.deepcopy(parameter)


def _places(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Yield where parameters are: module, name, parameter."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                yield part, name, parameter
