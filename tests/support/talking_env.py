"""A small text environment that answers back, and remembers what was said."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from dialogues import number_of
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

LETTERS, LENGTH, PROMPT = 4, 60, 3
BELL = 1  # the action that may be answered


class TalkingEnv(gym.Env):
    """The prompt is the number of the episode; every reply, reward and end is a hash of what was said before.

    Args:
        said: gets each episode that has ended: its tokens, the columns of the actions and their rewards.
        started: [number of episodes so far], of all slots together.
    """

    metadata = {"traits": {"replies_in_infos": True}}

    def __init__(self, said: dict[int, tuple[list[int], list[int], list[float]]], started: list[int]) -> None:
        self.said, self.started = said, started
        self.action_space = spaces.Discrete(LETTERS)
        self.observation_space = spaces.Dict(
            tokens=spaces.Box(0, LETTERS - 1, (LENGTH,), np.int64), length=spaces.Discrete(LENGTH + 1)
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode = self.started[0]
        self.started[0] += 1
        self.tokens = [self.episode // LETTERS**place % LETTERS for place in range(PROMPT)]
        self.columns: list[int] = []
        self.rewards: list[float] = []
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.columns.append(len(self.tokens))
        self.tokens.append(int(action))
        chance = number_of(self.tokens)
        self.rewards.append(chance % 64 / 64)
        done = chance % 7 == 0 or len(self.columns) == 12
        if done:
            self.said[self.episode] = self.tokens, self.columns, self.rewards
            return self._observation(), self.rewards[-1], True, False, {}
        info = {}
        if action == BELL and chance % 3:
            reply = [chance // 5**place % LETTERS for place in range(1 + chance % 3)]
            self.tokens += reply
            info["appended"] = len(reply)
        return self._observation(), self.rewards[-1], False, False, info

    def _observation(self) -> Any:
        tokens = np.zeros(LENGTH, dtype=np.int64)
        tokens[: len(self.tokens)] = self.tokens
        return {"tokens": tokens, "length": np.int64(len(self.tokens))}


def talking_envs(slots: int, mode: AutoresetMode) -> tuple[SyncVectorEnv, dict[int, Any]]:
    """Return a vector environment, and what will have been said in its episodes."""
    said: dict[int, Any] = {}
    started = [0]
    return SyncVectorEnv([lambda: TalkingEnv(said, started)] * slots, autoreset_mode=mode), said
