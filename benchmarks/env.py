"""The share of the environment and the collector in a step; the rest is the policy's."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import torch

from rlenv.agents import LanguageModelPolicy, make_envs
from rlenv.agents.policies import ControlPolicy, Policy
from rlenv.agents.rollouts.collector import Collector

from .measure import Case, clock
from .worlds import arith_envs, endless_model, letter_envs, letter_prompts, warm_model

TOKENS, TEXTS = 32, {1: 64, 64: 2, 256: 2}  # slots: rollouts of a measurement
SUMS, POLES = (256, 10), (16, 64)


def cases(name: str) -> Iterator[Case]:
    """Yield text and CartPole: the whole step over the policy's part, so 1.1 means a share of 9 %."""
    for batch, repeats in TEXTS.items():
        envs = letter_envs(batch, letter_prompts(batch, 8), TOKENS)
        model = endless_model(
            envs.task.encoding.vocab_size, envs.task.encoding.max_length, envs.task.encoding.eos_token_id
        )
        label = f"text, {batch} slots, {TOKENS} tokens"
        yield _share(label, envs, _text_policy(envs, model), batch, repeats)
    slots, repeats = SUMS
    envs = arith_envs(slots, group_size=8)
    yield _share(
        f"arith, {slots // 8} prompts x 8 short answers", envs, _text_policy(envs, warm_model()), slots, repeats
    )
    for slots in POLES:
        envs = make_envs("CartPole-v1", slots, None, skip_finished=True)
        policy = ControlPolicy(envs.single_observation_space, envs.single_action_space)
        yield _share(f"CartPole, {slots} slots", envs, policy, 4 * slots, repeats=3)


def _text_policy(envs: Any, model: Any) -> LanguageModelPolicy:
    return LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model)


def _share(label: str, envs: Any, policy: Policy, episodes: int, repeats: int) -> Case:
    collector, generator = Collector(envs, torch.device("cpu")), torch.Generator().manual_seed(0)
    spent = {"act": 0.0, "env": 0.0, "steps": 0.0}
    shares: dict[str, list[float]] = {"both": [], "env": []}  # of the step: all but the policy, the environment alone

    def timed(function: Any, kind: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with clock() as seconds:
                made = function(*args, **kwargs)
            spent[kind] += seconds()
            spent["steps"] += kind == "act"
            return made

        return call

    actor_of = policy.make_actor

    def timed_actor(*how: Any) -> Any:
        actor = actor_of(*how)
        actor.act = timed(actor.act, "act")  # type: ignore[method-assign]
        return actor

    policy.make_actor = timed_actor  # type: ignore[method-assign, assignment]
    envs.step, envs.reset = timed(envs.step, "env"), timed(envs.reset, "env")

    def pair() -> tuple[float, float]:
        spent.update(act=0.0, env=0.0, steps=0.0)
        with clock() as seconds:
            for _ in range(repeats):
                collector.collect(policy, episodes, generator)
        shares["both"].append(1 - spent["act"] / seconds())
        shares["env"].append(spent["env"] / seconds())
        return spent["act"] / spent["steps"] * 1e6, seconds() / spent["steps"] * 1e6

    def quality() -> str:
        both, env = (statistics.median(each[1:]) for each in shares.values())
        return f"environment and collector {both:.1%} of a step, environment alone {env:.1%}"

    return Case(label, "us/step", pair, quality)
