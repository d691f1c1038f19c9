"""Plays the problems of an evaluation block by block; several processes share the blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch

from agents import Collector, Policy, Rollout, processes
from agents.rollout import STATUSES
from agents.rollouts.collector import OnStep
from rlenv.task import TextGenTask

from .completions import Block, Row
from .progress import Rate, Show
from .samples import turns_of


def play(
    policy: Policy, envs_for: Callable[[int], Any], todo: list[Block], seed: int, show: Show, done: int = 0
) -> Iterator[tuple[list[Row], str]]:
    """Answer the problems of these blocks; each process takes a block at a time.

    Args:
        policy: acts.
        envs_for: makes environments in which each problem is posed so many times.
        todo: the last blocks of an evaluation.
        seed: of the problems and of the sampling.
        show: called with how many completions there are so far, and the tokens per second.
        done: how many there were before.

    Yields:
        The completions of one block or more, and why the verifier failed the last time (empty if it never did).
    """
    rate, tokens, played, dealt = Rate("tokens"), 0, done, list[Block]()

    def on_step(taken: int, local: dict[str, Any]) -> bool:
        """Count what this process does; the others have about as much."""
        nonlocal tokens, played
        tokens, played = tokens + taken * len(dealt), played + int(local["dones"].sum()) * len(dealt)
        show(min(played, done + sum(block.lines for block in dealt)), rate(tokens))
        return True

    for samples, group in groupby(todo, key=lambda block: block.samples):
        with processes.alone():
            envs = envs_for(samples)
        try:
            collector, own = Collector(envs, policy.device), list(group)
            while own:
                dealt, own = own[: processes.size()], own[processes.size() :]
                mine = dealt[processes.rank()] if processes.rank() < len(dealt) else None
                parts = processes.on_all(partial(_answer, policy, collector, mine, seed, on_step))
                done = played = done + sum(block.lines for block in dealt)
                yield [row for rows, _ in parts for row in rows], next(filter(None, (why for _, why in parts)), "")
        finally:
            envs.close()


def _answer(
    policy: Policy, collector: Collector, block: Block | None, seed: int, on_step: OnStep
) -> tuple[list[Row], str]:
    """Return the completions of a block, and why the verifier failed the last time."""
    if block is None:
        return [], ""
    task = collector.envs.unwrapped.task
    task.first_problem = block.start
    collector.seed(seed)
    own = seed  # the first block is seeded as every evaluation of an agent
    if block.start:
        own = int(np.random.SeedSequence([seed, block.start]).generate_state(1, np.uint64)[0] >> 1)
    generator = torch.Generator(policy.device).manual_seed(own)
    rollout = collector.collect(policy, block.lines, generator, block.mode == "greedy", on_step)
    assert rollout is not None  # `on_step` never ends the collection
    return rows_of(task, rollout, block), collector.failure


def rows_of(task: TextGenTask, rollout: Rollout, block: Block) -> list[Row]:
    """Return the completions of a block as they are written, in the order of problems and samples."""
    lengths, success, status = rollout.lengths.tolist(), rollout.success.tolist(), rollout.status.tolist()
    returns, cut = rollout.returns.tolist(), rollout.truncated.tolist()
    actions = [tokens[:length] for tokens, length in zip(rollout.actions.tolist(), lengths, strict=True)]
    texts, dialogues = task.encoding.texts(actions), turns_of(task, rollout)
    extras = {name: values.tolist() for name, values in rollout.extras.items()}
    rows = []
    for i, turns in enumerate(dialogues):
        number, sample = divmod(i, block.samples)
        problem = task.stream[block.start + number]
        text = turns[-1]["text"] if turns else texts[i]
        known = {name: values[i] for name, values in extras.items() if not math.isnan(values[i])}
        row = {
            "problem": block.start + number,
            "mode": block.mode,
            "sample": sample,
            "prompt": problem.prompt,
            "answer": problem.answer,
            "completion": text,
            "extracted": task.verifier.extract(problem, text),
            "tokens": lengths[i],
            "truncated": cut[i],
            "status": STATUSES[status[i]],
            "reward": returns[i],
            "success": None if math.isnan(success[i]) else bool(success[i]),
            "level": int(known["level"]) if "level" in known else None,
            "parts": {name.removeprefix("parts/"): known[name] for name in known if name.startswith("parts/")},
        }
        spoken = {"turns": int(known["turns"]) if "turns" in known else None, "dialogue": turns}
        rows.append(row | (spoken if turns else {}))
    return rows
