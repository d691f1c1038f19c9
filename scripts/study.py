"""A comparison in its folder: what was asked for, the runs that are there, those that are missing, the report.

compare.json     the settings; `rlenv compare --config FOLDER/compare.json` repeats it
warm/            the supervised checkpoint that all runs start from (text), with warm.log
AGENT/seed-S/    a run folder of `rlenv train`, with AGENT/seed-S.log
report.md, report.json, curves.png
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from agents.files import Lock

from . import run_folder, session
from .children import Job, available_cores, rlenv_command, run_jobs
from .comparison import as_markdown, tabulate
from .curves import draw
from .options import TEXT_ONLY
from .plots import save_figure
from .sft import sft
from .train import train

SETTINGS, WARM, CURVES, LOCK = "compare.json", "warm", "curves.png", ".lock"
THIS_TIME = ("jobs", "figures")  # what does not change what is measured
GROWS = ("agents", "seeds")


@dataclass(frozen=True)
class Run:
    """One agent with one seed, and its run folder."""

    agent: str
    seed: int
    folder: Path

    @property
    def log(self) -> Path:
        """What its process printed."""
        return self.folder.with_name(f"{self.folder.name}.log")


class Study:
    """A comparison.

    Args:
        given: the options, with nothing left to default that depends on the environment.
        agents: all that were ever asked for.
        seeds: how many.
        lock: keeps other comparisons out of the folder; close it at the end.
    """

    def __init__(self, given: dict[str, Any], agents: list[str], seeds: int, lock: Lock) -> None:
        self.given, self.agents, self.seeds, self.lock = given, agents, seeds, lock
        self.folder: Path = given["log_dir"]
        self.text = session.is_text(given["env_id"])

    @classmethod
    def open(cls, given: dict[str, Any], agents: list[str]) -> Study:
        """Return the comparison in the folder, with these agents and seeds added; write its settings.

        Raises:
            ValueError: if the folder holds something else, or a comparison with other settings.
        """
        folder: Path = given["log_dir"]
        left_out = THIS_TIME if session.is_text(given["env_id"]) else (*THIS_TIME, *TEXT_ONLY)
        options = {name: value for name, value in given.items() if name not in left_out}
        settings = json.loads(json.dumps(run_folder.resolved(options | {"agents": ",".join(agents)})))
        run_folder.check_place(folder)
        if folder.exists() and any(folder.iterdir()):
            if not (folder / SETTINGS).is_file():
                raise ValueError(f"{str(folder)!r} is not the folder of a comparison (no {SETTINGS})")
            hold(folder).close()
            if given["overwrite"]:
                shutil.rmtree(folder)
            else:
                settings = extend(json.loads((folder / SETTINGS).read_text(encoding="utf-8")), settings, folder)
        folder.mkdir(parents=True, exist_ok=True)
        lock = hold(folder)
        part = folder / f"{SETTINGS}.part"  # settings that are cut short would make the folder useless
        run_folder.write_json(part, settings)
        part.replace(folder / SETTINGS)
        return cls(given, settings["agents"].split(","), settings["seeds"], lock)

    def runs(self, agents: list[str], seeds: int) -> list[Run]:
        """Return runs, every agent with the first seed before any with the second."""
        first = self.given["seed"]
        numbers = range(first, first + seeds)
        return [Run(agent, seed, self.folder / agent / f"seed-{seed}") for seed in numbers for agent in agents]

    def run_missing(self, agents: list[str]) -> list[dict[str, Any]]:
        """Run what is asked for and not there; return those that failed, with the last line of their logs."""
        wanted = self.runs(agents, self.given["seeds"])
        missing = [run for run in wanted if finished(run.folder) is None]
        if len(missing) < len(wanted):
            click.echo(f"{len(wanted) - len(missing)} of {len(wanted)} runs are there already.", err=True)
        if not missing:
            return []
        model = self._start_model()
        limit, cores = self.given["jobs"] or available_cores(), available_cores()
        jobs = {self._job(run, model): run for run in missing}
        failed = []
        with closing(run_jobs(list(jobs), limit, max(1, cores // limit))) as ended:
            for count, (job, code) in enumerate(ended, len(wanted) - len(missing) + 1):
                run, result = jobs[job], finished(jobs[job].folder)
                if code == 0 and result is not None:
                    note = session.describe(result["eval"])
                else:
                    error = job.last_line()
                    failed.append({"agent": run.agent, "seed": run.seed, "exit_code": code, "error": error})
                    note = f"failed with exit code {code}: {error}  (see {job.log})"
                click.echo(f"{count}/{len(wanted)}  {run.agent}, seed {run.seed}: {note}", err=True)
        return failed

    def _start_model(self) -> str:
        """Return what the runs start from, after making the supervised checkpoint where there has to be one.

        Raises:
            ClickException: if that failed.
        """
        model = self.given["model"]
        if not self.text or not self.given["sft_steps"] or run_folder.model_of(model) != model:
            return model
        warm = self.folder / WARM
        if finished(warm) is None:
            shutil.rmtree(warm, ignore_errors=True)
            options = self.given | {"log_dir": warm, "as_json": True, "overwrite": False}
            job = Job(rlenv_command(sft, options), warm.with_name(f"{WARM}.log"))
            with closing(run_jobs([job], 1, available_cores())) as ended:
                [(_, code)] = ended
            result = finished(warm)
            if code or result is None:
                raise click.ClickException(f"the warm start failed: {job.last_line()}  (see {job.log})")
            click.echo(f"checkpoint: {session.describe(result['eval'])}", err=True)
        return str(warm)

    def _job(self, run: Run, model: str) -> Job:
        """Return the command of a run, in a place that is free."""
        shutil.rmtree(run.folder, ignore_errors=True)
        run.folder.parent.mkdir(exist_ok=True)
        options = {name: value for name, value in self.given.items() if self.text or name not in TEXT_ONLY}
        own = {"agent": run.agent, "seed": run.seed, "model": model, "log_dir": run.folder}
        how = {"as_json": True, "overwrite": False, "log_kl": True, **({"sft_steps": 0} if self.text else {})}
        return Job(rlenv_command(train, options | own | how), run.log)

    def report(self, failed: list[dict[str, Any]]) -> dict[str, Any]:
        """Write report.json, report.md and curves.png of every run that is there; return the first.

        Args:
            failed: the runs that were tried in vain.
        """
        done = [(run, finished(run.folder)) for run in self.runs(self.agents, self.seeds)]
        results = [(run, result) for run, result in done if result is not None]
        with_success = all(result["eval"]["success_rate"] is not None for _, result in results)
        figure = "success_rate" if self.text and with_success else "mean_reward"
        goal = None if self.text else self.given["stop_reward"]
        runs = [facts(run, result, figure) for run, result in results]
        rows = tabulate(runs, self.agents, goal, self.text)
        report = {
            "run_dir": str(self.folder),
            "env": self.given["env_id"],
            "figure": figure,
            "goal": goal,
            "rows": [asdict(row) for row in rows],
            "runs": runs,
            "failed": failed,
        }
        run_folder.write_json(self.folder / "report.json", report)
        win = "better than before" if self.text else "goal" if goal is None else f"reached {goal:g}"
        table = as_markdown(rows, figure.replace("_", " "), win, digits=3 if self.text else 1)
        (self.folder / "report.md").write_text(self._markdown(table, failed), encoding="utf-8")
        if self.given["figures"]:
            self._draw([run for run, _ in results])
        return report

    def _markdown(self, table: str, failed: list[dict[str, Any]]) -> str:
        budget = next(f"{self.given[unit]:,} {unit}" for unit in ("episodes", "timesteps") if self.given[unit])
        world = self.given["env_id"] + (f" ({self.given['verifier']})" if self.text else "")
        most = "" if self.given["stop_reward"] is None else "at most "
        lines = [f"# {world}, {most}{budget} a run", "", table]
        lines += [
            "IQM: interquartile mean over the runs (one a seed) of the greedy evaluation after training, with its 95 %",
            "percentile bootstrap interval. Seconds and time steps are those of training, medians.",
            "",
        ]
        lines += [
            f"- failed with exit code {run['exit_code']}: {run['agent']}, seed {run['seed']}: `{run['error']}`"
            for run in failed
        ]
        lines += [f"![Curves]({CURVES})"] if self.given["figures"] else []
        return "\n".join(lines) + "\n"

    def _draw(self, runs: list[Run]) -> None:
        unit, label = ("episodes", "episodes") if self.given["episodes"] else ("total_timesteps", "time steps")
        files = {agent: [run.folder / "progress.csv" for run in runs if run.agent == agent] for agent in self.agents}
        save_figure(lambda figure: draw(figure, files, f"time/{unit}", label), self.folder / CURVES, (11.0, 4.5))


def hold(folder: Path) -> Lock:
    """Keep other comparisons out of a folder until the returned lock is closed.

    Raises:
        ValueError: if another one is at work there.
    """
    return Lock(folder / LOCK, f"another rlenv compare is at work in {str(folder)!r}")


def extend(old: dict[str, Any], new: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of a comparison with the agents and the seeds of both.

    Raises:
        ValueError: naming everything else that differs.
    """
    names = [name for name in sorted({*old, *new} - {*GROWS}) if old.get(name) != new.get(name)]
    if names:
        differ = ", ".join(f"{name} {json.dumps(old.get(name))}, now {json.dumps(new.get(name))}" for name in names)
        raise ValueError(
            f"{str(folder)!r} holds a comparison with other settings ({differ}); pass another --log-dir or --overwrite"
        )
    agents = dict.fromkeys([*old["agents"].split(","), *new["agents"].split(",")])
    return new | {"agents": ",".join(agents), "seeds": max(old["seeds"], new["seeds"])}


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the result in a run folder; None where there is none, or it is cut short, or the run was."""
    try:
        result = json.loads((folder / run_folder.RESULT).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return None if result.get("interrupted", True) else result  # a run that had to stop does not say


def facts(run: Run, result: dict[str, Any], figure: str) -> dict[str, Any]:
    """Return what the report says of a run; `figure` is what its evaluations are compared by."""
    return {
        "agent": run.agent,
        "seed": run.seed,
        "initial": result["initial_eval"][figure],
        "final": result["eval"][figure],
        **{name: result[name] for name in ("timesteps", "episodes", "updates", "seconds")},
        "run_dir": str(run.folder),
    }
