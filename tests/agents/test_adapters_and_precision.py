"""Every agent of the registry trains a LoRA adapter on a frozen base, and weights of 16 bits with float32 copies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from agent_kinds import PASSES, fitting, is_taught, with_teacher
from continued import everything, run
from identity_checks import ROUNDING
from tiny_models import ALPHABET, text_envs, tiny_model

from agents import AGENTS, Agent
from rlenv.tokenizer import character_tokenizer

names = pytest.mark.parametrize("name", AGENTS)
SETTINGS = {"episodes_per_update": 8, "num_envs": 8, "seed": 5, "learning_rate": 1e-2, "device": "cpu"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a model with 2,700 weights, which is the base of every adapter."""
    folder = tmp_path_factory.mktemp("base")
    tiny_model("llama", layers=1).save_pretrained(folder)
    character_tokenizer(ALPHABET).save_pretrained(folder)
    return folder


def few_envs() -> Any:
    return text_envs(8, group_size=4, max_new_tokens=3)


def made(name: str, base: Path, policy_kwargs: dict[str, Any], **more: Any) -> Agent:
    passes = {"num_epochs": 2, "num_minibatches": 1} if name in PASSES else {}
    settings = fitting(name, {**SETTINGS, **passes, **more})
    return with_teacher(AGENTS[name](base, few_envs(), policy_kwargs=policy_kwargs, **settings))


def trained(agent: Agent, folder: Path) -> dict[str, float]:
    """Train for two updates, with a break that changes nothing between them; return the metrics of the second."""
    [first] = run(agent, 1)
    agent.save(folder)
    again = Agent.load(folder, env=few_envs(), continue_env=True, device="cpu")
    assert everything(again) == everything(agent)
    [second] = run(agent, 1)
    assert run(again, 1) == [second]
    assert everything(again) == everything(agent)
    for metrics in (first, second):
        assert all(math.isfinite(figure) for figure in metrics.values()), metrics
        assert metrics["train/grad_norm"] > 1e-3 and metrics["train/skipped_updates"] == 0
    if is_taught(agent.name):
        assert first["train/kl_teacher"] > 0.01, "the teacher is another policy, on a base of its own"
    return second


@names
def test_every_agent_trains_an_adapter_and_leaves_the_base_alone(name: str, base: Path, tmp_path: Path) -> None:
    agent = made(name, base, {"lora_rank": 2, "lora_targets": "q_proj,down_proj"}, kl_coef=0.05)
    before = {key: weight.detach().clone() for key, weight in agent.policy.named_parameters()}
    metrics = trained(agent, tmp_path / "agent")
    moved = {key for key, weight in agent.policy.named_parameters() if not torch.equal(weight, before[key])}
    assert moved == {key for key in before if ".lora_" in key or key.startswith("critic.head")}
    assert metrics["train/logp_gap_max"] < ROUNDING


@names
def test_every_agent_trains_float32_copies_of_weights_of_16_bits(name: str, base: Path, tmp_path: Path) -> None:
    agent = made(name, base, {"dtype": "bfloat16"})
    weights = agent.policy_optimizer.weights
    pairs = [pair for pair in zip(weights.parameters, weights.masters, strict=True) if pair[0].dtype == torch.bfloat16]
    assert len(pairs) >= len(list(agent.policy.model.parameters()))
    before = [master.detach().clone() for _, master in pairs]
    metrics = trained(agent, tmp_path / "agent")
    for (weight, master), start in zip(pairs, before, strict=True):
        assert master.dtype == torch.float32 and not torch.equal(master, start)
        assert torch.equal(weight, master.bfloat16()) and not torch.equal(weight.float(), master)
    assert metrics["train/logp_gap_max"] < 0.3, "and update() raises above HALF_KL_TOLERANCE"
