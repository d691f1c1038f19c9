"""The report of a comparison: report.md, report.json and report.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config.base import named
from ..config.other_configs import CompareConfig
from ..run.folder import REPORT, write_json
from . import page
from .statistics import outcome_of, worse
from .templates import render

BEFORE = "before training"  # the row of the policy that all runs started from


def write_report(
    folder: Path,
    config: CompareConfig,
    agents: Sequence[str],
    results: Sequence[Mapping[str, Any]],
    failed: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], list[Path]]:
    """Write the files of a report; return the content of report.json, and the files, report.md first.

    Args:
        folder: of the comparison.
        config: of the comparison.
        agents: by name, in the order of the table.
        results: result.json of each finished run.
        failed: agent, seed, exit code and error of the runs that failed.
    """
    text = config.is_text
    with_success = text and all(result["eval"]["success_rate"] is not None for result in results)
    figure = "success_rate" if with_success else "mean_reward"
    goal = None if text else config.stop_reward
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
    rows = rows_of(results, agents, figure, goal, text)
    report: dict[str, Any] = {"run_dir": str(folder), "env": config.env_id, "figure": figure, "goal": goal}
    report |= {"rows": rows, "runs": runs, "failed": failed}
    write_json(folder / "report.json", report)
    # The mean reward of rewards that are more than 1 for success and else 0: it may rise while success does not.
    graded = with_success and any(f"{row['mean_reward']:.3f}" != f"{row['iqm']:.3f}" for row in rows)
    table = render(
        "comparison.md",
        **report,
        world=config.env_id + (f" ({named(config.verifier)})" if text else ""),
        budget=next(f"{value:,} {unit}" for unit in ("episodes", "timesteps") if (value := getattr(config, unit))),
        text=text,
        graded=graded,
        agents=agents,
    )
    (folder / "report.md").write_text(table, encoding="utf-8")
    written = [folder / name for name in ("report.md", "report.json")]
    if config.report and runs:
        page.write_report([folder], folder / REPORT)
        written.append(folder / REPORT)
    return report, written


def rows_of(
    results: Sequence[Mapping[str, Any]], agents: Sequence[str], figure: str, goal: float | None, from_start: bool
) -> list[dict[str, Any]]:
    """Return the `outcome_of` every agent with a run, in this order, with `agent` and `wins`.

    Args:
        results: result.json of each run.
        agents: by name.
        figure: that is compared.
        goal: the figure at which a run wins; None for no goal.
        from_start: all runs started from one policy. Then the first row is that policy's, with one evaluation per seed,
            and a run wins by ending better than it began, on the same episodes.
    """
    rows = []
    if from_start and results:
        start = outcome_of(list({result["seed"]: result for result in results}.values()), figure, "initial_eval")
        rows.append({"agent": BEFORE, **start, **dict.fromkeys(("wins", "updates", "timesteps", "seconds"))})
    for agent in agents:
        own = [result for result in results if result["agent"] == agent]
        wins = None if goal is None else sum(result["eval"][figure] >= goal for result in own)
        if from_start:
            wins = sum(result["eval"][figure] > result["initial_eval"][figure] for result in own)
        if own:
            rows.append({"agent": agent, **outcome_of(own, figure), "wins": wins})
    return rows
