"""Decoding with Qwen2.5-0.5B's configuration on a GPU: ours through reset and step, and the ways of `generate`."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from agents import LanguageModelPolicy
from agents.rollouts.collector import Collector

from .gpu import PROMPT, TOKENS, Floors, qwen, require_gpu, text_envs
from .measure import Row, alternate, clock

BATCHES = (32, 256, 1024)


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each batch size and way of generating."""
    require_gpu()
    model = qwen().cuda()
    floors = Floors.of(model.device)
    return [row for batch in BATCHES for row in compare(model, floors, batch, PROMPT, TOKENS, pairs)]


def compare(model: PreTrainedModel, floors: Floors, batch: int, prompt: int, tokens: int, pairs: int) -> list[Row]:
    """Return the rows of one batch size; small sizes run on a CPU, too."""
    envs = text_envs(model, batch, prompt, tokens)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model)
    collector = Collector(envs, model.device)
    generator = torch.Generator(model.device).manual_seed(0)
    collected: list[Any] = []

    def ours() -> float:
        collector.seed(0)
        with clock() as seconds:
            collected[:] = [collector.collect(policy, batch, generator)]
        return int(collected[0].lengths.sum()) / seconds()

    ours()  # captures the graphs
    prompts = collected[0].observations["tokens"][:, :prompt]
    floor = batch / floors.step(model, batch, prompt + tokens / 2)  # tokens per second
    rows = []
    for label, settings in {"dynamic cache": {}, "static cache, compiled": {"cache_implementation": "static"}}.items():

        def peer(settings: dict[str, Any] = settings) -> float:
            with clock() as seconds, torch.no_grad():
                model.generate(
                    prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=tokens, min_new_tokens=tokens,
                    do_sample=True, top_k=0, pad_token_id=1, eos_token_id=0, **settings,
                )  # fmt: skip
            return batch * tokens / seconds()

        taken = alternate(ours, peer, pairs)
        rollout = collected[0]
        with torch.no_grad():
            again = policy.evaluate_actions(rollout.select(slice(0, 4)), entropy=False)[0]
        gap = float((again - rollout.log_probs[:4]).where(rollout.mask[:4], 0).abs().max())
        share = sorted(taken[0])[len(taken[0]) // 2] / floor
        quality = f"{share:.0%} of the floor; log-probabilities differ from training's by at most {gap:.2g}"
        rows.append(Row.of(f"B = {batch}, {label}", *taken, "tokens/s", quality, less_is_better=False, floor=floor))
    return rows
