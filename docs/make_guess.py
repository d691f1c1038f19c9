"""Draw how guesses change with training: docs/guess.svg, and the table of docs/guess.md.

    python docs/make_guess.py BEFORE AFTER [AFTER...]

Each is a run folder that `rlenv evaluate` has been in; docs/guess.md has the commands. The first AFTER is drawn.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
LARGEST, TURNS = 64, 7
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
Game = list[int]  # the guesses of an episode


def games_in(run: Path) -> list[tuple[bool, Game]]:
    """Return the greedy episodes of a run's only evaluation: whether the number was found, and the guesses."""
    files = sorted((run / "evaluations").glob("*.jsonl"))
    if len(files) != 1:
        raise SystemExit(f"{str(run)!r} has {len(files)} evaluations; run rlenv evaluate once")
    rows = [json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()]
    greedy = [row for row in rows if row["mode"] == "greedy"]
    return [(bool(row["success"]), [_number(turn["text"]) for turn in row["dialogue"]]) for row in greedy]


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0


def bisection() -> list[tuple[bool, Game]]:
    """Return the games of bisection, one for each number."""
    found = []
    for number in range(1, LARGEST + 1):
        low, high, game = 1, LARGEST, list[int]()
        while not game or game[-1] != number:
            game.append((low + high) // 2)
            low, high = (game[-1] + 1, high) if game[-1] < number else (low, game[-1] - 1)
        found.append((True, game))
    return found


def row_of(name: str, games: list[tuple[bool, Game]]) -> str:
    """Return a row of the table: the share of numbers found, and the mean turns of all games."""
    success = sum(found for found, _ in games) / len(games)
    turns = sum(len(game) for _, game in games) / len(games)
    first = Counter(game[0] for _, game in games).most_common(1)[0][0]
    return f"| {name} | {success:.3f} | {turns:.2f} | {first} |"


def draw(panels: dict[str, list[tuple[bool, Game]]], path: Path) -> None:
    """Draw the guesses by turn: a line is a guess after a guess, as thick as it is frequent."""
    from matplotlib import rcParams
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "rlenv"
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    FigureCanvasSVG(figure)
    every: Any = figure.subplots(1, len(panels), sharey=True)
    for axes, (title, games) in zip(every, panels.items(), strict=True):
        steps = Counter((turn, *pair) for _, game in games for turn, pair in enumerate(pairwise(game), 1))
        for (turn, before, after), count in steps.items():
            width = 0.3 + 12 * count / len(games)
            axes.plot([turn, turn + 1], [before, after], color="#0b7285", linewidth=width, alpha=0.6)
        ends = Counter((len(game), game[-1]) for found, game in games if found)
        axes.scatter(*zip(*ends, strict=True), s=9, color="#0b7285", zorder=3)
        axes.set(title=title, xlabel="turn", xlim=(0.8, TURNS + 0.2), ylim=(0, LARGEST + 1), xticks=range(1, TURNS + 1))
    every[0].set(ylabel="guess", yticks=[1, 16, 32, 48, 64])
    figure.savefig(path, metadata={"Date": None})


def main(runs: list[Path]) -> None:
    """Read the runs, draw the picture and write the table."""
    before, *after = (games_in(run) for run in runs)
    rows = ["| policy, 1,000 games, greedy | found | mean turns | first guess |", "|---|--:|--:|--:|"]
    rows.append(row_of("after the warm start", before))
    rows += [row_of(f"after reinforcement, seed {seed}", games) for seed, games in enumerate(after)]
    rows.append(row_of("bisection, every number once", bisection()))
    draw(
        {"after the warm start": before, "after reinforcement": after[0], "bisection": bisection()},
        FOLDER / "guess.svg",
    )
    page = FOLDER / "guess.md"
    text = page.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    lines = "\n".join(rows)
    page.write_text(f"{head}{BEGIN}{lines}\n{END}{rest.split(END)[1]}", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
