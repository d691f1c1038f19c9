"""What judging adds to a rollout: arithmetic, and a verifier that takes 50 ms per verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from agents import LanguageModelPolicy
from agents.rollouts.collector import Collector
from verifiers import Problem, Verdict, Verifier, make_verifier

from .judges import DELAY, Indifferent, Slow
from .measure import Row, clock
from .worlds import GROUPS, K, arith_envs, warm_model

REPEATS = 20
WORKERS = (2, 16)


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each verifier; the ratio is the time without judging over the time with it."""
    arith = make_verifier("arith")
    return [_compare(arith, pairs), *(_pooled(arith, workers, pairs) for workers in WORKERS)]


def _pooled(inner: Verifier, workers: int, pairs: int) -> Row:
    """Return a row for 50 ms per verdict in worker processes, against the time of these verdicts alone."""
    episodes = GROUPS * K
    settings = {"verifier": Slow(inner), "verifier_workers": workers, "late_verdicts": True}
    envs = arith_envs(episodes, group_size=K, **settings)
    collect = _rollouts(envs)
    collect()  # starts the workers
    taken = []
    for _ in range(pairs):
        with clock() as seconds:
            collect()
        taken.append(seconds())
    envs.close()
    parallel = DELAY * math.ceil(episodes / workers)
    added = statistics.median(taken) / parallel - 1
    quality = f"a rollout with its verdicts takes {added:+.1%} of what {episodes} verdicts alone take, {parallel:g} s"
    return Row.of(f"50 ms per verdict, {workers} workers", taken, [parallel] * pairs, "s/rollout", quality)


def _compare(arith: Verifier, pairs: int) -> Row:
    """Return a row for a verifier, against one that accepts everything."""
    taken: tuple[list[float], list[float]] = ([], [])
    collectors = [_collector(each) for each in (arith, Indifferent(arith))]
    batches, shares = 0, []
    for _ in range(pairs + 1):
        for kept, (collect, judged) in zip(taken, collectors, strict=True):
            judged.clear()
            with clock() as seconds:
                for _ in range(REPEATS):
                    collect()
            kept.append(seconds() / REPEATS)
            batches = len(judged) // REPEATS
            if kept is taken[0]:
                shares.append(sum(judged) / seconds())
    ours, without = (kept[1:] for kept in taken)
    added = sorted(w / o - 1 for w, o in zip(ours, without, strict=True))[len(ours) // 2]
    share = sorted(shares[1:])[len(ours) // 2]
    quality = (
        f"judging takes {share:.2%} of a rollout; the difference between the two is {added:.1%}; {batches} batches"
    )
    return Row.of("arith", ours, without, "s/rollout", quality)


def _collector(verifier: Verifier) -> Any:
    """Return a function that collects a rollout of the same episodes, and the list of seconds per judged batch."""
    envs = arith_envs(GROUPS * K, group_size=K, verifier=verifier)
    judged: list[float] = []
    verify = envs.task.verifier.verify_batch

    def noted(problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        with clock() as seconds:
            verdicts = verify(problems, completions)
        judged.append(seconds())
        return verdicts

    envs.task.verifier.verify_batch = noted

    return _rollouts(envs), judged


def _rollouts(envs: Any) -> Callable[[], None]:
    """Return a function that collects a rollout of the same episodes."""
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, warm_model())
    collector = Collector(envs, torch.device("cpu"))

    def collect() -> None:
        collector.seed(0)
        collector.collect(policy, GROUPS * K, torch.Generator().manual_seed(0))

    return collect
