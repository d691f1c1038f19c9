"""Weights, gradients and optimizer state dealt out to processes: the updates are those of a single process."""

from __future__ import annotations

import contextlib
import copy
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gaps import gapped
from ranks import Ranks
from tiny_models import text_envs, tiny_policy

from agents import AGENTS, Agent, Rollout, processes
from agents.fsdp import full, gathered, local, whole
from agents.processes import alone
from agents.rollout import join
from agents.training.supervised import WarmStart

SETTINGS: dict[str, Any] = {"episodes_per_update": 16, "micro_batch_tokens": 22, "learning_rate": 1e-2, "gamma": 0.9}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # agent, its settings, the policy's
    "GRPO": ("grpo", {}, {}),
    "REINFORCE": ("reinforce", {}, {}),
    "tied embeddings, recomputed": ("rloo", {}, {"name": "gpt2", "activation_checkpointing": True}),
    "PPO with a separate critic": ("ppo", {"num_minibatches": 2, "kl_coef": 0.1}, {"critic": "separate"}),
    "PPO with a head": ("ppo", {"num_epochs": 2}, {"critic": "head"}),
    "exact KL in the loss": ("grpo", {"kl_coef": 0.3, "kl_in": "loss", "kl_estimator": "exact", "ent_coef": 0.1}, {}),
    "exact KL in the reward": ("rloo", {"kl_coef": 0.3, "kl_estimator": "exact", "weight_decay": 0.1}, {}),
    "score norms": ("reinforce-baseline", {"baseline": "optimal-token"}, {}),
    "a critic that warms up": ("vapo", {"value_warmup": 1, "length_alpha": 1.0}, {"critic": "separate"}),
    "a head that warms up": ("vapo", {"value_warmup": 1, "length_alpha": 1.0}, {"critic": "head"}),
    "an adapter": ("grpo", {"kl_coef": 0.1, "kl_in": "loss"}, {"lora_rank": 2}),
    "a teacher": ("distillation", {}, {}),
    "an adapter with a critic": ("ppo", {"kl_coef": 0.1}, {"lora_rank": 2, "critic": "separate"}),
}


def sampled() -> Rollout:
    """Return the same 16 episodes in every process, half of which have replies, from a policy that no agent has."""
    with alone():
        policy = tiny_policy("llama", text_envs(num_envs=4, group_size=4), seed=2)
        parts = [gapped(policy, 8), gapped(policy, 8, gaps=False, seed=1)]
    return join([replace(part, groups=part.groups + 2 * number) for number, part in enumerate(parts)], True)


def an_agent(case: str, shard: bool, **more: Any) -> Agent:
    name, settings, of_policy = CASES[case]
    envs = text_envs(num_envs=4, group_size=4)
    torch.manual_seed(0)  # of the critic's head and the adapter
    policy = tiny_policy(envs=envs, **{"name": "llama", **of_policy})
    for parameter in policy.parameters():
        if parameter.requires_grad and not parameter.any():  # B of an adapter, with which its A has a gradient
            torch.nn.init.normal_(parameter, std=0.1)
    if name == "distillation":
        more["teacher"] = tiny_policy("llama", envs, seed=1)
    return AGENTS[name](policy, envs, device="cpu", shard=shard, **SETTINGS, **settings, **more)


def weights_of(agent: Agent) -> torch.Tensor:
    trained = [p for p in agent.policy.parameters() if p.requires_grad]
    return torch.cat([full(p).detach().flatten().clone() for p in trained])


def updated(case: str, shard: bool) -> tuple[torch.Tensor, list[dict[str, float]]]:
    """Return the weights after three updates on the same episodes, and the metrics of each."""
    agent, rollout = an_agent(case, shard), sampled()
    agent.anchor.freeze_reference(agent.policy)
    metrics = []
    for _ in range(3):
        with gathered(agent.policy), torch.no_grad():  # as if this policy had sampled them
            rollout.log_probs = agent.policy.evaluate(rollout)["log_probs"]
        metrics.append(agent.update(rollout))
    return weights_of(agent), metrics


def difference(case: str) -> tuple[float, float, list[Any]]:
    """Return how far sharded weights are from a single process's, how far those moved, and the metrics of both."""
    together, metrics = updated(case, shard=True)
    with alone():
        start = weights_of(an_agent(case, shard=False))
        single, expected = updated(case, shard=False)
    pairs = [(mine[key], theirs[key]) for mine, theirs in zip(metrics, expected, strict=True) for key in theirs]
    return float((together - single).abs().max()), float((single - start).abs().max()), pairs


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_with_shards_make_the_updates_of_one(two: Ranks, case: str) -> None:
    for distance, moved, metrics in two(difference, case):
        assert distance < 1e-10
        assert moved > 1e-3
        for found, expected in metrics:
            assert found == pytest.approx(expected, rel=1e-7, abs=1e-10)


# Passes.


def no_part(case: str, episodes: int) -> float:
    """Return the distance of an update on few episodes of which a single one has a reward: one process has no part."""

    def step(shard: bool) -> torch.Tensor:
        agent, rollout = an_agent(case, shard), sampled().select(slice(episodes))
        with gathered(agent.policy), torch.no_grad():
            rollout.log_probs = agent.policy.evaluate(rollout)["log_probs"]
        agent.update(replace(rollout, rewards=rollout.rewards.where(torch.arange(episodes)[:, None] == 0, 0)))
        return weights_of(agent)

    together = step(True)
    with alone():
        return float((together - step(False)).abs().max())


@pytest.mark.slow
@pytest.mark.parametrize(("case", "episodes"), [("REINFORCE", 16), ("PPO with a head", 1)])
def test_a_process_may_have_no_part(two: Ranks, case: str, episodes: int) -> None:
    assert max(two(no_part, case, episodes)) < 1e-10


# Acting.


def text_agent(name: str = "rloo", policy: Any = "tiny", **settings: Any) -> Agent:
    chosen = {"episodes_per_update": 8, "seed": 3, "device": "cpu", "learning_rate": 1e-2, "shard": True, **settings}
    return AGENTS[name](policy, text_envs(num_envs=2, group_size=2), **chosen)


def learned(updates: int) -> tuple[int, float, bool]:
    """Return how often weights were gathered in so many updates, the gap to acting, and whether the weights moved."""
    agent, gathered_in = text_agent(), []
    unshard, before = agent.policy.unshard, weights_of(agent)  # type: ignore[operator]
    agent.policy.unshard = lambda: gathered_in.append(agent.num_updates) or unshard()  # type: ignore[func-returns-value]
    gaps = [metrics["train/logp_gap_max"] for _, metrics in agent.updates(total_episodes=8 * updates)]
    return len(set(gathered_in)), max(gaps), bool((weights_of(agent) != before).any())


@pytest.mark.slow
def test_weights_are_gathered_once_per_rollout_and_are_those_that_were_trained(two: Ranks) -> None:
    for rollouts, gap, moved in two(learned, 3):
        assert rollouts == 3
        assert gap < 1e-4
        assert moved


# Memory.


def tensor_bytes() -> int:
    """Return the size of all tensors of this process."""
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, torch.Tensor) and each.device.type != "meta"]
    storages = [local(each).untyped_storage() for each in found]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def held(shard: bool, lora_rank: int | None) -> tuple[int, int, int, int]:
    """Return the weights and moments that this process has after two updates, those of the policy, and all bytes."""
    before = tensor_bytes()
    with contextlib.nullcontext() if shard else alone():
        agent = text_agent(shard=shard, policy_kwargs={"lora_rank": lora_rank})
        agent.learn(total_episodes=16)
    mine = sum(local(p).numel() for p in agent.policy.parameters())
    states = agent.optimizer.state.values()
    moments = sum(local(state[name]).numel() for state in states for name in ("exp_avg", "exp_avg_sq"))
    return mine, moments, sum(p.numel() for p in agent.policy.parameters()), tensor_bytes() - before


@pytest.mark.slow
@pytest.mark.parametrize("lora_rank", [None, 2])
def test_a_process_holds_its_share_of_weights_and_moments(two: Ranks, lora_rank: int | None) -> None:
    ((first, moments, whole, used), (second, others, _, others_use)) = two(held, True, lora_rank)
    ((_, full, _, plain), _) = two(held, False, lora_rank)
    assert first + second == whole
    assert moments + others == full
    assert max(first, second) < 0.51 * whole
    assert max(moments, others) < 0.51 * full
    assert max(used, others_use) < 0.6 * plain


# Checkpoints.


def states(agent: Agent) -> tuple[torch.Tensor, Any]:
    """Return the whole weights and, in the main process, the optimizer's whole state."""
    optimizer = whole(agent.policy_optimizer.state_dict())
    return weights_of(agent), copy.deepcopy(optimizer) if processes.is_main() else None


def saved(path: str, options: dict[str, Any]) -> tuple[Any, torch.Tensor]:
    """Train, save, train on; return the state at the first moment and the weights at the second."""
    agent = text_agent(**options)
    run = agent.updates(total_episodes=32)
    for _ in range(2):
        next(run)
    run.close()
    agent.save(path)
    middle = states(agent)
    agent.learn(total_episodes=16, reset_num_timesteps=False)
    return middle, weights_of(agent)


def load(path: str, shard: bool) -> Agent:
    return Agent.load(path, text_envs(num_envs=2, group_size=2), "cpu", continue_env=True, shard=shard)


def continued(path: str, shard: bool) -> tuple[Any, torch.Tensor]:
    agent = load(path, shard)
    middle = states(agent)
    agent.learn(total_episodes=16, reset_num_timesteps=False)
    return middle, weights_of(agent)


def equal(a: Any, b: Any) -> bool:
    """Whether two nested states are the same."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


SAVED: dict[str, dict[str, Any]] = {
    "a model and its reference": {"kl_coef": 0.1},
    "PPO in bfloat16": {"name": "ppo", "policy_kwargs": {"dtype": "bfloat16", "critic": "separate"}},
    "an adapter and its reference": {"kl_coef": 0.1, "policy_kwargs": {"lora_rank": 2}},
    "an adapter of PPO": {"name": "ppo", "policy_kwargs": {"lora_rank": 2, "critic": "separate"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", SAVED.values(), ids=SAVED)
def test_a_checkpoint_continues_bit_for_bit_and_loads_on_any_number(
    two: Ranks, four: Ranks, tmp_path: Path, options: dict[str, Any]
) -> None:
    path = str(tmp_path / "saved")
    ((weights, optimizer), end), *_ = two(saved, path, options)
    for (found, state), last in two(continued, path, True):
        assert torch.equal(found, weights) and torch.equal(last, end)
        assert state is None or equal(state, optimizer)
    single = states(load(path, shard=False))
    for found, state in (single, *(middle for middle, _ in four(continued, path, True))):
        assert torch.equal(found, weights)
        assert state is None or equal(state, optimizer)
    assert torch.equal(two(continued, path, False)[0][0][0], weights), "as replicas"


def warm(agent: Agent) -> WarmStart:
    return WarmStart(agent.policy, lambda size: sampled(), 4, 16, 1e-2, micro_batch_size=4)


def half_warm(path: str) -> tuple[list[float], torch.Tensor]:
    """Save in the middle of a warm start; return what the whole one comes to."""
    agent = text_agent()
    loop = warm(agent)
    loop.run(lambda step, loss: step < 1)
    agent.extra_state = {"loop": loop.state_dict()}
    agent.save(path)
    return loop.run(), weights_of(agent)


def warm_again(path: str, shard: bool) -> tuple[list[float], torch.Tensor]:
    with contextlib.nullcontext() if shard else alone():
        agent = load(path, shard)
        loop = warm(agent)
        loop.load_state_dict(agent.extra_state["loop"])
        return loop.run(), weights_of(agent)


@pytest.mark.slow
def test_a_warm_start_is_continued(two: Ranks, tmp_path: Path) -> None:
    path = str(tmp_path / "saved")
    expected = two(half_warm, path)
    assert equal(two(warm_again, path, True), expected)
    losses, _ = warm_again(path, False)
    assert losses == pytest.approx(expected[0][0], rel=1e-5)


# What is refused.


REFUSED = {
    "another policy": (
        lambda: AGENTS["ppo"]("MlpPolicy", "CartPole-v1", episodes_per_update=8, num_envs=4, shard=True, device="cpu"),
        ("shard is for language models", "ControlPolicy"),
    ),
    "a policy of another agent": (lambda: text_agent(policy=text_agent().policy), ("dealt out already", "load")),
    "weights by name": (lambda: text_agent().get_parameters(), ("get_parameters", "save and load")),
}


def refusal(of: str) -> str:
    with pytest.raises(ValueError) as error:
        REFUSED[of][0]()
    return str(error.value)


@pytest.mark.parametrize("of", REFUSED)
def test_every_process_refuses(two: Ranks, of: str) -> None:
    for said in two(refusal, of):
        assert all(word in said for word in REFUSED[of][1])
