"""Makes word problems as conversations: `python make_problems.py problems.jsonl`.

Each line is a problem of the shape of GSM8K: a question of one or two steps, and an answer that shows the steps and
ends with `#### NUMBER`. Numbers, names and things are drawn at random with a seed; the question's numbers decide
whether it belongs to training or test, so that no test problem is a training problem with another name in it.
"""

from __future__ import annotations

import argparse
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("Ann", "Ben", "Carla", "David", "Eva", "Finn", "Grace", "Hugo", "Ida", "Jon")
THINGS = ("apples", "books", "coins", "eggs", "marbles", "pens", "shells", "stamps")
Numbers = tuple[int, ...]


def _gains(a: int, b: int, c: int) -> tuple[str, str]:
    return "{name} has {a} {things} and finds {b} more.", f"{a}+{b}={a + b}"


def _loses(a: int, b: int, c: int) -> tuple[str, str]:
    return "{name} has {t} {things} and gives away {b}.", f"{a + b}-{b}={a}"


def _gains_twice(a: int, b: int, c: int) -> tuple[str, str]:
    return "{name} has {a} {things}, finds {b} and buys {c}.", f"{a}+{b}={a + b}, {a + b}+{c}={a + b + c}"


def _gains_and_loses(a: int, b: int, c: int) -> tuple[str, str]:
    return "{name} has {a} {things}, finds {u} and loses {c}.", f"{a}+{b + c}={a + b + c}, {a + b + c}-{c}={a + b}"


STORIES: tuple[tuple[Callable[[int, int, int], tuple[str, str]], int], ...] = (
    (_gains, 1),
    (_loses, 1),
    (_gains_twice, 2),
    (_gains_and_loses, 2),
)


def problem(rng: random.Random, largest: int, steps: int = 2) -> dict[str, Any]:
    """Return one problem: its conversation, its worked answer, its level (number of steps) and its split.

    Args:
        rng: what decides.
        largest: of the numbers in the question.
        steps: the most steps of a solution, 1 or 2.
    """
    story, level = rng.choice([each for each in STORIES if each[1] <= steps])
    a, b, c = (rng.randint(1, largest) for _ in range(3))
    text, working = story(a, b, c)
    question = text.format(name=rng.choice(NAMES), things=rng.choice(THINGS), a=a, b=b, c=c, t=a + b, u=b + c)
    numbers = f"{story.__name__} {a} {b} {c if level == 2 else ''}"
    return {
        "prompt": [{"role": "user", "content": f"{question} How many are there now?"}],
        "answer": f"{working} #### {working.rpartition('=')[2]}",
        "level": level,
        "split": "test" if zlib.crc32(numbers.encode()) % 5 == 0 else "train",
    }


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--largest", type=int, default=20, help="of the numbers in a question")
    parser.add_argument("--steps", type=int, choices=(1, 2), default=2, help="of a solution, at most")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    lines = [json.dumps(problem(rng, given.largest, given.steps)) for _ in range(given.count)]
    given.file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
