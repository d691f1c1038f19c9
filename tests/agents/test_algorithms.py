"""A seed decides alone; PKPO's size of a group; the warm-up of VAPO's critic. tests/laws trains every agent."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from agent_kinds import fitting, with_teacher
from tiny_models import text_envs, tiny_model

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import AGENTS, Agent
from agents.policies.base import actor_parameters, critic_parameters


def make_agent(name: str, kind: str = "control", **settings: Any) -> Agent:
    settings = fitting(name, {"episodes_per_update": 8, "device": "cpu", **settings})
    if kind == "control":
        return with_teacher(AGENTS[name]("MlpPolicy", "CartPole-v1", **settings))
    settings = {"learning_rate": 0.01, **settings}
    return with_teacher(AGENTS[name](tiny_model("gpt2"), text_envs(4, group_size=4), **settings))


def weights_of(agent: Agent) -> dict[str, torch.Tensor]:
    return copy.deepcopy(agent.policy.state_dict())


@pytest.mark.parametrize(("name", "kind"), [("ppo", "control"), ("dapo", "text")])
def test_a_seed_decides_alone_and_global_generators_stay(name: str, kind: str) -> None:
    """Of every agent, `test_resume.py` compares two with one seed, beside which others have trained."""
    runs = []
    for attempt, seed in enumerate((3, 3, 4)):
        with torch.random.fork_rng():
            torch.manual_seed(attempt)
            before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
            runs.append(weights_of(make_agent(name, kind, seed=seed).learn(total_episodes=16)))
            after = torch.get_rng_state(), np.random.get_state()[1], random.getstate()  # noqa: NPY002
        assert torch.equal(before[0], after[0]) and (before[1] == after[1]).all() and before[2] == after[2]
    assert all(torch.equal(value, runs[1][key]) for key, value in runs[0].items())
    assert any(not torch.equal(value, runs[2][key]) for key, value in runs[0].items())


def test_pkpo_takes_the_best_of_four_or_of_a_smaller_group() -> None:
    assert [make_agent("pkpo", episodes_per_update=size).best_of for size in (2, 3, 4, 8)] == [2, 3, 4, 4]
    assert make_agent("pkpo", "text", k=3).best_of == 3


def test_in_the_warm_up_of_vapo_the_critic_learns_and_the_policy_stays_bit_for_bit() -> None:
    agent = make_agent("vapo", "text", value_warmup=2, ent_coef=0.1, kl_coef=0.3, kl_in="loss")
    actor, critic = actor_parameters(agent.policy), critic_parameters(agent.policy)
    before = [weight.clone() for weight in (*actor, *critic)]
    for update, (_, metrics) in enumerate(agent.updates(total_episodes=24)):
        stayed = [torch.equal(old, now) for old, now in zip(before, (*actor, *critic), strict=True)]
        assert all(stayed[: len(actor)]) == (update < 2) and not all(stayed[len(actor) :])
        assert (metrics["train/grad_norm"] == 0) == (update < 2)
