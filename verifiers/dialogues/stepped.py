"""gym and gem: environments with the interface of Gymnasium, "gym:my_module:MyEnv-v0", "gem:game:Sudoku-v0-easy"."""

from __future__ import annotations

import math
import string
from contextlib import suppress
from typing import Any

from typing_extensions import override

from rlenv._checks import check_choice, check_count, require

from ..base import Execution, Reply, Turns, Verdict, as_reward, describe
from ..plugins.registry import reason_of, register_verifier, require_trust
from ..plugins.user_code import import_user_module
from .world import Playing, Randomness, WorldVerifier, spelled

PROBED = 4  # games whose openings the lengths are read off
RESET, STEP = "(observation, info)", "(observation, reward, terminated, truncated, info)"
TEXT_ONLY = "its observations and actions must be gymnasium.spaces.Text"


class SteppedWorld(WorldVerifier):
    """An environment whose observations and actions are texts, with the rewards of its steps.

    Subclasses implement `make`.

    Args:
        name: of the environment, for messages.
        turns: actions per episode.
        reply_length: longest observation in characters; None for the longest opening and a little more.
        success_reward: the least sum of rewards that counts as a success.

    Raises:
        ValueError: if the environment cannot be made or reset, or for arguments out of range.
    """

    reward_range = (-math.inf, math.inf)

    def __init__(self, name: str, turns: int, reply_length: int | None, success_reward: float) -> None:
        self.name = name
        turns = check_count(f"{name}: turns", turns, 1, 10_000)
        self.success_reward = float(success_reward)
        try:
            longest = max(len(self.opening(seed)) for seed in range(PROBED))
        except ValueError:
            raise
        except Exception as error:  # whatever the environment raises
            raise ValueError(f"{name} cannot be reset: {describe(error)}") from error
        self.prompt_length = 2 * longest
        reply = 2 * longest if reply_length is None else check_count(f"{name}: reply_length", reply_length, 1, 10**6)
        self.turns = Turns(turns, reply)

    def make(self) -> Any:
        """Return a new environment."""
        raise NotImplementedError(f"{type(self).__name__} does not implement make")

    @override
    def playing(self, seed: int) -> Playing:
        return Stepping(self, seed)


class Stepping(Playing):
    """An episode of such an environment."""

    def __init__(self, world: SteppedWorld, seed: int) -> None:
        self.world, self.alphabet, self.total = world, world.alphabet, 0.0
        self.randomness = Randomness(seed)
        with self.randomness():
            self.env = world.make()
            observation, _ = self._parts("reset", RESET, self.env.reset(seed=seed))
        self.opening = self._written(observation)

    @override
    def reply(self, turn: str) -> Reply:
        with self.randomness():
            observation, reward, terminated, truncated, _ = self._parts("step", STEP, self.env.step(turn))
        reward = as_reward(f"{self.world.name}: the reward of step", reward)
        self.total += reward
        if terminated or truncated:  # the verdict has the whole return, so that it decides what is a success
            return Reply(reward=reward - self.total, verdict=Verdict(self.total))
        return Reply(self._written(observation), reward)

    @override
    def close(self) -> None:
        with suppress(Exception):  # an environment without close, or one whose close fails, has had its episode
            self.env.close()

    def _parts(self, method: str, parts: str, returned: Any) -> tuple[Any, ...]:
        if not isinstance(returned, tuple) or len(returned) != parts.count(",") + 1:
            raise ValueError(f"{self.world.name}: {method} must return the tuple {parts}, got {returned!r:.60}")
        return returned

    def _written(self, observation: Any) -> str:
        if not isinstance(observation, str):
            raise ValueError(f"{self.world.name} must observe texts, got {observation!r:.60}")
        return spelled(observation.rstrip("\n") + "\n", self.alphabet)


@register_verifier("gym")
class Gym(SteppedWorld):
    """A Gymnasium environment with texts as observations and actions; each turn earns the reward of its step.

    A problem is a seed, and the prompt is the first observation. Equal seeds and equal actions must give
    equal observations, because worker processes replay episodes. Global random states are kept apart from ours.

    Args:
        env: the id, such as "my_module:MyEnv-v0", whose module is imported first; from a checkpoint, that needs trust.
        turns: actions per episode; an episode with more ends with a reward of 0.
        reply_length: longest observation in characters; by default the `max_length` of the observation space.
        success_reward: the least reward of an episode that counts as a success.
        settings: further arguments of `gymnasium.make`.

    Raises:
        ValueError: for an id that `gymnasium.make` refuses, or an environment without texts.
    """

    def __init__(
        self,
        env: str,
        turns: int = 20,
        reply_length: int | None = None,
        success_reward: float = 1.0,
        **settings: Any,
    ) -> None:
        module = env.rpartition(":")[0]
        if module:
            require_trust(f"the Gymnasium environment {env!r}")
        self.env, self.settings = env, settings
        try:
            if module:
                import_user_module(module)  # Gymnasium does not look into the user's folder
            made = self.make()
        except Exception as error:  # whatever its module or its constructor raises
            raise ValueError(f"gym: {env!r} cannot be made: {reason_of(error)}") from error
        text = require("gymnasium.spaces", "dev", "verifier 'gym'").Text
        spaces = made.observation_space, made.action_space
        made.close()
        if not all(isinstance(space, text) for space in spaces):
            raise ValueError(f"gym: {env} has {spaces[0]} and {spaces[1]}; {TEXT_ONLY}")
        more = set().union(*(space.character_set for space in spaces))
        self.alphabet = string.printable + "".join(sorted(more - set(string.printable)))
        self.answer_length = spaces[1].max_length
        reply = spaces[0].max_length + 1 if reply_length is None else reply_length
        super().__init__(f"gym:{env}", turns, reply, success_reward)

    @override
    def make(self) -> Any:
        gymnasium = require("gymnasium", "dev", "verifier 'gym'")
        return gymnasium.make(self.env, disable_env_checker=True, **self.settings)


@register_verifier("gem")
class Gem(SteppedWorld):
    """An environment of GEM; each turn earns the reward of its step.

    A problem is a seed, and the prompt is the first observation. GEM's global random state is kept apart from
    ours. The package gem-llm 0.1.0 allows Python 3.11 and 3.12. Environments of lists of questions download them.

    Args:
        env: its id, such as "game:GuessTheNumber-v0-easy"; it is played as `gem.make` makes it.
        turns: actions per episode; an episode with more ends with a reward of 0.
        reply_length: longest observation in characters; by default twice the longest opening of a few.
        success_reward: the least reward of an episode that counts as a success.
        settings: further arguments of `gem.make`, such as max_turns.

    Raises:
        ValueError: if gem-llm is not installed, for an unknown id (with the closest match), or settings that the
            environment does not take.
    """

    execution = Execution(needs={"gem": "gem"})

    def __init__(
        self,
        env: str,
        turns: int = 20,
        reply_length: int | None = None,
        success_reward: float = 1.0,
        **settings: Any,
    ) -> None:
        self.env, self.settings = env, settings
        library = require("gem", "gem", "verifier 'gem'")
        known = require("gem.envs.registration", "gem", "verifier 'gem'").ENV_REGISTRY
        check_choice("environment of gem", env, sorted(known))
        try:
            library.make(env, **settings)
        except Exception as error:  # whatever its constructor raises
            lines = [line.strip() for line in str(error).splitlines() if any(map(str.isalpha, line))]
            raise ValueError(f"gem:{env} cannot be made with {settings}: {' '.join(lines[:1])}") from error
        super().__init__(f"gem:{env}", turns, reply_length, success_reward)

    @override
    def make(self) -> Any:
        return require("gem", "gem", "verifier 'gem'").make(self.env, **self.settings)
