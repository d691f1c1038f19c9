"""The report of a comparison: report.json, report.md, curves.png and report.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .reports import page
from .reports.curves import draw, figure_size, merge_panels, read_panels
from .reports.plots import save_figure
from .reports.statistics import Row, tabulate, worse
from .run import CSV, write_json

CURVES = "curves.png"


def write_report(
    folder: Path,
    given: Mapping[str, Any],
    text: bool,
    agents: Sequence[str],
    results: Sequence[Mapping[str, Any]],
    failed: list[dict[str, Any]],
) -> dict[str, Any]:
    """Write the four files; return what is in report.json.

    Args:
        folder: of the comparison.
        given: its options.
        text: whether the environment is text.
        agents: by name, in the order of the table.
        results: result.json of each finished run.
        failed: agent, seed, exit code and error of the runs that failed.
    """
    with_success = all(result["eval"]["success_rate"] is not None for result in results)
    figure = "success_rate" if text and with_success else "mean_reward"
    goal = None if text else given["stop_reward"]
    runs = [_facts(result, figure) for result in results]
    rows = tabulate(runs, agents, goal, text)
    report = {
        "run_dir": str(folder),
        "env": given["env_id"],
        "figure": figure,
        "goal": goal,
        "rows": [asdict(row) for row in rows],
        "runs": runs,
        "failed": failed,
    }
    write_json(folder / "report.json", report)
    win = "better than before" if text else "goal" if goal is None else f"reached {goal:g}"
    table = as_markdown(rows, figure.replace("_", " "), win, digits=3 if text else 1)
    unit, label = ("episodes", "episodes") if given["episodes"] else ("total_timesteps", "time steps")
    losses = [line for agent in agents if (line := _loss(agent, [run for run in runs if run["agent"] == agent]))]
    files = {agent: [Path(run["run_dir"], CSV) for run in runs if run["agent"] == agent] for agent in agents}
    curves = read_panels(files, f"time/{unit}")
    drawn = merge_panels(curves)
    same = [names for names in drawn.values() if len(names) > 1]
    (folder / "report.md").write_text(_page(table, given, text, [*losses, *_failures(failed)], same), encoding="utf-8")
    if given["figures"]:
        size = figure_size(len(drawn))
        save_figure(lambda sheet: draw(sheet, curves, drawn, label), folder / CURVES, size)
    if given["figures"] and runs:
        page.write_report([folder], folder / page.NAME)
    return report


def _facts(result: Mapping[str, Any], figure: str) -> dict[str, Any]:
    """Return what report.json holds about a run, whose evaluations are compared by `figure`."""
    return {
        "agent": result["agent"],
        "seed": result["seed"],
        "initial": result["initial_eval"][figure],
        "final": result["eval"][figure],
        "worse": worse(result["initial_eval"], result["eval"]),
        **{name: result[name] for name in ("timesteps", "episodes", "updates", "seconds", "run_dir")},
    }


def as_markdown(rows: Sequence[Row], figure: str, win: str, digits: int) -> str:
    """Return the table in Markdown.

    Args:
        rows: from `tabulate`.
        figure: what is compared, such as "success".
        win: heading of the column that counts wins.
        digits: of the figures.
    """
    lines = [
        f"| agent | runs | {figure}, IQM | 95 % interval | min | max | {win} | seconds | time steps |",
        "|---|--:|--:|:-:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        iqm, low, high, least, most = (
            f"{value:.{digits}f}" for value in (row.iqm, row.low, row.high, row.min, row.max)
        )
        wins = "-" if row.wins is None else f"{row.wins} of {row.runs}"
        seconds = "-" if row.seconds is None else f"{row.seconds:.1f}"
        steps = "-" if row.timesteps is None else f"{row.timesteps:,.0f}"
        cells = (row.agent, row.runs, iqm, f"{low} to {high}", least, most, wins, seconds, steps)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _loss(agent: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """Return which of an agent's runs end worse than they began; empty if none does."""
    lost = [f"seed {run['seed']}: {run['worse']}" for run in runs if run["worse"]]
    return f"- {agent} is worse than before in {len(lost)} of {len(runs)} runs: {'; '.join(lost)}" if lost else ""


def _failures(failed: list[dict[str, Any]]) -> list[str]:
    return [
        f"- failed with exit code {run['exit_code']}: {run['agent']}, seed {run['seed']}: `{run['error']}`"
        for run in failed
    ]


def _page(table: str, given: Mapping[str, Any], text: bool, notes: list[str], same: list[list[str]]) -> str:
    budget = next(f"{given[unit]:,} {unit}" for unit in ("episodes", "timesteps") if given[unit])
    world = given["env_id"] + (f" ({given['verifier']})" if text else "")
    most = "" if given["stop_reward"] is None else "at most "
    lines = [
        f"# {world}, {most}{budget} per run",
        "",
        table,
        "IQM: interquartile mean over the runs (one per seed) of the greedy evaluation after training, with its 95 %",
        "percentile bootstrap interval. Seconds and time steps are medians over the trainings.",
        "",
    ]
    lines += notes
    lines += [f"The runs of {' and '.join(names)} are the same, step by step, at these settings.\n" for names in same]
    lines += [f"![Curves]({CURVES})"] if given["figures"] else []
    return "\n".join(lines) + "\n"
