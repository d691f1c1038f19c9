"""The critics of a language model, a head on its trunk or a trunk of their own; and replies between sampled tokens."""

from dataclasses import replace

import pytest
import torch
from diagonal import slow
from gaps import GROUP, gapped, plain_laws, positions_explicit
from identity_checks import EXACT, assert_close, collect, gradient
from tiny_models import text_envs, tiny_policy

from agents import GRPO, PPO, RLOO, LanguageModelPolicy, make_policy
from agents.language import reading
from agents.policies.base import critic_parameters
from agents.rollout import join
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


# Replies between the sampled tokens: `Rollout.positions` says where actions are; nothing else is evaluated.


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
