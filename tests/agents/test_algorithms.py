"""Every agent of the registry: it trains on text and on control, a seed decides, bad settings are one clear line."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from agent_kinds import GROUPED, LIKE_GRPO, PASSES, each_agent_once, fitting, is_taught, with_teacher
from tiny_models import text_envs, tiny_model

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import AGENTS, Agent, ReinforceBaseline, find_agent
from agents.algorithms._actor_critic import ActorCritic
from agents.policies.base import actor_parameters

names = pytest.mark.parametrize("name", AGENTS)
CRITICS = [name for name, cls in AGENTS.items() if issubclass(cls, ActorCritic)]


def make_agent(name: str, kind: str = "control", **settings: Any) -> Agent:
    settings = fitting(name, {"episodes_per_update": 8, "device": "cpu", **settings})
    if kind == "control":
        return with_teacher(AGENTS[name]("MlpPolicy", "CartPole-v1", **settings))
    settings = {"learning_rate": 0.01, **settings}
    return with_teacher(AGENTS[name](tiny_model("gpt2"), text_envs(4, group_size=4), **settings))


def weights_of(agent: Agent) -> dict[str, torch.Tensor]:
    return copy.deepcopy(agent.policy.state_dict())


# Training.


@each_agent_once(text=("ppo", "gspo"))
def test_every_agent_trains_and_says_how_it_went(name: str, kind: str) -> None:
    agent = make_agent(name, kind, ent_coef=0.01, kl_coef=0.01)
    before, losses = weights_of(agent), []
    agent.learn(total_episodes=16, callback=lambda local, _: losses.append(dict(agent.last_metrics)) or True)
    assert agent.num_updates >= 2 and agent.num_episodes >= 16 and agent.policy_optimizer.skipped == 0
    for metrics in (*losses, agent.last_metrics):
        assert all(math.isfinite(figure) for figure in metrics.values()), metrics
    kl = "train/kl_teacher" if is_taught(name) else "train/kl_ref"
    assert {"train/loss", "train/policy_loss", "train/grad_norm", "train/entropy_loss", kl} <= set(agent.last_metrics)
    assert ("train/value_loss" in agent.last_metrics) == (name in CRITICS)
    assert ("train/clip_fraction" in agent.last_metrics) == (name in PASSES)
    after = agent.policy.state_dict()
    assert all(torch.isfinite(value).all() for value in after.values())
    actor = {id(p) for p in actor_parameters(agent.policy)}
    moved = [p for key, p in agent.policy.named_parameters() if not torch.equal(p, before[key])]
    assert any(id(p) in actor for p in moved)
    assert any(id(p) not in actor for p in moved) == (name in CRITICS), "only critics train critics"


@each_agent_once(text=("dapo",), rare=LIKE_GRPO)
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(name: str, kind: str) -> None:
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


@names
def test_an_agent_is_found_by_its_name_and_says_its_equation(name: str) -> None:
    assert find_agent(name) is AGENTS[name]
    assert "L = -" in (AGENTS[name].__doc__ or "")


# Bad settings.


@pytest.mark.parametrize("name", [name for name in AGENTS if name not in GROUPED])
def test_who_does_not_compare_takes_groups_of_one(name: str) -> None:
    agent = AGENTS[name](tiny_model("gpt2"), text_envs(4, group_size=1), episodes_per_update=4, device="cpu")
    assert agent.group_size == 1
    assert make_agent(name, episodes_per_update=1).learn(total_episodes=1).num_updates == 1


def test_pkpo_takes_the_best_of_four_or_of_a_smaller_group() -> None:
    assert [make_agent("pkpo", episodes_per_update=size).best_of for size in (2, 3, 4, 8)] == [2, 3, 4, 4]
    assert make_agent("pkpo", "text", k=3).best_of == 3


def test_defaults_of_the_algorithm_go_before_those_of_the_policy() -> None:
    ppo, text = make_agent("ppo"), make_agent("ppo", "text")
    assert (ppo.num_epochs, ppo.num_minibatches, ppo.gae_lambda, ppo.gamma) == (4, 4, 0.95, 0.99)
    assert (text.num_epochs, text.num_minibatches, text.gae_lambda, text.gamma) == (2, 2, 1.0, 1.0)
    own = make_agent("ppo", num_epochs=1, num_minibatches=3, gae_lambda=0.5, clip_range=0.1)
    assert (own.num_epochs, own.num_minibatches, own.gae_lambda) == (1, 3, 0.5)
    assert (own.clip_range, own.clip_range_high) == (0.1, 0.1)
    dapo = make_agent("dapo")
    assert (dapo.clip_range, dapo.clip_range_high, dapo.num_epochs) == (0.2, 0.28, 1)
    assert isinstance(make_agent("reinforce-baseline"), ReinforceBaseline)
