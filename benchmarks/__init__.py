"""Ours and a peer, measured in turn: `rlenv bench NAME`. Each module has a function that yields `measure.Case`s."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from rlenv._checks import check_choice

BENCHMARKS = {  # name: the module with its function `cases`, and what it measures
    "trl-grpo": ("against_trl", "an update of GRPO on short answers, against TRL"),
    "trl-long": ("against_trl", "an update on long answers of unequal length, against TRL"),
    "trl-prompt": ("against_trl", "an update on long prompts with short answers, against TRL"),
    "trl-30m": ("against_trl", "an update of a model of 30 million parameters, against TRL"),
    "trl-smollm2": ("against_trl", "an update of SmolLM2-135M on sums, against TRL; four minutes per pair"),
    "trl-smollm2-story": ("against_trl", "an update of SmolLM2-135M on 64-token stories, against TRL"),
    "one-file": ("one_file", "an update of GRPO, against examples/grpo.py, the same in 300 lines"),
    "generate": ("generate", "tokens per second through reset and step, against Hugging Face's generate"),
    "generate-smollm2": ("generate", "tokens per second of SmolLM2-135M, against generate; with an adapter"),
    "update": ("update", "acting and training of 0.4, 30 and 135 million parameters, against their arithmetic"),
    "sb3": ("sb3", "CartPole to 475, against stable-baselines3's PPO and A2C"),
    "env": ("env", "the environment's and the collector's share of a step"),
    "gpu": ("gpu", "on a GPU: decoding, captured and not and against generate, and an update; memory"),
    "trl-gpu": ("against_trl", "on a GPU: an update of a 0.5 B model, against TRL"),
}
NEEDS_GPU = ("gpu", "trl-gpu")


def find_benchmark(name: str) -> Callable[[str], Iterator[Any]]:
    """Return the function that yields the cases of a benchmark, given its name.

    Raises:
        ValueError: for an unknown name, with the closest match, or without the GPU that it needs.
    """
    import torch

    module = import_module(f".{BENCHMARKS[check_choice('benchmark', name, BENCHMARKS)][0]}", __package__)
    if name in NEEDS_GPU and not torch.cuda.is_available():
        raise ValueError(f"the benchmark {name} needs a CUDA device; torch finds none")
    cases: Callable[[str], Iterator[Any]] = module.cases
    return cases
