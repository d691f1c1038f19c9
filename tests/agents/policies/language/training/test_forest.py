"""Contexts read as one row of nodes: each node attends to its own context, and nothing else changes but the work."""

import gymnasium as gym
import pytest
import torch
from identity_checks import EXACT, assert_close, collect, double, gradient
from tiny_models import hash_reward, tiny_policy

from agents import GRPO, PPO
from agents.policies.language.decoding.acting_copy import is_changed
from agents.policies.language.training import reading
from verifiers.function import FunctionVerifier

GROUP, EPISODES = 4, 24
EVERYTHING = {"ent_coef": 0.1, "kl_coef": 0.5, "kl_in": "loss", "kl_estimator": "exact", "micro_batch_size": 9}


@pytest.fixture
def always(monkeypatch):
    """Read forests even if they are more work."""
    monkeypatch.setattr(reading, "WORTH_IT", 100.0)


def group_envs(**kwargs):
    limits = {"test_fraction": 0.0, "max_prompt_tokens": 9, "max_new_tokens": 4, "group_size": GROUP}
    problems = ["ababababa", "ab", "abababbba", "b"]
    verifier = FunctionVerifier(hash_reward, alphabet="ab")
    return gym.make_vec("TextGen-v0", 8, verifier=verifier, problems=problems, **limits, **kwargs)


ONCE = [(GRPO, None, False), (PPO, "separate", True), (PPO, "head", False)]


@pytest.mark.parametrize(
    ("cls", "critic", "recompute"),
    [*ONCE, *(pytest.param(cls, critic, not recompute, marks=pytest.mark.slow) for cls, critic, recompute in ONCE)],
)
def test_gradient_is_the_same_as_that_of_plain_rows(cls, critic, recompute, always):
    envs = group_envs()
    policy = tiny_policy("llama", envs, temperature=1.3, critic=critic, activation_checkpointing=recompute)
    steps = {"num_epochs": 1, "num_minibatches": 1, "max_grad_norm": 1e9, "device": "cpu"}
    agent = cls(policy, envs, episodes_per_update=EPISODES, **steps, **EVERYTHING)
    agent.anchor.freeze_reference(policy)
    with torch.no_grad():
        for parameter in agent.anchor.reference.parameters():
            parameter.mul_(0.9)
    rollout = double(collect(policy, envs, EPISODES))
    assert policy._reading(rollout).forest is not None
    forest = gradient(agent, rollout)
    policy.merge_rows = policy.share_prefixes = False
    assert policy._reading(rollout).forest is None
    plain = gradient(agent, rollout)
    assert plain.abs().max() > 1e-3
    assert_close(forest / plain.abs().max(), plain / plain.abs().max(), EXACT, "with and without a forest")


def test_the_model_is_as_before_also_after_an_error(always):
    envs = group_envs()
    policy = tiny_policy("llama", envs)
    rollout = collect(policy, envs)
    policy.evaluate(rollout)["log_probs"].sum().backward()
    assert policy.model.config._attn_implementation == "sdpa"
    policy.model.model.layers[1].forward = lambda *args, **kwargs: 1 / 0
    with pytest.raises(ZeroDivisionError):
        policy.evaluate(rollout)
    assert policy.model.config._attn_implementation == "sdpa" and not is_changed(policy.model.model.layers[0])
