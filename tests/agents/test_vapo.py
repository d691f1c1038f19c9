"""VAPO's warm-up: the critic alone learns, a checkpoint keeps for how long, and the policy does not move until then."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tabular import make_agent
from tiny_models import text_envs, tiny_model
from updates import sample, some_cut_off

from agents import VAPO, Agent
from agents.policies.base import actor_parameters, critic_parameters

EVERYTHING = {"ent_coef": 0.1, "kl_coef": 0.3, "kl_in": "loss"}  # all else that moves a policy


def sides(agent: Agent) -> tuple[torch.Tensor, torch.Tensor]:
    """Return copies of the actor's and of the critic's weights, flat."""
    critic = critic_parameters(agent.policy)
    parts = (actor_parameters(agent.policy), critic)
    return tuple(torch.cat([weight.detach().flatten() for weight in part]).clone() for part in parts)  # type: ignore[return-value]


@pytest.mark.parametrize("critic", ["table", "head", "separate"])
def test_in_the_warm_up_the_critic_learns_and_the_policy_stays_bit_for_bit(critic: str) -> None:
    if critic == "table":
        agent = make_agent(VAPO, value_warmup=2, **EVERYTHING)
        rollout = some_cut_off(sample())
    else:
        known: dict[str, Any] = {"value_warmup": 2, "policy_kwargs": {"critic": critic}, "device": "cpu"}
        agent = VAPO(tiny_model("gpt2"), text_envs(4), episodes_per_update=8, learning_rate=0.01, **known, **EVERYTHING)
        agent.anchor.freeze_reference(agent.policy)
        rollout = agent.collector.collect(agent.policy, 8, agent.generator)
    for update in range(3):
        assert agent.actor_waits == (update < 2)
        actor, values = sides(agent)
        metrics = agent.update(rollout)
        moved, fitted = sides(agent)
        assert torch.equal(moved, actor) == (update < 2), update
        assert not torch.equal(fitted, values)
        assert (metrics["train/grad_norm"] == 0) == (update < 2)
    assert agent.warmed_up == 2


def test_after_the_warm_up_updates_are_those_of_an_agent_without_one() -> None:
    agent, plain = make_agent(VAPO, value_warmup=1), make_agent(VAPO)
    agent.update(sample(1))
    plain.policy.load_state_dict(agent.policy.state_dict())
    plain.policy_optimizer.load_state_dict(copy.deepcopy(agent.policy_optimizer.state_dict()))
    plain.generators.order.set_state(agent.generators.order.get_state())
    assert agent.update(sample(2)) == plain.update(sample(2))
    assert all(map(torch.equal, sides(agent), sides(plain)))


def test_a_checkpoint_keeps_how_much_of_the_warm_up_is_over(tmp_path: Path) -> None:
    settings = {"value_warmup": 3, "episodes_per_update": 2, "num_envs": 2, "device": "cpu"}
    agent = VAPO("MlpPolicy", "CartPole-v1", **settings).learn(total_episodes=4)
    assert (agent.num_updates, agent.warmed_up) == (2, 2)
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", device="cpu")
    assert isinstance(again, VAPO)
    assert again.warmed_up == 2 and again.actor_waits
    before, _ = sides(again)
    again.learn(total_episodes=2)  # counts its updates from 0, but not those of the warm-up
    assert torch.equal(sides(again)[0], before)
    again.learn(total_episodes=2)
    assert not torch.equal(sides(again)[0], before)
