"""Where each millisecond of an update goes, for short and long answers and three sizes of models, and its floor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from agents.policies.language import policy as language_model
from agents.policies.language.decoding import decoder
from agents.policies.language.decoding import step as decode_step
from agents.policies.language.training import forward
from agents.rollouts import record

from . import trl_long, trl_short
from .floors import copy_speed, counted_tokens, product_speed
from .measure import Row, clock, timed_functions
from .trl_shapes import SHAPES, our_agent, qwen3
from .worlds import warm_model

STATES_MOVED = 7  # of a weight by Adam: it reads weight, gradient and two moments, and writes all but the gradient
POSING, JUDGING = "environment: posing problems", "environment: appending, judging"
PROMPTS, STEPS = "acting: reading prompts", "acting: decode steps"
FORWARD, BACKWARD, OPTIMIZER = "training: forward", "training: backward", "training: optimizer"
REST = "the rest: collecting, logging"


def _of_shape(name: str) -> Any:
    return our_agent(SHAPES[name], qwen3(SHAPES[name]))


JOBS: dict[str, tuple[Callable[[], Any], int]] = {  # an agent, and how many updates make a measurement
    "trl-grpo": (lambda: trl_short.our_agent("grpo", warm_model()), 20),
    "trl-long": (lambda: trl_long.our_agent(updates=64), 4),
    **{name: (partial(_of_shape, name), 1) for name in SHAPES},
}


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each part of each job's update; the ratio is the whole over the part."""
    return [row for job, (make, updates) in JOBS.items() for row in parts_of(job, make(), updates, pairs)]


def parts_of(job: str, agent: Any, updates: int, pairs: int) -> list[Row]:
    """Return the rows of one job, of the measurement that took the median time: the parts add up to the whole."""
    learn(agent, updates)
    with counted_tokens(agent.policy) as tokens:
        learn(agent, updates)
    whole: list[float] = []
    parts: dict[str, list[float]] = defaultdict(list)
    for measurement in range(pairs):
        with timed_functions(*_watched(agent)) as own, clock() as seconds:
            learn(agent, updates)
        whole.append(seconds() / updates * 1e3)
        for part, spent in own.items():
            kept = parts.setdefault(part, [0.0] * measurement)
            kept.append(spent / updates * 1e3)
        parts[REST].append(whole[-1] - sum(own.values()) / updates * 1e3)
    floors = {part: spent / updates for part, spent in _floors(agent, tokens, updates).items()}
    median = sorted(range(pairs), key=whole.__getitem__)[pairs // 2]  # medians of the parts would not add up
    took = [whole[median]]
    read = f"{tokens['acting'] / updates:.0f} tokens read in acting, {tokens['training'] / updates:.0f} in training"
    rows = [Row.of(f"{job}: an update", took, took, "ms", read, floor=sum(floors.values()))]
    for part, taken in parts.items():
        known: dict[str, Any] = {"floor": floors[part]} if part in floors else {}
        share = f"{taken[median] / took[0]:.0%} of it"
        rows.append(Row.of(f"{job}: {part}", [taken[median]], took, "ms", share, **known))
    return rows


def learn(agent: Any, updates: int) -> None:
    """Go on for so many updates."""
    episodes = agent.episodes_per_update * updates
    agent.learn(total_episodes=episodes, reset_num_timesteps=False)


def _floors(agent: Any, tokens: dict[str, int], updates: int) -> dict[str, float]:
    """Return the milliseconds of the parts that are arithmetic: products at full speed, the optimizer's memory."""
    size = sum(parameter.numel() for parameter in agent.policy.parameters())
    of_a_token = 2 * size / product_speed(agent.policy.model) * 1e3
    moved = STATES_MOVED * 4 * size * updates / copy_speed() * 1e3
    return {
        PROMPTS: of_a_token * (tokens["acting"] - tokens["steps"]),
        STEPS: of_a_token * tokens["steps"],
        FORWARD: of_a_token * tokens["training"],
        BACKWARD: 2 * of_a_token * tokens["training"],
        OPTIMIZER: moved,
    }


def _watched(agent: Any) -> list[tuple[Any, str, str]]:
    """Return the functions whose time is taken, and the part that each belongs to."""
    env, policy = agent.env, agent.policy
    return [
        (env, "reset", POSING), (env, "step", JUDGING), (decoder.Decoder, "_prefill", PROMPTS),
        (decode_step.LlamaStep, "__call__", STEPS),
        (policy, "_choose", "acting: sampling"), (decoder.ContextDecoder, "logits", "acting: sharing contexts"),
        (record.Record, "rollout", "collecting: assembling the rollout"),
        (language_model, "plan_reading", "training: planning what to read"),
        (forward.Reading, "outputs", FORWARD), (torch.Tensor, "backward", BACKWARD),
        (agent.policy_optimizer, "step", OPTIMIZER),
        (agent, "update", "training: advantages, loss, figures"),
    ]  # fmt: skip
