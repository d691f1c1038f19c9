"""Write the tables from benchmarks/results, in README.md and docs/results.md: python docs/make_performance.py."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rlenv._benchmarks.record import TASKS, median, times_as_long
from rlenv._benchmarks.tables import ROWS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
IN_README = {  # in five rows: a benchmark, which of its rows, and what it is called there
    "GRPO on long prompts, against TRL": ("trl-prompt", 0),
    "GRPO, a model of 31 million weights, against TRL": ("trl-30m", 0),
    "GRPO on short answers, against TRL": ("trl-grpo", 0),
    "GRPO on answers of unequal length, against TRL": ("trl-long", 0),
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


def text_scores(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of text: success of each seed before and after."""
    lines = [["task", "model", "`rlenv train`", "before", "after", "processor minutes", "measured"]]
    for name, row in ROWS.items():
        if row.model and name in rows:
            found = rows[name]
            before, after = (", ".join(f"{score:.3f}" for score in found[when]) for when in ("before", "after"))
            minutes = _range([seconds / 60 for seconds in found.get("processor_seconds", ())])
            lines.append([row.what, row.model, _options(name), before, after, minutes, _day(found)])
    return table(lines)


def control_scores(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of control: the mean reward over the seeds after training, with its range, beside the zoo's."""
    lines = [["environment", "`rlenv train`", "the zoo", "after", "steps", "processor seconds", "measured"]]
    for name, row in ROWS.items():
        if not row.model and name in rows:
            found, after = rows[name], rows[name]["after"]
            mean = f"{fmean(after):.1f} ({min(after):.1f} to {max(after):.1f})"
            taken = [f"{median(found['steps']):,.0f}", f"{median(found['processor_seconds']):.0f}"]
            lines.append([f"`{row.what}`", _options(name), row.zoo, mean, *taken, _day(found)])
    return table(lines)


def _options(name: str) -> str:
    """Return the options of a row as the page shows them: in full if they are few, else a link to them."""
    row = ROWS[name]
    config = re.match(r"--config \S+( --agent \S+)?", row.train)
    if not config and len(row.train) > 60:
        return f"[options]({row.link})"
    return f"`{config[0] if config else row.train}`" if row.train else "none (`make demo`)"


def _range(values: Sequence[float]) -> str:
    """Return the smallest and the largest of some figures without decimals; empty for none."""
    ends = dict.fromkeys(f"{end:.0f}" for end in (min(values), max(values))) if values else ()
    return " to ".join(ends)


def _day(row: Mapping[str, Any]) -> str:
    """Return the day of a measurement in words."""
    return f"{datetime.date.fromisoformat(row['date']):%-d %B}"


def table(lines: list[list[str]]) -> str:
    """Return a table of Markdown, whose first line is its head."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [lines[0], ["---"] * len(lines[0]), *lines[1:]])


def pages() -> dict[Path, str]:
    """Return the pages with the tables of the present results."""
    kept, scores = (json.loads((RESULTS / name).read_text("utf-8")) for name in ("records.json", "scores.json"))
    readme, results = ROOT / "README.md", ROOT / "docs" / "results.md"
    of_results = {"records": records(kept), "text": text_scores(scores), "control": control_scores(scores)}
    text = results.read_text(encoding="utf-8")
    for name, lines in of_results.items():
        text = written(text, name, lines)
    return {readme: written(readme.read_text(encoding="utf-8"), "results", speed()), results: text}


def written(text: str, name: str, lines: str) -> str:
    """Return a page with these lines between the marks of this name."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    return marks.sub(lambda found: found[1] + lines + found[2], text)


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
