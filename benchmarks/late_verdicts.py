"""Verdicts of 50 ms: slots that are finished while these are due, and slots that wait for them as for replies.

python -m rlenv._benchmarks.late_verdicts
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from rlenv.agents import LanguageModelPolicy
from rlenv.agents.rollouts.collector import Collector
from rlenv.verifiers import Verifier, make_verifier

from .judges import Slow, SlowReply
from .measure import clock
from .worlds import arith_envs

WORKERS, TOKENS, PER_SLOT, REPEATS = 8, 40, 4, 5


def rollouts(slots: int, verifier: Verifier) -> Callable[[], tuple[float, float]]:
    """Return a function that collects a rollout; it returns the seconds, and the mean length of an answer."""
    late = {"late_verdicts": True, "late_replies": True}
    envs = arith_envs(slots, verifier=verifier, verifier_workers=WORKERS, max_new_tokens=TOKENS, **late)
    collector = Collector(envs, torch.device("cpu"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space)

    def collect() -> tuple[float, float]:
        collector.seed(0)
        with clock() as seconds:
            rollout = collector.collect(policy, PER_SLOT * slots, torch.Generator().manual_seed(0))
        assert rollout is not None
        return seconds(), float(rollout.lengths.double().mean())

    return collect


def main() -> None:
    """Print the seconds of a rollout of both kinds, taken in turn."""
    torch.set_num_threads(1)  # the workers need the other cores
    arith = make_verifier("arith")
    for slots in (8, 16):
        kinds = [rollouts(slots, each) for each in (Slow(arith), SlowReply(arith))]
        taken = [[collect() for collect in kinds] for _ in range(REPEATS + 1)][1:]
        finished, waiting = (statistics.median(pair[kind][0] for pair in taken) for kind in (0, 1))
        length = taken[0][0][1]
        print(f"{slots} slots, answers of {length:.0f} tokens: finished {finished:.2f} s, waiting {waiting:.2f} s")


if __name__ == "__main__":
    main()
