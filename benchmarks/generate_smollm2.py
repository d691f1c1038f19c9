"""Sampled tokens of SmolLM2-135M-Instruct: ours through `reset` and `step`, against `generate`, with an adapter too."""

from __future__ import annotations

import statistics
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from agents import LanguageModelPolicy
from agents.rollouts.collector import Collector

from .floors import acting_floor
from .measure import Row, clock
from .smollm2 import JOBS, model_place, text_envs
from .worlds import never_ends

BATCHES, DTYPES, RANK = (1, 8, 32), ("float32", "bfloat16"), 16


def run(name: str, pairs: int) -> list[Row]:
    """Return rows for both precisions and each batch size: without an adapter and with one."""
    return [row for dtype in DTYPES for batch in BATCHES for row in _compare(dtype, batch, pairs)]


class _Sides:
    """Our acting and `generate`, with the same model, which never ends an answer.

    Args:
        dtype: of the model.
        batch: rows, each with another prompt.
        rank: of the adapter; None for none.
    """

    def __init__(self, dtype: str, batch: int, rank: int | None) -> None:
        job = JOBS["trl-smollm2-story"]
        self.envs = text_envs(job, batch, batch)
        self.task, self.batch, self.tokens = self.envs.task, batch, job.tokens
        model: Any = AutoModelForCausalLM.from_pretrained(model_place(), dtype=getattr(torch, dtype))
        spaces = (self.envs.single_observation_space, self.envs.single_action_space)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = never_ends(model, self.task.stop_token_ids)
            self.policy = LanguageModelPolicy(*spaces, model, lora_rank=rank)
            with torch.no_grad():
                for name, weight in self.policy.model.named_parameters():
                    if "lora_B" in name:
                        weight.normal_(std=0.01)  # as of an adapter that has been trained
        self.collector, self.generator = Collector(self.envs, torch.device("cpu")), torch.Generator().manual_seed(0)
        self.rollout: Any = None

    def ours(self) -> float:
        """Return our tokens per second, right after an update."""
        with torch.no_grad():
            for weight in self.policy.actor_parameters():
                weight.mul_(1)  # a new version, as after an update: what was merged or packed is made again
        with clock() as seconds:
            self.rollout = self.collector.collect(self.policy, self.batch, self.generator)
        assert bool((self.rollout.lengths == self.tokens).all())
        return self.batch * self.tokens / seconds()

    def peer(self) -> float:
        """Return the tokens per second of `generate`."""
        tokenizer, messages = self.task.tokenizer, [self.task.stream[i].prompt for i in range(self.batch)]
        tokenizer.padding_side = "left"
        how = {"add_generation_prompt": True, "padding": True, "return_dict": True, "return_tensors": "pt"}
        model: Any = self.policy.model
        with clock() as seconds, torch.no_grad():
            prompts = tokenizer.apply_chat_template(messages, **how)
            made = model.generate(**prompts, max_new_tokens=self.tokens, do_sample=True, top_k=0, top_p=1.0)
        assert made.shape[1] == prompts["input_ids"].shape[1] + self.tokens
        return self.batch * self.tokens / seconds()

    def gap(self) -> float:
        """Return how far log-probabilities of the last rollout are from those of training."""
        with torch.no_grad():
            found = self.policy.evaluate_actions(self.rollout, entropy=False)[0]
        return float((found - self.rollout.log_probs)[self.rollout.mask].abs().max())


def _compare(dtype: str, batch: int, pairs: int) -> list[Row]:
    """Measure with and without an adapter in turn, so that their ratio is of neighbours, too."""
    plain, adapted = (_Sides(dtype, batch, rank) for rank in (None, RANK))
    taken = [(plain.ours(), plain.peer(), adapted.ours(), adapted.peer()) for _ in range(pairs + 1)][1:]
    without, theirs, with_it, theirs_with_it = (list(each) for each in zip(*taken, strict=True))
    cost = statistics.median(1 - b / a for a, b in zip(without, with_it, strict=True))
    rows = []
    for sides, own, peer, rank, more in (
        (plain, without, theirs, 0, ""),
        (adapted, with_it, theirs_with_it, RANK, f"; {-cost:+.0%} beside ours without it"),
    ):
        floor = acting_floor(sides.policy.model, batch, sides.task.max_prompt_tokens, sides.tokens)
        label = f"{dtype}, batch {batch}{f', adapter of rank {rank}' if rank else ''}"
        quality = f"log-probabilities of acting and training differ by at most {sides.gap():.1g}{more}"
        known = {"floor": floor} if dtype == "float32" else {}  # the floor is of products in float32
        rows.append(Row.of(label, own, peer, "tokens/s", quality, less_is_better=False, **known))
    return rows
