"""The critics of a language model: a head on the policy's trunk, which it does not train, and a separate trunk."""

import pytest
import torch
from diagonal import slow
from gaps import gapped, positions_explicit
from identity_checks import collect
from tiny_models import text_envs, tiny_policy

from agents import PPO, LanguageModelPolicy, make_policy
from agents.policies.base import critic_parameters
from agents.training.supervised import warm_start

each_critic = pytest.mark.parametrize("critic", ["head", "separate"])


def policy_with(critic, envs, model="gpt2", dtype="float64"):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return tiny_policy(model, envs, dtype=dtype, critic=critic)


def gradients(module):
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


@pytest.mark.parametrize(
    ("model", "critic"), [("gpt2", "head"), ("llama", "separate"), slow("mistral", "head"), slow("mistral", "separate")]
)
def test_a_value_reads_the_prompt_and_what_was_said_before_its_step_alone(model, critic):
    envs = text_envs()
    policy = policy_with(critic, envs, model)
    trunk = policy.model.base_model if critic == "head" else policy.critic.trunk
    for rollout in (gapped(policy, gaps=False), gapped(policy)):
        values, tokens = policy.values(rollout), positions_explicit(rollout).observations["tokens"]
        for row, step in rollout.mask.nonzero().tolist():
            seen = tokens[row, : rollout.columns[row, step]][None]
            by_itself = policy.critic.head(trunk(seen).last_hidden_state[0, -1])[0]
            torch.testing.assert_close(values[row, step], by_itself, rtol=0, atol=1e-10)
        assert not values[~rollout.mask].any()


@each_critic
def test_the_policys_trunk_gets_no_gradient_from_the_critic(critic):
    envs = text_envs()
    policy = policy_with(critic, envs, "llama")
    policy.values(collect(policy, envs, 8)).sum().backward()
    assert not gradients(policy.model)
    assert len(gradients(policy.critic.head)) == 4
    assert bool(gradients(policy.critic.trunk)) if critic == "separate" else policy.critic.trunk is None


def test_a_separate_critic_starts_as_the_policys_trunk_also_after_a_warm_start():
    envs = text_envs()
    policy = policy_with("separate", envs, "llama")
    start = policy.model.base_model.norm.weight.clone()
    warm_start(policy, collect(policy, envs, 4), steps=1)
    assert not torch.equal(start, policy.model.base_model.norm.weight)
    for theirs, ours in zip(policy.critic.trunk.parameters(), policy.model.base_model.parameters(), strict=True):
        assert torch.equal(theirs, ours) and theirs is not ours


@each_critic
def test_a_critic_comes_back_from_its_folder(critic, tmp_path):
    envs = text_envs()
    policy = policy_with(critic, envs, dtype="float32")
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
