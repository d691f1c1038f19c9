"""One seed plays the same episodes whatever the number of slots."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from agents import Collector

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
