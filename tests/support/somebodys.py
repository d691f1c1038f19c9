"""An environment of somebody's, of which an agent knows its spaces alone."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

IMAGE, TWO, SEEN = spaces.Box(0.0, 1.0, (3,), np.float32), spaces.Discrete(2), np.zeros(3, np.float32)


class Somebody(gym.Env):
    """Sees, pays and ends as it is told, and does not say how long an episode is."""

    spec = None

    def __init__(self, observation_space=IMAGE, action_space=TWO, first=(SEEN, {}), then=(SEEN, 1.0, True, False, {})):
        self.observation_space, self.action_space = observation_space, action_space
        self.first, self.then = first, then

    def reset(self, *, seed=None, options=None):
        return self.first

    def step(self, action):
        return self.then
