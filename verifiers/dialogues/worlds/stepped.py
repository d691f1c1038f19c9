"""Environments with the interface of Gymnasium: `reset(seed=...)`, and `step(action)` with five results."""

from __future__ import annotations

import math
import string
from contextlib import suppress
from typing import Any

from typing_extensions import override

from ...base import WRONG, Dialogue, Problem, Reply, Verdict, Verifier, first_line
from ...plugins.arguments import whole_number
from .randomness import Randomness
from .spelling import spelled
from .world import World

PROBED = 4  # games whose openings the lengths are read off


class SteppedWorld(World):
    """An environment whose observations and actions are texts, with the rewards of its steps.

    Subclasses implement `make`.

    Args:
        name: of the environment, for messages.
        turns: actions per episode.
        reply_length: longest observation in characters; None for the longest opening and a little more.
        reward_range: lowest and highest sum of rewards; None if unknown.
        success_reward: the least sum of rewards that counts as a success.

    Raises:
        ValueError: if the environment cannot be made or reset, or for arguments out of range.
    """

    def __init__(
        self,
        name: str,
        turns: int,
        reply_length: int | None,
        reward_range: Any,
        success_reward: float,
    ) -> None:
        self.name = name
        self.max_turns = whole_number(name, "turns", turns, 1, 10_000)
        self.reward_range = as_range(name, reward_range)
        self.success_reward = float(success_reward)
        try:
            longest = max(len(self.opening(seed)) for seed in range(PROBED))
        except ValueError:
            raise
        except Exception as error:  # whatever the environment raises
            raise ValueError(f"{name} cannot be reset: {type(error).__name__}: {first_line(error)}") from error
        self.prompt_length = 2 * longest
        self.reply_length = (
            2 * longest if reply_length is None else whole_number(name, "reply_length", reply_length, 1, 10**6)
        )

    def make(self) -> Any:
        """Return a new environment."""
        raise NotImplementedError(f"{type(self).__name__} does not implement make")

    @override
    def opening(self, seed: int) -> str:
        stepping = Stepping(self, seed)
        stepping.close()
        return stepping.opening

    @override
    def dialogue(self, problem: Problem) -> Dialogue:
        return Stepping(self, problem.metadata["seed"])


class Stepping(Dialogue):
    """An episode of such an environment."""

    def __init__(self, world: SteppedWorld, seed: int) -> None:
        self.world, self.alphabet, self.total = world, world.alphabet, 0.0
        self.randomness = Randomness(seed)
        with self.randomness():
            self.env = world.make()
            observation, _ = self.env.reset(seed=seed)
        self.opening = self._written(observation)

    @override
    def reply(self, turn: str) -> Reply:
        with self.randomness():
            observation, reward, terminated, truncated, _ = self.env.step(turn)
        reward = float(reward)
        if not math.isfinite(reward):
            raise ValueError(f"{self.world.name} returned the reward {reward}")
        self.total += reward
        if terminated or truncated:  # the verdict has the whole return, so that it decides what is a success
            return Reply(reward=reward - self.total, verdict=Verdict(self.total))
        return Reply(self._written(observation), reward)

    @override
    def out_of_budget(self) -> Verdict:
        return WRONG

    @override
    def close(self) -> None:
        with suppress(Exception):  # an environment without close, or one whose close fails, has had its episode
            self.env.close()

    def _written(self, observation: Any) -> str:
        if not isinstance(observation, str):
            raise ValueError(f"{self.world.name} must observe texts, got {observation!r:.60}")
        return spelled(observation.rstrip("\n") + "\n", self.alphabet)


def as_range(owner: str, given: Any) -> tuple[float, float]:
    """Return the lowest and the highest reward; infinite ends if none are given.

    Raises:
        ValueError: unless they are two numbers in order.
    """
    if given is None:
        return -math.inf, math.inf
    try:
        low, high = map(float, given)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not low <= high:
        raise ValueError(f"{owner}: reward_range must be two numbers, lowest first, got {given!r}")
    return low, high


def with_alphabet(world: Verifier, more: str) -> str:
    """Return printable ASCII and further characters."""
    return string.printable + "".join(sorted(set(more) - set(string.printable)))
