"""The critics of a language model: what they train, start from and keep; tests/laws has their values."""

import pytest
import torch
from gaps import gapped
from identity_checks import EXACT, assert_close, collect
from tiny_models import text_envs, tiny_policy

from agents import PPO, LanguageModelPolicy, make_policy
from agents.policies.base import critic_parameters
from agents.rollout import join
from agents.training.supervised import warm_start

each_critic = pytest.mark.parametrize("critic", ["head", "separate"])


def policy_with(critic, envs, dtype="float64"):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return tiny_policy("llama", envs, dtype=dtype, critic=critic)


def gradients(module):
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


@each_critic
def test_the_policys_trunk_gets_no_gradient_from_the_critic(critic):
    envs = text_envs()
    policy = policy_with(critic, envs)
    policy.values(collect(policy, envs, 8)).sum().backward()
    assert not gradients(policy.model)
    assert len(gradients(policy.critic.head)) == 4
    assert bool(gradients(policy.critic.trunk)) if critic == "separate" else policy.critic.trunk is None


def test_a_separate_critic_starts_as_the_policys_trunk_also_after_a_warm_start():
    envs = text_envs()
    policy = policy_with("separate", envs)
    start = policy.model.base_model.norm.weight.clone()
    warm_start(policy, collect(policy, envs, 4), steps=1)
    assert not torch.equal(start, policy.model.base_model.norm.weight)
    for theirs, ours in zip(policy.critic.trunk.parameters(), policy.model.base_model.parameters(), strict=True):
        assert torch.equal(theirs, ours) and theirs is not ours


@each_critic
def test_a_critic_comes_back_from_its_folder(critic, tmp_path):
    envs = text_envs()
    policy = policy_with(critic, envs, "float32")
    rollout = collect(policy, envs, 8)
    with torch.no_grad():
        for parameter in critic_parameters(policy):
            parameter.add_(0.01)
        policy.save(tmp_path)
        again = LanguageModelPolicy.load(tmp_path, envs.single_observation_space, envs.single_action_space)
        assert torch.equal(again.values(rollout), policy.values(rollout))


def test_where_a_critic_is_asked_for():
    spaces = (text_envs().single_observation_space, text_envs().single_action_space)
    assert make_policy("tiny", *spaces).critic is None
    assert make_policy("tiny", *spaces, True).critic.trunk is None
    assert PPO("tiny", text_envs(), policy_kwargs={"critic": "separate"}).policy.critic.trunk is not None


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
