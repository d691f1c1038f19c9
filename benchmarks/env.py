"""The share of the environment and the collector in a step; the rest is the policy's."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from agents import LanguageModelPolicy, make_envs
from agents.policies import ControlPolicy, Policy
from agents.rollouts.collector import Collector

from .measure import Row, clock
from .worlds import arith_envs, endless_model, letter_envs, letter_prompts, warm_model

TOKENS = 32


def run(name: str, pairs: int) -> list[Row]:
    """Return rows for text and for CartPole: the whole step over the policy's part, so 1.1 means a share of 9 %."""
    rows = [_text(batch, pairs) for batch in (1, 64, 256)]
    return [*rows, _arith(pairs), *(_cartpole(slots, pairs) for slots in (16, 64))]


def _text(batch: int, pairs: int) -> Row:
    envs = letter_envs(batch, letter_prompts(batch, 8), TOKENS)
    model = endless_model(envs.task.vocab_size, envs.task.max_length, envs.task.eos_token_id)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model)
    return _share(f"text, {batch} slots, {TOKENS} tokens", envs, policy, batch, pairs, repeats=max(64 // batch, 2))


def _arith(pairs: int) -> Row:
    envs = arith_envs(256, group_size=8)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, warm_model())
    return _share("arith, 32 prompts x 8 short answers", envs, policy, 256, pairs, repeats=10)


def _cartpole(slots: int, pairs: int) -> Row:
    envs = make_envs("CartPole-v1", slots, None, skip_finished=True)
    policy = ControlPolicy(envs.single_observation_space, envs.single_action_space)
    row = _share(f"CartPole, {slots} slots", envs, policy, 4 * slots, pairs, repeats=3)
    row.details["raw_environment_us"] = round(_raw_step(slots) * 1e6, 1)
    return row


def _raw_step(slots: int, steps: int = 2000) -> float:
    """Return the seconds per step of Gymnasium's SyncVectorEnv with random actions."""
    envs = gym.make_vec("CartPole-v1", num_envs=slots, vectorization_mode="sync")
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(2, size=(steps, slots))
    with clock() as seconds:
        for action in actions:
            envs.step(action)
    return seconds() / steps


def _share(label: str, envs: Any, policy: Policy, episodes: int, pairs: int, repeats: int) -> Row:
    collector, generator = Collector(envs, torch.device("cpu")), torch.Generator().manual_seed(0)
    spent = {"act": 0.0, "env": 0.0, "steps": 0.0}

    def timed(function: Any, kind: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[kind] += time.perf_counter() - started
                spent["steps"] += kind == "act"

        return call

    actor_of = policy.make_actor

    def timed_actor(*how: Any) -> Any:
        actor = actor_of(*how)
        actor.act = timed(actor.act, "act")  # type: ignore[method-assign]
        return actor

    policy.make_actor = timed_actor  # type: ignore[method-assign, assignment]
    envs.step, envs.reset = timed(envs.step, "env"), timed(envs.reset, "env")
    taken: list[dict[str, float]] = []  # microseconds per step
    for _ in range(pairs + 1):
        spent.update(act=0.0, env=0.0, steps=0.0)
        with clock() as seconds:
            for _ in range(repeats):
                collector.collect(policy, episodes, generator)
        parts = {"act": spent["act"], "env": spent["env"], "whole": seconds()}
        taken.append({part: value / spent["steps"] * 1e6 for part, value in parts.items()})
    decode, environment, whole = ([step[part] for step in taken[1:]] for part in ("act", "env", "whole"))
    shares = [1 - chosen / step for chosen, step in zip(decode, whole, strict=True)]
    middle = sorted(shares)[len(shares) // 2]
    share = sorted(e / w for e, w in zip(environment, whole, strict=True))[len(whole) // 2]
    quality = f"environment and collector {middle:.1%} of a step, environment alone {share:.1%}"
    return Row.of(label, decode, whole, "us/step", quality, shares=[round(value, 4) for value in shares])
