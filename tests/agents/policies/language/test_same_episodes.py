"""One seed plays the same episodes whatever the number of slots, and a run of earlier versions goes on as it began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from agents import RLOO, Collector
from agents.policies.base import weights_digest

CPU = torch.device("cpu")
PARTS = ("actions", "log_probs", "rewards", "mask", "groups")
WORLDS = {"sums": {"verifier": "arith", "group_size": 2}, "turns": {"verifier": "guess", "max_turns": 3}}


def rollouts(num_envs: int, world: str, count: int = 2, seed: int = 0) -> list[Any]:
    envs = gym.make_vec("TextGen-v0", num_envs, **WORLDS[world])
    collector, generator = Collector(envs, CPU), torch.Generator().manual_seed(seed)
    collector.seed(3)
    policy = tiny_policy("llama", envs)
    return [collector.collect(policy, 12, generator) for _ in range(count)]


@pytest.mark.parametrize("world", WORLDS)
def test_the_number_of_slots_changes_no_episode(world: str) -> None:
    few, many = (rollouts(num_envs, world) for num_envs in (4, 12))
    for ours, theirs in zip(few, many, strict=True):
        for name in PARTS:
            mine, other = getattr(ours, name), getattr(theirs, name)
            assert torch.allclose(mine.double(), other.double(), rtol=0, atol=1e-12), name
    assert not torch.equal(few[0].actions, few[1].actions), "the second rollout has other numbers"
    assert not torch.equal(few[0].actions, rollouts(4, world, 1, seed=1)[0].actions)


def test_a_run_of_earlier_versions_goes_on_as_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {"env_kwargs": {"verifier": "arith"}, "num_envs": 4, "episodes_per_update": 8, "seed": 5}
    agent = RLOO("tiny", "TextGen-v0", **made)
    agent.policy.draws_by_episode = False
    agent.learn(total_episodes=8)
    now = agent._random_state
    with monkeypatch.context() as earlier:
        earlier.setattr(agent, "_random_state", lambda: {k: v for k, v in now().items() if k != "by_episode"})
        agent.save(tmp_path / "old")
    old = RLOO.load(tmp_path / "old")
    assert not old.policy.draws_by_episode
    for each in (agent, old):
        each.learn(total_episodes=8, reset_num_timesteps=False)
    assert weights_digest(agent.policy) == weights_digest(old.policy)

    old.save(tmp_path / "on")
    assert not RLOO.load(tmp_path / "on").policy.draws_by_episode
    assert RLOO.load(tmp_path / "on", seed=6).policy.draws_by_episode, "a new seed begins anew"
