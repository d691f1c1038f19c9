"""Speed of acting and training, by size of the model, as a share of the speed that their arithmetic allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transformers import AutoModelForCausalLM

from rlenv.agents import Rollout

from .against_trl import JOBS, our_agent
from .floors import product_speed, read_once, size
from .measure import Case, clock, peak_of_gpu

OF = ("trl-grpo", "trl-30m", "trl-smollm2-story")  # the jobs, of 0.4, 30 and 135 million parameters


def cases(name: str) -> Iterator[Case]:
    """Yield the acting and the training of each job; the ratio is the share of the measured speed of products."""
    for each in OF:
        start = JOBS[each].start()
        model = AutoModelForCausalLM.from_pretrained(start) if isinstance(start, str) else start
        yield from parts(our_agent(JOBS[each], model), each)


def parts(agent: Any, label: str, **work: Any) -> Iterator[Case]:
    """Yield the acting and the training of an agent's update; the peer is the arithmetic, measured in turn.

    Args:
        agent: whose update it is.
        label: begins the names.
        work: how `product_speed` measures.
    """
    model, gaps, peaks = agent.policy.model, [0.0], [0.0]
    weights = size(model)

    def collect() -> Rollout:
        rollout: Rollout = agent.collector.collect(agent.policy, agent.own_episodes, agent.generator)
        return rollout

    def acting() -> tuple[float, float]:
        with clock() as seconds:
            rollout = collect()
        return seconds(), 2 * weights * read_once(rollout) / product_speed(model, **work)

    def training() -> tuple[float, float]:
        rollout = collect()
        peak_of_gpu()
        with clock() as seconds:
            gaps.append(agent.update(rollout)["train/logp_gap_max"])
        peaks.append(peak_of_gpu())
        return seconds(), 6 * weights * read_once(rollout) / product_speed(model, **work)

    about = f"{weights / 1e6:.1f} M parameters"
    yield Case(f"{label}: acting", "s/update", acting, lambda: about)
    said = "log-probabilities of acting and training differ by at most"

    def quality() -> str:
        peak = f"; peak {max(peaks):.1f} GiB" if any(peaks) else ""
        return f"{about}; {said} {max(gaps):.1g}{peak}"

    yield Case(f"{label}: training", "s/update", training, quality)
