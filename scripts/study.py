"""A comparison in its folder: its settings, its runs and its report.

compare.json     the settings; `rlenv compare --config FOLDER/compare.json` repeats it
warm/            the supervised checkpoint that all runs start from (text), with warm.log
AGENT/seed-S/    a run folder of `rlenv train`, with AGENT/seed-S.log
report.md, report.json, report.csv, report.html, curve.svg, curve.png
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch

from rlenv.agents import AGENTS
from rlenv.agents.files import Lock, read_table
from rlenv.agents.rollouts.envs import find_spec, resolve_device, traits_of

from .config.arguments import is_text, resolved
from .config.command_line import rlenv_command
from .config.defaults import EPISODES, GROUP, TIMESTEPS
from .config.names import agent_class, short_name
from .config.options import TEXT_ONLY, adapter, one_budget
from .config.parameters import given_by_user
from .jobs import session
from .jobs.model_defaults import passes, warm_start_steps
from .process.children import Job, available_cores, run_jobs
from .process.progress import say
from .reports.comparison import write_report
from .reports.held_out import check_enough, problem_figures
from .run.folder import LOCK, RESULT, check_place, model_of, write_json
from .sft import sft
from .train import train

SETTINGS, WARM = "compare.json", "warm"
THIS_TIME = ("jobs", "figures")  # these do not change the results


def run_comparison(given: dict[str, Any]) -> None:
    """Compare as the options say; exit with 1 if a run failed, and 130 after Ctrl-C or SIGTERM."""
    agents, given = _agents(given["agents"]), _with_defaults(given)
    has_start, few_problems = _check(agents, given)
    if not has_start and given["sft_steps"]:
        given["sft_steps"] = 0
    study = Study(given, agents)
    if few_problems:
        say(few_problems)
    try:
        failed = study.run_missing()
    except KeyboardInterrupt:
        click.echo("Interrupted; the same command continues from here.", err=True)
        sys.exit(130)
    report, (page, *others) = study.report(failed)
    click.echo(json.dumps(report) if given["as_json"] else page.read_text(encoding="utf-8"))
    click.echo(f"Report: {page}  (tensorboard --logdir {study.folder})", err=True)
    click.echo(f"Also: {', '.join(map(str, others))}", err=True)
    sys.exit(1 if failed else 0)


def _agents(names: str) -> list[str]:
    """Return the agents of a comma-separated list.

    Raises:
        ValueError: for an unknown name, with the closest match, or a repeated one.
    """
    if names.strip() == "all":
        return [name for name, cls in AGENTS.items() if not cls.needs_teacher]
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        agent_class(name)
        if asked.count(name) > 1:
            raise ValueError(f"--agents names {name!r} {asked.count(name)} times; name each agent once")
    return asked


def _with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what depends on the environment filled in."""
    given = one_budget(given)
    text = is_text(given["env_id"])
    filled = dict(given)
    if given["timesteps"] is None and given["episodes"] is None:
        filled |= {"episodes": EPISODES} if text else {"timesteps": TIMESTEPS}
    if text:
        filled["sft_steps"] = warm_start_steps(given)
    if given["group_size"] is None and "group_size" in traits_of(given["env_id"]).agent_settings:
        filled["group_size"] = GROUP
    if given["stop_reward"] is None and not text:
        filled["stop_reward"] = find_spec(given["env_id"]).reward_threshold
    world = [given["env_id"].split(":")[-1], *([short_name(given["verifier"])] if text else [])]
    filled["log_dir"] = given["log_dir"] or Path("runs", "-".join(["compare", *world]).lower())
    return filled


def _check(agents: list[str], given: dict[str, Any]) -> tuple[bool, str]:
    """Make the agent and environment of every run, so that bad input is an error before the first run starts.

    Too few held-out problems are bad input, or a line if the user chose which they are.

    Returns:
        Whether there is a warm start, and the line about few held-out problems, if any.
    """
    resolve_device(given["device"], given["env_id"])
    for name in agents:
        agent = session.build_agent(name, {**given, "device": "cpu"})
        if agent.needs_teacher and not agent.teaches_itself:
            raise ValueError(f"--agents names {name!r}, which needs a --teacher, and compare has none: use rlenv train")
    env_id, env_kwargs = given["env_id"], agent.origin["env_kwargs"]
    if not is_text(env_id):
        session.held_out_envs(env_id, env_kwargs, "cpu", 1)
        return False, ""
    if given_by_user("test_fraction") or session.task_of(agent.env).stream.names_splits:
        stream = session.task_of(session.held_out_envs(env_id, env_kwargs, "cpu", 1)).stream
    else:
        stream = session.task_of(session.evaluation_envs(env_id, env_kwargs, "cpu", 1, "test")).stream
        check_enough(stream)
    asked = given["eval_episodes"] or session.evaluation_episodes(True, stream.sizes)
    few_problems = problem_figures(stream, asked).get("few_problems", "")
    return session.demonstrations_if_any(agent, given) is not None, few_problems


class Run(NamedTuple):
    """One agent with one seed, and its run folder."""

    agent: str
    seed: int
    folder: Path


class Study:
    """A comparison, whose folder is locked until the command ends.

    Args:
        given: the options, with the defaults that depend on the environment filled in.
        agents: asked for this time.

    Attributes:
        agents: all of this folder's, also those of earlier commands.
        seeds: the number of seeds, of this command or an earlier one.

    Raises:
        ValueError: as `claim` says.
    """

    def __init__(self, given: dict[str, Any], agents: list[str]) -> None:
        settings = claim(given, agents)
        self.given, self.asked = given, agents
        self.agents, self.seeds = settings["agents"].split(","), settings["seeds"]
        self.folder: Path = given["log_dir"]
        self.text = is_text(given["env_id"])

    def runs(self, agents: list[str], seeds: int) -> list[Run]:
        """Return the runs: all agents with the first seed, then all with the second."""
        numbers = range(self.given["seed"], self.given["seed"] + seeds)
        return [
            Run(agent, seed, self.folder / short_name(agent) / f"seed-{seed}") for seed in numbers for agent in agents
        ]

    def run_missing(self) -> list[dict[str, Any]]:
        """Run what is not finished yet; return the runs that failed, with the last line of their logs."""
        wanted = self.runs(self.asked, self.given["seeds"])
        missing = [run for run in wanted if finished(run.folder) is None]
        if len(missing) < len(wanted):
            click.echo(f"{len(wanted) - len(missing)} of {len(wanted)} runs are finished already.", err=True)
        if not missing:
            return []
        model, gpus, cores = self._start_model(), gpus_of(self.given), available_cores()
        limit = self.given["jobs"] or len(gpus) or cores
        together = -(-min(limit, len(missing)) // max(len(gpus), 1))
        options = {agent: self._options(agent, model, together) for agent in {run.agent for run in missing}}
        jobs, failed = {}, []
        for run in missing:
            run.folder.parent.mkdir(exist_ok=True)
            command = rlenv_command(train, options[run.agent] | {"seed": run.seed, "log_dir": run.folder})
            jobs[Job(command, run.folder.with_name(f"{run.folder.name}.log"))] = run
        with closing(run_jobs(list(jobs), limit, max(1, cores // limit), gpus)) as ended:
            for count, (job, code) in enumerate(ended, 1 + len(wanted) - len(missing)):
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
        """Return the model that the runs start from; make the supervised checkpoint first if it is needed.

        Raises:
            ClickException: if the warm start failed.
        """
        model, warm = self.given["model"], self.folder / WARM
        if not self.text or not self.given["sft_steps"] or model_of(model) != model:
            return model
        if finished(warm) is None:
            whole = dict.fromkeys(adapter.names)  # the warm start trains all weights, the runs an adapter
            own = {"log_dir": warm, "as_json": True, "overwrite": True}
            job = Job(rlenv_command(sft, self.given | whole | own), warm.with_name(f"{WARM}.log"))
            with closing(run_jobs([job], 1, available_cores())) as ended:
                [(_, code)] = ended
            result = finished(warm)
            if code or result is None:
                raise click.ClickException(f"the warm start failed: {job.last_line()}  (see {job.log})")
            if result["eval"] is not None:
                click.echo(f"checkpoint: {session.describe(result['eval'])}", err=True)
        return str(warm)

    def _options(self, agent: str, model: str, together: int) -> dict[str, Any]:
        """Return the options of an agent's runs; those at a time on a device share its free memory in their passes."""
        options = {name: value for name, value in self.given.items() if self.text or name not in TEXT_ONLY}
        settings, of_train = dict(options["agent_args"]), {option.name for option in train.params}
        options |= {name: settings.pop(name) for name in of_train & settings.keys()}  # which train refuses there
        options |= {"agent": agent, "agent_args": settings, "model": model}
        log_kl = not agent_class(agent).needs_teacher  # which is the one reference that an agent has
        options |= {"as_json": True, "overwrite": True, "log_kl": log_kl, "report": False}
        if self.text:
            options["sft_steps"] = 0
            options["micro_batch_tokens"] = passes(options, together)
        return options

    def report(self, failed: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Path]]:
        """Write the report about every finished run; return what is in report.json, and the files."""
        done = {run.folder: finished(run.folder) for run in self.runs(self.agents, self.seeds)}
        named = [(path, result) for path, result in done.items() if result is not None]
        results = [result | {"run_dir": str(path), "agent": short_name(result["agent"])} for path, result in named]
        return write_report(self.folder, self.given, list(map(short_name, self.agents)), results, failed)


def gpus_of(given: dict[str, Any]) -> list[str]:
    """Return the GPUs that the runs share, as in CUDA_VISIBLE_DEVICES; none if --device names one or another device."""
    device = resolve_device(given["device"], given["env_id"])
    if device.type != "cuda" or device.index is not None:
        return []
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return seen.split(",") if seen else [str(number) for number in range(torch.cuda.device_count())]


def claim(given: dict[str, Any], agents: list[str]) -> dict[str, Any]:
    """Write the settings of a comparison, and return them with the agents and seeds that were there before.

    Raises:
        ValueError: if the folder holds something else, or a comparison with other settings, or one runs there.
    """
    folder: Path = given["log_dir"]
    left_out = THIS_TIME if is_text(given["env_id"]) else (*THIS_TIME, *TEXT_ONLY)
    options = {name: value for name, value in given.items() if name not in left_out}
    settings = json.loads(json.dumps(resolved(options | {"agents": ",".join(agents)})))
    busy = f"another rlenv compare is running in {str(folder)!r}"
    check_place(folder)
    if folder.exists() and any(folder.iterdir()):
        if not (folder / SETTINGS).is_file():
            raise ValueError(f"{str(folder)!r} is not the folder of a comparison (no {SETTINGS})")
        Lock(folder / LOCK, busy).close()
        if given["overwrite"]:
            shutil.rmtree(folder)
        else:
            settings = _extended(folder, settings)
    folder.mkdir(parents=True, exist_ok=True)
    click.get_current_context().with_resource(Lock(folder / LOCK, busy))
    write_json(folder / SETTINGS, settings)
    return settings


def _extended(folder: Path, new: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the agents and seeds of both; a `ValueError` names the others that differ."""
    old = read_table(folder / SETTINGS)
    names = [name for name in sorted({*old, *new} - {"agents", "seeds"}) if old.get(name) != new.get(name)]
    if names:
        differ = ", ".join(f"{name} {json.dumps(old.get(name))}, now {json.dumps(new.get(name))}" for name in names)
        raise ValueError(
            f"{str(folder)!r} holds a comparison with other settings ({differ}); pass another --log-dir or --overwrite"
        )
    agents = dict.fromkeys([*old["agents"].split(","), *new["agents"].split(",")])
    return new | {"agents": ",".join(agents), "seeds": max(old["seeds"], new["seeds"])}


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the result in a run folder; None if it is missing or incomplete, or the run was interrupted or stopped."""
    try:
        result = read_table(folder / RESULT)
    except ValueError:
        return None
    return None if result.get("interrupted", True) or "stopped" in result else result
