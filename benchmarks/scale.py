"""How time and memory of a rollout and an update grow with slots, length and group size, fitted as powers."""

from __future__ import annotations

import json
import math
import resource
import sys
from typing import Any

import torch

from agents import Agent, ReinforceBaseline

from .measure import THREADS, Row, clock, in_a_process
from .worlds import endless_model, letter_envs, letter_prompts

SWEEPS: dict[str, list[dict[str, int]]] = {
    "slots": [{"slots": n, "length": 32, "group": 1} for n in (16, 64, 256, 1024)],
    "length": [{"slots": 32, "length": n, "group": 1} for n in (16, 64, 256, 512)],
    "group": [{"slots": 256, "length": 32, "group": n} for n in (1, 4, 16, 32)],
}


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each quantity: the measured growth against growth in proportion."""
    rows = []
    for quantity, settings in SWEEPS.items():
        figures = [in_a_process(__name__, json.dumps(each)) for each in settings]
        first, last = settings[0][quantity], settings[-1][quantity]
        times = [figure["seconds"] for figure in figures]
        powers = {key: _power([s[quantity] for s in settings], [f[key] for f in figures]) for key in figures[0]}
        quality = ", ".join(f"{key} grows with the power {power:.2f}" for key, power in powers.items())
        proportional = times[0] * (1 if quantity == "group" else last / first)  # groups add no episodes
        sweep = [each | figure for each, figure in zip(settings, figures, strict=True)]
        unit = "s at the last size; peer: the first size in proportion"
        rows.append(Row.of(f"{quantity} {first} to {last}", [times[-1]], [proportional], unit, quality, sweep=sweep))
    return rows


def _power(sizes: list[int], values: list[float]) -> float:
    """Return the exponent of a power law, by least squares in logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(max(value, 1e-9)) for value in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


def _measure(slots: int, length: int, group: int) -> dict[str, float]:
    torch.set_num_threads(THREADS)
    reward = lambda prompts, completions: [text.count("a") / length for text in completions]  # noqa: E731
    envs = letter_envs(slots, letter_prompts(slots, 8), length, reward, group_size=group)
    model = endless_model(envs.task.vocab_size, envs.task.max_length, envs.task.eos_token_id)
    settings: dict[str, Any] = {"episodes_per_update": slots, "num_envs": slots, "device": "cpu"}
    settings["micro_batch_tokens"] = 8192
    agent: Agent = ReinforceBaseline(model, envs, baseline="batch-mean", **settings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    agent.learn(total_episodes=slots)
    with clock() as seconds:
        agent.learn(total_episodes=slots)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"seconds": seconds(), "memory_mb": peak / 1024}


if __name__ == "__main__":
    print(json.dumps(_measure(**json.loads(sys.argv[1]))))
