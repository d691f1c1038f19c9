"""How time and memory grow with slots, length, group size, vocabulary, weights and problems, fitted as powers."""

from __future__ import annotations

import json
import math
import random
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium as gym
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from agents import Agent, ReinforceBaseline
from rlenv.problems.listed import cache

from .gpu import text_envs
from .measure import THREADS, Row, clock, in_a_process
from .worlds import endless_model, letter_envs, letter_prompts, never_ends

BASE = {"slots": 32, "length": 32, "group": 1}
SIZES = ((128, 2), (256, 6), (512, 10), (768, 16))  # width and layers of 0.4 to 118 million weights
SWEEPS: dict[str, list[dict[str, int]]] = {
    "slots": [{**BASE, "slots": n} for n in (16, 64, 256, 1024)],
    "length": [{**BASE, "length": n} for n in (16, 64, 256, 512)],
    "group": [{**BASE, "slots": 256, "group": n} for n in (1, 4, 16, 32)],
    "vocabulary": [{**BASE, "vocabulary": n, "width": 128, "layers": 2} for n in (512, 4096, 32_768, 131_072)],
    "weights": [{**BASE, "vocabulary": 512, "width": width, "layers": layers} for width, layers in SIZES],
    "problems": [{"problems": n} for n in (1000, 10_000, 100_000, 1_000_000)],
}
PROMPT = 8  # tokens


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each quantity: the measured growth against growth in proportion."""
    return [_row(quantity, settings) for quantity, settings in SWEEPS.items()]


def _row(quantity: str, settings: list[dict[str, int]]) -> Row:
    figures = [in_a_process(__name__, json.dumps(each)) for each in settings]
    weights = [figure.pop("weights", 0) for figure in figures]
    sizes = weights if quantity == "weights" else [each[quantity] for each in settings]
    powers = {key: power(sizes, [f[key] for f in figures]) for key in figures[0]}
    quality = ", ".join(f"{key} grows with the power {value:.2f}" for key, value in powers.items())
    times = [figure["seconds"] for figure in figures]
    proportional = times[0] * (1 if quantity == "group" else sizes[-1] / sizes[0])  # groups add no episodes
    sweep = [{"size": size, **figure} for size, figure in zip(sizes, figures, strict=True)]
    unit = "s at the last size; peer: the first size in proportion"
    label = f"{quantity} {sizes[0]:,} to {sizes[-1]:,}"
    return Row.of(label, [times[-1]], [proportional], unit, quality, quantity=quantity, sweep=sweep, powers=powers)


def power(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the exponent of a power law, by least squares in logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(max(value, 1e-9)) for value in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


def _measure(slots: int, length: int, group: int, **model: int) -> dict[str, float]:
    """Return the seconds of an update and the memory that it takes beyond the model."""
    torch.set_num_threads(THREADS)
    if model:
        built = _model(**model, context=PROMPT + length)
        envs = text_envs(built, slots, PROMPT, length)
    else:
        reward = lambda prompts, completions: [text.count("a") / length for text in completions]  # noqa: E731
        envs = letter_envs(slots, letter_prompts(slots, PROMPT), length, reward, group_size=group)
        built = endless_model(envs.task.vocab_size, envs.task.max_length, envs.task.eos_token_id)
    settings: dict[str, Any] = {"episodes_per_update": slots, "num_envs": slots, "device": "cpu"}
    settings["micro_batch_tokens"] = 8192
    agent: Agent = ReinforceBaseline(built, envs, baseline="batch-mean", **settings)
    before = _peak()
    agent.learn(total_episodes=slots)
    with clock() as seconds:
        agent.learn(total_episodes=slots)
    return {"seconds": seconds(), "memory_mb": _peak() - before, "weights": built.num_parameters()}


def _model(vocabulary: int, width: int, layers: int, context: int) -> PreTrainedModel:
    """Return a random model of this size, whose answers do not end early."""
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=width // 4, max_position_embeddings=context,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=0, pad_token_id=1,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return never_ends(Qwen3ForCausalLM(config), [0, 1])


def _open(problems: int) -> dict[str, float]:
    """Return the seconds of opening a file of so many rows for the first time and again, and the index's memory."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(cache, "HF_HOME", folder):
        path, draw = Path(folder) / "problems.jsonl", random.Random(0)
        with path.open("w", encoding="utf-8") as file:
            for number in range(problems):
                a, b = draw.randrange(10**6), draw.randrange(10**6)
                prompt = f"Problem {number}: what is the sum of {a} and {b}? Think step by step, then answer."
                file.write(json.dumps({"prompt": prompt, "answer": str(a + b)}) + "\n")
        time.sleep(2.1)  # a younger file is hashed at every opening
        taken = []
        for _ in range(2):
            before, started = _peak(), time.perf_counter()
            gym.make("TextGen-v0", verifier="exact", problems=str(path)).reset(seed=0)
            taken.append((time.perf_counter() - started, _peak() - before))
    (first, memory), (again, _) = taken
    return {"seconds": again, "first_seconds": first, "memory_mb": memory}


def _peak() -> float:
    """Return the largest memory of this process so far in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(_open(**asked) if "problems" in asked else _measure(**asked)))
