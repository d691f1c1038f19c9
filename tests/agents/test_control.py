"""Classic control: which spaces are taken, what the environment gets, statistics, and actors in numpy."""

from dataclasses import replace
from itertools import accumulate, pairwise

import gymnasium as gym
import numpy as np
import pytest
import torch
from diagonal import diagonal
from gymnasium import spaces
from identity_checks import ROUNDING, assert_close, collect
from refused import refusal

from rlenv.agents import PPO, Collector, ControlPolicy, Reinforce, ReinforceBaseline, Rollout, make_envs
from rlenv.agents.policies.numpy_actor import NumpyActor
from rlenv.agents.rollouts.no_autoreset import NoAutoresetCartPole, NoAutoresetVectorEnv
from rlenv.agents.training.kl_anchor import weights_digest
from rlenv.agents.training.reward_scale import RewardScale

IMAGE = spaces.Box(0.0, 1.0, (3,), np.float32)
SAME_STEP = gym.vector.AutoresetMode.SAME_STEP


class Listener(gym.Env):
    """Five steps long; it checks each action against its space and remembers it."""

    def __init__(self, action_space, observation_space=IMAGE):
        self.action_space, self.observation_space = action_space, observation_space
        self.heard, self.spec = [], None
        observation_space.seed(0)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        self.heard.append(np.array(action))
        if isinstance(action, np.ndarray):
            action[...] = 0  # as an environment does that takes it for its own
        return self.observation_space.sample(), 1.0, self.steps == 5, False, {}


def agent_in(env, **policy_kwargs):
    return Reinforce("auto", env, policy_kwargs=policy_kwargs, episodes_per_update=4, num_envs=1, device="cpu")


def heard_and_chosen(agent, env):
    """Return what the environment got and what the rollout says was chosen, in order [M, ...]."""
    env.heard.clear()
    rollout = collect(agent.policy, agent.env, 4)
    count = int(rollout.mask.sum())
    return torch.as_tensor(np.stack(env.heard[:count])), rollout.actions[rollout.mask], rollout


DISCRETE = [spaces.Discrete(3, start=5), spaces.Discrete(3, start=-4), spaces.MultiDiscrete([2, 3], start=[7, -1])]
BINARY = [spaces.MultiBinary(3), spaces.MultiDiscrete([2, 3])]
BOXES = [spaces.Box(low, 1.0, shape) for low, shape in ((-1.0, ()), (-1.0, (2, 3)), (-1.0, (3, 1)), (-0.5, (2,)))]
BOXES += [spaces.Box(-1, 1, (2,), kind) for kind in (np.int64, np.float16, np.float64)]


@pytest.mark.parametrize("space", [*DISCRETE, *BINARY, *BOXES], ids=str)
def test_actions_have_the_shape_of_their_space_and_begin_where_it_begins(space):
    env, settings = Listener(space), {"baseline": "value", "ent_coef": 0.01, "kl_coef": 0.01}
    agent = ReinforceBaseline("auto", env, **settings, episodes_per_update=4, num_envs=1, device="cpu")
    heard, chosen, rollout = heard_and_chosen(agent, env)
    if isinstance(space, spaces.Box):
        inside = chosen.view(heard.shape).clip(float(space.low.min()), 1)
        assert torch.equal(heard, (inside.round() if space.dtype == np.int64 else inside).to(heard.dtype))
    else:
        assert torch.equal(heard, (chosen + torch.as_tensor(getattr(space, "start", 0))).to(heard.dtype))
    assert {action.dtype for action in env.heard} == {space.dtype}
    assert all(space.contains(action) for action in env.heard) and len(heard.unique(dim=0)) > 2
    seen = env.reset()[0]
    assert all(space.contains(np.asarray(agent.predict(seen, deterministic=n == 0)[0])) for n in range(20))
    log_probs = agent.policy.evaluate(rollout)["log_probs"]
    assert_close(log_probs, rollout.log_probs, ROUNDING, "acting and training")
    before = weights_digest(agent.policy)
    agent.learn(total_episodes=4)
    assert agent.last_metrics["train/logp_gap_max"] < 1e-5 and weights_digest(agent.policy) != before
    assert all(weight.isfinite().all() for weight in agent.policy.parameters())


@pytest.mark.parametrize("dtype", [np.uint16, np.uint64])
def test_unsigned_numbers_are_seen_as_they_are_also_where_an_episode_is_cut_off(dtype):
    env = gym.wrappers.TimeLimit(Listener(spaces.Discrete(2), spaces.Box(0, 60_000, (3,), dtype)), 3)
    agent = PPO("MlpPolicy", gym.vector.SyncVectorEnv([lambda: env], autoreset_mode=SAME_STEP), device="cpu")
    env.unwrapped.observation_space.sample = lambda: np.arange(3, dtype=dtype) + 50_000
    rollout, _ = next(agent.updates(total_episodes=2))
    wanted = [50_000, 50_001, 50_002]
    assert rollout.observations[0].tolist() == [wanted] * 3 and rollout.final_observations[0].tolist() == wanted


def test_squashed_actions_fill_the_bounds_and_have_their_own_log_probability():
    space = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))
    env = Listener(space)
    agent = agent_in(env, use_sde=True, squash_output=True, log_std_init=0.0)
    heard, chosen, rollout = heard_and_chosen(agent, env)
    low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
    assert (chosen.abs() < 1).all() and (chosen.abs() > 0.5).any()
    assert_close(heard, low + (chosen + 1) / 2 * (high - low), ROUNDING, "what the environment got")
    normal = agent.policy.net.get_distribution(rollout.existing(rollout.observations)).distribution
    plain = normal.log_prob(torch.atanh(chosen)) - torch.log(1 - chosen**2 + 1e-6)  # a density of the squashed action
    assert_close(rollout.log_probs[rollout.mask], plain.sum(-1), 1e-3, "acting")
    log_probs = agent.policy.evaluate(rollout)["log_probs"]
    assert_close(log_probs, rollout.log_probs, ROUNDING, "acting and training")
    for deterministic in (True, False):
        action, _ = agent.predict(env.reset()[0], deterministic=deterministic)
        assert space.contains(action)
    agent.learn(total_episodes=4)
    assert weights_digest(agent.policy.frozen_copy()) == weights_digest(agent.policy), "also of one with held noise"
    agent.ent_coef = 0.1
    refusal(lambda: agent.learn(total_episodes=4), "ent_coef has no effect on squashed actions, whose entropy has")


@pytest.mark.filterwarnings("ignore:.*maximum and minimum values are equal")
def test_normalized_observations_have_the_statistics_of_all_steps_trained_on():
    space = spaces.Box(np.array([90.0, -0.1, 5.0], np.float32), np.array([110.0, 0.1, 5.0], np.float32))
    agent = agent_in(Listener(spaces.Discrete(2), space), normalize_observations=True)
    played = [rollout for rollout, _ in agent.updates(total_episodes=12)]
    seen = torch.cat([rollout.observations[rollout.learnable] for rollout in played]).double().numpy()
    assert len(seen) == 12 * 5
    extractor = agent.policy.net.features_extractor
    np.testing.assert_allclose(extractor.mean.numpy(), seen.mean(0), rtol=1e-9)
    np.testing.assert_allclose(extractor.variance.numpy(), seen.var(0), rtol=1e-6, atol=1e-12)
    features = extractor(torch.as_tensor(seen, dtype=torch.float32))
    assert_close(features[:, :2].mean(0), torch.zeros(2), 1e-3, "mean")
    assert_close(features[:, :2].std(0, correction=0), torch.ones(2), 1e-3, "deviation")
    assert not features[:, 2].any()  # what never varies is 0, not infinite
    assert extractor(torch.full((1, 3), 1e9)).abs().max() == 10.0


def test_the_statistics_stand_still_while_a_rollout_is_collected_and_trained_on():
    agent = PPO(
        "MlpPolicy", "Pendulum-v1", episodes_per_update=2, num_envs=2, num_epochs=2, device="cpu",
        policy_kwargs={"normalize_observations": True, "share_features_extractor": False},
        env_kwargs={"max_episode_steps": 60},
    )  # fmt: skip
    *_, (rollout, metrics) = agent.updates(total_episodes=6)
    assert metrics["train/logp_gap_max"] < 1e-4
    own, critics = agent.policy.net.pi_features_extractor, agent.policy.net.vf_features_extractor
    assert own is not critics and torch.equal(own.mean, critics.mean) and own.count == 6 * 60
    reference = agent.policy.frozen_copy()
    agent.policy.observe(rollout)
    assert own.count == 8 * 60 and reference.net.pi_features_extractor.count == 6 * 60


def test_normalized_rewards_are_divided_by_the_deviation_of_what_was_earned():
    settings = {"episodes_per_update": 3, "gamma": 0.9, "normalize_rewards": True, "device": "cpu"}
    agent, earned = Reinforce("MlpPolicy", "Pendulum-v1", **settings), []
    for rollout, metrics in agent.updates(total_episodes=6):
        for rewards in rollout.rewards.double().tolist():
            earned += accumulate(rewards, lambda total, reward: 0.9 * total + reward)
        paid = float(rollout.rewards.sum(1).mean())
        assert metrics["rollout/ep_rew_mean"] == pytest.approx(paid), "as they were paid"
    scale = agent.reward_scale
    assert float(scale.moments.var) == pytest.approx(np.var(earned), rel=1e-5)
    ratio = rollout.rewards / scale(rollout, 0.9).rewards
    assert_close(ratio, torch.full_like(ratio, float(scale.moments.var) ** 0.5), 1e-3, "scale")
    one = torch.ones(3, 1)
    equal = replace(Rollout.of_demonstrations(one, one, one.bool()), rewards=-one)
    assert torch.equal(RewardScale()(equal, 1.0).rewards, -one), "what does not vary is not divided"


def test_numbers_that_are_not_finite_do_not_stay_in_the_statistics():
    settings = {"policy_kwargs": {"normalize_observations": True}, "env_kwargs": {"max_episode_steps": 40}}
    agent = Reinforce("MlpPolicy", "Pendulum-v1", **settings, device="cpu")
    scale, policy = RewardScale(), agent.policy
    extractor = policy.net.pi_features_extractor
    for bad in (float("nan"), float("inf")):
        rollout = collect(agent.policy, agent.env, 2)
        observations, rewards = rollout.observations.clone(), rollout.rewards.clone()
        observations[0, 3, 1] = rewards[1, 5] = bad
        policy.observe(replace(rollout, observations=observations))
        scale(replace(rollout, rewards=rewards), 0.9)
    assert bool(extractor.mean.isfinite().all()) and bool(extractor.variance.isfinite().all())
    assert np.isfinite(scale.moments.var) and scale.moments.count > 0


def test_held_noise_lasts_for_its_steps_and_no_longer_than_its_episode():
    space = spaces.Box(-1.0, 1.0, (2,))
    agent = agent_in(Listener(space), use_sde=True, sde_sample_freq=3)
    policy, generator = agent.policy, torch.Generator().manual_seed(0)
    state, matrices = policy.initial_state(2), []
    for step in range(8):
        starts = torch.tensor([step == 0, step in (0, 4)])
        _, _, state = policy.act(torch.rand(2, 3), state, starts, generator=generator)
        matrices.append(state[0])
    fresh = [[bool((now[i] != before[i]).any()) for i in range(2)] for before, now in pairwise(matrices)]
    assert [1 + step for step, (first, _) in enumerate(fresh) if first] == [3, 6]
    assert [1 + step for step, (_, second) in enumerate(fresh) if second] == [3, 4, 7]


# Actors in numpy: the same as torch's from the same generator.


CPU = torch.device("cpu")
WORLDS = ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0"]


def rollouts(env, in_numpy, deterministic):
    """Return two rollouts in a row and the state of the generator after them."""
    envs = make_envs(env, 3, {"max_episode_steps": 30}, skip_finished=True)
    collector, generator = Collector(envs, CPU), torch.Generator().manual_seed(1)
    collector.seed(5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = ControlPolicy(envs.single_observation_space, envs.single_action_space, act_in_numpy=in_numpy)
    made = [collector.collect(policy, 5, generator, deterministic) for _ in range(2)]
    return made, generator.get_state(), policy


@diagonal("env, deterministic", WORLDS, [False, True])
def test_rollouts_are_those_of_the_plain_path(env, deterministic):
    fast, after, policy = rollouts(env, True, deterministic)
    plain, after_plain, _ = rollouts(env, False, deterministic)
    assert isinstance(policy.make_actor(fast[0].observations[:, 0].numpy(), policy.action_space, CPU), NumpyActor)
    assert torch.equal(after, after_plain)
    for ours, theirs in zip(fast, plain, strict=True):
        assert torch.equal(ours.mask, theirs.mask)
        for name in ("observations", "actions", "log_probs", "rewards", "truncated"):
            value, wanted = getattr(ours, name), getattr(theirs, name)
            assert value.dtype == wanted.dtype
            torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-5)


def test_observations_that_are_made_one_hot_are_left_to_torch():
    assert not NumpyActor.reads(ControlPolicy(spaces.MultiDiscrete([1, 1]), spaces.Discrete(2)).net)
    assert NumpyActor.reads(ControlPolicy(spaces.MultiBinary(2), spaces.Discrete(2)).net)


# The batched CartPole.


def played(cls, slots, masks):
    """Return what the slots show, step by step, when those of a mask restart now and then."""
    envs, rng = cls([lambda: gym.make("CartPole-v1", max_episode_steps=40)] * slots), np.random.default_rng(0)
    seen = [envs.reset(seed=7, options={"reset_mask": masks[0].copy()})]
    for step in range(1, 150):
        seen.append(envs.step(rng.integers(0, 2, slots) if step < 100 else np.arange(slots) // 2 % 2)[:4])
        if step % 30 == 0:
            seen.append(envs.reset(options={"reset_mask": masks[step // 30].copy()}))
    return [part for parts in seen for part in parts if isinstance(part, np.ndarray)]


def test_poles_that_are_stepped_together_fall_as_they_do_alone():
    masks = np.random.default_rng(1).random((6, 8)) < 0.7
    masks[0], masks[:, 7] = True, False  # without a seed, a slot begins anywhere; the last one never begins
    ours, theirs = played(NoAutoresetCartPole, 8, list(masks)), played(NoAutoresetVectorEnv, 8, list(masks))
    assert len(ours) == len(theirs)
    for value, wanted in zip(ours, theirs, strict=True):
        assert value.shape == wanted.shape
        np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-6)


def test_only_cartpole_as_registered_is_stepped_together():
    assert type(make_envs("CartPole-v1", 2, None, skip_finished=True)) is NoAutoresetCartPole
    assert type(make_envs("CartPole-v1", 2, {"sutton_barto_reward": True}, skip_finished=True)) is NoAutoresetVectorEnv
    assert type(make_envs("Acrobot-v1", 2, None, skip_finished=True)) is NoAutoresetVectorEnv
