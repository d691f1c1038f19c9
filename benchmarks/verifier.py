"""The time that judging adds to a rollout: arithmetic, and a verifier that takes 50 ms per verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rlenv.agents import LanguageModelPolicy
from rlenv.agents.rollouts.collector import Collector
from rlenv.verifiers import make_verifier

from .judges import DELAY, Indifferent, Slow
from .measure import Case, clock, in_turn
from .worlds import GROUPS, K, arith_envs, warm_model

REPEATS, WORKERS = 20, (2, 16)


def cases(name: str) -> Iterator[Case]:
    """Yield each verifier; the ratio is the time without judging over the time with it."""
    arith = make_verifier("arith")
    spent: list[float] = []  # of each measurement, the share that judging took
    judged, without = (arith_envs(GROUPS * K, group_size=K, verifier=each) for each in (arith, Indifferent(arith)))
    verify, ours = judged.task.verifier.verify_batch, _rollouts(judged, REPEATS)

    def noted(*args: Any) -> Any:
        with clock() as seconds:
            verdicts = verify(*args)
        spent[-1] += seconds()
        return verdicts

    def with_it() -> float:
        spent.append(0.0)
        taken = ours()
        spent[-1] /= REPEATS * taken
        return taken

    judged.task.verifier.verify_batch = noted
    quality = lambda: f"judging takes {statistics.median(spent[1:]):.2%} of a rollout"  # noqa: E731
    yield Case("arith", "s/rollout", in_turn(with_it, _rollouts(without, REPEATS)), quality)
    for workers in WORKERS:
        settings = {"verifier": Slow(arith), "verifier_workers": workers, "late_verdicts": True}
        envs = arith_envs(GROUPS * K, group_size=K, **settings)
        alone = DELAY * math.ceil(GROUPS * K / workers)
        said = f"the peer is {GROUPS * K} verdicts alone, {alone:g} s"
        pair = in_turn(_rollouts(envs, 1), lambda alone=alone: alone)  # type: ignore[misc]
        yield Case(f"50 ms per verdict, {workers} workers", "s/rollout", pair, lambda said=said: said)  # type: ignore[misc]
        envs.close()


def _rollouts(envs: Any, repeats: int) -> Callable[[], float]:
    """Return a function that collects rollouts of the same episodes and returns the seconds of one."""
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, warm_model())
    collector = Collector(envs, torch.device("cpu"))

    def collect() -> float:
        with clock() as seconds:
            for _ in range(repeats):
                collector.seed(0)
                collector.collect(policy, GROUPS * K, torch.Generator().manual_seed(0))
        return seconds() / repeats

    return collect
