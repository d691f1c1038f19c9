"""Collecting: final observations, how many steps count, and that slots change no episode."""

import time
import warnings
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from counting_env import KINDS, LENGTHS, CountingEnv, CountingPolicy, Ledger, counting_envs, reward_at
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from rlenv.agents import Collector, Reinforce, make_envs
from rlenv.agents.policies.numpy_actor import NumpyActor
from rlenv.agents.rollouts.env_protocol import EnvSlots
from rlenv.agents.rollouts.no_autoreset import NoAutoresetVectorEnv
from rlenv.agents.training import loop
from rlenv.agents.training.metrics import rollout_metrics

CPU = torch.device("cpu")


class DictEnv(CountingEnv):
    """A `CountingEnv`, key by key; one of them counts in whole numbers."""

    def __init__(self, *given):
        super().__init__(*given)
        self.observation_space = spaces.Dict(
            episode=spaces.Box(-1, 1e6, (1,), np.float64), t=spaces.Box(0, 100, (), np.int64)
        )

    def _observation(self):
        return {"episode": np.array([self.episode], dtype=np.float64), "t": np.array(self.t)}


class DictPolicy(CountingPolicy):
    def act(self, obs, state, *args, **kwargs):
        return (obs["episode"][:, 0] + obs["t"]).long() % 3, torch.zeros(len(obs["t"])), None


MINE = type("Mine", (gym.Wrapper,), {})  # without `state_dict`
LONG = [3, 32, 33, 5, 64, 1, 65, 40, 130, 31] + [40] * 20  # around the sizes in which steps are stored


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("episodes", "slots", "lasting", "keyed"),
    [(11, 3, LENGTHS, False), (3, 5, LENGTHS, True), (1, 1, LENGTHS, False), (10, 3, LONG, True)],
)
def test_every_step_is_stored_in_its_place_and_counted_and_slots_that_wait_take_none_in_vain(
    kind, episodes, slots, lasting, keyed
):
    """Also in a second rollout, which starts with fresh episodes; a `CountingEnv` cuts off its odd episodes."""
    ledger, policy, counts, trained = Ledger(lasting), DictPolicy() if keyed else CountingPolicy(), [], 0
    collector = Collector(counting_envs(kind, slots, ledger, DictEnv if keyed else CountingEnv), CPU)
    for _ in range(2):
        first = ledger.started
        rollout = collector.collect(policy, episodes, on_step=lambda counted, _: not counts.append(counted))
        number, lengths = torch.arange(first, first + episodes), torch.tensor(lasting[first : first + episodes])
        assert torch.equal(rollout.lengths, lengths)
        assert torch.equal(rollout.mask, torch.arange(rollout.mask.shape[1]) < lengths[:, None])
        cut, seen, final = number % 2 == 1, rollout.observations, rollout.final_observations
        assert torch.equal(rollout.truncated, cut) and torch.equal(rollout.terminated, ~cut)
        if keyed:
            assert seen["t"].dtype == torch.int64 and seen["episode"].dtype == torch.float32
            seen, final = (whole(each) if each else None for each in (seen, final))
        for row, (episode, length) in enumerate(zip(number.tolist(), lengths.tolist(), strict=True)):
            steps = range(length)
            assert seen[row, :length].tolist() == [[episode, t] for t in steps], f"the steps of episode {episode}"
            assert not seen[row, length:].any()
            assert rollout.rewards[row, :length].tolist() == [reward_at(episode, t, length) for t in steps]
            assert rollout.actions[row, :length].tolist() == [(episode + t) % 3 for t in steps]
            assert final is None or final[row].tolist() == ([episode, length] if cut[row] else [0, 0])
        assert bool(cut.any()) == (final is not None)
        trained += int(rollout.mask.sum())
        assert sum(counts) == ledger.steps >= trained
    assert kind is not NoAutoresetVectorEnv or ledger.steps == trained


class Halved(VectorWrapper):
    """Half the rewards, made from numbers of Python: whole ones, as in the first step, are an array of integers."""

    def __init__(self, env, made):
        super().__init__(env)
        self.made = made

    def step(self, actions):
        obs, rewards, *ends = self.env.step(actions)
        halves = (rewards / 2).tolist()
        return obs, self.made([int(half) if half.is_integer() else half for half in halves]), *ends


@pytest.mark.parametrize("made", [np.array, torch.tensor])
def test_rewards_that_are_whole_numbers_at_first_are_not_rounded_later(made):
    rollout = Collector(Halved(counting_envs(AutoresetMode.DISABLED, 3), made), CPU).collect(CountingPolicy(), 9)
    for row, length in enumerate(LENGTHS[:9]):
        assert rollout.rewards[row, :length].tolist() == [reward_at(row, t, length) / 2 for t in range(length)]


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float16, torch.int32, torch.bfloat16], ids=str)
def test_rewards_of_any_type_are_added_up_in_single_precision(dtype):
    made = partial(torch.tensor if isinstance(dtype, torch.dtype) else np.array, dtype=dtype)
    rollout = Collector(Halved(counting_envs(AutoresetMode.DISABLED, 3), made), CPU).collect(CountingPolicy(), 9)
    assert rollout.rewards.dtype is rollout.returns.dtype is torch.float32
    assert np.isfinite(rollout_metrics(rollout)["rollout/reward_std"])


class Renamed(VectorWrapper):
    """Infos without the last observations of episodes, and the mode as a text, as it is in a file."""

    def __init__(self, env):
        super().__init__(env)
        self.metadata = {**env.metadata, "autoreset_mode": env.metadata["autoreset_mode"].value}

    def step(self, actions):
        *told, infos = self.env.step(actions)
        return *told, {name: info for name, info in infos.items() if name != "final_obs"}


def test_an_environment_that_keeps_the_last_observation_to_itself_is_refused_once_an_episode_is_cut_off():
    collector = Collector(Renamed(counting_envs(AutoresetMode.SAME_STEP, 1)), CPU)
    assert len(collector.collect(CountingPolicy(), 1)) == 1, "the first episode is over for good"
    with pytest.raises(ValueError, match=r"in the step that ends an episode \(SAME_STEP\).* no final_obs"):
        collector.collect(CountingPolicy(), 2)


def whole(obs):
    return torch.cat([obs["episode"], obs["t"][..., None].float()], -1)


@pytest.mark.parametrize(("wrapper", "lost"), [(gym.wrappers.NormalizeReward, []), (MINE, ["Mine"])])
def test_a_wrapper_of_ones_own_that_says_nothing_of_its_state_is_named_once(wrapper, lost):
    collector = Collector(SyncVectorEnv([lambda: wrapper(gym.make("CartPole-v1"))] * 2), CPU)
    collector.state_dict()
    with warnings.catch_warnings(record=True, action="always") as found:
        collector.warn_of_loss()
        collector.warn_of_loss()
    assert [str(each.message).partition(" can ")[0] for each in found] == [f"nothing of the wrapper {n}" for n in lost]


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
            assert type(mine) is torch.Tensor, f"{name}: each operation on another class takes twice as long"
    assert not torch.equal(few[0].actions, few[1].actions), "the second rollout has other numbers"
    assert not torch.equal(few[0].actions, rollouts(4, world, 1, seed=1)[0].actions)


def test_the_log_says_what_the_time_goes_to(monkeypatch):
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
    monkeypatch.setattr(loop, "take_steps", taking(300, loop.take_steps))
    agent = Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=2, num_envs=2, device="cpu")
    agent.dump_logs = lambda: logged.update(agent.logger.name_to_value)
    agent.learn(total_episodes=4)
    found = [logged[f"time/{part}_frac"] * (3 * len(steps) + 600) for part in ("acting", "environment", "training")]
    assert found == pytest.approx([len(steps), 2 * len(steps), 600])


def test_no_step_waits_for_a_device_to_be_timed():
    envs = make_envs("CartPole-v1", 2, None)
    assert Collector(envs, CPU).seconds.keys() == {"acting", "environment"}
    assert Collector(envs, torch.device("cuda")).seconds.keys() == {"rollout"}
