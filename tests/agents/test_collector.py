"""Collecting: final observations, how many steps count, and that slots change no episode."""

import time
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from counting_env import CountingEnv, CountingPolicy, Ledger, counting_envs, reward_at
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from identity_checks import collect
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv
from tiny_models import text_envs, tiny_policy

import rlenv  # noqa: F401
from agents import Collector, Reinforce, make_envs
from agents.policies.draws import EpisodeDraws, uniform
from agents.policies.numpy_actor import NumpyActor
from agents.rollouts.env_protocol import EnvSlots
from agents.rollouts.waiting_envs import WaitingVectorEnv
from agents.training.update import Update

CPU = torch.device("cpu")
LENGTHS = [1 + (7 * i * i + 3 * i) % 9 for i in range(200)]
ARITH = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}
modes = pytest.mark.parametrize("mode", list(AutoresetMode))
kinds = pytest.mark.parametrize("kind", [*AutoresetMode, WaitingVectorEnv, DummyVecEnv])
shapes = pytest.mark.parametrize(("episodes", "slots"), [(12, 4), (11, 3), (3, 5), (7, 7), (2, 1)])


class FreshEnv(CountingEnv):
    """Returns a new observation every time: Gymnasium keeps the last one of an episode without copying it."""

    def _observation(self):
        return super()._observation().copy()


class DictEnv(FreshEnv):
    """The same, key by key; one of them counts in whole numbers."""

    def __init__(self, ledger):
        super().__init__(ledger)
        self.observation_space = spaces.Dict(
            episode=spaces.Box(-1, 1e6, (1,), np.float64), t=spaces.Box(0, 100, (), np.int64)
        )

    def _observation(self):
        return {"episode": np.array([self.episode], dtype=np.float64), "t": np.array(self.t)}


class DictPolicy(CountingPolicy):
    def act(self, obs, state, *args, **kwargs):
        return (obs["episode"][:, 0] + obs["t"]).long() % 3, torch.zeros(len(obs["t"])), None


class Mine(gym.Wrapper):
    """A wrapper without `state_dict`."""


def envs_of(kind, env, slots):
    """Return slots of Gymnasium in an autoreset mode, of ours that wait, or of stable-baselines3."""
    ledger = Ledger(LENGTHS)
    make = [lambda: env(ledger)] * slots
    if kind is DummyVecEnv:
        return make_envs(DummyVecEnv(make), 1, None)
    if kind is WaitingVectorEnv:
        return WaitingVectorEnv(make)
    return SyncVectorEnv(make, copy=False, autoreset_mode=kind)


def check_counting_rollout(rollout, lengths, first=0):
    """Every stored step is the right one of episode `first` and those after it, of these lengths."""
    count, longest = rollout.mask.shape
    wanted = torch.tensor(lengths[first : first + count])
    assert torch.equal(rollout.lengths, wanted)
    assert torch.equal(rollout.mask, torch.arange(longest) < wanted[:, None])
    for row, length in enumerate(wanted.tolist()):
        episode = first + row
        expected = torch.tensor([[episode, t] for t in range(length)])
        assert torch.equal(rollout.observations[row, :length].long(), expected), f"the steps of episode {episode}"
        rewards = torch.tensor([reward_at(episode, t, length) for t in range(length)])
        assert torch.equal(rollout.rewards[row, :length], rewards), f"the rewards of episode {episode}"


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(("episodes", "slots"), [(12, 4), (3, 5), (11, 4), (1, 1), (7, 7)])
def test_every_step_of_a_numpy_environment_is_stored_in_its_place(mode, episodes, slots):
    lengths = [1 + (7 * i * i + 3 * i) % 9 for i in range(200)]
    envs = counting_envs(slots, mode, lengths)
    collector, played = Collector(envs, CPU), []
    rollout = collector.collect(CountingPolicy(), episodes, on_step=lambda counted, _: not played.append(counted))
    assert sum(played) >= sum(lengths[:episodes]) == int(rollout.mask.sum())
    check_counting_rollout(rollout, lengths)
    odd = torch.arange(episodes) % 2 == 1
    assert torch.equal(rollout.truncated, odd) and torch.equal(rollout.terminated, ~odd)
    log_probs = CountingPolicy().evaluate(rollout)["log_probs"]
    assert torch.equal(log_probs, rollout.log_probs)
    wanted = (rollout.observations.sum(-1).long() % 3).where(rollout.mask, 0)
    assert torch.equal(rollout.actions, wanted)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_second_rollout_starts_with_fresh_episodes(mode):
    lengths = [2 + i % 5 for i in range(100)]
    envs = counting_envs(3, mode, lengths)
    ledger = envs.envs[0].unwrapped.ledger
    collector = Collector(envs, CPU)
    collector.collect(CountingPolicy(), 5)
    first = ledger.started
    check_counting_rollout(collector.collect(CountingPolicy(), 5), lengths, first)


@kinds
@shapes
@pytest.mark.parametrize("keyed", [False, True])
def test_final_observations_are_in_the_rows_of_their_episodes(kind, episodes, slots, keyed):
    """A `CountingEnv` cuts off its odd episodes."""
    plain = FreshEnv if kind in (AutoresetMode.SAME_STEP, DummyVecEnv) else CountingEnv  # which reuses its buffer
    envs = envs_of(kind, DictEnv if keyed else plain, slots)
    rollout = Collector(envs, CPU).collect(DictPolicy() if keyed else CountingPolicy(), episodes)
    cut, final = torch.arange(episodes) % 2 == 1, rollout.final_observations
    assert torch.equal(rollout.truncated & ~rollout.terminated, cut)
    if keyed:
        assert final.keys() == {"episode", "t"} and rollout.observations["t"].dtype == final["t"].dtype == torch.int64
        assert rollout.observations["episode"].dtype == final["episode"].dtype == torch.float32
        final = torch.cat([final["episode"], final["t"][:, None].float()], 1)
    else:
        check_counting_rollout(rollout, LENGTHS)
    wanted = torch.stack([torch.arange(episodes), torch.tensor(LENGTHS[:episodes])], 1) * cut[:, None]
    assert torch.equal(final, wanted.float())


def leaves(value):
    return list(value.values()) if isinstance(value, dict) else [] if value is None else [value]


@modes
def test_the_verdict_on_text_that_ran_out_of_budget_is_final(mode):
    envs = text_envs(4, autoreset_mode=mode)
    rollout = collect(tiny_policy("gpt2", envs), envs, 12)
    assert rollout.truncated.any() and rollout.terminated.all()
    assert rollout.final_observations is None


@pytest.mark.parametrize(("wrapper", "lost"), [(gym.wrappers.NormalizeReward, []), (Mine, ["Mine"])])
def test_a_wrapper_of_ones_own_that_says_nothing_of_its_state_is_named_once(wrapper, lost):
    collector = Collector(SyncVectorEnv([lambda: wrapper(gym.make("CartPole-v1"))] * 2), CPU)
    collector.state_dict()
    with warnings.catch_warnings(record=True, action="always") as found:
        collector.warn_of_loss()
        collector.warn_of_loss()
    assert [str(each.message).partition(" can ")[0] for each in found] == [f"nothing of the wrapper {n}" for n in lost]


# How many steps are taken and trained on, and which slots take none.


class Stepped(CountingEnv):
    """Counts the steps of all environments together."""

    steps = 0

    def step(self, action):
        Stepped.steps += 1
        return super().step(action)


@pytest.fixture(autouse=True)
def _from_zero():
    Stepped.steps = 0


@kinds
@shapes
def test_every_step_of_the_environment_is_counted_and_slots_that_wait_take_none_in_vain(kind, episodes, slots):
    envs, counts, trained = envs_of(kind, Stepped, slots), [], 0
    collector = Collector(envs, CPU)
    for _ in range(2):
        rollout = collector.collect(CountingPolicy(), episodes, on_step=lambda n, _: not counts.append(n))
        trained += int(rollout.mask.sum())
        assert len(rollout) == episodes and sum(counts) == Stepped.steps >= trained
    assert kind is not WaitingVectorEnv or Stepped.steps == trained


class Countable(CartPoleVectorEnv):
    """Gymnasium's batched CartPole; notes how many poles each step moves."""

    moved: list[int] = []

    def step(self, action):
        Countable.moved.append(self.num_envs - int(np.sum(self.prev_done)))
        return super().step(action)


def test_an_agent_counts_the_steps_taken_and_those_trained_on():
    Countable.moved = []
    agent = Reinforce("MlpPolicy", Countable(num_envs=8), episodes_per_update=8, device="cpu")
    trained = []
    update = agent.update
    agent.update = lambda rollout: trained.append(int(rollout.mask.sum())) or update(rollout)
    agent.learn(1_000)
    assert agent.num_timesteps == sum(Countable.moved) >= 1_000
    assert agent.trained_timesteps == sum(trained) < agent.num_timesteps, "surplus episodes are played, not trained on"
    assert agent.logger.name_to_value["time/trained_timesteps"] in (0, agent.trained_timesteps)


# One seed plays the same episodes whatever the number of slots.


def test_the_numbers_that_are_drawn_are_known():
    """A checkpoint goes on with the same numbers in a later version."""
    assert uniform(5, 3, 1, 2)[:, [0, 63]].tolist() == [
        [0.6536275223533069, 0.08854587637209321], [0.9317235536463983, 0.03130789041620319],
    ]  # fmt: skip


def test_a_slot_that_waits_gets_its_number_again():
    draws = EpisodeDraws(torch.Generator().manual_seed(0), 1)
    numbers = [float(draws.take(np.array([t == 0]), np.array([t % 2 == 0]))) for t in range(5)]
    assert numbers[1] == numbers[2] and numbers[3] == numbers[4] and len(set(numbers)) == 3


PARTS = ("actions", "log_probs", "rewards", "mask", "groups")
WORLDS = {"sums": {"verifier": "arith", "group_size": 2}, "turns": {"verifier": "guess", "max_turns": 3}}


def rollouts(num_envs, world, count=2, seed=0):
    envs = gym.make_vec("TextGen-v0", num_envs, **WORLDS[world])
    collector, generator = Collector(envs, CPU), torch.Generator().manual_seed(seed)
    collector.seed(3)
    policy = tiny_policy("llama", envs)
    return [collector.collect(policy, 12, generator) for _ in range(count)]


@pytest.mark.parametrize("world", WORLDS)
def test_the_number_of_slots_changes_no_episode(world):
    few, many = (rollouts(num_envs, world) for num_envs in (4, 12))
    for ours, theirs in zip(few, many, strict=True):
        for name in PARTS:
            mine, other = getattr(ours, name), getattr(theirs, name)
            assert torch.allclose(mine.double(), other.double(), rtol=0, atol=1e-12), name
    assert not torch.equal(few[0].actions, few[1].actions), "the second rollout has other numbers"
    assert not torch.equal(few[0].actions, rollouts(4, world, 1, seed=1)[0].actions)


class Moves(BaseCallback):
    """Plays each rollout in another environment."""

    def _on_rollout_start(self):
        self.model.set_env("CartPole-v1", {"max_episode_steps": 9})

    def _on_step(self):
        return True


@pytest.mark.parametrize("callback", [None, Moves()])
def test_the_log_says_what_the_time_goes_to(callback, monkeypatch):
    now, steps, logged = [0], [], {}

    def taking(seconds, function, *noted):
        def call(*given, **named):
            now[0] += seconds
            steps.extend(noted)
            return function(*given, **named)

        return call

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(NumpyActor, "act", taking(1, NumpyActor.act, "step"))
    monkeypatch.setattr(EnvSlots, "step", taking(2, EnvSlots.step))
    monkeypatch.setattr(Update, "__call__", taking(300, Update.__call__))
    agent = Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=2, num_envs=2, device="cpu")
    agent.dump_logs = lambda: logged.update(agent.logger.name_to_value)
    agent.learn(total_episodes=4, callback=callback)
    found = [logged[f"time/{part}_frac"] * (3 * len(steps) + 600) for part in ("acting", "environment", "training")]
    assert found == pytest.approx([len(steps), 2 * len(steps), 600])


def test_no_step_waits_for_a_device_to_be_timed():
    envs = make_envs("CartPole-v1", 2, None)
    assert Collector(envs, CPU).seconds.keys() == {"acting", "environment"}
    assert Collector(envs, torch.device("cuda")).seconds.keys() == {"rollout"}
