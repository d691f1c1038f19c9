"""The critics of a language model: what they train, start from and keep; tests/laws has their values."""

from dataclasses import replace

import pytest
import torch
from diagonal import diagonal
from gaps import gapped
from gymnasium.vector import VectorWrapper
from identity_checks import EXACT, assert_close, collect
from tiny_models import text_envs, tiny_model, tiny_policy

from rlenv.agents import A2C, PPO
from rlenv.agents.rollout import join
from rlenv.agents.training.extras import with_extras
from rlenv.agents.training.supervised import warm_start

each_critic = pytest.mark.parametrize("critic", ["head", "separate"])


def policy_with(critic, envs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return tiny_policy("llama", envs, dtype="float64", critic=critic)


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


# Time limits: what the critic says of the state behind one, and what it is then fitted to.

GAMMA = 0.9


class CutOff(VectorWrapper):
    """Our text environment, were its budget a time limit and not the end of the answer."""

    def step(self, actions):
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        return obs, rewards, terminated & ~truncated, truncated, infos


@diagonal("cls, critic", [A2C, PPO], ["head", "separate"])
def test_final_values_of_text_are_the_critics_of_prompt_and_completion(cls, critic):
    envs = CutOff(text_envs(4))
    settings = {"policy_kwargs": {"dtype": "float64", "critic": critic}, "gamma": GAMMA}
    agent = cls(tiny_model("gpt2"), envs, episodes_per_update=12, device="cpu", **settings)
    rollout = collect(agent.policy, envs, 12)
    cut = rollout.truncated & ~rollout.terminated
    assert 0 < int(cut.sum()) < 12
    prepared = agent.prepare(rollout)
    one_more = torch.arange(rollout.mask.shape[1] + 1) <= rollout.lengths[:, None]
    longer = replace(rollout, actions=torch.nn.functional.pad(rollout.actions, (0, 1)), mask=one_more)
    wanted = agent.policy.values(longer).detach().gather(1, rollout.lengths[:, None])[:, 0]
    assert_close(prepared.extras["final_values"], wanted * cut, EXACT, "final values")
    assert (prepared.extras["final_values"][cut] != 0).all()
    agent.micro_batch_size = 1  # most parts then have no final observation at all
    row_by_row = agent.prepare(rollout)
    assert_close(row_by_row.extras["final_values"], prepared.extras["final_values"], EXACT, "final values, row by row")
    assert_close(row_by_row.values, prepared.values, EXACT, "values, row by row")


@pytest.mark.parametrize("rows", [None, 1])
def test_final_values_of_a_policy_with_a_memory_are_of_all_that_it_saw(rows):
    agent = A2C("MlpPolicy", "MountainCar-v0", episodes_per_update=3, micro_batch_size=rows, device="cpu")
    agent.policy.initial_state = lambda slots: torch.zeros(slots)
    agent.policy.values = lambda seen: seen.observations[..., 0].where(seen.mask, 0).cumsum(1)  # its sum so far
    rollout = agent.collector.collect(agent.policy, 3, agent.generator)
    assert rollout.truncated.all()
    rollout.terminated[1] = True
    places = rollout.observations[..., 0].where(rollout.mask, 0).sum(1) + rollout.final_observations[:, 0]
    found = with_extras(agent, rollout).extras["final_values"]
    assert_close(found, places * torch.tensor([1, 0, 1]), 1e-5, "final values")
