"""Environments whose episodes are cut off by a time limit, without being over."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorEnv, VectorWrapper


class CutOff(VectorWrapper):
    """Our text environment, were its budget a time limit and not the end of the answer."""

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        return obs, rewards, terminated & ~truncated, truncated, infos


class Endless(gym.Env):
    """Pays 1 at every step, whatever is done, and always looks the same.

    Args:
        steps: after which the episode ends.
        terminates: whether it is over then, instead of only cut off.
    """

    def __init__(self, steps: int = 4, terminates: bool = False) -> None:
        self.steps, self.terminates = steps, terminates
        self.observation_space, self.action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.array([0.5, -0.5], dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t == self.steps
        obs = np.array([0.5, -0.5], dtype=np.float32)
        return obs, 1.0, over and self.terminates, over and not self.terminates, {}


def endless_envs(num_envs: int = 4, **kwargs: Any) -> VectorEnv:
    return SyncVectorEnv([lambda: Endless(**kwargs)] * num_envs)
