"""Acting and training of our own, by size of the model, as a share of what their arithmetic allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transformers import AutoModelForCausalLM

from agents import Rollout

from .against_trl import JOBS, our_agent
from .floors import product_speed, read_once, size
from .measure import Case, clock

OF = ("trl-grpo", "trl-30m", "trl-smollm2-story")  # the jobs, of 0.4, 30 and 135 million parameters


def cases(name: str) -> Iterator[Case]:
    """Yield the acting and the training of each job; the ratio is the share of the measured speed of products."""
    for each in OF:
        start = JOBS[each].start()
        model = AutoModelForCausalLM.from_pretrained(start) if isinstance(start, str) else start
        yield from parts(our_agent(JOBS[each], model), each)


def parts(agent: Any, label: str) -> Iterator[Case]:
    """Yield the acting and the training of an agent's update; the peer is the arithmetic, measured in turn."""
    model, gaps = agent.policy.model, [0.0]
    weights = size(model)

    def collect() -> Rollout:
        rollout: Rollout = agent.collector.collect(agent.policy, agent.own_episodes, agent.generator)
        return rollout

    def acting() -> tuple[float, float]:
        with clock() as seconds:
            rollout = collect()
        return seconds(), 2 * weights * read_once(rollout) / product_speed(model)

    def training() -> tuple[float, float]:
        rollout = collect()
        with clock() as seconds:
            gaps.append(agent.update(rollout)["train/logp_gap_max"])
        return seconds(), 6 * weights * read_once(rollout) / product_speed(model)

    about = f"{weights / 1e6:.1f} M parameters"
    yield Case(f"{label}: acting", "s/update", acting, lambda: about)
    said = "log-probabilities of acting and training differ by at most"
    yield Case(f"{label}: training", "s/update", training, lambda: f"{about}; {said} {max(gaps):.1g}")
