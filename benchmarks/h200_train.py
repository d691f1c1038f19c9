"""An update of Qwen2.5-0.5B's configuration on a GPU: 64 prompts x 8 answers of 256 tokens, bfloat16, against TRL."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from agents import Agent, find_agent

from .gpu import PROMPT, TOKENS, Floors, even_words, qwen, require_gpu, text_envs
from .measure import Row, clock
from .peers import SAME_LOSS, require_trl, train_beside

GROUPS, K, STEPS, PARTS = 64, 8, 2, 8  # the activations of an eighth of the rows fit beside everything else


def run(name: str, pairs: int) -> list[Row]:
    """Return a row."""
    require_gpu()
    require_trl()
    model = qwen().cuda()
    floors = Floors.of(model.device)
    return compare(model, floors, GROUPS, K, PROMPT, TOKENS, pairs, PARTS, use_cpu=False, bf16=True)


def compare(
    model: PreTrainedModel,
    floors: Floors,
    groups: int,
    k: int,
    prompt: int,
    tokens: int,
    pairs: int,
    parts: int,
    **settings: Any,
) -> list[Row]:
    """Return the row; small sizes run on a CPU, too."""
    batch, turns = groups * k, pairs + 1
    envs = text_envs(model, batch, prompt, tokens, even_words, group_size=k)
    agent: Agent = find_agent("grpo")(
        model, envs, learning_rate=1e-6, lr_schedule="constant", episodes_per_update=batch, num_envs=batch,
        micro_batch_tokens=batch // parts * (prompt + tokens), device=str(model.device),
    )  # fmt: skip
    split: list[dict[str, float]] = []
    collect_rollout = agent.collect_rollout

    def timed(listener: Any) -> Any:
        with clock() as seconds:
            rollout = collect_rollout(listener)
        assert rollout is not None
        split.append({"acting": seconds(), "tokens": float(rollout.lengths.sum()) + batch * prompt})
        return rollout

    agent.collect_rollout = timed  # type: ignore[assignment, method-assign]
    times, *_ = train_beside(
        "GRPO", agent, model, even_words, STEPS, turns, per_device_train_batch_size=batch // parts,
        gradient_accumulation_steps=parts, **SAME_LOSS, **settings,
    )  # fmt: skip
    acting = sum(part["acting"] for part in split[STEPS:]) / len(split[STEPS:])
    training = sum(times.ours[1:]) / pairs - acting
    used = 6 * sum(p.numel() for p in model.parameters()) * split[-1]["tokens"] / training / floors.operations
    peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    gap = agent.last_metrics["train/logp_gap_max"]
    quality = (
        f"acting {acting:.2f} s, training {training:.2f} s, {used:.0%} of the arithmetic (6 N per token); "
        f"peak of both together {peak:.0f} GiB; log-probabilities of acting and training differ by at most {gap:.2g}"
    )
    return [Row.of(f"GRPO, {groups} x {k}, {tokens} tokens", times.ours[1:], times.theirs[1:], "s/update", quality)]
