"""Activation checkpointing: less memory, and a model that is left as it was; test_sharing.py has the gradient."""

import pytest
import torch
from identity_checks import collect
from tiny_models import text_envs, tiny_policy

from agents import RLOO
from agents.policies.language.decoding.acting_copy import is_changed


def saved_bytes(policy, rollout):
    """Return what a training pass keeps for the backward pass."""
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        log_probs = policy.evaluate(rollout)["log_probs"]
    return sum(kept.values()), log_probs


@pytest.mark.parametrize("name", ["gpt2", "llama", pytest.param("mistral", marks=pytest.mark.slow)])
def test_less_is_kept_and_the_model_is_left_as_it_was(name):
    envs = text_envs(4)
    policy = tiny_policy(name, envs)
    rollout = collect(policy, envs)
    plain, _ = saved_bytes(policy, rollout)
    policy.activation_checkpointing = True
    before = [dict(vars(module)) for module in policy.modules()]
    small, log_probs = saved_bytes(policy, rollout)
    assert small < 0.4 * plain, (small, plain)
    assert [dict(vars(module)) for module in policy.modules()] == before
    assert not any(map(is_changed, policy.modules()))
    log_probs.sum().backward()
    assert not policy.model.training


def test_a_checkpoint_keeps_the_choice(tmp_path):
    envs = text_envs(4, group_size=2)
    agent = RLOO(tiny_policy("gpt2", envs, activation_checkpointing=True), envs, episodes_per_update=4, device="cpu")
    agent.learn(total_episodes=4)
    agent.save(tmp_path / "agent")
    assert RLOO.load(tmp_path / "agent", env=envs, device="cpu").policy.activation_checkpointing is True
