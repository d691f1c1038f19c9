"""Episodes of `rlenv play`: a person or a policy chooses, the environment answers, and both are shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
import gymnasium as gym
import torch

from agents.rollouts.action_probabilities import Choices, Onlooker

from ...console.terminal import interactive
from .film import Film
from .games import HELP, QUIT, UNDO, ControlGame, TextGame
from .screen import show

Game = TextGame | ControlGame


class StoppedError(Exception):
    """Somebody wants to stop, or the input has ended."""


@dataclass(frozen=True)
class TakeBack:
    """Somebody takes back so many actions."""

    count: int


@dataclass(frozen=True)
class Played:
    """An episode that was played to its end."""

    reward: float
    steps: int
    is_success: bool | None
    truncated: bool
    picture: str | None


class Person:
    """Reads actions from standard input, a terminal or a pipe.

    Args:
        game: shows what can be chosen, and reads the lines.
    """

    def __init__(self, game: Game) -> None:
        self.game = game
        self._waiting: list[int] = []  # actions of the last line
        self._lines: list[int] = []  # how many actions each line of this episode had

    def start(self) -> None:
        """Forget the lines of the last episode."""
        self._waiting, self._lines = [], []

    def choose(self, observation: Any, choices: Choices | None) -> int | TakeBack:
        """Return the next action, or how many are taken back; a line may hold several.

        Raises:
            StoppedError: at the end of the input, or if the person wants to stop.
        """
        if not self._waiting:
            self.game.offer(observation, choices)
        while not self._waiting:
            line = read("> ")
            if line.strip() == HELP:
                show(self.game.help)
                continue
            try:
                if line.strip() == UNDO:
                    return self._take_back()
                self._waiting = self.game.parse(line, choices)
                self._lines.append(len(self._waiting))
            except ValueError as error:
                show(f"  {error}")
        action = self._waiting.pop(0)
        if choices is not None and isinstance(self.game, TextGame):  # a typed text need not be in the list
            show(f"  {self.game.name(action)} had the probability {choices.probability(action):.3f}")
        return action

    def _take_back(self) -> TakeBack:
        """Return the actions of the last line.

        Raises:
            ValueError: if there is none, or the environment cannot go back.
        """
        if not isinstance(self.game, TextGame):
            raise ValueError("actions of this environment cannot be taken back")
        if not self._lines:
            raise ValueError("nothing to take back")
        return TakeBack(self._lines.pop())


class Watched:
    """A policy whose choices are shown, one line per step; control on a terminal is animated.

    Args:
        game: names the actions.
        deterministic: whether it takes the likeliest action instead of drawing one.
        seed: of the drawing.
        pause: seconds between two pictures on a terminal.
    """

    def __init__(self, game: Game, deterministic: bool, seed: int, pause: float) -> None:
        self.game, self.deterministic, self.pause = game, deterministic, pause
        self.generator = torch.Generator().manual_seed(seed)
        self.animated = isinstance(game, ControlGame) and interactive(sys.stdout)
        self._step = 0

    def start(self) -> None:
        """Count the steps of a new episode."""
        self._step = 0
        if not self.animated:
            show("  step  action       probability  entropy (nats)  instead", underline=True)

    def choose(self, observation: Any, choices: Choices | None) -> int:
        """Return what the policy chooses, and show it."""
        assert choices is not None
        self._step += 1
        if self.animated and isinstance(self.game, ControlGame):
            click.clear()
            for line in self.game.picture(observation):
                show(line)
            time.sleep(self.pause)
        action = choices.draw(self.deterministic, self.generator)
        others = [(other, p) for other, p in choices.likeliest(4) if other != action and p > 0][:3]
        instead = "  ".join(f"{self.game.name(other)} {p:.3f}" for other, p in others)
        name, p = self.game.name(action), choices.probability(action)
        show(f"  {self._step:>4}  {name:<11}  {p:11.3f}  {choices.entropy:14.3f}  {instead}".rstrip())
        return action


def read(prompt: str) -> str:
    """Return a line of standard input; in a pipe it is printed too, so that the output can be read alone.

    Raises:
        StoppedError: for a line that asks to stop, and at the end of the input.
    """
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


def episodes(
    env: gym.Env, game: Game, player: Person | Watched, onlooker: Onlooker | None, film: Film | None, seed: int
) -> Iterator[Played]:
    """Play episodes without end; the problems, or the starts, are those of the seed."""
    number, start_seed = 0, seed
    while True:
        number += 1
        show(f"\nepisode {number}", bold=True)
        yield _episode(env, game, player, onlooker, film, start_seed if number == 1 else None)


def _episode(
    env: gym.Env, game: Game, player: Person | Watched, onlooker: Onlooker | None, film: Film | None, seed: int | None
) -> Played:
    observation, info = game.start(seed)
    game.begin(observation, info)
    player.start()
    if onlooker is not None:
        onlooker.start()
    if film is not None:
        film.start()
    total, steps, terminated, truncated = 0.0, 0, False, False
    while not (terminated or truncated):
        action = player.choose(observation, None if onlooker is None else onlooker.look(observation))
        if isinstance(action, TakeBack):
            assert isinstance(game, TextGame)
            observation, steps = game.take_back(action.count), steps - action.count
            if onlooker is not None:
                onlooker.start()
            if film is not None:
                film.drop(action.count)
            continue
        observation, reward, terminated, truncated, info = env.step(game.first + action)
        total, steps = total + float(reward), steps + 1
        game.played(action, float(reward), info)
        if film is not None:
            film.take()
    game.finish(total, info, truncated)
    picture = None if film is None else str(film.save())
    if picture is not None:
        show(f"picture {picture}")
    success = info.get("is_success")
    return Played(total, steps, None if success is None else bool(success), truncated, picture)


def summary(played: list[Played], ended: str) -> dict[str, Any]:
    """Return the result of a session, for --json."""
    judged = [one.is_success for one in played if one.is_success is not None]
    return {
        "episodes": len(played),
        "mean_reward": sum(one.reward for one in played) / len(played) if played else None,
        "success_rate": sum(judged) / len(judged) if judged else None,
        "ended": ended,
        "played": [asdict(one) for one in played],
    }
