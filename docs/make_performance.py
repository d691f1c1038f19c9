"""Write the tables from benchmarks/results, in the README and of the records: python docs/make_performance.py."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlenv._benchmarks.record import TASKS, median, times_as_long

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
IN_README = {  # in three rows: a benchmark, which of its rows, and what it is called there
    "GRPO on long prompts, against TRL": ("trl-prompt", 0),
    "GRPO on short answers, against TRL": ("trl-grpo", 0),
    "CartPole to a return of 475, against stable-baselines3's PPO ¹": ("sb3", 0),
}


def speed() -> str:
    """Return the few rows of the README, with three figures each."""
    lines = [["", "times faster", "rlenv", "the other"]]
    for label, (name, place) in IN_README.items():
        row = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))[place]
        ratio, unit = row["ratio"], row["unit"].split("/")[0].split()[0]
        range_ = f"{ratio['median']:.1f} ({ratio['min']:.1f} to {ratio['max']:.1f})"
        lines.append([label, range_, f"{row['ours']:.3g} {unit}", f"{row['peer']:.3g} {unit}"])
    return table(lines)


def records(rows: Mapping[str, list[Mapping[str, Any]]]) -> str:
    """Return the table of the records, oldest first, with a line for each task that has none yet."""
    lines = [
        [
            "task",
            "goal",
            "seconds: median (each seed)",
            "times as long as the one before",
            "commit",
            "date",
            "processor",
        ]
    ]
    for name, task in TASKS.items():
        for row in rows.get(name, []):
            each = ["missed" if taken is None else f"{taken:.3g}" for taken in row["seconds"]]
            taken = f"{median(row['seconds']):.3g} ({', '.join(each)})"
            beside = [f"{times_as_long(row['seconds'], other['seconds']):.2f}" for other in row["before"]]
            where = [row["commit"], row["date"], row["machine"]["processor"]]
            lines.append([f"`{name}`", f"{task.goal:g}", taken, *(beside or [""]), *where])
        if not rows.get(name):
            lines.append([f"`{name}`", f"{task.goal:g}", "none yet", "", "", "", ""])
    return table(lines)


def table(lines: list[list[str]]) -> str:
    """Return a table of Markdown, whose first line is its head."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [lines[0], ["---"] * len(lines[0]), *lines[1:]])


def pages() -> dict[Path, str]:
    """Return the pages with the tables of the present results."""
    kept = RESULTS / "records.json"
    rows = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    tables = {ROOT / "README.md": ("results", speed()), ROOT / "docs" / "results.md": ("records", records(rows))}
    return {page: written(page.read_text(encoding="utf-8"), *each) for page, each in tables.items()}


def written(text: str, name: str, lines: str) -> str:
    """Return a page with these lines between the marks of this name."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    return marks.sub(lambda found: found[1] + lines + found[2], text)


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
