"""Every agent trains a LoRA adapter on frozen weights, and weights of 16 bits, and goes on from a checkpoint."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from agent_kinds import with_teacher
from diagonal import diagonal
from tiny_models import text_envs, tiny_policy

from agents import AGENTS, Agent

KINDS: dict[str, dict[str, Any]] = {
    "lora": {"dtype": "float32", "lora_rank": 2}, "bfloat16": {"dtype": "bfloat16"},
}  # fmt: skip
SETTINGS = {"episodes_per_update": 16, "num_envs": 16, "group_size": 4, "learning_rate": 0.02, "device": "cpu"}


def agent_of(name: str, kind: str) -> Agent:
    envs = text_envs(16, group_size=4, max_new_tokens=6)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        critic = "head" if AGENTS[name].uses_critic else None
        policy = tiny_policy("llama", envs, critic=critic, **KINDS[kind])
        for part, weight in policy.named_parameters():
            if "lora_B" in part:  # 0 in a fresh adapter, of which a teacher would be the base alone
                torch.nn.init.normal_(weight, std=0.2)
    return with_teacher(AGENTS[name](policy, envs, **SETTINGS))


def weights_of(agent: Agent, trained: bool) -> list[torch.Tensor]:
    return [each.detach().clone() for each in agent.policy.parameters() if each.requires_grad is trained]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # asked by peft
@diagonal("name, kind", list(AGENTS), list(KINDS))
def test_every_agent_trains_it_and_goes_on_from_a_checkpoint(name: str, kind: str, tmp_path: Path) -> None:
    agent = agent_of(name, kind)
    frozen, start = weights_of(agent, trained=False), weights_of(agent, trained=True)
    agent.learn(total_episodes=32)
    assert bool(frozen) == (kind == "lora")
    assert all(map(torch.equal, frozen, weights_of(agent, trained=False)))
    assert any(not torch.equal(*pair) for pair in zip(start, weights_of(agent, trained=True), strict=True))
    assert all(map(math.isfinite, agent.last_metrics.values()))
    if kind == "bfloat16":
        assert {each.dtype for each in agent.policy_optimizer.weights.masters} == {torch.float32}

    agent.save(tmp_path / "saved")
    again = type(agent).load(tmp_path / "saved", env=text_envs(16, group_size=4, max_new_tokens=6))
    rollout = agent.collector.collect(agent.policy, 16, torch.Generator().manual_seed(1))
    assert rollout is not None
    for each in (agent, again):
        each.update(copy.deepcopy(rollout))
    for ours, theirs in zip(weights_of(agent, trained=True), weights_of(again, trained=True), strict=True):
        assert torch.equal(ours, theirs)
