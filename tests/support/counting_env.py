"""Environments: one that says which episode and step an observation belongs to, and one of somebody's."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

from rlenv.agents import Policy, make_envs
from rlenv.agents.rollouts.no_autoreset import NoAutoresetVectorEnv

IMAGE, TWO, SEEN = spaces.Box(0.0, 1.0, (3,), np.float32), spaces.Discrete(2), np.zeros(3, np.float32)
KINDS = (*AutoresetMode, NoAutoresetVectorEnv, DummyVecEnv)
LENGTHS = [1 + (7 * i * i + 3 * i) % 9 for i in range(200)]  # of the episodes, in the order they start


def reward_at(episode, t, length):
    return float(1000 * episode + t + (500 if t == length - 1 else 0))


class Ledger:
    """Numbers the episodes of many environments in the order they start, and counts their steps."""

    def __init__(self, lengths=LENGTHS):
        self.lengths, self.started, self.steps = lengths, 0, 0


class CountingEnv(gym.Env):
    """Observation [episode, t]; the episode ends after a known number of steps, terminated or (odd ones) truncated.

    Observations lie in one buffer, unless they are `kept`: who stores them without copying stores the last step.
    """

    def __init__(self, ledger, kept=False):
        self.ledger, self.kept = ledger, kept
        self.observation_space = spaces.Box(-1, 1e6, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.buffer = np.zeros(2, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.ledger.started, 0
        self.ledger.started += 1
        return self._observation(), {}

    def step(self, action):
        length = self.ledger.lengths[self.episode]
        assert self.t < length, "stepped past the end"
        assert action == (self.episode + self.t) % 3, "an action of another episode or step"
        reward = reward_at(self.episode, self.t, length)
        self.t += 1
        self.ledger.steps += 1
        done = self.t == length
        cut = done and self.episode % 2 == 1
        return self._observation(), reward, done and not cut, cut, {}

    def _observation(self):
        self.buffer[:] = self.episode, self.t
        return self.buffer.copy() if self.kept else self.buffer


def counting_envs(kind, slots, ledger=None, env=CountingEnv):
    """Return slots of Gymnasium in an autoreset mode, of ours that wait, or of stable-baselines3."""
    ledger = ledger or Ledger()
    make = [lambda: env(ledger, kind in (AutoresetMode.SAME_STEP, DummyVecEnv))] * slots
    if kind is DummyVecEnv:
        return make_envs(DummyVecEnv(make), slots, None)
    if kind is NoAutoresetVectorEnv:
        return NoAutoresetVectorEnv(make)
    return SyncVectorEnv(make, copy=False, autoreset_mode=kind)


class CountingPolicy(Policy):
    """Chooses (episode + t) mod 3, so that an action says which observation it answers."""

    def act(self, obs, state, *args, **kwargs):
        return obs.sum(1).long() % 3, -obs[:, 1], None


class Somebody(gym.Env):
    """Sees, pays and ends as it is told, and does not say how long an episode is: an agent knows its spaces alone."""

    spec = None

    def __init__(self, observation_space=IMAGE, action_space=TWO, first=(SEEN, {}), then=(SEEN, 1.0, True, False, {})):
        self.observation_space, self.action_space = observation_space, action_space
        self.first, self.then = first, then

    def reset(self, *, seed=None, options=None):
        return self.first

    def step(self, action):
        return self.then
