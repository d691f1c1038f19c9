"""The memory that a run with a language model needs, before it begins: arithmetic with sizes and lengths.

Weights are counted on a model without data. The numbers of activations below were measured with tests' and real models,
whose peaks are the known answers of `test_memory.py`.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.pytorch_utils import Conv1D

from .language.decoding.decoder import PREFILL, TOGETHER
from .language.decoding.step import WRITTEN_OUT
from .language.models.adapters import target_names
from .language.training.forward import ELEMENTS, GPU_ELEMENTS
from .language.training.tree_attention import takes_forests

# Settings of a configuration that change logits after the head, with the value that does not: the logits of all
# positions are then made at once (see `loading.has_plain_head`).
AFTER_THE_HEAD = {"final_logit_softcapping": None, "logit_scale": None, "logits_scaling": 1.0}


@dataclass(frozen=True)
class Workload:
    """What a run does with a language model.

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
        episodes: trained on per optimizer step.
        slots: of the environment.
        group_size: slots that share a prompt, which is read once.
        reference: whether there is a frozen reference.
        teacher: bytes of the weights of a frozen teacher.
        micro_batch_size: episodes per pass; None for all.
        micro_batch_tokens: tokens per pass; None for all.
        imitated: demonstrations per step of the warm start; 0 without one.
        evaluated: slots of evaluations; 0 without one.
        pack_weights: whether acting on a CPU has packed copies; see `packed.py`.
        shards: processes among which weights, gradients, optimizer and reference are dealt out; see `sharded.py`.
            Episodes and slots are those of one process.
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
    episodes: int = 256
    slots: int = 256
    group_size: int = 1
    reference: bool = False
    teacher: int = 0
    micro_batch_size: int | None = None
    micro_batch_tokens: int | None = None
    imitated: int = 0
    evaluated: int = 0
    pack_weights: bool = True
    shards: int = 1

    @property
    def context(self) -> int:
        """L, the longest context."""
        most = self.prompt_length + self.turns * self.completion_length + (self.turns - 1) * self.reply_length
        return most if self.context_length is None else min(most, self.context_length)

    @property
    def sampled(self) -> int:
        """T, the most tokens that are sampled in an episode."""
        return min(self.turns * self.completion_length, self.context - self.prompt_length)

    def rows(self, episodes: int) -> int:
        """Return how many of these episodes are in one pass, if all are as long as the context."""
        by_tokens = episodes if self.micro_batch_tokens is None else self.micro_batch_tokens // (self.context - 1)
        return max(min(episodes, by_tokens, self.micro_batch_size or episodes), 1)


class Plan(NamedTuple):
    """Bytes of a run.

    Attributes:
        parameters: their number.
        parts: what takes memory, by name; not all of it at the same time.
        phases: the peak of each phase of a run, by name.
    """

    parameters: int
    parts: dict[str, int]
    phases: dict[str, int]

    @property
    def peak(self) -> int:
        """The most of all phases."""
        return max(self.phases.values())

    @property
    def busiest(self) -> str:
        """The phase with the peak."""
        return max(self.phases, key=lambda name: self.phases[name])


def plan(config: PretrainedConfig, work: Workload) -> Plan:
    """Return what a run needs at most: every episode as long as the context, none sharing anything but its prompt.

    The rollout is counted, the interpreter and its libraries are not, and neither is what allocators keep in reserve.

    Args:
        config: of the model.
        work: what the run does.
    """
    held = _Held(config, work)
    cache, step, acting = held.acting(work.slots, max(work.slots // work.group_size, 1))
    kept, logits, _ = held.one_pass(work.rows(work.episodes))
    phases = {
        "acting": acting,
        "training": held.training(work.rows(work.episodes), work.episodes),
        "optimizer step": held.always + held.gradients + held.steps,
    }
    if work.imitated:  # has a separate optimizer, before the run's has moments
        phases["warm start"] = held.training(work.rows(work.imitated), work.imitated) + held.masters
    if work.evaluated:
        phases["evaluation"] = held.acting(work.evaluated, work.evaluated)[2]
    parts = {
        "weights": held.weights,
        "gradients": held.gradients,
        "optimizer": held.moments + held.masters,
        "reference": held.reference,
        "KV cache": cache,
        "logits of acting": step,
        "activations": kept,
        "logits of training": logits,
    }
    return Plan(held.count, parts, phases)


def fitting_micro_batch_tokens(config: PretrainedConfig, work: Workload, budget: int) -> int:
    """Return the largest `micro_batch_tokens` with which training stays within a budget.

    Args:
        config: of the model.
        work: what the run does; its own micro-batches are ignored.
        budget: bytes for the whole run, weights included.

    Returns:
        At most what all episodes of an update have together; 0 if not even one episode fits.
    """
    held, rows = _Held(config, work), range(1, work.episodes + 1)
    if held.always + held.gradients + held.steps > budget:
        return 0
    return bisect_right(rows, budget, key=lambda each: held.training(each, work.episodes + 1)) * (work.context - 1)


def weight_bytes(config: PretrainedConfig, dtype: str) -> int:
    """Return the bytes of a model's weights."""
    return _Held(config, Workload(1, 1, 1, dtype=dtype)).weights


class _Held:
    """Bytes that one process holds for a whole run, and what its phases add to them."""

    def __init__(self, config: PretrainedConfig, work: Workload) -> None:
        how: dict[str, Any] = {} if work.attention is None else {"attn_implementation": work.attention}
        with torch.device("meta"):
            how["dtype"] = getattr(torch, work.dtype)
            model: Any = AutoModelForCausalLM.from_config(copy.deepcopy(config), **how)
        self.work, self.text, self.size = work, config.get_text_config(), model.dtype.itemsize
        self.wide, self.heads = self.text.hidden_size, self.text.num_attention_heads
        self.inner = getattr(self.text, "intermediate_size", None) or 4 * self.wide
        self.inner *= getattr(self.text, "num_experts_per_tok", None) or 1
        head = getattr(self.text, "head_dim", None) or self.wide // self.heads
        self.keys = head * (getattr(self.text, "num_key_value_heads", None) or self.heads)
        on_cpu, adapted = work.device == "cpu", work.lora_rank is not None
        self.usual = takes_forests(model.base_model)
        self.written_out = self.usual and work.dtype == "float32" and on_cpu and not adapted
        self._count(model)
        wide = max(self.size, 4)  # Adam's numbers have at least 32 bits
        self.gradients, self.moments = wide * self.trained, 2 * wide * self.trained
        self.masters = 4 * self.trained if self.size == 2 else 0
        self.steps = 8 * self.largest if on_cpu else 4 * self.trained  # Adam's intermediate results
        copied = work.reference and (not adapted or work.shards > 1)  # an adapter's reference is the base itself
        self.reference = work.teacher + (self.weights if copied else 0)
        self.whole = self.gathered = 0
        if work.shards > 1:  # whole weights act; layers in training, and gradients before their sum is dealt out
            self.whole, self.gathered = self.weights, 3 * self.rest + 5 * self.layer
            for name in ("weights", "gradients", "moments", "masters", "steps", "reference"):
                setattr(self, name, -(-getattr(self, name) // work.shards))
        tokens, steps = (8, 48) if work.turns == 1 else (16, 56)  # with replies, also first observations and positions
        rollout = work.episodes * (tokens * work.context + steps * work.sampled)
        self.always = self.weights + self.masters + self.moments + self.reference + rollout

    def _count(self, model: Any) -> None:
        """Count weights: all, those that are trained, and bytes of layers and of what is in none."""
        work, copied, sizes = self.work, 0, [weight.numel() for weight in model.parameters()]
        parts = [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]
        layers = [self.size * sum(weight.numel() for weight in part.parameters()) for part in parts]
        self.depth, self.layer, self.layers = self.text.num_hidden_layers, max(layers, default=0), sum(layers)
        self.rest = self.size * sum(sizes) - self.layers
        self.count = self.trained = sum(sizes)
        self.largest, trunk = max(sizes), sum(weight.numel() for weight in model.base_model.parameters())
        if work.lora_rank is not None:
            names, named = target_names(model, work.lora_targets), model.base_model.named_modules()
            linear = [(name.rpartition(".")[2], part) for name, part in named if isinstance(part, (nn.Linear, Conv1D))]
            shapes = [part.weight.shape for name, part in linear if name in names]
            self.trained = trunk = work.lora_rank * sum(map(sum, shapes))
            self.count, copied = self.count + self.trained, sum(shape.numel() for shape in shapes)
            self.largest = work.lora_rank * max(map(max, shapes))
        critic = self.wide * (self.wide + 2) + 1 if work.critic else 0
        more = critic + (trunk if work.critic == "separate" else 0)
        self.count, self.trained = self.count + more, self.trained + more
        self.weights = self.size * (self.count + copied)  # the copy of the layers that an adapter changes acts

    def one_pass(self, rows: int) -> tuple[int, int, int]:
        """Return activations, logits and the peak of the forward and backward pass of rows that share nothing."""
        work, recompute = self.work, self.work.activation_checkpointing
        tokens, chosen = rows * (work.context - 1), rows * work.sampled
        if self.written_out:  # joined weights, too; see `llama_pass`
            layer = tokens * (7 * self.wide + 3 * self.keys + 2 * self.inner)
            layer += self.wide * (self.wide + 2 * self.keys + 2 * self.inner)
        else:  # norms of 16-bit models compute in float32
            layer = tokens * ((13 if self.size == 2 else 11) * self.wide + 4 * self.inner)
        if work.attention == "eager":
            layer += 2 * tokens * work.context * self.heads
        layer, between = layer * self.size, tokens * self.wide * self.size
        kept = 2 * between + self.depth * (between if recompute else layer)
        each = (5 if work.entropy else 2) * max(self.size, 4) + (2 if self.size == 2 else 0)  # of a logit, all in all
        if any(getattr(self.text, name, None) not in (None, plain) for name, plain in AFTER_THE_HEAD.items()):
            kept += self.size * tokens * self.text.vocab_size
        most = ELEMENTS if work.device == "cpu" else GPU_ELEMENTS
        logits = each * min(chosen * self.text.vocab_size, most)
        if chosen * self.text.vocab_size > most:  # the head's gradient is there before the last chunk
            logits += self.size * self.text.vocab_size * self.wide
        critic = kept + logits // 2 if work.critic == "separate" else 0
        return kept, logits, kept + max(logits, critic, layer if recompute else 0)

    def training(self, rows: int, episodes: int) -> int:
        """Return the peak of training on some episodes, so many of them per pass."""
        peak = self.always + self.gathered + self.one_pass(rows)[2]
        if rows == episodes and self.work.shards == 1:  # gradients are made where activations were
            return max(peak, self.always + self.gradients)
        return peak + self.gradients + self.masters // 2  # gradients of 16 bits are added to those of 32

    def acting(self, slots: int, prompts: int) -> tuple[int, int, int]:
        """Return the KV cache, what a step adds to it, and the peak of acting."""
        work, vocab_size = self.work, self.text.vocab_size
        cache = 2 * self.depth * self.keys * slots * work.context * self.size
        step = 20 * slots * vocab_size
        tokens = min(prompts * work.prompt_length, max(PREFILL, work.prompt_length))
        read = tokens * (2 * self.depth * self.keys + self.wide) * self.size
        replies = packed = 0
        if work.turns > 1:
            length = max(min(work.reply_length, work.context - 2), 1)
            answered = min(slots, max(PREFILL // length, 1))
            if answered * length <= TOGETHER and self.usual:  # the next step reads them
                replies = 4 * answered * length * vocab_size
            else:
                each = 2 * self.keys * work.context + length * (3 * self.wide + 2 * self.inner)
                replies = answered * each * self.size
        known = self.text.model_type in WRITTEN_OUT and work.dtype in ("float32", "bfloat16")
        if known and work.device == "cpu" and work.pack_weights:  # see `packed.py`
            stacked = work.dtype == "bfloat16" and work.lora_rank  # the second copy of the layers is the packed one
            packed = (0 if stacked else self.layers) + self.size * vocab_size * self.wide
        gradients = 0 if self.masters else self.gradients  # master weights drop theirs after a step
        beside = self.whole if self.reference else 0
        peak = max(cache + max(step + replies, read), beside)
        return cache, step, self.always + gradients + self.whole + packed + peak
