"""An episode as a player sees it: what is on the screen, and what a typed line means. Text and control."""

from __future__ import annotations

import json
import os
import string
from collections.abc import Mapping
from typing import Any, cast

import click
import numpy as np
from gymnasium import Env, spaces

from agents.rollouts.action_probabilities import Choices
from rlenv.picture import token_text

from .terminal import plain

QUIT, HELP, END = "/quit", "/help", "/end"
MORE = f"{QUIT} stops, {HELP} repeats this."
BAR = 20  # characters of the bar of a probability of 1
VIEW, POLE = 61, 6  # columns between the ends of CartPole's track, rows of the pole
LEANS = 0.2  # columns per row from which on the pole is drawn as a slash
LETTERS = string.ascii_lowercase  # choose from a list


class TextGame:
    """TextGen-v0: an action is a token. If there is a policy, its `top` likeliest ones are `listed`."""

    first = 0  # the number of the first action

    def __init__(self, env: Env, top: int, listed: bool) -> None:
        self.inner = cast(Any, env.unwrapped)
        self.task, self.top = self.inner.task, top
        letters = "a letter chooses from the list, Enter takes the first, other lines are text"
        choosing = letters if listed else "a line is text"
        literal = '"a is the text a, ' if listed else ""
        self.help = f"Type tokens: {choosing}.\n{literal}#17 is token 17, {END} the end token; {MORE}"
        self._written: list[int] = []  # in this turn

    def begin(self, info: Mapping[str, Any]) -> None:
        """Show the start of an episode."""
        self._written = []
        show(f"prompt  {quoted(info['prompt'])}", bold=True)
        turns = "" if self.task.dialogues is None else f" per turn, {self.task.encoding.max_turns} turns"
        show(f"        at most {self.task.max_new_tokens} tokens{turns}")

    def offer(self, observation: Any, choices: Choices | None) -> None:
        """Show what can be chosen now: the likeliest tokens, each after its letter."""
        if self._written:
            show(f"so far  {self._names()}")
        listed = [] if choices is None else [(self.name(token), p) for token, p in choices.likeliest(self.top)]
        width = max((len(name) for name, _ in listed), default=0)
        for letter, (name, p) in zip(LETTERS, listed, strict=False):
            show(f"    {letter}  {name:<{width}}  {p:6.3f}  {'#' * round(BAR * p)}".rstrip())

    def parse(self, line: str, choices: Choices | None) -> list[int]:
        """Return the tokens that a line stands for; a `ValueError` of one line if it stands for none."""
        if line == END:
            return [self.task.encoding.end_token(self.inner.problem)]
        if line[:1] == "#" and len(line) > 1:
            return [_whole(line[1:], 0, self.task.vocab_size - 1, "a token")]
        if choices is not None and len(line) == 1 and line in LETTERS:
            listed = dict(zip(LETTERS, choices.likeliest(self.top), strict=False))
            if line not in listed:
                raise ValueError(f"{quoted(line)} is not a letter of the list; allowed: a to {max(listed)}")
            return [listed[line][0]]
        text = line[1:].removesuffix('"') if line[:1] == '"' else line
        tokens = self.task.encoder.spell("answer", [text])[0] if text else []
        if not tokens:
            raise ValueError(f"{quoted(line)} has no tokens; {self.help}")
        return list(tokens)

    def name(self, action: int) -> str:
        """Return how a token is shown."""
        text = token_text(self.task.tokenizer, action)
        return text if action in self.task.tokenizer.all_special_ids else quoted(text)

    def played(self, action: int, reward: float, info: Mapping[str, Any]) -> None:
        """Keep what was played; show the reply to a turn, and what it earned."""
        self._written.append(action)
        if "reply" in info:
            show(f"turn    {quoted(str(info['turn']))}")
            show(f"reply   {quoted(str(info['reply']))}" + (f"  (reward {reward:g})" if reward else ""), bold=True)
            self._written = []

    def finish(self, reward: float, info: Mapping[str, Any], cut: bool) -> None:
        """Show the reward and its parts."""
        left = "token" if self.task.dialogues is None else "turn or token"
        if "turns" in info:
            show(f"turns   {info['turns']}")
        show(f"answer  {self._names()}" + (f"  (cut: no {left} is left)" if cut else ""))
        ok = info["verdict_status"] == "ok"
        said = f"{reward:g}  {'solved' if info['is_success'] else 'not solved'}" if ok else info["verdict_status"]
        show(f"reward  {said}", fg="green" if info["is_success"] else "red" if ok else "yellow")
        for part, value in info["verdict"].items():
            show(f"        {plain(part)} {value:g}")
        if info["verdict_reason"]:
            show(f"reason  {plain(str(info['verdict_reason']))}")
        if self.inner.problem.answer:
            show(f"right   {quoted(self.inner.problem.answer)}")

    def _names(self) -> str:
        return " ".join(map(self.name, self._written))


class ControlGame:
    """An environment with discrete actions: CartPole is drawn, others are shown as their text or their numbers."""

    def __init__(self, env: Env) -> None:
        if not isinstance(env.action_space, spaces.Discrete):
            name = env.spec.id if env.spec else type(env.unwrapped).__name__
            raise ValueError(f"{name} has actions in {env.action_space}; play supports discrete actions")
        self.env, self.first = env, int(env.action_space.start)
        self.last = self.first + int(env.action_space.n) - 1
        self.is_pole = type(env.unwrapped).__name__ == "CartPoleEnv"
        push = " (0 pushes left, 1 right)" if self.is_pole else ""
        self.help = f"Type an action, {self.first} to {self.last}{push}, or several in a line. {MORE}"
        self._steps = 0

    def begin(self, info: Mapping[str, Any]) -> None:
        """Count the steps of a new episode."""
        self._steps = 0

    def offer(self, observation: Any, choices: Choices | None) -> None:
        """Show where the environment is, and what the policy would do."""
        if self.env.render_mode == "ansi":
            show(str(self.env.render()).rstrip("\n"))
        else:
            drawn = cartpole(self.env.unwrapped, observation) if self.is_pole else []
            with np.printoptions(precision=3, sign="+", suppress=True):
                show("\n".join([*drawn, f"step {self._steps}  observation {observation}"]))
        if choices is not None:
            actions = range(len(choices.log_probs))
            show("policy  " + "  ".join(f"{self.name(action)} {choices.probability(action):.3f}" for action in actions))

    def parse(self, line: str, choices: Choices | None) -> list[int]:
        """Return the actions that a line stands for, counted from 0; a `ValueError` of one line if there are none."""
        if not line.strip():
            raise ValueError(f"nothing was typed; {self.help}")
        return [_whole(word, self.first, self.last, "an action") - self.first for word in line.split()]

    def name(self, action: int) -> str:
        """Return how an action is shown."""
        return str(self.first + action)

    def played(self, action: int, reward: float, info: Mapping[str, Any]) -> None:
        """Count the step."""
        self._steps += 1

    def finish(self, reward: float, info: Mapping[str, Any], cut: bool) -> None:
        """Show the return."""
        show(f"over    after {self._steps} steps" + (" (the time is up)" if cut else ""))
        show(f"return  {reward:g}", bold=True)


def show(text: str = "", **style: Any) -> None:
    """Print lines; click removes the color where standard output is not a terminal."""
    click.echo(click.style(text, **style) if style and not os.environ.get("NO_COLOR") else text)


def quoted(text: str) -> str:
    """Return a text in double quotes, on one line, with control characters spelled out."""
    return plain(json.dumps(text, ensure_ascii=False))


def cartpole(env: Any, observation: Any) -> list[str]:
    """Return CartPole as characters, at its true angle: a character is about twice as high as it is wide.

    The observation holds position (m), velocity, angle (rad), angular velocity.
    """
    place, _, angle, _ = map(float, observation)
    cart = 1 + round((place / env.x_threshold + 1) / 2 * (VIEW - 1))  # its column
    lean = 2 * angle  # columns per row, for angles as small as those that end an episode
    stick = "|" if abs(lean) < LEANS else "/" if lean > 0 else "\\"
    rows = [" " * (cart + round(lean * row)) + stick for row in range(POLE, 0, -1)]
    return [*rows, " " * (cart - 1) + "[=]", "-" * (VIEW + 2)]


def _whole(text: str, low: int, high: int, what: str) -> int:
    """Return a whole number in a range; a ValueError in one line else."""
    if text not in map(str, range(low, high + 1)):
        raise ValueError(f"{quoted(text)} is not {what}; allowed: {low} to {high}")
    return int(text)
