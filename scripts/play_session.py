"""Episodes of `rlenv play`: a person or a policy chooses, the environment answers, and both are shown."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import SampledPolicy
from agents.checks import first_line
from agents.rollouts.action_probabilities import Choices, Onlooker
from agents.rollouts.envs import find_spec

from . import session, settings
from . import subject as subjects
from .games import HELP, QUIT, ControlGame, TextGame, show
from .parameters import flag_of, given_by_user

Game = TextGame | ControlGame
Choose = Callable[[Any, Choices | None], int]
AGAIN = "play again? (Enter for yes, n for no) "
BATCHED = {
    "vectorization_mode", "vector_kwargs", "autoreset_mode", "late_verdicts", "late_replies", "device",
}  # arguments that an environment of one episode does not take  # fmt: skip


class StoppedError(Exception):
    """Somebody wants to stop, or the input has ended."""


def open_subject(run: Path | None, given: dict[str, Any]) -> tuple[gym.Env, Onlooker | None]:
    """Return the environment that is played, and the policy of the run, if any."""
    if run is None:
        return _make(given["env_id"], _arguments(given)), None
    subject = subjects.find(run, given)
    loaded = subject.load(given)
    loaded.env.close()
    policy, env_kwargs = loaded.policy, subject.env_kwargs
    if settings.is_text(subject.env_id):
        env_kwargs = env_kwargs | {"tokenizer": session.task_of(loaded.env).tokenizer}
        policy = SampledPolicy(policy, given["temperature"], given["top_p"])
    elif useless := next(filter(given_by_user, ("temperature", "top_p", "top")), None):
        raise ValueError(f"{flag_of(useless)} has no meaning for {subject.env_id}")
    return _make(subject.env_id, env_kwargs), Onlooker(policy, loaded.device)


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


def _make(env_id: str, env_kwargs: Mapping[str, Any]) -> gym.Env:
    """Return one environment, which renders its own text if it has one."""
    kwargs = {name: value for name, value in env_kwargs.items() if name not in BATCHED}
    if settings.is_text(env_id):
        kwargs |= {**settings.IN_TURN, "group_size": 1, "flag_errors": True}
    try:
        env = gym.make(find_spec(env_id), disable_env_checker=True, **kwargs)
        if "ansi" in env.metadata.get("render_modes", ()):
            env.close()
            env = gym.make(find_spec(env_id), disable_env_checker=True, **kwargs | {"render_mode": "ansi"})
    except (gym.error.Error, TypeError) as error:
        raise ValueError(f"environment {env_id!r} with {dict(env_kwargs)}: {first_line(error)}") from error
    return env


def person(game: Game) -> Choose:
    """Return the choice of somebody who types, for one episode; a line may hold several actions."""
    waiting: list[int] = []

    def choose(observation: Any, choices: Choices | None) -> int:
        if not waiting:
            game.offer(observation, choices)
        while not waiting:
            line = read("> ")
            try:
                if line.strip() == HELP:
                    show(game.help)
                elif not line and choices is not None:
                    waiting.append(choices.draw(deterministic=True))
                else:
                    waiting.extend(game.parse(line, choices))
            except ValueError as error:
                show(f"  {error}")
        action = waiting.pop(0)
        if choices is not None and isinstance(game, TextGame):  # a typed text need not be in the list
            show(f"  {game.name(action)} had the probability {choices.probability(action):.3f}")
        return action

    return choose


def watched(game: Game, deterministic: bool, generator: torch.Generator) -> Choose:
    """Return the choice of a policy, which is shown, for one episode: the likeliest action, or one that is drawn."""
    show("  step  action       probability  entropy (nats)  instead", underline=True)
    steps = itertools.count(1)

    def choose(observation: Any, choices: Choices | None) -> int:
        assert choices is not None
        action = choices.draw(deterministic, generator)
        others = [(other, p) for other, p in choices.likeliest(4) if other != action and p > 0][:3]
        instead = "  ".join(f"{game.name(other)} {p:.3f}" for other, p in others)
        name, p = game.name(action), choices.probability(action)
        show(f"  {next(steps):>4}  {name:<11}  {p:11.3f}  {choices.entropy:14.3f}  {instead}".rstrip())
        return action

    return choose


def read(prompt: str) -> str:
    """Return a line of standard input, in a pipe printed too; a `StoppedError` at its end or if it asks to stop."""
    try:
        line = input(prompt)
    except EOFError:
        show()
        raise StoppedError("the input has ended") from None
    except UnicodeDecodeError:
        raise StoppedError("the input is not UTF-8 text") from None
    if not sys.stdin.isatty():
        show(line)
    if line.strip() == QUIT:
        raise StoppedError(QUIT)
    return line


def play(
    env: gym.Env, game: Game, player: Callable[[], Choose], onlooker: Onlooker | None, seed: int, wanted: int | None
) -> dict[str, Any]:
    """Play so many episodes, or until somebody stops; return what --json prints."""
    played: list[dict[str, Any]] = []
    ended = "all episodes played"
    try:
        while wanted is None or len(played) < wanted:
            if wanted is None and played and read(AGAIN).strip().lower() in ("n", "no"):
                raise StoppedError("no more")
            show(f"\nepisode {len(played) + 1}", bold=True)
            played.append(_episode(env, game, player, onlooker, None if played else seed))
    except StoppedError as stopped:
        ended = str(stopped)
    except KeyboardInterrupt:
        show()
        ended = "Ctrl-C"
    judged = [one["is_success"] for one in played if one["is_success"] is not None]
    return {
        "episodes": len(played),
        "mean_reward": sum(one["reward"] for one in played) / len(played) if played else None,
        "success_rate": sum(judged) / len(judged) if judged else None,
        "ended": ended,
        "played": played,
    }


def _episode(
    env: gym.Env, game: Game, player: Callable[[], Choose], onlooker: Onlooker | None, seed: int | None
) -> dict[str, Any]:
    observation, info = env.reset(seed=seed)
    game.begin(info)
    choose = player()
    if onlooker is not None:
        onlooker.start()
    total, steps, over, cut = 0.0, 0, False, False
    while not (over or cut):
        action = choose(observation, None if onlooker is None else onlooker.look(observation))
        observation, reward, over, cut, info = env.step(game.first + action)
        total, steps = total + float(reward), steps + 1
        game.played(action, float(reward), info)
    game.finish(total, info, cut)
    success = info.get("is_success")
    return {"reward": total, "steps": steps, "is_success": None if success is None else bool(success), "truncated": cut}
