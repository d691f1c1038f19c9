"""A comparison in its folder: its settings, its runs and its report.

compare.json     the settings; `rlenv compare --config FOLDER/compare.json` repeats it
warm/            the supervised checkpoint that all runs start from (text), with warm.json and warm.log
AGENT/seed-S/    a run folder of `rlenv train`, with its options in AGENT/seed-S.json, and AGENT/seed-S.log
report.md, report.json, report.html
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch

from rlenv._checks import in_one_line
from rlenv._json import read_table
from rlenv.agents import AGENTS
from rlenv.agents.algorithms import TABLE
from rlenv.agents.files import Lock
from rlenv.agents.rollouts.envs import find_spec, resolve_device, traits_of
from rlenv.verifiers.sandbox.pool import available_cores

from ..config.arguments import build_agent
from ..config.base import named, options_of
from ..config.configs import SftConfig, TrainConfig
from ..config.defaults import EPISODES, GROUP, TIMESTEPS
from ..config.names import agent_class, objects_in, short_name
from ..config.options import ADAPTER, TEXT_ONLY, with_task
from ..config.other_configs import CompareConfig
from ..process.children import Child, run_jobs
from ..reports.comparison_report import write_report
from ..reports.evaluation_figures import describe
from ..run.folder import LOCK, RESULT, check_place, model_of, write_json
from . import session
from .from_python import job
from .model_defaults import passes, warm_start_steps

SETTINGS, WARM = "compare.json", "warm"


@dataclass(frozen=True)
class Comparison:
    """A comparison that has ended.

    Attributes:
        folder: of its runs.
        report: what report.json has.
        files: of the report, report.md first.
        failed: the runs that failed: agent, seed, exit code and error.
    """

    folder: Path
    report: dict[str, Any]
    files: list[Path]
    failed: list[dict[str, Any]]


@job
def compare(config: CompareConfig) -> Comparison:
    """Return a comparison: every agent with every seed, in its folder, which is continued if it is there.

    Raises:
        ValueError: for a config that is wrong, in one line.
        KeyboardInterrupt: after Ctrl-C or SIGTERM; the same config continues.
    """
    config = with_task(config)
    agents, config = _agents(config.agents), _with_defaults(config)
    if not _check(agents, config) and config.sft_steps:
        config = config.but(sft_steps=0)
    folder = config.log_dir
    assert folder is not None
    with ExitStack() as held:
        settings = claim(folder, config, agents, held)
        failed = _run_missing(folder, config, agents)
        every = settings["agents"].split(",")  # also those of earlier commands
        results = [
            result | {"run_dir": str(run.folder), "agent": short_name(result["agent"])}
            for run in _runs(folder, config.seed, every, settings["seeds"])
            if (result := finished(run.folder)) is not None
        ]
        report, files = write_report(folder, config, list(map(short_name, every)), results, failed)
    return Comparison(folder, report, files, failed)


def _agents(names: Any) -> list[str]:
    """Return the agents of a comma-separated list.

    Raises:
        ValueError: for an unknown name, with the closest match, or a repeated one; for a class.
    """
    if not isinstance(names, str):
        raise ValueError(f"agents must be names, such as grpo or file.py:MyAgent, got {in_one_line(names)}")
    if names.strip() == "all":
        return [name for name in TABLE if not AGENTS[name].needs_teacher]
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        cls = agent_class(name)
        if ":" not in name and name not in TABLE:
            own = f"{name!r} is a class of this session; put it into a file, file.py:{cls.__name__}"
            raise ValueError(f"compare starts processes, which take names and files: {own}")
        if chosen.count(name) > 1:
            raise ValueError(f"--agents names {name!r} {chosen.count(name)} times; name each agent once")
    return chosen


def _with_defaults(config: CompareConfig) -> CompareConfig:
    """Return the config with the defaults that depend on the environment."""
    text, filled = config.is_text, dict[str, Any]()
    if config.timesteps is None and config.episodes is None:
        filled |= {"episodes": EPISODES} if text else {"timesteps": TIMESTEPS}
    if text:
        filled["sft_steps"] = warm_start_steps(config.sft_steps, config.model)
    if config.group_size is None and "group_size" in traits_of(config.env_id).agent_settings:
        filled["group_size"] = GROUP
    if config.stop_reward is None and not text:
        filled["stop_reward"] = find_spec(config.env_id).reward_threshold
    world = [config.env_id.split(":")[-1], *([short_name(named(config.verifier))] if text else [])]
    filled["log_dir"] = config.log_dir or Path("runs", "-".join(["compare", *world]).lower())
    return config.but(**filled)


def _check(agents: list[str], config: CompareConfig) -> bool:
    """Make the agent and environment of every run, so that bad input is an error before the first run starts.

    No held-out problem is bad input, unless --test-fraction says that those of training are asked.

    Returns:
        Whether there is a warm start.
    """
    for name, (value, _) in objects_in(config.flat()).items():
        what = f"{name} is an object of Python, {value}"
        raise ValueError(f"compare starts processes, which take names and files: {what}; name a file, or file.py:name")
    resolve_device(config.device, config.env_id)
    for name in agents:
        agent = build_agent(name, config.but(device="cpu"))
        if agent.needs_teacher and not agent.teaches_itself:
            raise ValueError(f"--agents names {name!r}, which needs a --teacher, and compare has none: use rlenv train")
    if not config.is_text or "test_fraction" in config.chosen:
        session.held_out_envs(agent, 1)
    else:
        session.envs_like(agent, 1, "test")
    return config.is_text and session.demonstrations_if_any(agent, config) is not None


class PlannedRun(NamedTuple):
    """One agent with one seed, and its run folder."""

    agent: str
    seed: int
    folder: Path


def _runs(folder: Path, seed: int, agents: list[str], seeds: int) -> list[PlannedRun]:
    """Return the runs: all agents with the first seed, then all with the second."""
    return [
        PlannedRun(agent, number, folder / short_name(agent) / f"seed-{number}")
        for number in range(seed, seed + seeds)
        for agent in agents
    ]


def _run_missing(folder: Path, config: CompareConfig, agents: list[str]) -> list[dict[str, Any]]:
    """Start the runs that are not finished; return the failed ones, with the last line of their logs."""
    wanted = _runs(folder, config.seed, agents, config.seeds)
    missing = [run for run in wanted if finished(run.folder) is None]
    if len(missing) < len(wanted):
        click.echo(f"{len(wanted) - len(missing)} of {len(wanted)} runs are finished already.", err=True)
    if not missing:
        return []
    model, gpus, cores = _start_model(folder / WARM, config), gpus_of(config), available_cores()
    limit = config.jobs or len(gpus) or cores
    together = -(-min(limit, len(missing)) // max(len(gpus), 1))
    configs = {agent: _config_of(agent, config, model, together) for agent in {run.agent for run in missing}}
    jobs, failed = {}, []
    for run in missing:
        run.folder.parent.mkdir(exist_ok=True)
        jobs[_child("train", configs[run.agent].but(seed=run.seed), run.folder, "--no-report")] = run
    with closing(run_jobs(list(jobs), limit, max(1, cores // limit), gpus)) as ended:
        for count, (job, code) in enumerate(ended, 1 + len(wanted) - len(missing)):
            run, result = jobs[job], finished(jobs[job].folder)
            if code == 0 and result is not None:
                note = describe(result["eval"])
            else:
                error = job.last_line()
                failed.append({"agent": run.agent, "seed": run.seed, "exit_code": code, "error": error})
                note = f"failed with exit code {code}: {error}  (see {job.log})"
            click.echo(f"{count}/{len(wanted)}  {run.agent}, seed {run.seed}: {note}", err=True)
    return failed


def _start_model(warm: Path, config: CompareConfig) -> str:
    """Return the model that the runs start from; make the supervised checkpoint first if it is needed.

    Raises:
        ValueError: if the warm start failed.
    """
    if not config.is_text or not config.sft_steps or model_of(config.model) != config.model:
        return config.model
    if finished(warm) is None:
        # The warm start trains all weights, the runs an adapter.
        known = options_of(SftConfig)
        settings = {name: value for name, value in config.settings.items() if name in known}
        job = _child("sft", config.into(SftConfig, **dict.fromkeys(ADAPTER), settings=settings), warm)
        with closing(run_jobs([job], 1, available_cores())) as ended:
            [(_, code)] = ended
        result = finished(warm)
        if code or result is None:
            raise ValueError(f"the warm start failed: {job.last_line()}  (see {job.log})")
        if result["eval"] is not None:
            click.echo(f"checkpoint: {describe(result['eval'])}", err=True)
    return str(warm)


def _config_of(agent: str, config: CompareConfig, model: str, together: int) -> TrainConfig:
    """Return the config of an agent's runs; the passes of `together` runs on a device share its free memory."""
    own = config.into(TrainConfig, agent=agent, model=model).set(group_size=config.group_size)
    if not config.is_text:
        return own
    own = own.but(sft_steps=0)
    return own.set(micro_batch_tokens=passes(own, together))


def _child(command: str, config: TrainConfig | SftConfig, folder: Path, *more: str) -> Child:
    """Return the command of a run, whose config is written beside its folder, as its log is."""
    file = folder.with_name(f"{folder.name}.json")
    write_json(file, config.changed())
    words = (command, f"--config={file}", f"--log-dir={folder}", "--overwrite", "--json", *more)
    return Child((sys.executable, "-m", "rlenv", *words), folder.with_name(f"{folder.name}.log"))


def gpus_of(config: CompareConfig) -> list[str]:
    """Return the GPUs that the runs share, as in CUDA_VISIBLE_DEVICES; none if --device names one or another device."""
    device = resolve_device(config.device, config.env_id)
    if device.type != "cuda" or device.index is not None:
        return []
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return seen.split(",") if seen else [str(number) for number in range(torch.cuda.device_count())]


def claim(folder: Path, config: CompareConfig, agents: list[str], held: ExitStack) -> dict[str, Any]:
    """Write the settings of a comparison, and return them with the agents and seeds that were there before.

    Raises:
        ValueError: if the folder holds something else, or a comparison with other settings, or one runs there.
    """
    left_out = {"jobs", *(() if config.is_text else TEXT_ONLY)}  # the first does not change the results
    options = config.but(agents=",".join(agents)).flat()
    settings = {name: value for name, value in options.items() if name not in left_out}
    busy = f"another rlenv compare is running in {str(folder)!r}"
    check_place(folder)
    if folder.exists() and any(folder.iterdir()):
        if not (folder / SETTINGS).is_file():
            raise ValueError(f"{str(folder)!r} is not the folder of a comparison (no {SETTINGS})")
        Lock(folder / LOCK, busy).close()
        if config.overwrite:
            shutil.rmtree(folder)
        else:
            old, new = read_table(folder / SETTINGS), settings
            names = [name for name in sorted({*old, *new} - {"agents", "seeds"}) if old.get(name) != new.get(name)]
            if names:
                given = (f"{name} {json.dumps(old.get(name))}, now {json.dumps(new.get(name))}" for name in names)
                raise ValueError(
                    f"{str(folder)!r} holds a comparison with other settings ({', '.join(given)}); pass another "
                    "--log-dir or --overwrite"
                )
            both = dict.fromkeys([*old["agents"].split(","), *agents])
            settings |= {"agents": ",".join(both), "seeds": max(old["seeds"], new["seeds"])}
    folder.mkdir(parents=True, exist_ok=True)
    held.enter_context(Lock(folder / LOCK, busy))
    write_json(folder / SETTINGS, settings)
    return settings


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the result in a run folder; None if it is missing or incomplete, or the run was interrupted or stopped."""
    try:
        result = read_table(folder / RESULT)
    except ValueError:
        return None
    return None if result.get("interrupted", True) or "stopped" in result else result
