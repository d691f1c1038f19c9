"""Write the tables of benchmarks/results into README.md and docs/performance.md: python docs/make_performance.py."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
WANTED = {  # name: the least ratio that was asked for, and the one dreamt of
    "trl-grpo": "4 (8)", "trl-rloo": "4 (9)", "trl-long": "2 (3)", "generate": "1.3 / 1.2 / 1.2 (3 / 2 / 1.8)",
    "refill": "1.7", "sb3": "15 (50)", "h200-decode": "4 (8)", "h200-train": "2 (6)",
}  # fmt: skip
IN_README = ("trl-grpo", "trl-rloo", "trl-long", "generate", "refill", "sb3", "memory", "h200-decode", "h200-train")
MARKS = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return the rows of a benchmark, none where it was not measured."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def table(names: tuple[str, ...]) -> str:
    """Return the benchmarks in one table."""
    lines = ["| `rlenv bench` | | times better: median (min to max) | wanted | ours | peer | floor | unit | quality |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for name in names:
        wanted = WANTED.get(name, "")
        for row in rows_of(name):
            ratio = f"{row['ratio']['median']:.2f} ({row['ratio']['min']:.2f} to {row['ratio']['max']:.2f})"
            floor = row.get("details", {}).get("floor")
            figures = f"{row['ours']:g} | {row['peer']:g} | {'' if floor is None else f'{floor:.4g}'} | {row['unit']}"
            lines.append(f"| `{name}` | {row['name']} | {ratio} | {wanted} | {figures} | {row['quality']} |")
        if not rows_of(name):
            lines.append(f"| `{name}` | | not measured | {wanted} | | | | | |")
    return "\n".join(lines) + "\n"


def page(text: str, names: tuple[str, ...]) -> str:
    """Return a page with its table as the results are now."""
    assert MARKS.search(text), "the page has no place for the results"
    return MARKS.sub(lambda found: found[1] + table(names) + found[2], text)


def pages() -> dict[Path, str]:
    """Return every page as it should be."""
    every = tuple(path.stem for path in sorted(RESULTS.glob("*.json")) if path.stem not in IN_README)
    wanted = {ROOT / "README.md": IN_README, ROOT / "docs" / "performance.md": (*IN_README, *every)}
    return {path: page(path.read_text(encoding="utf-8"), names) for path, names in wanted.items()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
