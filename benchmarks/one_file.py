"""An update of GRPO beside that of `examples/grpo.py`, which has the same mathematics in 300 lines."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlenv.agents import GRPO

from .against_trl import LAST, Rollouts
from .measure import Case, clock, mean_and_range
from .worlds import GROUPS, K, arith_envs, warm_model

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "grpo.py"
UPDATES, TOKENS, RATE = 50, 5, 3e-4


def cases(name: str) -> Iterator[Case]:
    """Yield the one case; each of its pairs is a seed, and both sides begin with the same weights.

    Raises:
        ValueError: see `_loaded`.
    """
    example = _loaded()
    rewards: dict[str, list[float]] = {"ours": [], "peer": []}

    def pair() -> tuple[float, float]:
        seed = len(rewards["ours"]) + 1  # seed 0 has the sums of the warm start
        ours, mine = _ours(seed)
        theirs, his = _theirs(example, seed)
        rewards["ours"].append(mine)
        rewards["peer"].append(his)
        return ours, theirs

    def quality() -> str:
        reached = {side: mean_and_range(each[1:]) for side, each in rewards.items()}
        return f"reward ours {reached['ours']}, the file's {reached['peer']} (the last {LAST} of {UPDATES} updates)"

    yield Case(f"GRPO, {GROUPS} sums x {K} answers of at most {TOKENS}", "s/update", pair, quality)


def _loaded() -> Any:
    """Return the file as a module.

    Raises:
        ValueError: without it; a clone of the repository has it.
    """
    if not EXAMPLE.is_file():
        raise ValueError(f"this benchmark needs {EXAMPLE.name} of the repository's examples: run it in a clone")
    spec: Any = importlib.util.spec_from_file_location("one_file_grpo", EXAMPLE)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def _ours(seed: int) -> tuple[float, float]:
    """Return the seconds per update of ours, and the mean reward of the last updates."""
    batch, kept = GROUPS * K, Rollouts()
    agent = GRPO(
        warm_model(), arith_envs(batch, group_size=K, max_new_tokens=TOKENS), episodes_per_update=batch, num_envs=batch,
        group_size=K, learning_rate=RATE, warmup_updates=0, seed=seed, device="cpu",
    )  # fmt: skip
    with clock() as seconds:
        agent.learn(total_episodes=batch * UPDATES, callback=kept)
    return seconds() / UPDATES, statistics.mean(kept.rewards[-LAST:])


def _theirs(example: Any, seed: int) -> tuple[float, float]:
    """Return the same of the file."""
    task = arith_envs(1).task
    task.reseed(np.random.default_rng(seed))
    encoding, drawn = task.encoding, itertools.count()

    class Sums(example.Sums):
        """The problems of our environment, in its tokens."""

        def draw(self, count: int, held_out: bool = False) -> list[tuple[int, ...]]:
            texts = [task.stream[next(drawn)].text for _ in range(count)]
            return [tuple(map(int, text.rstrip("=").split("+"))) for text in texts]

        def prompt(self, a: int, b: int) -> Any:
            return encoding.tokenizer.encode(f"{a}+{b}=")

        def text(self, tokens: list[int]) -> str:
            return str(encoding.texts([tokens])[0])

    sums = Sums(seed=seed)
    sums.ends = sorted(encoding.stop_token_ids)
    settings = example.Settings(GROUPS * K, K, micro_batch=GROUPS * K, learning_rate=RATE)
    with clock() as seconds, contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng():
        means = example.train(warm_model(), sums, settings, UPDATES, TOKENS, seed)
    return seconds() / UPDATES, statistics.mean(means[-LAST:])
