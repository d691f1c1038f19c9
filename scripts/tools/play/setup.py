"""From the options of `rlenv play` to an environment, a policy that is asked, and a game."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents.core.checks import first_line
from agents.policies import SampledPolicy
from agents.rollouts.action_probabilities import Onlooker
from agents.rollouts.envs.registered import find_spec

from ...console.parameters import flag_of, given_by_user
from ...evaluation import subject as subjects
from ...setup import settings
from .film import Film
from .games import ControlGame, TextGame

BATCHED = (
    "vectorization_mode",
    "vector_kwargs",
    "autoreset_mode",
    "late_verdicts",
    "late_replies",
    "device",
)  # not of one episode


def open_subject(run: Path | None, given: dict[str, Any]) -> tuple[gym.Env, Onlooker | None]:
    """Return the environment that is played, and the policy of the run, if any.

    Raises:
        ValueError: as `subjects.find` says, and for arguments that the environment does not take.
    """
    if run is None:
        return _make(given["env_id"], _arguments(given), given), None
    subject = subjects.find(run, given)
    loaded = subject.load(given)
    loaded.env.close()
    policy, env_kwargs = loaded.policy, subject.env_kwargs
    if subject.text:
        env_kwargs = env_kwargs | {"tokenizer": loaded.task.tokenizer}
        policy = SampledPolicy(policy, given["temperature"], given["top_p"])
    else:
        for name in ("temperature", "top_p", "top"):
            if given_by_user(name):
                raise ValueError(f"{flag_of(name)} has no meaning for {subject.env_id}")
    return _make(subject.env_id, env_kwargs, given), Onlooker(policy, loaded.device)


def make_game(env: gym.Env, given: Mapping[str, Any], with_policy: bool) -> tuple[TextGame | ControlGame, Film | None]:
    """Return the game that is played in an environment, and what keeps its pictures, if they are wanted."""
    game: TextGame | ControlGame
    game = TextGame(env, given["top"], with_policy) if hasattr(env.unwrapped, "task") else ControlGame(env)
    return game, None if given["picture"] is None else Film(given["picture"], env)


def _arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an environment that the options describe."""
    chosen = settings.env_arguments({**given, "model": "auto", "trust": None})
    if not settings.is_text(given["env_id"]):
        if given_by_user("split"):
            raise ValueError(f"--split has no meaning for {given['env_id']}")
        return chosen
    if given_by_user("problems") and not given_by_user("test_fraction"):
        chosen["test_fraction"] = float(given["split"] == "test")  # nobody was trained on the rest of the file
    return chosen | {"split": given["split"]}


def _make(env_id: str, env_kwargs: Mapping[str, Any], given: Mapping[str, Any]) -> gym.Env:
    """Return one environment that renders what will be shown: pictures, or its own text."""
    kwargs = {name: value for name, value in env_kwargs.items() if name not in BATCHED}
    if settings.is_text(env_id):
        kwargs |= {**settings.IN_TURN, "group_size": 1, "flag_errors": True}
    wanted = "ansi" if given["picture"] is None else "rgb_array"
    try:
        env = gym.make(find_spec(env_id), disable_env_checker=True, **kwargs)
        if wanted not in env.metadata.get("render_modes", ()):
            return env
        env.close()
        return gym.make(find_spec(env_id), disable_env_checker=True, **kwargs | {"render_mode": wanted})
    except (gym.error.Error, TypeError) as error:
        raise ValueError(f"environment {env_id!r} with {dict(env_kwargs)}: {first_line(error)}") from error
