"""Sampled tokens: ours through `reset` and `step`, against Hugging Face's `generate` with its cache."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from rlenv.agents import LanguageModelPolicy
from rlenv.agents.policies.base import actor_parameters
from rlenv.agents.rollouts.collector import Collector

from .floors import acting_floor
from .measure import Case, clock, in_turn
from .worlds import chat_envs, endless_model, letter_envs, letter_prompts, never_ends, smollm2, stories

TINY = {1: 8, 64: 4, 256: 2}  # batch size: rollouts of a measurement
BATCHES, DTYPES, TOKENS, RANK = (1, 8, 32), ("float32", "bfloat16"), 64, 16  # of SmolLM2


def cases(name: str) -> Iterator[Case]:
    """Yield a case for each batch size; of SmolLM2 in both precisions, without an adapter and with one."""
    if name == "generate":
        for batch, repeats in TINY.items():
            envs = letter_envs(batch, letter_prompts(batch, 8), 32)
            task = envs.task
            model = endless_model(task.encoding.vocab_size, task.encoding.max_length, task.encoding.eos_token_id)
            yield case(f"batch {batch}", Sampling(envs, model, repeats))
        return
    for dtype in DTYPES:
        for batch in BATCHES:
            yield from _with_adapter(dtype, batch)


def case(label: str, sampling: Sampling, more: str = "", **how: Any) -> Case:
    """Return the comparison of both ways of sampling; `how` is for `generate`."""
    floored = sampling.policy.model.dtype == torch.float32  # the floor is of products in float32
    return Case(
        label, "tokens/s", in_turn(sampling.ours, partial(sampling.peer, **how)),
        lambda: f"log-probabilities of acting and training differ by at most {sampling.gap():.1g}{more}",
        lambda: {"floor": acting_floor(sampling.policy.model, sampling.rollout)} if floored else {},
        less_is_better=False,
    )  # fmt: skip


def _with_adapter(dtype: str, batch: int) -> Iterator[Case]:
    """Yield the cases without an adapter and with one, which says what the adapter costs."""
    both = []
    for rank in (None, RANK):
        envs = chat_envs(batch, stories(batch, 0), TOKENS)
        model: Any = AutoModelForCausalLM.from_pretrained(smollm2(), dtype=getattr(torch, dtype))
        both.append(Sampling(envs, never_ends(model, envs.task.encoding.stop_token_ids), lora_rank=rank))
    plain, adapted = both
    with torch.no_grad():
        for name, weight in adapted.policy.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.01)  # as of an adapter that has been trained
    yield case(f"{dtype}, batch {batch}", plain)
    costs = statistics.median(adapted.ours() / plain.ours() - 1 for _ in range(3))
    yield case(f"{dtype}, batch {batch}, adapter of rank {RANK}", adapted, f"; {costs:+.0%} beside ours without it")


class Sampling:
    """Our acting and `generate`, with the same model and the same prompts.

    Args:
        envs: as many prompts as slots.
        model: which does not end an answer early.
        repeats: rollouts of one measurement.
        policy: further arguments of our policy.
    """

    def __init__(self, envs: Any, model: Any, repeats: int = 1, **policy: Any) -> None:
        self.task, self.batch, self.repeats = envs.task, envs.num_envs, repeats
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model, **policy)
        self.collector = Collector(envs, model.device)
        self.generator = torch.Generator(model.device).manual_seed(0)
        self.rollout: Any = self.collector.collect(self.policy, self.batch, self.generator)

    def ours(self) -> float:
        """Return our tokens per second, right after an update."""
        with torch.no_grad():
            for weight in actor_parameters(self.policy):
                weight.mul_(1)  # a new version, as after an update: what was merged or packed is made again
        with clock() as seconds:
            for _ in range(self.repeats):
                self.rollout = self.collector.collect(self.policy, self.batch, self.generator)
        return self.repeats * int(self.rollout.lengths.sum()) / seconds()

    def peer(self, **how: Any) -> float:
        """Return the tokens per second of `generate` after these prompts."""
        ids, mask = self.prompts()
        model: Any = self.policy.model
        encoding = self.task.encoding
        new = encoding.max_new_tokens
        with clock() as seconds, torch.no_grad():
            for _ in range(self.repeats):
                made = model.generate(
                    ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=True, top_k=0,
                    top_p=1.0, pad_token_id=encoding.pad_token_id, eos_token_id=encoding.eos_token_id, **how,
                )  # fmt: skip
        assert made.shape[1] == ids.shape[1] + new
        return self.repeats * self.batch * new / seconds()

    def prompts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the prompts of the last rollout, padded on the left, and the mask of their tokens [B, P]."""
        tokens, length = (self.rollout.observations[key] for key in ("tokens", "length"))
        longest = int(length.max())
        place = torch.arange(longest, device=tokens.device) - (longest - length[:, None])  # [B, P]; below 0: padding
        ids = tokens.gather(1, place.clamp(min=0)).where(place >= 0, self.task.encoding.pad_token_id)
        return ids, (place >= 0).long()

    def gap(self) -> float:
        """Return how far log-probabilities of the last rollout, or of four of its rows, are from those of training."""
        few = self.rollout.select(slice(0, 4)) if self.policy.model.device.type == "cuda" else self.rollout
        with torch.no_grad():
            found = self.policy.evaluate(few)["log_probs"]
        return float((found - few.log_probs)[few.mask].abs().max())
