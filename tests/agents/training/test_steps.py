"""How many steps the environment takes, how many of them are trained on, and which slots take none."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from counting_env import CountingEnv, CountingPolicy, Ledger
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from tiny_models import text_envs, tiny_policy

from agents import Collector, Reinforce, make_envs
from agents.rollouts.waiting_envs import WaitingVectorEnv

CPU = torch.device("cpu")
LENGTHS = [1 + (7 * i * i + 3 * i) % 9 for i in range(200)]
modes = pytest.mark.parametrize("mode", list(AutoresetMode))
shapes = pytest.mark.parametrize(("episodes", "slots"), [(12, 4), (11, 3), (3, 5), (7, 7), (2, 1)])


class Stepped(CountingEnv):
    """Counts the steps of all environments together."""

    steps = 0

    def step(self, action: Any) -> Any:
        Stepped.steps += 1
        return super().step(action)


@pytest.fixture(autouse=True)
def _from_zero() -> None:
    Stepped.steps = 0


def stepped_envs(kind: type[SyncVectorEnv], slots: int, **settings: Any) -> VectorEnv:
    ledger = Ledger(LENGTHS)
    return kind([lambda: Stepped(ledger)] * slots, **settings)


@modes
@shapes
def test_every_step_of_the_environment_is_counted(mode: AutoresetMode, episodes: int, slots: int) -> None:
    counts: list[int] = []
    envs = stepped_envs(SyncVectorEnv, slots, autoreset_mode=mode)
    for _ in range(2):
        rollout = Collector(envs, CPU).collect(CountingPolicy(), episodes, on_step=lambda n, _: not counts.append(n))
        assert sum(counts) == Stepped.steps
    assert Stepped.steps >= int(rollout.mask.sum())


@shapes
def test_slots_that_wait_take_no_step_that_is_thrown_away(episodes: int, slots: int) -> None:
    envs, counts, wanted = stepped_envs(WaitingVectorEnv, slots), [], 0
    collector = Collector(envs, CPU)
    for _ in range(2):
        rollout = collector.collect(CountingPolicy(), episodes, on_step=lambda n, _: not counts.append(n))
        wanted += int(rollout.mask.sum())
        assert len(rollout) == episodes and sum(counts) == Stepped.steps == wanted


def test_a_waiting_slot_keeps_its_last_observation_and_earns_nothing() -> None:
    envs = stepped_envs(WaitingVectorEnv, 3)  # the first three episodes have 1, 2 and 8 steps
    envs.reset(seed=0)
    for t in range(4):
        playing = [t < length for length in LENGTHS[:3]]
        taken = min(t + 1, 2)
        obs, rewards, terminated, truncated, _ = envs.step((np.arange(3) + t) % 3)
        assert Stepped.steps == sum(min(t + 1, length) for length in LENGTHS[:3])
        assert ((terminated | truncated) == [t + 1 == length for length in LENGTHS[:3]]).all()
        assert (rewards[~np.array(playing)] == 0).all()
        assert obs[:2].tolist() == [[0, 1], [1, taken]]
    obs, _ = envs.reset(options={"reset_mask": np.array([True, False, False])})
    assert obs[:2].tolist() == [[3, 0], [1, 2]]


def test_the_first_reset_of_waiting_slots_may_leave_some_out() -> None:
    envs = stepped_envs(WaitingVectorEnv, 3)
    obs, _ = envs.reset(seed=0, options={"reset_mask": np.array([True, False, False])})
    assert obs.shape == (3, 2)
    envs.step(np.array([0, 0, 0]))
    assert Stepped.steps == 1


class Countable(CartPoleVectorEnv):
    """Gymnasium's batched CartPole; notes how many poles each step moves."""

    moved: list[int] = []

    def step(self, action: Any) -> Any:
        Countable.moved.append(self.num_envs - int(np.sum(self.prev_done)))
        return super().step(action)


def test_an_agent_counts_the_steps_taken_and_those_trained_on() -> None:
    Countable.moved = []
    agent = Reinforce("MlpPolicy", Countable(num_envs=8), episodes_per_update=8, device="cpu")
    trained: list[int] = []
    update = agent.update
    agent.update = lambda rollout: trained.append(int(rollout.mask.sum())) or update(rollout)  # type: ignore[method-assign]
    agent.learn(1_000)
    assert agent.num_timesteps == sum(Countable.moved) >= 1_000
    assert agent.trained_timesteps == sum(trained) < agent.num_timesteps, "surplus episodes are played, not trained on"
    assert agent.logger.name_to_value["time/trained_timesteps"] in (0, agent.trained_timesteps)


@pytest.mark.parametrize("by_id", [True, False])
def test_an_agent_that_makes_its_environment_trains_on_every_step(by_id: bool) -> None:
    agent = Reinforce(
        "MlpPolicy", "CartPole-v1" if by_id else gym.make("CartPole-v1"), episodes_per_update=8, device="cpu"
    )
    agent.learn(300)
    assert agent.num_timesteps == agent.trained_timesteps >= 300
    assert agent.learn(10, reset_num_timesteps=False).trained_timesteps == agent.num_timesteps


def test_a_registered_batched_environment_is_used_where_it_is_asked_for() -> None:
    kwargs = {"vectorization_mode": "vector_entry_point"}
    assert isinstance(make_envs("CartPole-v1", 2, kwargs, skip_finished=True).unwrapped, CartPoleVectorEnv)
    assert isinstance(make_envs("CartPole-v1", 2, None).unwrapped, CartPoleVectorEnv), "evaluation does not mind"
    assert isinstance(make_envs("CartPole-v1", 2, None, skip_finished=True), WaitingVectorEnv)


@pytest.mark.parametrize("slots", [3, 40])
def test_a_curriculum_hears_of_the_episodes_that_count_and_of_no_other(slots: int) -> None:
    envs = text_envs(slots)
    judged: list[int] = []
    judge, verifier = envs.task.verifier.verify_batch, envs.task.verifier
    verifier.verify_batch = lambda prompts, texts: judged.append(len(texts)) or judge(prompts, texts)
    collector, policy = Collector(envs, CPU), tiny_policy("gpt2", envs)
    collector.seed(0)
    for _ in range(2):
        collector.collect(policy, 10, torch.Generator().manual_seed(0))
    assert sum(judged) == 20
