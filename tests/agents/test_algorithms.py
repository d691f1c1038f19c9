"""Every agent of the registry: it trains on text and on control, a seed decides; the warm-up of VAPO's critic."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from agent_kinds import GROUPED, PASSES, each_agent_once, fitting, is_taught, with_teacher
from tabular import make_agent as tabular_agent
from tiny_models import text_envs, tiny_model
from updates import sample, some_cut_off

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import AGENTS, VAPO, Agent, find_agent
from agents.algorithms._actor_critic import ActorCritic
from agents.policies.base import actor_parameters, critic_parameters

CRITICS = [name for name, cls in AGENTS.items() if issubclass(cls, ActorCritic)]


def make_agent(name: str, kind: str = "control", **settings: Any) -> Agent:
    settings = fitting(name, {"episodes_per_update": 8, "device": "cpu", **settings})
    if kind == "control":
        return with_teacher(AGENTS[name]("MlpPolicy", "CartPole-v1", **settings))
    settings = {"learning_rate": 0.01, **settings}
    return with_teacher(AGENTS[name](tiny_model("gpt2"), text_envs(4, group_size=4), **settings))


def weights_of(agent: Agent) -> dict[str, torch.Tensor]:
    return copy.deepcopy(agent.policy.state_dict())


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


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_found_by_its_name_and_says_its_equation(name: str) -> None:
    assert find_agent(name) is AGENTS[name]
    assert "L = -" in (AGENTS[name].__doc__ or "")


@pytest.mark.parametrize("name", [name for name in AGENTS if name not in GROUPED])
def test_who_does_not_compare_takes_groups_of_one(name: str) -> None:
    agent = AGENTS[name](tiny_model("gpt2"), text_envs(4, group_size=1), episodes_per_update=4, device="cpu")
    assert agent.group_size == 1
    assert make_agent(name, episodes_per_update=1).learn(total_episodes=1).num_updates == 1


def test_pkpo_takes_the_best_of_four_or_of_a_smaller_group() -> None:
    assert [make_agent("pkpo", episodes_per_update=size).best_of for size in (2, 3, 4, 8)] == [2, 3, 4, 4]
    assert make_agent("pkpo", "text", k=3).best_of == 3


@pytest.mark.parametrize("critic", ["table", "head", "separate"])
def test_in_the_warm_up_of_vapo_the_critic_learns_and_the_policy_stays_bit_for_bit(critic: str) -> None:
    settings = {"value_warmup": 2, "ent_coef": 0.1, "kl_coef": 0.3, "kl_in": "loss"}  # and all else that moves it
    if critic == "table":
        agent = tabular_agent(VAPO, **settings)
        rollout = some_cut_off(sample())
    else:
        agent = make_agent("vapo", "text", policy_kwargs={"critic": critic}, **settings)
        agent.anchor.freeze_reference(agent.policy)
        rollout = agent.collector.collect(agent.policy, 8, agent.generator)
    for update in range(3):
        sides = actor_parameters(agent.policy), critic_parameters(agent.policy)
        actor, values = ([weight.detach().clone() for weight in side] for side in sides)
        assert agent.actor_waits == (update < 2)
        metrics = agent.update(rollout)
        assert all(map(torch.equal, actor, sides[0])) == (update < 2)
        assert not all(map(torch.equal, values, sides[1]))
        assert (metrics["train/grad_norm"] == 0) == (update < 2)
