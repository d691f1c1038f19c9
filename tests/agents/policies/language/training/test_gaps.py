"""Replies between the sampled tokens: `Rollout.positions` says where actions are; nothing else is evaluated."""

from dataclasses import replace

import pytest
import torch
from diagonal import slow
from gaps import GROUP, gapped, plain_laws
from identity_checks import EXACT, assert_close, gradient
from tiny_models import text_envs, tiny_policy

from agents import GRPO, PPO, RLOO
from agents.policies.language.training import reading
from agents.rollout import join

SWITCHES = [(False, False), (True, False), (True, True)]
EVERYTHING = {"ent_coef": 0.1, "kl_coef": 0.5, "kl_in": "loss", "kl_estimator": "exact"}
ONE_STEP = {"num_epochs": 1, "num_minibatches": 1, "gamma": 0.9}
models = pytest.mark.parametrize("name", ["gpt2", "llama", slow("mistral")])


@pytest.fixture
def forest(monkeypatch):
    """Read shared beginnings as a forest, however few they are."""
    monkeypatch.setattr(reading, "WORTH_IT", 100.0)


def agent_of(cls, name="gpt2", critic=None, **settings):
    envs = text_envs(4, group_size=GROUP)
    policy = tiny_policy(name, envs, critic=critic)
    return cls(policy, envs, episodes_per_update=24, max_grad_norm=1e9, device="cpu", **settings)


@models
@pytest.mark.parametrize("switches", SWITCHES)
def test_only_actions_are_evaluated_each_after_all_tokens_before_it(name, switches, forest):
    policy = tiny_policy(name, text_envs(4), 0.7)
    policy.merge_rows, policy.share_prefixes = switches
    rollout = gapped(policy)
    log_probs, entropies = policy.evaluate(rollout, ("log_probs", "entropy")).values()
    plain, plain_entropies = plain_laws(policy, rollout)
    assert_close(log_probs, plain, EXACT, "log-probabilities")
    assert_close(entropies, plain_entropies, EXACT, "entropies")


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (RLOO, {}),
        (GRPO, EVERYTHING),
        (PPO, ONE_STEP | {"critic": "head"}),
        slow(PPO, ONE_STEP | {"critic": "separate"}),
    ],
)
def test_the_gradient_depends_neither_on_passes_nor_on_masked_cells(cls, settings, forest):
    agent = agent_of(cls, "llama", **settings)
    rollout = gapped(agent.policy)
    whole = gradient(agent, rollout)
    assert whole.abs().max() > 1e-3
    junk = {"actions": 2, "positions": 63, "log_probs": torch.nan, "rewards": torch.nan}
    cells = {name: getattr(rollout, name).where(rollout.mask, value) for name, value in junk.items()}
    others = {"masked cells": replace(rollout, **cells)}
    rows = torch.randperm(len(rollout), generator=torch.Generator().manual_seed(1))
    others["row order"] = rollout.select(rows)
    for what, other in others.items():
        assert_close(gradient(agent, other) / whole.abs().max(), whole / whole.abs().max(), EXACT, what)
    for size, budget in ((1, None), (5, None), (None, 30)):
        agent.micro_batch_size, agent.micro_batch_tokens = size, budget
        assert_close(gradient(agent, rollout) / whole.abs().max(), whole / whole.abs().max(), EXACT, "micro-batches")


@pytest.mark.parametrize("first", ["with replies", "without"])
def test_rollouts_with_and_without_replies_are_joined(first):
    policy = tiny_policy("llama", text_envs(4))
    parts = [gapped(policy, 8), gapped(policy, 8, gaps=False, seed=1)]
    parts = parts if first == "with replies" else parts[::-1]
    joined = join(parts, obs_from_actions=True)
    expected = torch.cat([each.log_probs[each.mask] for each in parts])
    assert_close(policy.evaluate(joined)["log_probs"][joined.mask], expected, EXACT, "joined")
    assert join(parts[:1] * 2, True).positions is None or first == "with replies"
    assert torch.equal(policy.costs(joined), torch.cat([policy.costs(part) for part in parts]))
