"""What the critic is fitted to, and what it says of the state behind a time limit."""

from dataclasses import replace

import gymnasium as gym
import pytest
import torch
from diagonal import diagonal
from identity_checks import EXACT, ROUNDING, assert_close, collect
from tabular import make_agent, random_episodes
from time_limits import CutOff, endless_envs
from tiny_models import text_envs, tiny_model

from agents import A2C, PPO, ReinforceBaseline
from agents.estimators.returns import return_to_go

critics = pytest.mark.parametrize("cls", [A2C, PPO])
GAMMA = 0.9


def cut_off(rollout, rows=(1, 4, 5)):
    """Return tabular episodes, some of which were cut off while looking at state 3 + their number."""
    truncated = torch.zeros(len(rollout), dtype=torch.bool)
    truncated[list(rows)] = True
    seen = (torch.arange(len(rollout)) + 3) * truncated
    return replace(rollout, terminated=~truncated, truncated=truncated, final_observations=seen)


# The value of what follows a time limit.


def test_final_values_of_control_are_the_critics():
    envs = gym.make_vec("CartPole-v1", num_envs=4, max_episode_steps=15)
    agent = A2C("MlpPolicy", envs, gamma=GAMMA, gae_lambda=0.7, device="cpu")
    rollout = collect(agent.policy, envs, 16)
    cut = rollout.truncated & ~rollout.terminated
    assert 0 < int(cut.sum()) < 16, "some episodes fall and some are cut off"
    prepared = agent.prepare(rollout)
    with torch.no_grad():
        wanted = agent.policy.net.predict_values(rollout.final_observations)[:, 0]
    assert_close(prepared.final_values, wanted * cut, ROUNDING, "final values")
    assert (prepared.final_values[cut] != 0).all() and not prepared.final_values[~cut].any()
    check_last_targets(prepared, GAMMA, ROUNDING)


def check_last_targets(prepared, gamma, tolerance):
    """At an episode's last step the target is r + γ V(final), which is r where the episode is over."""
    last = prepared.lengths[:, None] - 1
    rewards, targets = (x.gather(1, last)[:, 0] for x in (prepared.rewards, prepared.value_targets))
    assert_close(targets, rewards + gamma * prepared.final_values, tolerance, "targets of last steps")
    over = prepared.terminated
    assert_close(targets[over], rewards[over], tolerance, "targets of episodes that are over")


@diagonal("cls, critic", [A2C, PPO], ["head", "separate"])
def test_final_values_of_text_are_the_critics_of_prompt_and_completion(cls, critic):
    envs = CutOff(text_envs(4))
    settings = {"policy_kwargs": {"dtype": "float64", "critic": critic}, "gamma": GAMMA}
    agent = cls(tiny_model("gpt2"), envs, episodes_per_update=12, device="cpu", **settings)
    rollout = collect(agent.policy, envs, 12)
    cut = rollout.truncated & ~rollout.terminated
    assert 0 < int(cut.sum()) < 12
    prepared = agent.prepare(rollout)
    assert_close(prepared.final_values, values_after(agent.policy, rollout) * cut, EXACT, "final values")
    assert (prepared.final_values[cut] != 0).all()
    check_last_targets(prepared, GAMMA, ROUNDING)
    agent.micro_batch_size = 1  # most parts then have no final observation at all
    row_by_row = agent.prepare(rollout)
    assert_close(row_by_row.final_values, prepared.final_values, EXACT, "final values, row by row")
    assert_close(row_by_row.values, prepared.values, EXACT, "values, row by row")


@torch.no_grad()
def values_after(policy, rollout):
    """Return the critic's values once every action of an episode has been read [N], as those of one more step."""
    one_more = torch.arange(rollout.mask.shape[1] + 1) <= rollout.lengths[:, None]
    actions = torch.nn.functional.pad(rollout.actions, (0, 1))
    values = policy.values(replace(rollout, actions=actions, mask=one_more))
    return values.gather(1, rollout.lengths[:, None])[:, 0]


def test_there_is_no_final_value_where_no_episode_was_cut_off():
    agent = make_agent(A2C)
    assert agent.prepare(random_episodes(agent.policy)).final_values is None


def test_an_agent_without_a_critic_asks_for_no_values():
    agent = make_agent(ReinforceBaseline, baseline="group-mean")
    prepared = agent.prepare(cut_off(random_episodes(agent.policy)))
    assert prepared.values is None and prepared.final_values is None and prepared.value_targets is None


# What the critic is fitted to.


def test_the_critic_of_a_plain_baseline_is_fitted_to_the_return():
    agent = make_agent(ReinforceBaseline, baseline="value", gamma=GAMMA)
    rollout = cut_off(random_episodes(agent.policy))
    targets = agent.prepare(rollout).value_targets
    assert torch.equal(targets, return_to_go(rollout.rewards, rollout.mask, GAMMA))


# A world without end, watched for four steps at a time.


def knowing(cls, terminates, gae_lambda):
    """Return an agent whose critic says 1 / (1 - γ) everywhere, and its prepared rollout."""
    envs = endless_envs(terminates=terminates)
    settings = {"normalize_advantage": False} if cls is PPO else {}
    agent = cls("MlpPolicy", envs, gamma=GAMMA, gae_lambda=gae_lambda, episodes_per_update=8, device="cpu", **settings)
    with torch.no_grad():
        agent.policy.net.value_net.weight.zero_()
        agent.policy.net.value_net.bias.fill_(1 / (1 - GAMMA))
    return agent, agent.prepare(collect(agent.policy, envs, 8))


@critics
@pytest.mark.parametrize("gae_lambda", [0.0, 0.95, 1.0])
def test_a_critic_that_knows_the_endless_world_learns_nothing_from_a_time_limit(cls, gae_lambda):
    _, prepared = knowing(cls, terminates=False, gae_lambda=gae_lambda)
    assert_close(prepared.advantages, torch.zeros(8, 4), ROUNDING, "advantages")
    assert_close(prepared.value_targets, torch.full((8, 4), 1 / (1 - GAMMA)), ROUNDING, "targets")


@critics
def test_the_same_world_is_worth_less_where_it_ends(cls):
    _, prepared = knowing(cls, terminates=True, gae_lambda=1.0)
    left = torch.tensor([sum(GAMMA**k for k in range(steps)) for steps in (4, 3, 2, 1)])
    assert_close(prepared.value_targets, left.expand(8, 4), ROUNDING, "targets")
