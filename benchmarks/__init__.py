"""Ours and a peer, measured in turn: `rlenv bench NAME`. One kind of benchmark per file."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from agents.core.checks import check_choice

BENCHMARKS = {  # name: its module, which has `run(name, pairs) -> list[Row]`, and what it measures
    "trl-grpo": ("trl_short", "an update of GRPO on short answers, against TRL"),
    "trl-rloo": ("trl_short", "an update of RLOO on short answers, against TRL"),
    "trl-long": ("trl_long", "an update on long answers of unequal length, against TRL"),
    "trl-prompt": ("trl_shapes", "an update on long prompts with short answers, against TRL"),
    "trl-balanced": ("trl_shapes", "an update on prompts four times as long as answers, against TRL"),
    "trl-reasoning": ("trl_shapes", "an update on short prompts with long answers, against TRL"),
    "trl-30m": ("trl_shapes", "an update of a model of 30 million parameters, against TRL"),
    "trl-smollm2": ("trl_smollm2", "an update of SmolLM2-135M on sums, against TRL; ten minutes per pair"),
    "trl-smollm2-story": ("trl_smollm2", "an update of SmolLM2-135M on 64-token stories, against TRL"),
    "generate": ("generate", "tokens per second through reset and step, against Hugging Face's generate"),
    "generate-smollm2": ("generate_smollm2", "tokens per second of SmolLM2-135M, against generate; with an adapter"),
    "refill": ("refill", "slots that restart at once, against waves that wait for their longest episode"),
    "replies": ("replies", "sampled tokens per second with replies in between, against the same tokens without"),
    "slow-replies": ("replies", "replies of half a second that slots wait for alone, against steps that wait for all"),
    "sb3": ("sb3", "CartPole to 475, against stable-baselines3's PPO and A2C"),
    "control": ("control", "CartPole: acting in numpy, slots stepped together, 64 seeds at once, each against without"),
    "env": ("env", "the environment's and the collector's share of a step"),
    "verifier": ("verifier", "what the verifier adds to a rollout"),
    "techniques": ("techniques", "each way of doing less work for the same gradient, alone and together"),
    "shapes": ("shapes", "each way of doing less work at users' shapes, against without it"),
    "profile": ("profile", "where the time of an update goes, and how much of it is arithmetic"),
    "cores": ("cores", "an update with two threads, against one"),
    "memory": ("memory", "peak memory of the loss with a large vocabulary, against TRL and full logits"),
    "adapters": ("adapters", "acting with a LoRA adapter, against acting without one"),
    "scale": ("scale", "growth of time and memory with slots, length and group size"),
    "h200": ("h200", "on a GPU, in ten minutes: each technique with and without it, and shares of the measured floor"),
    "h200-decode": ("h200", "decoding with a 0.5 B model on a GPU, against generate"),
    "h200-train": ("h200", "an update of a 0.5 B model on a GPU, against TRL"),
}
NEEDS_GPU = ("h200", "h200-decode", "h200-train")  # `run(name, pairs, command, folder)` writes rows as they are made
BY_SEED = (
    "trl-smollm2",
    "trl-smollm2-story",
)  # `run(name, pairs, folder, updates, resume)` writes each seed as measured


def find_benchmark(name: str) -> Any:
    """Return the module of a benchmark.

    Raises:
        ValueError: for an unknown name, with the closest match.
    """
    return import_module(f".{BENCHMARKS[check_choice('benchmark', name, BENCHMARKS)][0]}", __package__)
