"""The report of a comparison: report.json, report.md and report.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .arguments import is_text
from .reports import page
from .reports.statistics import tabulate, worse
from .run import REPORT, write_json


def write_report(
    folder: Path,
    given: Mapping[str, Any],
    agents: Sequence[str],
    results: Sequence[Mapping[str, Any]],
    failed: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Write the three files; return what is in report.json.

    Args:
        folder: of the comparison.
        given: its options.
        agents: by name, in the order of the table.
        results: result.json of each finished run.
        failed: agent, seed, exit code and error of the runs that failed.
    """
    text = is_text(given["env_id"])
    with_success = all(result["eval"]["success_rate"] is not None for result in results)
    figure = "success_rate" if text and with_success else "mean_reward"
    goal = None if text else given["stop_reward"]
    runs = [
        {
            **{name: result[name] for name in ("agent", "seed")},
            "initial": result["initial_eval"][figure],
            "final": result["eval"][figure],
            "worse": worse(result["initial_eval"], result["eval"]),
            **{name: result[name] for name in ("timesteps", "episodes", "updates", "seconds", "run_dir")},
        }
        for result in results
    ]
    rows = tabulate(runs, agents, goal, text)
    report = {"run_dir": str(folder), "env": given["env_id"], "figure": figure, "goal": goal}
    report |= {"rows": rows, "runs": runs, "failed": failed}
    write_json(folder / "report.json", report)
    notes = _notes(runs, agents, failed)
    (folder / "report.md").write_text(_page(given, text, rows, figure, notes), encoding="utf-8")
    if given["figures"] and runs:
        page.write_report([folder], folder / REPORT)
    return report


def _notes(runs: Sequence[Mapping[str, Any]], agents: Sequence[str], failed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each agent with runs that end worse than they began, and for each run that failed."""
    notes = []
    for agent in agents:
        own = [run for run in runs if run["agent"] == agent]
        if lost := [f"seed {run['seed']}: {run['worse']}" for run in own if run["worse"]]:
            notes.append(f"- {agent} is worse than before in {len(lost)} of {len(own)} runs: {'; '.join(lost)}")
    return notes + [
        f"- failed with exit code {run['exit_code']}: {run['agent']}, seed {run['seed']}: `{run['error']}`"
        for run in failed
    ]


def _page(
    given: Mapping[str, Any], text: bool, rows: Sequence[Mapping[str, Any]], figure: str, notes: Sequence[str]
) -> str:
    """Return report.md."""
    budget = next(f"{given[unit]:,} {unit}" for unit in ("episodes", "timesteps") if given[unit])
    world = given["env_id"] + (f" ({given['verifier']})" if text else "")
    goal, digits = given["stop_reward"], 3 if text else 1
    shown = figure.replace("_", " ")
    win = "better than before" if text else "goal" if goal is None else f"reached {goal:g}"
    lines = [
        f"# {world}, {'' if goal is None else 'at most '}{budget} per run",
        "",
        f"| agent | runs | {shown}, IQM | 95 % interval | min | max | {win} | seconds | time steps |",
        "|---|--:|--:|:-:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        iqm, low, high, least, most = (f"{row[name]:.{digits}f}" for name in ("iqm", "low", "high", "min", "max"))
        wins = "-" if row["wins"] is None else f"{row['wins']} of {row['runs']}"
        seconds = "-" if row["seconds"] is None else f"{row['seconds']:.1f}"
        steps = "-" if row["timesteps"] is None else f"{row['timesteps']:,.0f}"
        cells = (row["agent"], row["runs"], iqm, f"{low} to {high}", least, most, wins, seconds, steps)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "IQM: interquartile mean over the runs (one per seed) of the greedy evaluation after training, with its 95 %",
        "percentile bootstrap interval. Seconds and time steps are medians over the trainings.",
        "",
        *notes,
    ]
    return "\n".join(lines) + "\n"
