"""Ours and a peer, alternately, in the same minutes: `rlenv bench NAME`. One benchmark a file."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

BENCHMARKS = {  # each module has `run(pairs) -> list[Row]`
    "trl-grpo": ("trl_short", "an update of GRPO on short answers, against TRL"),
    "trl-rloo": ("trl_short", "an update of RLOO on short answers, against TRL"),
    "trl-long": ("trl_long", "an update on long answers of unequal length, against TRL"),
    "generate": ("generate", "tokens a second through reset and step, against Hugging Face's generate"),
    "refill": ("refill", "slots that restart while others run on, against waves"),
    "sb3": ("sb3", "CartPole to 475, against stable-baselines3's PPO and A2C"),
    "env": ("env", "the environment's and the collector's share of a step"),
    "verifier": ("verifier", "what the verifier adds to a rollout"),
    "techniques": ("techniques", "each way of doing less work for the same gradient, by itself"),
    "profile": ("profile", "where the time of an update goes, and how much of it the arithmetic alone would take"),
    "memory": ("memory", "peak memory of a large vocabulary's loss, against TRL and the whole logits"),
    "scale": ("scale", "growth of time and memory with slots, length and group size"),
    "h200-decode": ("h200_decode", "decoding with a 0.5 B model on a GPU, against generate"),
    "h200-train": ("h200_train", "an update of a 0.5 B model on a GPU, against TRL"),
}
NEEDS_GPU = ("h200-decode", "h200-train")


def find_benchmark(name: str) -> Any:
    """Return the module of a benchmark.

    Raises:
        ValueError: for an unknown name, with the closest match.
    """
    if name not in BENCHMARKS:
        close = difflib.get_close_matches(name, BENCHMARKS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown benchmark {name!r}; {hint}allowed: {', '.join(BENCHMARKS)}")
    return import_module(f".{BENCHMARKS[name][0]}", __package__)
