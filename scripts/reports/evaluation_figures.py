"""From the figures of an evaluation to a line or a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table in Markdown with a column per run and a row per figure; intervals in brackets."""
    columns = [_cells(figures) for figures in results.values()]
    titles = dict.fromkeys(title for cells in columns for title in cells)
    lines = [["", *results], *([title, *(cells.get(title, "-") for cells in columns)] for title in titles)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    return "\n".join([rows[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rows[1:]])


def describe(figures: Mapping[str, Any]) -> str:
    """Return an evaluation in one line."""
    cells = _cells(figures)
    if problems := cells.pop("problems", ""):
        of = ", verdicts on" if figures.get("unjudged_problems") else " of"
        problems = f"{of} {problems} problem{'s' * (problems != '1')}"
    mode = "greedy" if figures["deterministic"] else "sampled"
    split = f", {figures['split']} split" if figures["split"] else ""
    values = ", ".join(f"{title} {cell}" for title, cell in cells.items())
    failed = f" and {figures['failed']} without a verdict" if "failed" in figures else ""
    return f"{values}  ({figures['episodes']} episodes{failed}{problems}, {mode}{split})"


def _cells(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of an evaluation as texts, by title."""
    sampled = figures.get("sampled", {})
    known = f" (known of {figures['success_known']:.0%})" if "success_known" in figures else ""
    problems, without = figures.get("problems"), figures.get("unjudged_problems")
    success = _interval(figures.get("success_rate"), figures.get("success_interval"))
    cells = {
        "problems": f"{problems - without} of {problems}" if problems and without else problems,
        "success": None if success is None else success + known,
        "instructions followed": _interval(figures.get("instruction_success"), None),
        "mean reward": f"{figures['mean_reward']:.3f}",
        "mean length": f"{figures['mean_ep_length']:.1f}",
        "mean turns": f"{figures['mean_turns']:.2f}" if "mean_turns" in figures else None,
        "truncated": f"{figures['truncated_share']:.3f}" if "truncated_share" in figures else None,
        "sampled success": _interval(sampled.get("success_rate"), sampled.get("success_interval")),
    }
    for name in ("pass", "maj"):
        for k, part in sampled.get(f"{name}_at_k", {}).items():
            cells[f"{name}@{k}"] = _interval(part["value"], (part["low"], part["high"]))
    for number, part in figures.get("by_turns", {}).items():
        if part["success_rate"] is not None:
            cells[f"success in {number} turns"] = f"{part['success_rate']:.3f} of {part['episodes']}"
    return {title: str(cell) for title, cell in cells.items() if cell is not None}


def _interval(value: float | None, interval: Sequence[float] | None) -> str | None:
    if value is None:
        return None
    return f"{value:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")
