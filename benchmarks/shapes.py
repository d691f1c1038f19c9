"""Updates at the shapes of users' tasks: each way of reading less or in a better order, against without it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from agents.policies import choosing
from agents.policies.language.decoding import decoder, packed
from agents.policies.language.training import forward, tree_attention

from . import trl_long
from .measure import Row, alternate, clock
from .trl_shapes import SHAPES, our_agent, qwen3

SWITCHES: dict[str, tuple[Any, str, Any]] = {  # a constant or function, and what switches its technique off
    "contexts as a forest": (forward, "MANY_NODES", sys.maxsize),
    "a written-out pass": (forward, "is_written_out", lambda part: False),
    "stems of rows": (decoder, "WORTH_IT", sys.maxsize),
    "packed weights": (packed, "LARGE", sys.maxsize),
}
SIZES = "contexts of equal size together"
LENGTHS: dict[str, tuple[Any, str, Any]] = {SIZES: (tree_attention, "ALIKE", 0.0)}  # for answers of unequal lengths
DRAWS = 10
VOCABULARIES = ((256, 16), (32, 49_152))  # rows, and the words of each


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each shape and technique, and one for drawing tokens from each of two vocabularies."""
    drawing = [_draws(rows, words, pairs) for rows, words in VOCABULARIES]
    uneven = _compare("trl-long", SIZES, pairs, trl_long.our_agent(updates=64))
    shapes = [
        _compare(name, label, pairs, our_agent(shape, qwen3(shape)))
        for name, shape in SHAPES.items()
        for label in SWITCHES
    ]
    return [*shapes, uneven, *drawing]


@contextmanager
def switched(label: str, on: bool) -> Iterator[None]:
    """Within the context, a technique is on as usual, or off."""
    module, constant, off = {**SWITCHES, **LENGTHS}[label]
    usual = getattr(module, constant)
    setattr(module, constant, usual if on else off)
    try:
        yield
    finally:
        setattr(module, constant, usual)


def _compare(name: str, label: str, pairs: int, agent: Any) -> Row:
    if label in LENGTHS or SWITCHES[label][0] is forward:
        part, measure = "training", _trains(agent, label)
    else:
        part, measure = "acting", _acts(agent, label)
    read: dict[bool, str] = {}

    def seconds(on: bool) -> float:
        taken, read[on] = measure(on)
        return taken

    taken = alternate(lambda: seconds(True), lambda: seconds(False), pairs)
    return Row.of(f"{name}, {part}: {label}", *taken, "s/update", f"{read[True]}; {read[False]} without")


def _trains(agent: Any, label: str) -> Callable[[bool], tuple[float, str]]:
    """Return a function that computes an update's gradient, and returns the seconds and how many tokens were read."""
    rollout = agent.collector.collect(agent.policy, agent.episodes_per_update, agent.generator)
    prepared = agent.prepare(rollout)

    def measure(on: bool) -> tuple[float, str]:
        with switched(label, on), clock() as seconds:
            agent._backward(prepared)
        with switched(label, on):
            return seconds(), f"{agent.policy._reading(rollout).ids.numel()} tokens read"

    return measure


def _acts(agent: Any, label: str) -> Callable[[bool], tuple[float, str]]:
    """Return a function that collects the same rollout every time, and returns the seconds and its log-probability."""

    def measure(on: bool) -> tuple[float, str]:
        agent.collector.seed(0)
        generator = torch.Generator().manual_seed(0)
        with switched(label, on):
            agent.policy._renew_step()  # which decides what to pack
        with switched(label, on), clock() as seconds:
            rollout = agent.collector.collect(agent.policy, agent.episodes_per_update, generator)
        return seconds(), f"mean log-probability {float(rollout.log_probs[rollout.mask].mean()):.6f}"

    return measure


def _draws(rows: int, words: int, pairs: int) -> Row:
    """Draw tokens with one number each and with one per word; the quality is their mean log-probability."""
    generator = torch.Generator().manual_seed(0)
    log_probs = (2 * torch.randn(rows, words, generator=generator)).log_softmax(-1)
    drawn: dict[bool, list[float]] = {True: [], False: []}

    def milliseconds(one: bool) -> float:
        numbers = torch.rand(DRAWS, rows, dtype=torch.float64, generator=generator)
        with mock.patch.object(choosing, "MANY_ACTIONS", sys.maxsize), clock() as seconds:
            tokens = [choosing.sample_categorical(log_probs, each if one else generator) for each in numbers]
        drawn[one] += [float(log_probs.gather(1, each[:, None]).mean()) for each in tokens]
        return 1e3 * seconds() / DRAWS

    taken = alternate(lambda: milliseconds(True), lambda: milliseconds(False), pairs)
    expected = float((log_probs.exp() * log_probs).sum(1).mean())
    found = " and ".join(f"{sum(each) / len(each):.2f}" for each in drawn.values())
    label = f"drawing tokens of {words:,} words, {rows} rows: one number per token"
    return Row.of(label, *taken, "ms", f"mean log-probability {found} without, {expected:.2f} expected")
