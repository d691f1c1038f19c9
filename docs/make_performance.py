"""Write the tables of benchmarks/results into the README and the pages of docs/ about speed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
IN_README = {  # in three rows: a benchmark, which of its rows, and what it is called there
    "GRPO on long prompts, against TRL": ("trl-prompt", 0),
    "GRPO on short answers, against TRL": ("trl-grpo", 0),
    "CartPole to a return of 475, against stable-baselines3's PPO": ("sb3", 0),
}
AGAINST_PEERS = (  # in docs/performance.md; the others are in docs/speed-results.md
    "trl-prompt", "trl-balanced", "trl-reasoning", "trl-30m", "trl-grpo", "trl-rloo", "trl-long", "generate",
    "sb3", "memory", "h200-decode", "h200-train",
)  # fmt: skip
DIALOGUES = ("replies", "slow-replies")  # in docs/tools.md
REAL = ("trl-smollm2", "trl-smollm2-story", "generate-smollm2")  # in docs/real-speed.md
PROFILE = "profile"  # in docs/speed-profile.md
MARKS = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return the rows of a benchmark; an empty list if it was not measured."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def table(names: tuple[str, ...], floors: bool) -> str:
    """Return the rows of these benchmarks as one markdown table, with the column "floor" or without it."""
    head = ["`rlenv bench`", "", "times better: median (range)", "ours", "peer", *["floor"] * floors, "unit", "quality"]
    lines = [head, ["---"] * len(head)]
    for name in names:
        for row in rows_of(name):
            ratio = f"{row['ratio']['median']:.2f} ({row['ratio']['min']:.2f} to {row['ratio']['max']:.2f})"
            floor = row.get("details", {}).get("floor")
            cells = [f"`{name}`", row["name"], ratio, f"{row['ours']:g}", f"{row['peer']:g}"]
            cells += [f"{floor:.4g}" if floor is not None else ""] * floors
            lines.append([*cells, row["unit"], row["quality"]])
        if not rows_of(name):
            lines.append([f"`{name}`", "", "not measured", *[""] * (len(head) - 3)])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def in_readme() -> str:
    """Return the few rows of the README, with three figures each."""
    lines = [["", "times faster", "rlenv", "the other"], ["---"] * 4]
    for label, (name, place) in IN_README.items():
        row = rows_of(name)[place]
        ratio, unit = row["ratio"], row["unit"].split("/")[0].split()[0]
        range_ = f"{ratio['median']:.1f} ({ratio['min']:.1f} to {ratio['max']:.1f})"
        lines.append([label, range_, f"{row['ours']:.3g} {unit}", f"{row['peer']:.3g} {unit}"])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def profile() -> str:
    """Return the milliseconds of the parts of each job's update, with their floors, as a markdown table."""
    named = {tuple(row["name"].split(": ", 1)): row for row in rows_of(PROFILE)}
    jobs, parts = (list(dict.fromkeys(key[place] for key in named)) for place in (0, 1))
    lines = [["part", *(f"`{job}`" for job in jobs)], ["---", *["--:"] * len(jobs)]]
    for part in parts:
        found = [named[job, part] for job in jobs]
        floors = [f" / {row['details']['floor']:.4g}" if "floor" in row["details"] else "" for row in found]
        lines.append([part, *(f"{row['ours']:.4g}{floor}" for row, floor in zip(found, floors, strict=True))])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def page(text: str, written: str) -> str:
    """Return a page with this table between its marks."""
    if not MARKS.search(text):
        raise ValueError("the page has no lines <!-- results --> and <!-- end of results -->; add them")
    return MARKS.sub(lambda found: found[1] + written + found[2], text)


def pages() -> dict[Path, str]:
    """Return the pages with the tables of the present results."""
    elsewhere = {*AGAINST_PEERS, *DIALOGUES, *REAL, PROFILE}
    others = tuple(path.stem for path in sorted(RESULTS.glob("*.json")) if path.stem not in elsewhere)
    tables = {
        ROOT / "README.md": in_readme(),
        ROOT / "docs" / "performance.md": table(AGAINST_PEERS, floors=True),
        ROOT / "docs" / "real-speed.md": table(REAL, floors=True),
        ROOT / "docs" / "tools.md": table(DIALOGUES, floors=False),
        ROOT / "docs" / "speed-results.md": table(others, floors=False),
        ROOT / "docs" / "speed-profile.md": profile(),
    }
    return {path: page(path.read_text(encoding="utf-8"), written) for path, written in tables.items()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
