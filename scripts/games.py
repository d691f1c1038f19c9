"""Episodes of `rlenv play`: a person or a policy chooses, the environment answers, and both are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import click
import gymnasium as gym
import numpy as np

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import SampledPolicy
from agents.checks import first_line
from agents.rollouts.action_probabilities import Choices, Onlooker
from agents.rollouts.envs import find_spec
from rlenv.picture import token_text

from . import session, settings, subject
from .parameters import flag_of, given_by_user
from .terminal import plain

QUIT, HELP, END = "/quit", "/help", "/end"
MORE = f"{QUIT} stops, {HELP} repeats this."
BAR = 20  # characters of the bar of a probability of 1
BATCHED = {
    "vectorization_mode", "vector_kwargs", "autoreset_mode", "late_verdicts", "late_replies", "device",
}  # arguments that an environment of one episode does not take  # fmt: skip
Draw = Callable[[Choices], int]  # how a policy chooses


class StoppedError(Exception):
    """Somebody wants to stop, or the input has ended."""


def open_subject(run: Path | None, given: dict[str, Any]) -> tuple[gym.Env, Onlooker | None]:
    """Return the environment that is played, and the policy of the run, if any."""
    if run is None:
        chosen = settings.env_arguments({**given, "model": "auto", "trust": None})
        if settings.is_text(given["env_id"]):
            chosen |= {"split": given["split"]} | subject.whole_file(given["split"], chosen.get("problems"))
        elif given_by_user("split"):
            raise ValueError(f"--split has no meaning for {given['env_id']}")
        return _make(given["env_id"], chosen), None
    found = subject.find(run, given)
    loaded = found.load(given)
    loaded.env.close()
    policy, env_kwargs = loaded.policy, found.env_kwargs
    if settings.is_text(found.env_id):
        env_kwargs = env_kwargs | {"tokenizer": session.task_of(loaded.env).tokenizer}
        policy = SampledPolicy(policy, given["temperature"], given["top_p"])
    elif useless := next(filter(given_by_user, ("temperature", "top_p", "top")), None):
        raise ValueError(f"{flag_of(useless)} has no meaning for {found.env_id}")
    return _make(found.env_id, env_kwargs), Onlooker(policy, loaded.device)


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


class TextGame:
    """TextGen-v0: an action is a token. If there is a policy, its `top` likeliest ones are listed."""

    first = 0  # the number of the first action
    help = (
        f"Type tokens: a line is text, #17 is token 17, {END} the end token;\nwith a policy, Enter takes its first "
        f"choice. {MORE}"
    )

    def __init__(self, env: gym.Env, top: int) -> None:
        self.env, self.inner = env, cast(Any, env.unwrapped)
        self.task, self.top = self.inner.task, top
        self._written: list[int] = []  # in this turn

    def begin(self, info: Mapping[str, Any]) -> None:
        """Show the start of an episode."""
        self._written = []
        click.echo(f"prompt  {quoted(info['prompt'])}")
        turns = "" if self.task.dialogues is None else f" per turn, {self.task.encoding.max_turns} turns"
        click.echo(f"        at most {self.task.max_new_tokens} tokens{turns}")

    def offer(self, observation: Any, choices: Choices | None) -> None:
        """Show what was written in this turn, and the likeliest tokens."""
        if self._written:
            click.echo(f"so far  {self._names()}")
        for token, p in [] if choices is None else choices.likeliest(self.top):
            click.echo(f"    #{token:<6} {self.name(token):<12}  {p:6.3f}  {'=' * round(BAR * p)}".rstrip())

    def parse(self, line: str) -> list[int]:
        """Return the tokens that a line stands for; a `ValueError` of one line if it stands for none."""
        if line == END:
            return [self.task.encoding.end_token(self.inner.problem)]
        if line[:1] == "#" and len(line) > 1:
            return [_whole(line[1:], 0, self.task.vocab_size - 1, "a token")]
        tokens = self.task.encoder.spell("answer", [line])[0] if line else []
        if not tokens:
            raise ValueError(f"{quoted(line)} has no tokens")
        return list(tokens)

    def name(self, action: int) -> str:
        """Return how a token is shown."""
        text = token_text(self.task.tokenizer, action)
        return text if action in self.task.tokenizer.all_special_ids else quoted(text)

    def played(self, action: int, reward: float, info: Mapping[str, Any]) -> None:
        """Keep what was played; show the reply to a turn, and what it earned."""
        self._written.append(action)
        if "reply" in info:
            click.echo(f"turn    {quoted(str(info['turn']))}")
            click.echo(f"reply   {quoted(str(info['reply']))}" + (f"  (reward {reward:g})" if reward else ""))
            self._written = []

    def finish(self, reward: float, info: Mapping[str, Any], cut: bool) -> None:
        """Show the reward and its parts."""
        left = "token" if self.task.dialogues is None else "turn or token"
        if "turns" in info:
            click.echo(f"turns   {info['turns']}")
        click.echo(f"answer  {self._names()}" + (f"  (cut: no {left} is left)" if cut else ""))
        ok = info["verdict_status"] == "ok"
        said = f"{reward:g}  {'solved' if info['is_success'] else 'not solved'}" if ok else info["verdict_status"]
        click.echo(f"reward  {said}")
        for part, value in info["verdict"].items():
            click.echo(f"        {plain(part)} {value:g}")
        if info["verdict_reason"]:
            click.echo(f"reason  {plain(str(info['verdict_reason']))}")
        if self.inner.problem.answer:
            click.echo(f"right   {quoted(self.inner.problem.answer)}")

    def _names(self) -> str:
        return " ".join(map(self.name, self._written))


class ControlGame:
    """An environment with discrete actions, shown as its own text or as the numbers of the observation."""

    def __init__(self, env: gym.Env) -> None:
        if not isinstance(env.action_space, gym.spaces.Discrete):
            name = env.spec.id if env.spec else type(env.unwrapped).__name__
            raise ValueError(f"{name} has actions in {env.action_space}; play supports discrete actions")
        self.env, self.first = env, int(env.action_space.start)
        self.last = self.first + int(env.action_space.n) - 1
        self.help = f"Type an action, {self.first} to {self.last}, or several in a line. {MORE}"
        self._steps = 0

    def begin(self, info: Mapping[str, Any]) -> None:
        """Count the steps of a new episode."""
        self._steps = 0

    def offer(self, observation: Any, choices: Choices | None) -> None:
        """Show where the environment is, and what the policy would do."""
        if self.env.render_mode == "ansi":
            click.echo(str(self.env.render()).rstrip("\n"))
        else:
            with np.printoptions(precision=3, sign="+", suppress=True):
                click.echo(f"step {self._steps}  observation {observation}")
        if choices is not None:
            each = (f"{self.name(i)} {choices.probability(i):.3f}" for i in range(len(choices.log_probs)))
            click.echo(f"policy  {'  '.join(each)}")

    def parse(self, line: str) -> list[int]:
        """Return the actions that a line stands for, counted from 0; a `ValueError` of one line if there are none."""
        if not line.strip():
            raise ValueError("nothing was typed")
        return [_whole(word, self.first, self.last, "an action") - self.first for word in line.split()]

    def name(self, action: int) -> str:
        """Return how an action is shown."""
        return str(self.first + action)

    def played(self, action: int, reward: float, info: Mapping[str, Any]) -> None:
        """Count the step."""
        self._steps += 1

    def finish(self, reward: float, info: Mapping[str, Any], cut: bool) -> None:
        """Show the return."""
        click.echo(f"over    after {self._steps} steps" + (" (the time is up)" if cut else ""))
        click.echo(f"return  {reward:g}")


Game = TextGame | ControlGame


def play_episodes(
    game: Game, onlooker: Onlooker | None, draw: Draw | None, seed: int, wanted: int | None
) -> dict[str, Any]:
    """Play so many episodes, or until somebody stops; return what --json prints.

    Args:
        game: what is played.
        onlooker: the policy, if any.
        draw: lets the policy play, which is shown; None for somebody who types.
        seed: of the first episode.
        wanted: how many; None for no end.
    """
    played: list[dict[str, Any]] = []
    ended = "all episodes played"
    try:
        while wanted is None or len(played) < wanted:
            click.echo(f"\nepisode {len(played) + 1}")
            played.append(_episode(game, onlooker, draw, None if played else seed))
    except StoppedError as stopped:
        ended = str(stopped)
    except KeyboardInterrupt:
        click.echo()
        ended = "Ctrl-C"
    judged = [one["is_success"] for one in played if one["is_success"] is not None]
    return {
        "episodes": len(played),
        "mean_reward": sum(one["reward"] for one in played) / len(played) if played else None,
        "success_rate": sum(judged) / len(judged) if judged else None,
        "ended": ended,
        "played": played,
    }


def _episode(game: Game, onlooker: Onlooker | None, draw: Draw | None, seed: int | None) -> dict[str, Any]:
    observation, info = game.env.reset(seed=seed)
    game.begin(info)
    if draw is not None:
        click.echo("  step  action       probability  entropy (nats)  instead")
    if onlooker is not None:
        onlooker.start()
    typed: list[int] = []
    total, steps, over, cut = 0.0, 0, False, False
    while not (over or cut):
        choices, steps = None if onlooker is None else onlooker.look(observation), steps + 1
        if draw is not None and choices is not None:
            action = draw(choices)
            _tell(game, steps, action, choices)
        else:
            typed = typed or _asked(game, observation, choices)
            action = typed.pop(0)
            if choices is not None and isinstance(game, TextGame):  # a typed text need not be in the list
                click.echo(f"  {game.name(action)} had the probability {choices.probability(action):.3f}")
        observation, reward, over, cut, info = game.env.step(game.first + action)
        total += float(reward)
        game.played(action, float(reward), info)
    game.finish(total, info, cut)
    success = info.get("is_success")
    return {"reward": total, "steps": steps, "is_success": None if success is None else bool(success), "truncated": cut}


def _tell(game: Game, step: int, action: int, choices: Choices) -> None:
    """Show an action of the policy, and the likeliest others."""
    others = [(other, p) for other, p in choices.likeliest(4) if other != action and p > 0][:3]
    instead = "  ".join(f"{game.name(other)} {p:.3f}" for other, p in others)
    name, p = game.name(action), choices.probability(action)
    click.echo(f"  {step:>4}  {name:<11}  {p:11.3f}  {choices.entropy:14.3f}  {instead}".rstrip())


def _asked(game: Game, observation: Any, choices: Choices | None) -> list[int]:
    """Return the actions of a line that somebody types."""
    game.offer(observation, choices)
    while True:
        line = read("> ")
        try:
            if line.strip() == HELP:
                click.echo(game.help)
            elif not line and choices is not None:
                return [choices.draw(deterministic=True)]
            else:
                return game.parse(line)
        except ValueError as error:
            click.echo(f"  {error}")


def read(prompt: str) -> str:
    """Return a line of standard input, in a pipe printed too; a `StoppedError` at its end or if it asks to stop."""
    try:
        line = input(prompt)
    except EOFError:
        click.echo()
        raise StoppedError("the input has ended") from None
    except UnicodeDecodeError:
        raise StoppedError("the input is not UTF-8 text") from None
    if not sys.stdin.isatty():
        click.echo(line)
    if line.strip() == QUIT:
        raise StoppedError(QUIT)
    return line


def quoted(text: str) -> str:
    """Return a text in double quotes, on one line, with control characters spelled out."""
    return plain(json.dumps(text, ensure_ascii=False))


def _whole(text: str, low: int, high: int, what: str) -> int:
    """Return a whole number in a range; a ValueError in one line else."""
    if text not in map(str, range(low, high + 1)):
        raise ValueError(f"{quoted(text)} is not {what}; allowed: {low} to {high}")
    return int(text)
