"""Episodes of `rlenv play`: a person or a policy chooses, the environment answers, and both are shown."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import gymnasium as gym
import numpy as np

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv._checks import first_line
from rlenv.agents import SampledPolicy
from rlenv.agents.rollouts.action_probabilities import Choices, Onlooker
from rlenv.agents.rollouts.env_checks import make_checked
from rlenv.agents.rollouts.envs import find_spec

from ..config import arguments
from ..config.configs import PlayConfig
from ..config.options import is_text
from ..process.terminal import plain
from . import session, subject

QUIT, HELP, END = "/quit", "/help", "/end"
MORE = f"{QUIT} stops, {HELP} repeats this."
TYPING = f"A line is text, #17 is token 17, {END} the end token; with a policy, Enter takes its first choice"
BAR = 20  # characters of the bar of a probability of 1
BATCHED = {
    "vectorization_mode", "vector_kwargs", "autoreset_mode", "late_verdicts", "late_replies", "device",
}  # arguments that an environment of one episode does not take  # fmt: skip
Draw = Callable[[Choices], int]  # how a policy chooses


class StoppedError(Exception):
    """Somebody wants to stop, or the input has ended."""


def open_subject(run: Path | None, config: PlayConfig) -> tuple[gym.Env, Onlooker | None]:
    """Return the environment that is played, and the policy of the run, if any."""
    if run is None:
        chosen = arguments.env_arguments(config, config.env_id, config.env_kwargs)
        if config.is_text:
            chosen |= {"split": config.split} | subject.whole_file(config, chosen.get("problems"))
        elif "split" in config.chosen:
            raise ValueError(f"--split has no meaning for {config.env_id}")
        return _make(config.env_id, chosen), None
    of_run = subject.find(run, config)
    loaded = of_run.load(config)
    loaded.env.close()
    policy, env_kwargs = loaded.policy, of_run.env_kwargs
    if is_text(of_run.env_id):
        env_kwargs = env_kwargs | {"tokenizer": session.task_of(loaded.env).encoding.tokenizer}
        policy = SampledPolicy(policy, config.temperature, config.top_p)
    elif useless := next((name for name in ("temperature", "top_p", "top") if name in config.chosen), None):
        raise ValueError(f"{config.flag(useless)} has no meaning for {of_run.env_id}")
    return _make(of_run.env_id, env_kwargs), Onlooker(policy, loaded.device)


def _make(env_id: str, env_kwargs: Mapping[str, Any]) -> gym.Env:
    """Return one environment, which renders its own text if it has one."""
    kwargs = {name: value for name, value in env_kwargs.items() if name not in BATCHED}
    if is_text(env_id):
        kwargs |= {**arguments.IN_TURN, "group_size": 1, "flag_errors": True}
    try:
        env = make_checked(find_spec(env_id), disable_env_checker=True, **kwargs)
        if "ansi" in env.metadata.get("render_modes", ()) and not is_text(env_id):
            env.close()
            env = make_checked(find_spec(env_id), disable_env_checker=True, **kwargs | {"render_mode": "ansi"})
    except (gym.error.Error, TypeError) as error:
        raise ValueError(f"environment {env_id!r} with {dict(env_kwargs)}: {first_line(error)}") from error
    return env


class PlayedGame:
    """A game: TextGen-v0, where an action is a token, or another environment with discrete actions.

    Args:
        env: a single one.
        top: how many of the likeliest actions of a policy are listed.
    """

    def __init__(self, env: gym.Env, top: int) -> None:
        if not isinstance(env.action_space, gym.spaces.Discrete):
            name = env.spec.id if env.spec else type(env.unwrapped).__name__
            raise ValueError(f"{name} has actions in {env.action_space}; play supports discrete actions")
        self.env, self.top, self.first = env, top, int(env.action_space.start)
        self.last = self.first + int(env.action_space.n) - 1
        self.inner: Any = env.unwrapped
        self.task = getattr(self.inner, "task", None)  # of text
        actions = f"An action is a number from {self.first} to {self.last}, a line may have several"
        self.help = f"{actions if self.task is None else TYPING}.\n{MORE}"
        self.written: list[int] = []  # of a dialogue, in this turn

    def begin(self, info: Mapping[str, Any]) -> None:
        """Show the start of an episode."""
        self.written = []
        if self.task is not None:
            click.echo(f"prompt  {quoted(info['prompt'])}")
            turns = "" if self.task.encoding.max_turns == 1 else f" per turn, {self.task.encoding.max_turns} turns"
            click.echo(f"        at most {self.task.encoding.max_new_tokens} tokens{turns}")

    def offer(self, observation: Any, choices: Choices | None) -> None:
        """Show the state of the environment, and the likeliest actions of the policy."""
        if self.env.render_mode == "ansi":
            click.echo(str(self.env.render()).rstrip("\n"))
        elif self.task is None:
            with np.printoptions(precision=3, sign="+", suppress=True):
                click.echo(f"step {len(self.written)}  observation {observation}")
        elif self.written:
            click.echo(f"so far  {self._names()}")
        for action, p in [] if choices is None else choices.likeliest(self.top):
            name = "" if self.task is None else self.name(action)
            click.echo(f"    #{self.first + action:<6} {name:<12}  {p:6.3f}  {'=' * round(BAR * p)}".rstrip())

    def parse(self, line: str) -> list[int]:
        """Return the actions that a line stands for, counted from 0; a `ValueError` of one line if there are none."""
        if self.task is None or (line[:1] == "#" and len(line) > 1):
            actions = [self._number(word) for word in line.replace("#", " ").split()]
        elif line == END:
            actions = [self.task.encoding.end_token(self.inner.problem)]
        else:
            actions = list(self.task.encoding.encoder.spell("answer", [line])[0]) if line else []
        if not actions:
            raise ValueError(f"{quoted(line)} is no action")
        return actions

    def _number(self, word: str) -> int:
        if not word.isdecimal() or not self.first <= int(word) <= self.last:
            raise ValueError(f"{quoted(word)} is not an action; allowed: {self.first} to {self.last}")
        return int(word) - self.first

    def name(self, action: int) -> str:
        """Return how an action is shown."""
        if self.task is None:
            return str(self.first + action)
        tokenizer = self.task.encoding.tokenizer
        if action in tokenizer.all_special_ids:
            return str(tokenizer.convert_ids_to_tokens(action))
        return quoted(visible(str(tokenizer.decode([action]))))

    def played(self, action: int, reward: float, info: Mapping[str, Any]) -> None:
        """Keep a turn; show the reply to it, and its reward."""
        self.written.append(action)
        if "reply" in info:
            click.echo(f"turn    {quoted(str(info['turn']))}")
            click.echo(f"reply   {quoted(str(info['reply']))}" + (f"  (reward {reward:g})" if reward else ""))
            self.written = []

    def finish(self, reward: float, info: Mapping[str, Any], cut: bool) -> None:
        """Show the reward and its parts."""
        if self.task is None:
            click.echo(f"over    after {len(self.written)} steps{' (the time is up)' if cut else ''}")
            click.echo(f"return  {reward:g}")
            return
        if "turns" in info:
            click.echo(f"turns   {info['turns']}")
        click.echo(f"answer  {self._names()}{'  (cut off)' if cut else ''}")
        ok = info["verdict_status"] == "ok"
        outcome = f"{reward:g}  {'solved' if info['is_success'] else 'not solved'}" if ok else info["verdict_status"]
        click.echo(f"reward  {outcome}")
        for part, value in info["verdict"].items():
            click.echo(f"        {plain(part)} {value:g}")
        if info["verdict_reason"]:
            click.echo(f"reason  {plain(str(info['verdict_reason']))}")
        if self.inner.problem.answer:
            click.echo(f"right   {quoted(self.inner.problem.answer)}")

    def _names(self) -> str:
        return " ".join(map(self.name, self.written))


def play_episodes(
    game: PlayedGame, onlooker: Onlooker | None, draw: Draw | None, seed: int, wanted: int | None
) -> dict[str, Any]:
    """Play `wanted` episodes, or until the user stops; return the result that --json prints.

    Args:
        game: the environment to play.
        onlooker: the policy, if any.
        draw: lets the policy play, which is shown; None for a user who types.
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


def _episode(game: PlayedGame, onlooker: Onlooker | None, draw: Draw | None, seed: int | None) -> dict[str, Any]:
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
            if choices is not None:  # what was typed need not be in the list
                click.echo(f"  {game.name(action)} had the probability {choices.probability(action):.3f}")
        observation, reward, over, cut, info = game.env.step(game.first + action)
        total += float(reward)
        game.played(action, float(reward), info)
    game.finish(total, info, cut)
    success = info.get("is_success")
    return {"reward": total, "steps": steps, "is_success": None if success is None else bool(success), "truncated": cut}


def _tell(game: PlayedGame, step: int, action: int, choices: Choices) -> None:
    """Show an action of the policy, and the likeliest others."""
    others = [(other, p) for other, p in choices.likeliest(4) if other != action and p > 0][:3]
    instead = "  ".join(f"{game.name(other)} {p:.3f}" for other, p in others)
    name, p = game.name(action), choices.probability(action)
    click.echo(f"  {step:>4}  {name:<11}  {p:11.3f}  {choices.entropy:14.3f}  {instead}".rstrip())


def _asked(game: PlayedGame, observation: Any, choices: Choices | None) -> list[int]:
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


def visible(text: str) -> str:
    """Return the text of a token with spaces as ·, line ends and the like escaped."""
    hidden = {each: each.encode("unicode_escape").decode() for each in text if unicodedata.category(each)[0] == "C"}
    return "".join(hidden.get(each, each) for each in text).replace(" ", "·")


def quoted(text: str) -> str:
    """Return a text in double quotes, on one line, with control characters spelled out."""
    return plain(json.dumps(text, ensure_ascii=False))
