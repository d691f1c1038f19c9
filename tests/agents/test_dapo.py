"""Dynamic sampling: bounded, honest about what was collected, and nothing is learned from groups that say nothing."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from identity_checks import collect
from tabular import make_agent, random_episodes
from tiny_models import hash_reward, reward_of, text_envs, tiny_policy

from agents import DAPO, Rollout
from agents.rollout import join

EPISODES, GROUP = 12, 4


def equal_reward(prompts: list[str], completions: list[str]) -> list[float]:
    return [0.1] * len(prompts)


def mixed_reward(prompts: list[str], completions: list[str]) -> list[float]:
    """Nothing that is said after a long prompt makes a difference."""
    return [
        0.1 if len(prompt) > 4 else reward_of(prompt, completion)
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def dapo(reward: Any = mixed_reward, **settings: Any) -> DAPO:
    envs = text_envs(EPISODES, reward=reward, group_size=GROUP)
    settings = {"episodes_per_update": EPISODES, "lr_schedule": "constant", "seed": 1, "device": "cpu", **settings}
    return DAPO(tiny_policy("gpt2", envs), envs, **settings)


def rounds_of(agent: DAPO) -> list[Rollout]:
    """Record every collection from now on."""
    rounds: list[Rollout] = []
    gather = agent.collector.collect

    def listen(*args: Any, **kwargs: Any) -> Rollout | None:
        rollout = gather(*args, **kwargs)
        if rollout is not None:
            rounds.append(rollout)
        return rollout

    agent.collector.collect = listen
    return rounds


def trained_by(agent: DAPO) -> list[Rollout]:
    """Record every prepared rollout from now on."""
    prepared: list[Rollout] = []
    prepare = agent.prepare
    agent.prepare = lambda rollout: prepared.append(prepare(rollout)) or prepared[-1]
    return prepared


def informative(rollout: Rollout) -> torch.Tensor:
    """Return which episodes are in a group whose returns differ, bool [N], group by group."""
    rows = torch.zeros(len(rollout), dtype=torch.bool)
    for group in rollout.groups.unique():
        own = rollout.groups == group
        rows |= own & (rollout.returns[own].unique().numel() > 1)
    return rows


def snapshot(agent: DAPO) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    return copy.deepcopy(agent.policy.state_dict()), copy.deepcopy(agent.optimizer.state_dict())


def assert_unchanged(agent: DAPO, before: tuple[dict[str, torch.Tensor], dict[str, Any]]) -> None:
    weights, optimizer = before
    assert all(torch.equal(value, weights[name]) for name, value in agent.policy.state_dict().items())
    states = agent.optimizer.state_dict()["state"].values(), optimizer["state"].values()
    assert all(torch.equal(ours[key], theirs[key]) for ours, theirs in zip(*states, strict=True) for key in ours)


# Groups that say nothing.


@pytest.mark.parametrize("max_rounds", [1, 2, pytest.param(5, marks=pytest.mark.slow)])
def test_where_rewards_are_always_equal_resampling_ends_and_nothing_is_changed(max_rounds: int) -> None:
    agent = dapo(equal_reward, max_rounds=max_rounds)
    rounds, before = rounds_of(agent), snapshot(agent)
    agent.learn(1)
    assert len(rounds) == max_rounds
    assert_unchanged(agent, before)
    assert agent.last_metrics["train/grad_norm"] == 0.0
    assert agent.last_metrics["rollout/frac_reward_zero_std"] == 1.0
    assert agent.num_updates == 1 and agent.num_episodes == max_rounds * EPISODES
    assert agent.num_timesteps == sum(int(rollout.mask.sum()) for rollout in rounds)


def test_training_on_a_task_that_says_nothing_comes_to_its_end() -> None:
    agent = dapo(equal_reward, max_rounds=2)
    agent.learn(total_episodes=3 * 2 * EPISODES)
    assert agent.num_updates == 3 and agent.num_episodes == 6 * EPISODES


# Groups that say something.


@pytest.mark.parametrize("max_rounds", [1, pytest.param(2, marks=pytest.mark.slow), 20])
def test_only_informative_groups_are_trained_the_first_ones_and_whole(max_rounds: int) -> None:
    agent = dapo(max_rounds=max_rounds)
    rounds, prepared = rounds_of(agent), trained_by(agent)
    agent.learn(1)
    taught = [int(informative(rollout).sum()) for rollout in rounds]
    assert sum(taught[:-1]) < EPISODES, "no more rounds than needed"
    if max_rounds == 20:
        assert len(rounds) > 1 and sum(taught) > EPISODES == len(prepared[0]), "the last round brings more than needed"
    everything = join(rounds, obs_from_actions=True)
    rows = informative(everything).nonzero()[:, 0][:EPISODES]
    assert 0 < len(rows) < len(everything)
    (trained,) = prepared
    for name in ("actions", "rewards", "mask", "groups"):
        assert torch.equal(getattr(trained, name), getattr(everything, name)[rows]), name
    assert (trained.advantages.abs().sum(1) > 0).all()
    assert all(int((trained.groups == group).sum()) == GROUP for group in trained.groups.unique())
    assert float(trained.weights.sum()) == pytest.approx(1), "weights are those of what is trained"


def test_groups_that_say_nothing_leave_no_trace_in_the_update() -> None:
    """Collected or not, they change no weight: neither the denominator nor the order of what is trained."""
    both, alone = dapo(num_epochs=2, num_minibatches=2), dapo(num_epochs=2, num_minibatches=2)
    rollout = collect(both.policy, both.env, 40)
    rows = informative(rollout)
    assert 0 < int(rows.sum()) < 40
    both.update(rollout)
    alone.update(rollout.select(rows))
    for name, value in both.policy.state_dict().items():
        assert torch.equal(value, alone.policy.state_dict()[name]), name


def test_figures_of_the_rollout_are_of_all_episodes_collected() -> None:
    agent = dapo(max_rounds=3)
    rounds = rounds_of(agent)
    agent.learn(1)
    assert len(rounds) > 1
    returns = torch.cat([rollout.returns for rollout in rounds]).double()
    lengths = torch.cat([rollout.lengths for rollout in rounds]).double()
    assert agent.last_metrics["rollout/ep_rew_mean"] == pytest.approx(float(returns.mean()))
    assert agent.last_metrics["rollout/ep_len_mean"] == pytest.approx(float(lengths.mean()))
    silent = torch.cat([~informative(rollout)[::GROUP] for rollout in rounds]).double()
    assert 0 < float(silent.mean()) < 1
    assert agent.last_metrics["rollout/frac_reward_zero_std"] == pytest.approx(float(silent.mean()))
    assert agent.num_episodes == len(returns) and agent.num_timesteps == int(lengths.sum())


# Ends.


@pytest.mark.parametrize("last", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_callback_that_returns_false_ends_the_training_in_any_round(last: int) -> None:
    agent = dapo(equal_reward, max_rounds=3)
    rounds, before = rounds_of(agent), snapshot(agent)
    agent.learn(10_000, callback=lambda local, _: len(rounds) < last)
    assert len(rounds) == last and agent.num_updates == 0 and agent.num_episodes == last * EPISODES
    assert_unchanged(agent, before)


# Overlong filtering.


def test_where_every_episode_is_cut_off_nothing_is_learned() -> None:
    agent = make_agent(DAPO, group_size=4, episodes_per_update=8, mask_truncated=True, ent_coef=0.1)
    before = agent.policy.logits.detach().clone()
    rollout = random_episodes(agent.policy, groups=2, size=4, seed=11)
    figures = agent.update(replace(rollout, truncated=torch.ones(8, dtype=torch.bool)))
    assert figures["train/grad_norm"] == 0
    assert torch.equal(agent.policy.logits, before)


# The overlong penalty.


@pytest.mark.parametrize("settings", [{"overlong_buffer": 12}, {"kl_coef": 0.1}])
def test_where_no_group_is_left_nothing_is_changed_whatever_else_is_charged(settings: dict[str, Any]) -> None:
    """With a penalty or an anchor in the reward, equal rewards are not equal returns."""
    agent = dapo(equal_reward, max_rounds=2, learning_rate=0.01, **settings)
    agent.anchor.freeze_reference(tiny_policy("gpt2", agent.env, seed=1))
    before = snapshot(agent)
    agent.learn(1)
    assert agent.num_updates == 1
    assert_unchanged(agent, before)


def test_the_penalty_is_no_part_of_the_rewards_that_are_reported() -> None:
    agent = dapo(hash_reward, overlong_buffer=12)
    assert agent.longest == 12
    rounds, prepared = rounds_of(agent), trained_by(agent)
    agent.learn(1)
    assert agent.last_metrics["rollout/ep_rew_mean"] == pytest.approx(float(rounds[0].returns.double().mean()))
    assert torch.equal(prepared[0].rewards, rounds[0].rewards)
