"""Plays the problems of an evaluation block by block; several processes share them.

Greedy completions depend on their problem alone; what is sampled depends on the seed and the block alone. So the
completions are the same on any number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import torch

from agents import Collector, Policy, Rollout, processes
from agents.rollout import STATUSES
from agents.rollouts.collector import OnStep
from rlenv.task import TextGenTask

from .completions import Block, Pass, Row
from .progress import Rate
from .samples import turns_of


def rounds(todo: list[Block], processes: int) -> list[list[Block]]:
    """Return the blocks in their order, some at a time: as many as there are processes, or parts of one.

    A greedy completion depends on nothing else in its block, so the problems of such a block are divided. A sampled one
    does: those blocks are dealt out whole.
    """
    made: list[list[Block]] = []
    for one, group in groupby(todo, key=lambda block: block.of):
        own = list(group)
        if one.mode == "sampled":
            made += [own[start : start + processes] for start in range(0, len(own), processes)]
            continue
        for block in own:
            cuts = [block.start + block.count * part // processes for part in range(processes + 1)]
            made.append([Block(one, low, high - low) for low, high in pairwise(cuts) if high > low])
    return made


def play(
    policy: Policy,
    envs_for: Callable[[Pass], Any],
    todo: list[Block],
    seed: int,
    show: Callable[..., None],
    done: int = 0,
) -> Iterator[tuple[list[Row], str]]:
    """Answer the problems of these blocks; several processes share them.

    Args:
        policy: acts.
        envs_for: makes environments for a pass.
        todo: the last blocks of an evaluation.
        seed: of the problems and of the sampling.
        show: called with how many completions there are so far, and the tokens per second.
        done: how many there were before.

    Yields:
        The completions of one block or more, and why the verifier failed the last time (empty if it never did).
    """
    count = _Count(show, done)
    for one, group in groupby(rounds(todo, processes.size()), key=lambda dealt: dealt[0].of):
        with processes.alone():
            envs = envs_for(one)
        try:
            collector = Collector(envs, policy.device)
            for dealt in group:
                count.begin(dealt)
                own = dealt[processes.rank()] if processes.rank() < len(dealt) else None
                parts = processes.together(partial(_answer, policy, collector, own, seed, count))
                failure = next((reason for _, reason in parts if reason), "")
                yield [row for rows, _ in parts for row in rows], failure
        finally:
            envs.close()


class _Count:
    """Shows how far an evaluation is, by what this process does: the others have about as much.

    Args:
        show: see `play`.
        done: completions before.
    """

    def __init__(self, show: Callable[..., None], done: int) -> None:
        self.show, self.rate, self.tokens = show, Rate("tokens"), 0
        self.done = self.goal = done
        self.parts = 0

    def begin(self, dealt: list[Block]) -> None:
        """Count a round."""
        self.done, self.parts = self.goal, len(dealt)
        self.goal += sum(block.lines for block in dealt)

    def __call__(self, taken: int, local: dict[str, Any]) -> bool:
        """Count a step of the environments."""
        self.tokens += taken * self.parts
        self.done = min(self.done + int(local["dones"].sum()) * self.parts, self.goal)
        self.show(self.done, self.rate(self.tokens))
        return True


def _answer(
    policy: Policy, collector: Collector, block: Block | None, seed: int, step: OnStep
) -> tuple[list[Row], str]:
    """Return the completions of a block, and why the verifier failed the last time."""
    if block is None:
        return [], ""
    task = collector.envs.unwrapped.task
    task.first_problem = block.start
    collector.seed(seed)
    generator = _generator(seed, block, policy.device)
    rollout = collector.collect(policy, block.lines, generator, block.of.mode == "greedy", step)
    assert rollout is not None  # `step` never ends the collection
    return rows_of(task, rollout, block), collector.failure


def _generator(seed: int, block: Block, device: torch.device) -> torch.Generator:
    """Return the generator of a block's sampling; that of the first one is seeded as every evaluation of an agent."""
    if block.start:
        seed = int(np.random.SeedSequence([seed, block.start]).generate_state(1, np.uint64)[0] >> 1)
    return torch.Generator(device).manual_seed(seed)


def rows_of(task: TextGenTask, rollout: Rollout, block: Block) -> list[Row]:
    """Return the completions of a block as they are written, in the order of problems and samples."""
    lengths = rollout.lengths.tolist()
    actions = rollout.actions.tolist()
    texts = task.encoding.texts([tokens[:length] for tokens, length in zip(actions, lengths, strict=True)])
    dialogues = turns_of(task, rollout)
    texts = [turns[-1]["text"] if turns else text for turns, text in zip(dialogues, texts, strict=True)]
    extras = {name: values.tolist() for name, values in rollout.extras.items()}
    returns, success, cut = rollout.returns.tolist(), rollout.success.tolist(), rollout.truncated.tolist()
    status = rollout.status.tolist()
    rows = []
    for offset in range(block.count):
        problem = task.stream[block.start + offset]
        for sample in range(block.of.samples):
            i = offset * block.of.samples + sample
            level, turns = (extras.get(name, {i: math.nan})[i] for name in ("level", "turns"))
            rows.append(
                {
                    "problem": block.start + offset,
                    "mode": block.of.mode,
                    "sample": sample,
                    "prompt": problem.prompt,
                    "answer": problem.answer,
                    "completion": texts[i],
                    "extracted": task.verifier.extract(problem, texts[i]),
                    "tokens": lengths[i],
                    "truncated": cut[i],
                    "status": STATUSES[status[i]],
                    "reward": returns[i],
                    "success": None if math.isnan(success[i]) else bool(success[i]),
                    "level": None if math.isnan(level) else int(level),
                    "parts": {
                        name.removeprefix("parts/"): values[i]
                        for name, values in extras.items()
                        if name.startswith("parts/") and not math.isnan(values[i])
                    },
                    **(
                        {"turns": None if math.isnan(turns) else int(turns), "dialogue": dialogues[i]}
                        if dialogues[i]
                        else {}
                    ),
                }
            )
    return rows
