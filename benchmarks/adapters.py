"""Acting with a LoRA adapter on every projection, against acting without one."""

from __future__ import annotations

from typing import Any

import torch

from agents import LanguageModelPolicy
from agents.rollouts.collector import Collector

from .measure import Row, alternate, clock
from .trl_shapes import SHAPES, qwen3
from .worlds import endless_model, letter_envs, letter_prompts

SLOTS, PROMPT, TOKENS, RANK = 64, 8, 32, 8


def run(name: str, pairs: int) -> list[Row]:
    """Return results for two sizes and two precisions."""
    return [_compare(size, dtype, pairs) for dtype in ("float32", "bfloat16") for size in ("0.43 M", "4.7 M")]


def _compare(size: str, dtype: str, pairs: int) -> Row:
    envs = letter_envs(SLOTS, letter_prompts(4 * SLOTS, PROMPT), TOKENS)
    spaces = (envs.single_observation_space, envs.single_action_space)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def policy_of(rank: int | None) -> LanguageModelPolicy:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            task = envs.task
            model = endless_model(task.vocab_size, task.max_length, task.eos_token_id)
            if size != "0.43 M":
                model = qwen3(next(iter(SHAPES.values())))
            return LanguageModelPolicy(*spaces, model, dtype=dtype, lora_rank=rank).to(device)

    def collect(policy: LanguageModelPolicy) -> float:
        with torch.no_grad():
            for weight in policy.actor_parameters():
                weight.mul_(1)  # a new version, as after an update: what was merged is merged again
        collector = Collector(envs, device)
        collector.seed(0)
        generator: Any = torch.Generator(device).manual_seed(0)
        with clock() as seconds:
            rollout = collector.collect(policy, SLOTS, generator)
        assert rollout is not None
        return int(rollout.lengths.sum()) / seconds()

    ours, peer = policy_of(RANK), policy_of(None)
    taken = alternate(lambda: collect(ours), lambda: collect(peer), pairs)
    what = f"{size} parameters, {dtype}, rank {RANK}"
    return Row.of(what, *taken, "tokens/s", "the same model without an adapter", less_is_better=False)
