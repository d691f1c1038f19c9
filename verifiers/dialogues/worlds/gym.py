"""gym: any Gymnasium environment whose observations and actions are texts, "gym:my_module:MyEnv-v0"."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from ...base import first_line
from ...plugins.extras import require
from ...plugins.registry import register_verifier, require_trust
from .stepped import SteppedWorld, with_alphabet

TEXT_ONLY = "its observations and actions must be gymnasium.spaces.Text"


@register_verifier("gym")
class Gym(SteppedWorld):
    """An environment of Gymnasium with texts as observations and actions; its rewards are those of its steps.

    A problem is a seed, and the prompt is what the environment observes first. Equal seeds and equal actions must give
    equal observations, because worker processes replay episodes. Global random states are kept apart from ours.

    Args:
        env: the id, such as "my_module:MyEnv-v0", whose module is imported first; from a checkpoint, that needs trust.
        turns: actions per episode; an episode with more ends with a reward of 0.
        reply_length: longest observation in characters; by default the `max_length` of the observation space.
        reward_range: lowest and highest reward of an episode; None if unknown.
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
        reward_range: Any = None,
        success_reward: float = 1.0,
        **settings: Any,
    ) -> None:
        if ":" in env:
            require_trust(f"the Gymnasium environment {env!r}")
        self.env, self.settings = env, settings
        try:
            made = self.make()
        except Exception as error:  # whatever its module or its constructor raises
            raise ValueError(f"gym: {env!r} cannot be made: {first_line(error)}") from error
        text = require("gymnasium.spaces", "dev", "verifier 'gym'").Text
        spaces = made.observation_space, made.action_space
        made.close()
        if not all(isinstance(space, text) for space in spaces):
            raise ValueError(f"gym: {env} has {spaces[0]} and {spaces[1]}; {TEXT_ONLY}")
        self.alphabet = with_alphabet(self, "".join("".join(space.character_set) for space in spaces))
        self.answer_length = spaces[1].max_length
        reply = spaces[0].max_length + 1 if reply_length is None else reply_length
        super().__init__(f"gym:{env}", turns, reply, reward_range, success_reward)

    @override
    def make(self) -> Any:
        gymnasium = require("gymnasium", "dev", "verifier 'gym'")
        return gymnasium.make(self.env, disable_env_checker=True, **self.settings)
