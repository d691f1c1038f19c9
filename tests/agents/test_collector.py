"""Collecting: final observations, restarts, who plays, how many steps count, and that slots change no episode."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from counting_env import CountingEnv, CountingPolicy, Ledger
from diagonal import diagonal
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from identity_checks import collect
from time_limits import CutOff
from tiny_models import text_envs, tiny_policy

import rlenv  # noqa: F401
from agents import Collector, Reinforce, make_envs
from agents.rollouts.waiting_envs import WaitingVectorEnv

CPU = torch.device("cpu")
LENGTHS = [1 + (7 * i * i + 3 * i) % 9 for i in range(200)]
modes = pytest.mark.parametrize("mode", list(AutoresetMode))
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


def envs_of(env, slots, mode):
    ledger = Ledger(LENGTHS)
    return SyncVectorEnv([lambda: env(ledger)] * slots, copy=False, autoreset_mode=mode)


def odd(episodes):
    """Return which episodes of a `CountingEnv` are cut off [N]."""
    return torch.arange(episodes) % 2 == 1


@modes
@shapes
def test_final_observations_are_in_the_rows_of_their_episodes(mode, episodes, slots):
    env = FreshEnv if mode is AutoresetMode.SAME_STEP else CountingEnv  # which reuses its buffer
    rollout = Collector(envs_of(env, slots, mode), CPU).collect(CountingPolicy(), episodes)
    cut = odd(episodes)
    assert torch.equal(rollout.truncated & ~rollout.terminated, cut)
    wanted = torch.stack([torch.arange(episodes), torch.tensor(LENGTHS[:episodes])], 1) * cut[:, None]
    assert torch.equal(rollout.final_observations, wanted.float())


@modes
@shapes
def test_final_observations_are_kept_key_by_key(mode, episodes, slots):
    rollout = Collector(envs_of(DictEnv, slots, mode), CPU).collect(DictPolicy(), episodes)
    cut = odd(episodes)
    assert set(rollout.final_observations) == {"episode", "t"}
    number, t = rollout.final_observations["episode"], rollout.final_observations["t"]
    assert torch.equal(number, (torch.arange(episodes) * cut).float()[:, None])
    assert torch.equal(t, torch.tensor(LENGTHS[:episodes]) * cut)
    assert rollout.observations["t"].dtype == t.dtype == torch.int64
    assert rollout.observations["episode"].dtype == number.dtype == torch.float32


@modes
def test_final_observations_of_text_are_prompt_and_completion(mode):
    envs = CutOff(text_envs(4, autoreset_mode=mode))
    rollout = collect(tiny_policy("gpt2", envs), envs, 12)
    cut = rollout.truncated & ~rollout.terminated
    assert 0 < int(cut.sum()) < 12, "some episodes are cut off and some are not"
    tokens, lengths = rollout.final_observations["tokens"], rollout.final_observations["length"]
    prompts = rollout.observations
    assert torch.equal(lengths, (prompts["length"] + 12) * cut)
    for i in cut.nonzero()[:, 0].tolist():
        prompt = prompts["tokens"][i, : prompts["length"][i]]
        assert torch.equal(tokens[i, : lengths[i]], torch.cat([prompt, rollout.actions[i]]))
    assert not tokens[~cut].any()


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


# When finished slots restart.


def play(envs, episodes):
    """Collect; return the rollout and, of each step, who plays, who restarts after it and who ended with it."""
    policy, gather, steps = tiny_policy("gpt2", envs), Collector(envs, CPU), []
    act, reset, step = policy.act, envs.reset, envs.step

    def listen(*args, playing, **kwargs):
        assert playing.device.type == "cpu" and playing.dtype is torch.bool
        steps.append((playing.nonzero()[:, 0].tolist(), [], []))
        return act(*args, playing=playing, **kwargs)

    def restart(**kwargs):
        if steps:
            steps[-1][1].extend(np.flatnonzero(kwargs["options"]["reset_mask"]).tolist())
        return reset(**kwargs)

    def count(actions):
        made = step(actions)
        steps[-1][2].extend((made[2] | made[3]).nonzero()[:, 0].tolist())
        return made

    policy.act, envs.reset, envs.step = listen, restart, count
    gather.seed(0)
    rollout = gather.collect(policy, episodes, torch.Generator().manual_seed(0))
    assert rollout is not None
    return rollout, steps


@diagonal("mode, slots", list(AutoresetMode), [16, 40])
def test_a_policy_knows_which_slots_take_a_step(mode, slots):
    rollout, steps = play(text_envs(slots, autoreset_mode=mode), 25)
    if mode is AutoresetMode.DISABLED:
        assert sum(len(playing) for playing, *_ in steps) == int(rollout.mask.sum()), "the others wait"
        restarts = [len(restarted) for _, restarted, _ in steps if restarted]
        assert all(slots / 8 <= number for number in restarts[:-1]), "several at a time"
    else:
        resting = [0, *(len(ended) for *_, ended in steps)] if mode is AutoresetMode.NEXT_STEP else [0] * len(steps)
        assert all(len(playing) == slots - rests for (playing, *_), rests in zip(steps, resting, strict=False))
    with torch.no_grad():
        log_probs = tiny_policy("gpt2", text_envs(1)).evaluate(rollout)["log_probs"]
    gap = (log_probs - rollout.log_probs).abs().max()
    assert gap < 1e-12, "a slot that takes no step may have got any token"


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


def stepped_envs(kind, slots, **settings):
    ledger = Ledger(LENGTHS)
    return kind([lambda: Stepped(ledger)] * slots, **settings)


@modes
@shapes
def test_every_step_of_the_environment_is_counted(mode, episodes, slots):
    counts = []
    envs = stepped_envs(SyncVectorEnv, slots, autoreset_mode=mode)
    for _ in range(2):
        rollout = Collector(envs, CPU).collect(CountingPolicy(), episodes, on_step=lambda n, _: not counts.append(n))
        assert sum(counts) == Stepped.steps
    assert Stepped.steps >= int(rollout.mask.sum())


@shapes
def test_slots_that_wait_take_no_step_that_is_thrown_away(episodes, slots):
    envs, counts, wanted = stepped_envs(WaitingVectorEnv, slots), [], 0
    collector = Collector(envs, CPU)
    for _ in range(2):
        rollout = collector.collect(CountingPolicy(), episodes, on_step=lambda n, _: not counts.append(n))
        wanted += int(rollout.mask.sum())
        assert len(rollout) == episodes and sum(counts) == Stepped.steps == wanted


def test_a_waiting_slot_keeps_its_last_observation_and_earns_nothing():
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


def test_the_first_reset_of_waiting_slots_may_leave_some_out():
    envs = stepped_envs(WaitingVectorEnv, 3)
    obs, _ = envs.reset(seed=0, options={"reset_mask": np.array([True, False, False])})
    assert obs.shape == (3, 2)
    envs.step(np.array([0, 0, 0]))
    assert Stepped.steps == 1


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


@pytest.mark.parametrize("by_id", [True, False])
def test_an_agent_that_makes_its_environment_trains_on_every_step(by_id):
    agent = Reinforce(
        "MlpPolicy", "CartPole-v1" if by_id else gym.make("CartPole-v1"), episodes_per_update=8, device="cpu"
    )
    agent.learn(300)
    assert agent.num_timesteps == agent.trained_timesteps >= 300
    assert agent.learn(10, reset_num_timesteps=False).trained_timesteps == agent.num_timesteps


def test_a_registered_batched_environment_is_used_where_it_is_asked_for():
    kwargs = {"vectorization_mode": "vector_entry_point"}
    assert isinstance(make_envs("CartPole-v1", 2, kwargs, skip_finished=True).unwrapped, CartPoleVectorEnv)
    assert isinstance(make_envs("CartPole-v1", 2, None).unwrapped, CartPoleVectorEnv), "evaluation does not mind"
    assert isinstance(make_envs("CartPole-v1", 2, None, skip_finished=True), WaitingVectorEnv)


@pytest.mark.parametrize("slots", [3, 40])
def test_a_curriculum_hears_of_the_episodes_that_count_and_of_no_other(slots):
    envs = text_envs(slots)
    judged = []
    judge, verifier = envs.task.verifier.verify_batch, envs.task.verifier
    verifier.verify_batch = lambda prompts, texts: judged.append(len(texts)) or judge(prompts, texts)
    collector, policy = Collector(envs, CPU), tiny_policy("gpt2", envs)
    collector.seed(0)
    for _ in range(2):
        collector.collect(policy, 10, torch.Generator().manual_seed(0))
    assert sum(judged) == 20


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
    assert not torch.equal(few[0].actions, few[1].actions), "the second rollout has other numbers"
    assert not torch.equal(few[0].actions, rollouts(4, world, 1, seed=1)[0].actions)
