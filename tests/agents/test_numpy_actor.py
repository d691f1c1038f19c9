"""Actors in numpy: the same as torch's from the same generator."""

import gymnasium as gym
import numpy as np
import torch
from diagonal import diagonal

from rlenv.agents import Collector, ControlPolicy, make_envs
from rlenv.agents.policies.numpy_actor import NumpyActor
from rlenv.agents.rollouts.no_autoreset import NoAutoresetCartPole, NoAutoresetVectorEnv

CPU = torch.device("cpu")
WORLDS = ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0"]


def policy_for(env, seed=0, **kwargs):
    one = gym.make(env)
    torch.manual_seed(seed)
    return ControlPolicy(one.observation_space, one.action_space, **kwargs)


def actor_of(policy, obs, *how):
    return policy.make_actor(obs, policy.action_space, CPU, *how)


def rollouts(env, in_numpy, deterministic, **kwargs):
    """Return two rollouts in a row and the state of the generator after them."""
    envs = make_envs(env, 3, {"max_episode_steps": 30}, skip_finished=True)
    collector, generator = Collector(envs, CPU), torch.Generator().manual_seed(1)
    collector.seed(5)
    policy = policy_for(env, act_in_numpy=in_numpy, **kwargs)
    made = [collector.collect(policy, 5, generator, deterministic) for _ in range(2)]
    return made, generator.get_state(), policy


@diagonal("env, deterministic", WORLDS, [False, True])
def test_rollouts_are_those_of_the_plain_path(env, deterministic):
    fast, after, policy = rollouts(env, True, deterministic)
    plain, after_plain, _ = rollouts(env, False, deterministic)
    assert isinstance(actor_of(policy, fast[0].observations[:, 0].numpy()), NumpyActor)
    assert torch.equal(after, after_plain)
    for ours, theirs in zip(fast, plain, strict=True):
        assert torch.equal(ours.mask, theirs.mask)
        for name in ("observations", "actions", "log_probs", "rewards", "truncated"):
            value, wanted = getattr(ours, name), getattr(theirs, name)
            assert value.dtype == wanted.dtype
            torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-5)


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
