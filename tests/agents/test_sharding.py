"""Weights, gradients and optimizer state dealt out to processes: the updates are those of a single process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ranks
from tiny_models import text_envs, tiny_policy

from agents import AGENTS, Agent, Collector, Rollout, parallel
from agents.shards import local
from agents.warm_start import warm_start

pytestmark = pytest.mark.slow  # FSDP2 over gloo: a second per update
SETTINGS: dict[str, Any] = {"episodes_per_update": 8, "micro_batch_tokens": 40, "learning_rate": 1e-2, "gamma": 0.9}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # agent, its settings, the policy's
    "GRPO": ("grpo", {}, {}),
    "tied embeddings, recomputed": ("rloo", {}, {"name": "gpt2", "activation_checkpointing": True}),
    "PPO with a separate critic": ("ppo", {"num_minibatches": 2, "kl_coef": 0.1}, {"critic": "separate"}),
    "PPO with a head": ("ppo", {"num_epochs": 2}, {"critic": "head"}),
    "exact KL in the loss": ("grpo", {"kl_coef": 0.3, "kl_in": "loss", "kl_estimator": "exact", "ent_coef": 0.1}, {}),
    "exact KL in the reward": ("rloo", {"kl_coef": 0.3, "kl_estimator": "exact", "weight_decay": 0.1}, {}),
    "an adapter": ("grpo", {"kl_coef": 0.1, "kl_in": "loss"}, {"lora_rank": 2}),
    "an adapter with a critic": ("ppo", {"kl_coef": 0.1}, {"lora_rank": 2, "critic": "separate"}),
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(2, tmp_path_factory.mktemp("two"))
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(4, tmp_path_factory.mktemp("four"))
    yield ranks
    ranks.close()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let this process of several act as a single one."""
    size = parallel.size
    parallel.size = lambda: 1
    try:
        yield
    finally:
        parallel.size = size


def sampled() -> Rollout:
    """Return the same 8 episodes of unequal length in every process, from a policy that none of the agents has."""
    with alone():
        envs = text_envs(num_envs=4, group_size=4)
        collector = Collector(envs, torch.device("cpu"))
        collector.seed(0)
        rollout = collector.collect(tiny_policy("llama", envs), 8, torch.Generator().manual_seed(0))
    assert rollout is not None
    return rollout


def an_agent(case: str, shard: bool, **more: Any) -> Agent:
    name, settings, of_policy = CASES[case]
    envs = text_envs(num_envs=4, group_size=4)
    torch.manual_seed(0)  # of the critic's head and the adapter
    policy = tiny_policy(envs=envs, **{"name": "llama", **of_policy})
    for parameter in policy.parameters():
        if parameter.requires_grad and not parameter.any():  # B of an adapter, with which its A has a gradient
            torch.nn.init.normal_(parameter, std=0.1)
    return AGENTS[name](policy, envs, device="cpu", shard=shard, **SETTINGS, **settings, **more)


def weights_of(agent: Agent) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in agent.policy.whole().parameters()])


def updated(case: str, shard: bool) -> tuple[torch.Tensor, list[dict[str, float]]]:
    """Return the weights after three updates on the same episodes, and the metrics of each."""
    agent, rollout = an_agent(case, shard), sampled()
    agent.anchor.freeze_reference(agent.policy)
    with torch.no_grad():
        log_probs, _ = agent.policy.whole().evaluate_actions(rollout)
    rollout.log_probs = log_probs  # as if this policy had sampled them
    metrics = []
    for _ in range(3):
        metrics.append(agent.update(rollout))
        with torch.no_grad():
            rollout.log_probs = agent.policy.whole().evaluate_actions(rollout)[0]
    return weights_of(agent), metrics


def difference(case: str) -> tuple[float, float, list[Any]]:
    """Return how far sharded weights are from a single process's, how far those moved, and the metrics of both."""
    together, metrics = updated(case, shard=True)
    with alone():
        start = weights_of(an_agent(case, shard=False))
        single, expected = updated(case, shard=False)
    pairs = [(mine[key], theirs[key]) for mine, theirs in zip(metrics, expected, strict=True) for key in theirs]
    return float((together - single).abs().max()), float((single - start).abs().max()), pairs


@pytest.mark.parametrize("case", CASES)
def test_two_processes_with_shards_make_the_updates_of_one(two: Ranks, case: str) -> None:
    for distance, moved, metrics in two(difference, case):
        assert distance < 1e-10
        assert moved > 1e-3
        for found, expected in metrics:
            assert found == pytest.approx(expected, rel=1e-7, abs=1e-10)
