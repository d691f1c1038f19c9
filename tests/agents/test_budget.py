"""By how much training may exceed a budget of steps: rollouts are whole, so small budgets get small rollouts."""

import gymnasium as gym
import pytest
from stable_baselines3.common.env_util import make_vec_env
from time_limits import Endless, endless_envs
from tiny_models import text_envs

from agents import GRPO, PKPO, PPO, RLOO, Reinforce
from agents.rollouts import collector
from agents.rollouts.envs import longest_episode

CPU = {"device": "cpu"}


def poles(slots):
    return gym.make_vec("CartPole-v1", slots, "sync")


@pytest.mark.parametrize(
    ("total", "episodes"),
    [(1, 2), (999, 2), (2_000, 2), (3_000, 3), (8_000, 8), (15_999, 15), (16_000, 16), (1_000_000, 16)],
)
def test_a_rollout_takes_half_of_the_budget_at_most_or_the_smallest_that_can_be_compared(total, episodes):
    agent = Reinforce("MlpPolicy", "CartPole-v1", **CPU)
    agent.updates(total)
    assert agent.episodes_per_update == agent.own_episodes == episodes and agent.num_envs == agent.env.num_envs == 16
    critic = PPO("MlpPolicy", "CartPole-v1", **CPU)
    critic.updates(total)
    assert critic.episodes_per_update == (1 if total < 2_000 else episodes)


def test_what_was_given_stays():
    agent = Reinforce("MlpPolicy", "MountainCar-v0", episodes_per_update=8, **CPU)
    agent.updates(1_000)
    assert (agent.episodes_per_update, agent.num_envs) == (8, 8)
    agent = Reinforce("MlpPolicy", "MountainCar-v0", num_envs=4, **CPU)
    agent.updates(1_000)
    assert (agent.episodes_per_update, agent.num_envs) == (2, 4)
    agent = Reinforce("MlpPolicy", "MountainCar-v0", **CPU)
    agent.updates(total_episodes=16)
    assert (agent.episodes_per_update, agent.num_envs) == (16, 16)


def test_slots_that_cannot_wait_each_play_an_episode():
    """Fewer episodes than slots would throw away what the other slots play meanwhile."""
    agent = Reinforce("MlpPolicy", make_vec_env("CartPole-v1", n_envs=4), **CPU)
    agent.updates(1_000)
    assert (agent.episodes_per_update, agent.num_envs) == (4, 4)


def test_an_environment_that_does_not_say_how_long_its_episodes_are_changes_nothing():
    agent = Reinforce("MlpPolicy", Endless(), **CPU)
    agent.updates(100)
    assert agent.episodes_per_update == 16 and longest_episode(agent.env) is None


@pytest.mark.parametrize(("total", "episodes"), [(1, 4), (100, 4), (250, 8), (10_000, 256)])
def test_groups_stay_whole(total, episodes):
    agent = GRPO("tiny", text_envs(4, group_size=4), **CPU)
    limit = longest_episode(agent.env)
    assert limit == 12
    agent.updates(total)
    assert agent.episodes_per_update == episodes == max(4, min(256, total // (2 * limit) // 4 * 4))


def test_the_size_is_fixed_by_the_first_training_and_saved(tmp_path):
    agent = Reinforce("MlpPolicy", "MountainCar-v0", **CPU).learn(1_000)
    agent.learn(100_000, callback=lambda *_: False)
    assert agent.episodes_per_update == 2
    agent.save(tmp_path / "agent")
    loaded = Reinforce.load(tmp_path / "agent")
    loaded.updates(100_000)
    assert (loaded.episodes_per_update, loaded.num_envs) == (2, 16)


@pytest.mark.parametrize(("cls", "total"), [(Reinforce, 60), (PPO, 101), (PPO, 250), (RLOO, 500)])
def test_the_bound_of_the_docstring_holds(cls, total):
    """All episodes take their 50 steps, so that 16 of them would be 800."""
    agent = cls("MlpPolicy", "MountainCar-v0", env_kwargs={"max_episode_steps": 50}, **CPU).learn(total)
    assert total <= agent.num_timesteps < total + max(total / 2, (1 if cls is PPO else 2) * 50)


@pytest.mark.parametrize("total", [None, 100, 1_000])
def test_an_environment_that_never_ends_is_refused_after_a_stated_number_of_steps(total, monkeypatch):
    monkeypatch.setattr(collector, "ENDLESS", 300)
    agent = Reinforce("MlpPolicy", endless_envs(2, steps=0), episodes_per_update=2, **CPU)
    with pytest.raises(ValueError, match=r"no episode has ended.*max_episode_steps.*TimeLimit") as refusal:
        agent.learn(total) if total else agent.evaluate(agent.env, 2)
    assert f"in {500 if total == 1_000 else 300} steps of each slot" in str(refusal.value)
    assert agent.num_timesteps == (max(total, 600) if total else 0), "counted before the first end"


@pytest.mark.parametrize("env", [endless_envs(2, steps=8), poles(2)], ids=["ends", "says"])
def test_episodes_may_be_as_long_as_their_environment_says(env, monkeypatch):
    monkeypatch.setattr(collector, "ENDLESS", 10)
    assert Reinforce("MlpPolicy", env, episodes_per_update=4, **CPU).learn(1).num_updates == 1


def test_a_budget_that_leaves_too_few_episodes_is_refused_and_changes_nothing() -> None:
    agent = PKPO("MlpPolicy", "CartPole-v1", k=8, **CPU)
    with pytest.raises(ValueError, match="k=8 is more than the 2 episodes"):
        agent.learn(2000)
    assert (agent.episodes_per_update, agent.own_episodes, agent.best_of) == (16, 16, 8)
    agent.learn(total_episodes=16)
    assert agent.num_episodes == 16
