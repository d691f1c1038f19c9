"""The memory that a run with a language model needs, before it begins: arithmetic with sizes and lengths.

Weights are counted on a model without data. The numbers of activations below were measured with tests' and real models,
whose peaks are the known answers of `test_memory.py`.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig

from .adapters import adapt, adapted_layers
from .critic import Critic
from .decoder import PREFILL
from .policy import ELEMENTS, GPU_ELEMENTS
from .products import can_pack, least_rows
from .reading import layers_of

# Settings of a configuration that change logits after the head, with the value that does not: the logits of all
# positions are then made at once (see `loading.has_plain_head`).
AFTER_THE_HEAD = {"final_logit_softcapping": None, "logit_scale": None, "logits_scaling": 1.0}


@dataclass(frozen=True)
class Workload:
    """The work of one process of a run with a language model. Attributes not listed are settings of policy and agent.

    Attributes:
        prompt_length: tokens of the longest prompt.
        context: L, tokens of the longest context, replies included.
        sampled: T, the most tokens that are sampled in an episode.
        reply_length: tokens of the longest reply; 0 without dialogues.
        episodes: trained on per optimizer step.
        slots: of the environment, in which the policy acts; 0 with an engine, wherever that is.
        entropy: whether the loss needs entropies.
        reference: whether there is a frozen reference.
        teacher: bytes of the weights of a frozen teacher.
        holders: processes among which weights, gradients, optimizer and reference are dealt out.
        engine: bytes of an engine on this device, on a CPU without its weights; 0 without one.
    """

    prompt_length: int
    context: int
    sampled: int
    reply_length: int = 0
    episodes: int = 256
    slots: int = 256
    group_size: int = 1
    micro_batch_size: int | None = None
    micro_batch_tokens: int | None = None
    dtype: str = "float32"
    device: str = "cpu"
    attention: str | None = None
    critic: str | None = None
    activation_checkpointing: bool = False
    lora_rank: int | None = None
    lora_targets: str | None = None
    pack_weights: bool = True
    entropy: bool = False
    reference: bool = False
    teacher: int = 0
    holders: int = 1
    engine: int = 0

    def rows(self, episodes: int) -> int:
        """Return how many of these episodes are in one pass, if all are as long as the context."""
        by_tokens = episodes if self.micro_batch_tokens is None else self.micro_batch_tokens // (self.context - 1)
        return max(min(episodes, by_tokens, self.micro_batch_size or episodes), 1)


class Plan(NamedTuple):
    """Bytes of a run.

    Attributes:
        parameters: their number.
        parts: what takes memory, by name; not all of it at the same time.
        phases: the peaks of acting, training and the optimizer step, by name.
    """

    parameters: int
    parts: dict[str, int]
    phases: dict[str, int]

    @property
    def peak(self) -> int:
        """The bytes of the phase that needs most."""
        return max(self.phases.values())


def plan(config: PretrainedConfig, work: Workload) -> Plan:
    """Return the most that a run needs: every episode as long as the context, none sharing anything but its prompt.

    The interpreter and its libraries are not counted, and neither is what allocators keep in reserve.

    Args:
        config: of the model.
        work: of the run.
    """
    sizes, rows = _Sizes(config, work), work.rows(work.episodes)
    parts = {
        "weights": sizes.weights,
        "gradients": sizes.gradients,
        "optimizer": sizes.moments + sizes.masters,
        "reference": sizes.reference,
        "engine": sizes.engine,
        "KV cache": sizes.cache(work.slots),
        "logits of acting": sizes.step(work.slots),
        "activations": sizes.activations(rows),
        "logits of training": sizes.logits(rows),
    }
    return Plan(sizes.count, parts, {name: need(count) for name, (count, need) in sizes.phases().items()})


def fitting(config: PretrainedConfig, work: Workload, budget: int) -> dict[str, int]:
    """Return the most slots (acting) and episodes per pass (training) that fit a budget, up to the run's; 0 if none.

    The run's own micro-batches are ignored.

    Args:
        config: of the model.
        work: of the run.
        budget: bytes for the whole run, weights included.
    """
    sizes = _Sizes(config, replace(work, micro_batch_size=None, micro_batch_tokens=None))
    return {name: bisect_right(range(1, count + 1), budget, key=need) for name, (count, need) in sizes.phases().items()}


class _Sizes:
    """Bytes that a process holds for a whole run (`held`), and the bytes that each phase of a run adds."""

    def __init__(self, config: PretrainedConfig, work: Workload) -> None:
        self.work, self.text = work, config.get_text_config()
        self.wide, heads = self.text.hidden_size, self.text.num_attention_heads
        self.inner = getattr(self.text, "intermediate_size", None) or 4 * self.wide
        self.inner *= getattr(self.text, "num_experts_per_tok", None) or 1
        head = getattr(self.text, "head_dim", None) or self.wide // heads
        self.keys = head * (getattr(self.text, "num_key_value_heads", None) or heads)
        self._hold(config)

    def _hold(self, config: PretrainedConfig) -> None:
        """Count the weights of the policy, and the bytes that they take in all phases."""
        work, dtype, on_cpu = self.work, getattr(torch, self.work.dtype), self.work.device == "cpu"
        with torch.device("meta"):
            how = {} if work.attention is None else {"attn_implementation": work.attention}
            model: Any = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=dtype, **how)
            linear = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Linear))
            layers = [_numel(part) for part in layers_of(model)]
            rest = _numel(model) - sum(layers)
            adapt(model, None, None, work.lora_rank, None, work.lora_targets)
            critic = [Critic(model, work.critic == "separate")] if work.critic else []
        policy = nn.ModuleList([model, *critic])
        learned = [weight.numel() for weight in policy.parameters() if weight.requires_grad]
        alone = work.holders == 1  # otherwise the model itself acts, neither packed nor merged
        copied = sum(layer.base_layer.weight.numel() for _, layer in adapted_layers(model))  # a copy of these acts
        self.merged = dtype.itemsize * copied if alone and dtype.itemsize > 2 else 0
        self.count, self.size = _numel(policy), dtype.itemsize

        whole, trained = self.size * self.count, -(-sum(learned) // work.holders)
        wide = max(self.size, 4)  # the optimizer's numbers have at least 32 bits
        self.weights, self.gradients, self.moments = -(-whole // work.holders), wide * trained, 2 * wide * trained
        self.masters = 4 * trained if self.size == 2 else 0
        self.adam = 8 * max(learned) // work.holders if on_cpu else 4 * trained  # intermediate results of a step
        own = work.reference and (work.lora_rank is None or not alone)  # else an adapter's is the base itself
        self.reference = -(-work.teacher // work.holders) + (self.weights if own else 0)
        self.engine = work.engine + (whole if on_cpu and work.engine else 0)
        self.held = self.weights + self.moments + self.masters + self.reference + self.engine
        self.held += 0 if on_cpu else self.merged
        packs = on_cpu and alone and work.pack_weights and can_pack(dtype) and work.slots >= least_rows(dtype)
        self.acting_copy = (self.merged if on_cpu else 0) + (self.size * linear if packs else 0)  # for a rollout
        self.whole = self.gathered = 0
        if not alone:  # whole weights act; layers in training, and gradients before their sum is dealt out
            self.whole, self.gathered = whole, self.size * (3 * rest + 5 * max(layers, default=0))

    def phases(self) -> dict[str, tuple[int, Callable[[int], int]]]:
        """Return, of each phase, how many slots or episodes it has at once, and its peak for so many."""
        return {
            "acting": (self.work.slots, self.acting),
            "training": (self.work.rows(self.work.episodes), self.training),
            "optimizer step": (1, lambda _: self.held + self.gradients + self.adam),
        }

    def _layer(self, tokens: int) -> int:
        """Return the bytes that a layer keeps for the backward pass."""
        work, kept = self.work, 13 * self.wide + 4 * self.inner
        if work.attention == "eager":
            kept += 2 * work.context * self.text.num_attention_heads
        return self.size * tokens * kept

    def activations(self, rows: int) -> int:
        """Return the bytes that a forward pass of rows that share nothing keeps for the backward pass."""
        tokens = rows * (self.work.context - 1)
        states = self.size * tokens * self.wide
        plain = all(getattr(self.text, name, None) in (None, off) for name, off in AFTER_THE_HEAD.items())
        logits = 0 if plain else self.size * tokens * self.text.vocab_size
        layer = states if self.work.activation_checkpointing else self._layer(tokens)
        return 2 * states + self.text.num_hidden_layers * layer + logits

    def logits(self, rows: int) -> int:
        """Return the bytes of the log-probabilities of rows and their backward pass."""
        work, vocab_size = self.work, self.text.vocab_size
        count, most = rows * work.sampled * vocab_size, ELEMENTS if work.device == "cpu" else GPU_ELEMENTS
        each = (20 if work.entropy else 8) + (2 if self.size == 2 else 0)
        head = self.size * vocab_size * self.wide if count > most else 0  # its gradient, beside the last chunk
        return each * min(count, most) + head

    def training(self, rows: int) -> int:
        """Return the peak of training with so many episodes per pass."""
        work, kept, logits = self.work, self.activations(rows), self.logits(rows)
        critic = kept + logits // 2 if work.critic == "separate" else 0
        again = self._layer(rows * (work.context - 1)) if work.activation_checkpointing else 0
        # Gradients count even in the first pass; those of 16 bits are added to those of 32.
        gradients = self.gradients + self.masters // 2
        return self.held + self.gathered + kept + max(logits, critic, again) + gradients

    def cache(self, slots: int) -> int:
        """Return the bytes of the KV cache."""
        return 2 * self.size * self.text.num_hidden_layers * self.keys * slots * self.work.context

    def step(self, slots: int) -> int:
        """Return the bytes of choosing a token in every slot."""
        return 20 * slots * self.text.vocab_size

    def acting(self, slots: int) -> int:
        """Return the peak of acting."""
        work, text, prompts = self.work, self.text, -(-slots // self.work.group_size)
        token = self.size * (2 * text.num_hidden_layers * self.keys + 2 * self.wide + self.inner)  # that is read
        read = token * min(prompts * work.prompt_length, max(PREFILL, work.prompt_length))
        replies = min(slots * work.reply_length, max(PREFILL, work.reply_length))
        gradients = 0 if self.masters else self.gradients  # master weights drop theirs after a step
        reference = self.whole if self.reference else 0  # put together after acting
        step = self.step(slots) + token * replies
        added = max(self.cache(slots) + max(step, read), reference)
        return self.held + gradients + self.whole + self.acting_copy + added


def _numel(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
