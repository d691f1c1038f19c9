"""What `rlenv play` prints: lines of plain text, with a little color on a terminal (never with NO_COLOR set)."""

from __future__ import annotations

import json
import os
import string
from collections.abc import Sequence
from typing import Any

import click

from ...console.terminal import plain

BAR = 20  # characters of the bar of a probability of 1
VIEW, POLE = 61, 6  # columns between the ends of CartPole's track, rows of the pole
LETTERS = string.ascii_lowercase  # choose from a list
LEANS = 0.2  # columns per row from which on the pole is drawn as a slash


def show(text: str = "", **style: Any) -> None:
    """Print a line; click removes the color where standard output is not a terminal."""
    click.echo(click.style(text, **style) if style and not os.environ.get("NO_COLOR") else text)


def quoted(text: str) -> str:
    """Return a text in double quotes, on one line, with control characters spelled out."""
    return plain(json.dumps(text, ensure_ascii=False))


def table(names: Sequence[str], probabilities: Sequence[float]) -> list[str]:
    """Return a list of actions with their probabilities, each after its letter."""
    width = max(map(len, names))
    return [
        f"    {letter}  {name:<{width}}  {probability:6.3f}  {'#' * round(BAR * probability)}".rstrip()
        for letter, name, probability in zip(LETTERS, names, probabilities, strict=False)
    ]


def cartpole(env: Any, observation: Any) -> list[str]:
    """Return CartPole as characters, at its true angle: a character is about twice as high as it is wide.

    Args:
        env: Gymnasium's CartPoleEnv, which knows where the track ends.
        observation: position (m), velocity, angle (rad), angular velocity.
    """
    place, _, angle, _ = map(float, observation)
    ends = float(env.x_threshold)
    cart = round((place + ends) / (2 * ends) * (VIEW - 1))
    lean = 2 * float(angle)  # columns per row, for angles as small as those that end an episode
    stick = "|" if abs(lean) < LEANS else "/" if lean > 0 else "\\"
    rows = [_line({cart + round(lean * row): stick}) for row in range(POLE, 0, -1)]
    rows.append(_line({cart - 1: "[", cart: "=", cart + 1: "]"}))
    return [*rows, "-" * (VIEW + 2)]


def _line(marks: dict[int, str]) -> str:
    return "".join(marks.get(column, " ") for column in range(-1, VIEW + 1)).rstrip()
