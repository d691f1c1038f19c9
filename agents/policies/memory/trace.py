"""How much memory acting and training take beyond the weights, found by running them on tensors without data.

The model is made from its configuration with torch's fake tensors, which have shapes but no memory. The code that acts
and trains runs on it, and a meter adds up the tensors that are alive. So the figures hold for any model type.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary
from transformers import AutoModelForCausalLM, PretrainedConfig
from transformers.cache_utils import DynamicCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.pytorch_utils import Conv1D
from typing_extensions import override

from ..language.critic import Critic
from ..language.decoding.decoder import PREFILL, TOGETHER
from ..language.decoding.kv_cache import SlotCache
from ..language.decoding.replies import Unread, read_replies
from ..language.decoding.sampling import choose_in_parts
from ..language.decoding.step import LlamaStep, make_step
from ..language.models.adapters import adapted_layers, target_names
from ..language.training.forward import ChosenLogProbs, Reading, by_chunks

# Settings of a configuration that change logits after the head, with the value that does not: the logits of all
# positions are then made at once (see `loading.has_plain_head`).
AFTER_THE_HEAD = {"final_logit_softcapping": None, "logit_scale": None, "logits_scaling": 1.0}


class Meter(TorchDispatchMode):
    """Adds up the memory of the tensors made within it.

    Attributes:
        now: bytes of the tensors that are alive.
        peak: the most so far, or since it was set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: Any = WeakIdKeyDictionary()

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage())
        return made

    def _note(self, storage: torch.UntypedStorage) -> None:
        if storage not in self._seen:
            size = storage.nbytes()
            self._seen[storage] = size
            weakref.finalize(storage, self._drop, size)
            self.now += size
            self.peak = max(self.peak, self.now)

    def _drop(self, size: int) -> None:
        self.now -= size

    def peak_since(self) -> int:
        """Return the peak, and begin a new one."""
        peak, self.peak = self.peak, self.now
        return peak


@dataclass(frozen=True)
class Shape:
    """What the memory of a model depends on besides its configuration.

    Attributes:
        vocab_size: of the environment.
        prompt_length: tokens of the longest prompt.
        completion_length: tokens of the longest completion, or turn of a dialogue.
        dtype: of the weights.
        attention: "sdpa", "eager" or None.
        critic: "head", "separate" or None.
        entropy: whether the loss needs entropies.
        activation_checkpointing: see `checkpointing.py`.
        lora_rank: of an adapter, see `adapters.py`; None without one.
        lora_targets: its layers.
        device: where the run takes place.
        turns: of a dialogue at most; 1 without dialogues.
        reply_length: tokens of the longest reply.
        context_length: tokens of the longest context, replies included; None for what all turns and replies can take.
    """

    vocab_size: int
    prompt_length: int
    completion_length: int
    dtype: str = "float32"
    attention: str | None = None
    critic: str | None = None
    entropy: bool = False
    activation_checkpointing: bool = False
    lora_rank: int | None = None
    lora_targets: str | None = None
    device: str = "cpu"
    turns: int = 1
    reply_length: int = 0
    context_length: int | None = None

    @property
    def context(self) -> int:
        """L, the longest context."""
        most = self.prompt_length + self.turns * self.completion_length + (self.turns - 1) * self.reply_length
        return most if self.context_length is None else min(most, self.context_length)

    @property
    def sampled(self) -> int:
        """T, the most tokens that are sampled in an episode."""
        return min(self.turns * self.completion_length, self.context - self.prompt_length)


@dataclass(frozen=True)
class Weights:
    """Sizes of a policy's parameters.

    Attributes:
        count: of all.
        nbytes: of all, and of the second copy of the layers that an adapter changes, which acts.
        trained: number of those that are trained.
        trained_bytes: of those.
        halves: number of those that have 16 bits.
        largest: elements of the largest of those.
        layer: bytes of the largest layer.
        rest: bytes of what is in no layer: embeddings, head, last norm, the critic's head.
    """

    count: int
    nbytes: int
    trained: int
    trained_bytes: int
    halves: int
    largest: int
    layer: int
    rest: int


class Traced(NamedTuple):
    """Bytes beyond the weights.

    Attributes:
        held: activations of a training pass; the KV cache of acting.
        logits: what the logits, and what is made of them, need on top.
        peak: the most at any time.
    """

    held: int
    logits: int
    peak: int


@contextmanager
def _fake(config: PretrainedConfig, shape: Shape) -> Iterator[tuple[Any, Any, Meter]]:
    """Yield a model without memory, its critic, and the meter, which has counted them."""
    how: dict[str, Any] = {"dtype": getattr(torch, shape.dtype)}
    if shape.attention is not None:
        how["attn_implementation"] = shape.attention
    with torch.random.fork_rng(devices=[]), FakeTensorMode(), torch.device(shape.device), Meter() as meter:
        make = lambda: AutoModelForCausalLM.from_config(copy.deepcopy(config), **how).eval()  # noqa: E731
        model = make()
        if shape.lora_rank is not None:
            _adapt(model, shape.lora_rank, shape.lora_targets)
        critic = None if shape.critic is None else Critic(model, separate=False)
        if critic is not None and shape.critic == "separate":  # fake tensors cannot be copied
            critic.trunk = make().base_model
        meter.peak_since()
        yield model, critic, meter


class _LowRank(nn.Module):
    """Stands in for peft's layer, which cannot be made of tensors without data."""

    def __init__(self, base: nn.Module, rank: int) -> None:
        super().__init__()
        weight: Any = base.weight
        wide, narrow = weight.shape if isinstance(base, Conv1D) else weight.shape[::-1]
        self.base_layer = base
        self.lora_A = nn.Linear(wide, rank, bias=False, dtype=weight.dtype)
        self.lora_B = nn.Linear(rank, narrow, bias=False, dtype=weight.dtype)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.lora_B(self.lora_A(x))


def _adapt(model: Any, rank: int, targets: str | None) -> None:
    """Freeze a model and give its layers adapters."""
    model.requires_grad_(False)
    names = target_names(model, targets)
    for name, part in list(model.base_model.named_modules()):
        if isinstance(part, (nn.Linear, Conv1D)) and name.rpartition(".")[2] in names:
            model.base_model.set_submodule(name, _LowRank(part, rank))


def weights(config: PretrainedConfig, shape: Shape) -> Weights:
    """Return the sizes of the policy's parameters."""
    with _fake(config, shape) as (model, critic, _):
        every = [*model.parameters(), *([] if critic is None else critic.parameters())]
        trained = [parameter for parameter in every if parameter.requires_grad]
        copied = [layer.base_layer.weight for _, layer in adapted_layers(model)]
        parts = [*model.modules(), *([] if critic is None else critic.modules())]
        layers = [sum(p.nbytes for p in x.parameters()) for x in parts if isinstance(x, GradientCheckpointingLayer)]
        return Weights(
            count=sum(parameter.numel() for parameter in every),
            nbytes=sum(parameter.nbytes for parameter in (*every, *copied)),
            trained=sum(parameter.numel() for parameter in trained),
            trained_bytes=sum(parameter.nbytes for parameter in trained),
            halves=sum(parameter.numel() for parameter in trained if parameter.element_size() == 2),
            largest=max(parameter.numel() for parameter in trained),
            layer=max(layers, default=0),
            rest=sum(parameter.nbytes for parameter in every) - sum(layers),
        )


def training(config: PretrainedConfig, shape: Shape, rows: int, again: bool = False) -> Traced:
    """Return the bytes of the forward and backward pass of some rows of full length that share nothing.

    Args:
        config: of the model.
        shape: of the run.
        rows: episodes in the pass.
        again: whether weights have gradients already, of an earlier pass; otherwise they are made here.
    """
    with _fake(config, shape) as (model, critic, meter):
        if again:
            for parameter in [*model.parameters(), *([] if critic is None else critic.parameters())]:
                parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        meter.peak_since()
        before, recompute, plain = meter.now, shape.activation_checkpointing, _has_plain_head(config)
        reading = _reading(shape, rows)
        part, name = (model.base_model, "last_hidden_state") if plain else (model, "logits")
        states = reading.outputs(model, part, name, recompute)
        kept = meter.now - before
        pass_peak = meter.peak_since() - before

        def per_edge(states: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
            logits = model.get_output_embeddings()(states) if plain else states
            if not shape.entropy:
                return (ChosenLogProbs.apply(logits[..., : shape.vocab_size], actions),)
            log_probs = _log_softmax(logits, shape)
            return log_probs.gather(1, actions[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)

        loss = torch.stack([made.sum() for made in by_chunks(per_edge, shape.vocab_size, states, reading.actions)])
        if critic is not None:
            loss = loss.sum() + critic(model, reading, recompute).sum()
        heads: list[int] = []
        states.register_hook(lambda gradient: heads.append(meter.peak_since() - before))
        del states
        loss.sum().backward()
        peaks = [pass_peak, *heads, meter.peak_since() - before]
        return Traced(kept, max(heads[0] - kept, 0), max(peaks))


@torch.no_grad()
def acting(config: PretrainedConfig, shape: Shape, slots: int, prompts: int) -> Traced:
    """Return the bytes of acting in some slots, from reading their prompts to a step at the end of the context."""
    with _fake(config, replace(shape, lora_rank=None)) as (model, _, meter):  # the adapter is merged
        before, rows = meter.now, torch.arange(slots)
        cache = SlotCache(model.config.get_text_config().num_hidden_layers, slots, shape.context)
        source, made, at_once = rows * prompts // slots, [], max(PREFILL // shape.prompt_length, 1)
        for start in range(0, prompts, at_once):
            end = min(start + at_once, prompts)
            those = slice(-(-start * slots // prompts), -(-end * slots // prompts))  # the slots of these prompts
            ids, read = torch.zeros(end - start, shape.prompt_length, dtype=torch.int64), DynamicCache()
            logits = model(ids, past_key_values=read, use_cache=True, logits_to_keep=1).logits
            made.append(logits[source[those] - start, -1])
            cache.place(rows[those], read, source[those] - start)
        logits = torch.cat(made)
        del ids, read, logits, made, source
        held = meter.now - before
        reading_peak = meter.peak_since() - before
        positions = torch.full((slots,), shape.context - 2)
        step = make_step(model, shape.context)
        unread = _longest_replies(shape, slots) if shape.turns > 1 else None
        if unread is not None and (unread.ids.numel() > TOGETHER or not isinstance(step, LlamaStep)):
            read_replies(model, cache, unread)
            reading_peak, unread = max(reading_peak, meter.peak_since() - before), None
        logits = step(positions, positions, cache, shape.context - 1, unread=unread)
        choose_in_parts(lambda part: _log_softmax(part, shape), logits, shape.vocab_size, False, None)
        step_peak = meter.peak_since() - before
        return Traced(held, step_peak - held, max(reading_peak, step_peak))


def _longest_replies(shape: Shape, slots: int) -> Unread:
    """Return replies to as many slots as are read at once, at the end of the context."""
    queries, window = min(shape.reply_length, shape.context - 2), shape.context - 2
    rows = torch.arange(min(slots, max(PREFILL // queries, 1)))
    cells = torch.zeros(3, len(rows) * queries, dtype=torch.int64)
    positions = torch.arange(window - queries, window).expand(len(rows), -1)
    return Unread(torch.zeros_like(positions), positions, rows, cells, window)


def _reading(shape: Shape, rows: int) -> Reading:
    width = shape.context - 1
    first = torch.arange(rows)[:, None] * width + shape.prompt_length - 1  # [N, 1]
    nodes = (first + torch.arange(shape.sampled)).flatten()  # the same number between replies
    return Reading(torch.zeros(rows, width, dtype=torch.int64), None, None, nodes, nodes, nodes)


def _log_softmax(logits: torch.Tensor, shape: Shape) -> torch.Tensor:
    precision = torch.promote_types(logits.dtype, torch.float32)
    return torch.log_softmax(logits[..., : shape.vocab_size], -1, dtype=precision)


def _has_plain_head(config: PretrainedConfig) -> bool:
    text = config.get_text_config()
    return all(getattr(text, name, None) in (None, neutral) for name, neutral in AFTER_THE_HEAD.items())
