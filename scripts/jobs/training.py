"""A training run, new or resumed: from its config to the result in the run folder, or to why it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from rlenv._checks import first_line
from rlenv.agents import Agent, DivergedError, EngineError, VerifierError, processes
from rlenv.verifiers.plugins.registry import trusting

from ..config.arguments import build_agent
from ..config.base import named
from ..config.configs import TrainConfig
from ..config.names import resume_command, short_name
from ..config.options import with_task
from ..process.errors import explain
from ..process.progress import Interrupt, say
from ..process.torchrun import meet, number
from ..run.folder import CHECKPOINT, CONFIG, REPORT, RESULT, RunFolder, choose, own_folder
from ..run.samples import show_samples
from ..run.trackers import library
from . import model_defaults
from .from_python import job
from .job import TrainJob
from .memory_plan import dry_run
from .resume import begun_config, continued


@dataclass(frozen=True)
class TrainedRun:
    """A run that has ended.

    Attributes:
        folder: of the run.
        config: with the defaults that its model and its environment have decided.
        agent: as it is after training.
        result: what `rlenv train --json` prints: counts, the evaluations before and after, failures.
        samples: held-out episodes of the last evaluation, for text.
        curve: the columns of progress.csv, a value per log entry: metrics by name, NaN for missing ones.
        report: the page about the run; None without one.
        signal: the number of the signal that ended it early; 0 for none.
    """

    folder: Path
    config: TrainConfig
    agent: Agent
    result: dict[str, Any]
    samples: list[dict[str, Any]] = field(repr=False)
    curve: dict[str, np.ndarray] = field(repr=False, compare=False)
    report: Path | None
    signal: int

    @property
    def resume_command(self) -> str:
        """The command that goes on, or the call of Python for a run with objects."""
        return resume_command(self.folder, self.config.flat())


@job
def train(config: TrainConfig) -> TrainedRun:
    """Return a run: a warm start, reinforcement learning, evaluations before and after, as `rlenv train` does them.

    The first Ctrl-C or SIGTERM stops and saves; `TrainConfig(resume=RUN)` goes on from there.

    Args:
        config: of the run; with `resume`, what changes of the config of that run.

    Raises:
        ValueError: for a config that is wrong, in one line.
        DivergedError: and other errors that stop training: the run folder has the reason and the last checkpoint.
    """
    if config.dry_run:
        raise ValueError("dry_run=True trains nothing: plan a run with rlenv train --dry-run")
    resumed = config.resume is not None
    config, device = _begun(config)
    interrupt = Interrupt()
    with ExitStack() as held:
        with trusting(config.trust or not resumed):
            here = config.but(device=device)
            agent, run = continued(here, held) if resumed else _new(here, held)
            if (folder := own_folder(run, held)) is not run:
                config = config.but(report=False, track=None)
            job = TrainJob(agent, config, folder, interrupt)
        config = job.config
        if job.is_text:
            amount, flags = f"{config.sft_steps or 'no'} steps of warm start", "--learning-rate, --sft-steps"
            model_defaults.announce(agent, config.model, agent.learning_rate, amount, "update", flags)
        with interrupt:  # not before: a signal while a model is loaded ends the command at once
            _open_folder(job, resumed, held)
            with _explained(job):
                result = job.do()
        folder.write(RESULT, result)
        report = folder.path / REPORT if config.report and _report(folder.path) else None
        # Another run may overwrite the folder, and Python change the directory that it is in.
        return TrainedRun(run.path, config, agent, result, job.shown_samples, run.log, report, interrupt.signal)


def plan(config: TrainConfig) -> None:
    """Print the memory that a run takes; see `memory_plan.dry_run`."""
    dry_run(_begun(config)[0])


def _begun(config: TrainConfig) -> tuple[TrainConfig, str]:
    """Return the config with all that its task, its model or the run that is resumed decide, and the device.

    Raises:
        ValueError: for a config that is wrong, in one line.
    """
    resumed = config.resume is not None
    config = begun_config(config) if resumed else with_task(config)
    _check(config)
    if number("TORCHELASTIC_RESTART_COUNT") and not resumed:
        raise ValueError("torchrun started this new run again after a failure; go on with --resume RUN")
    device = meet(config.device, config.process_timeout)
    if not resumed and config.is_text:  # which imports the environment: that of config.json needs trust first
        config = config.but(sft_steps=model_defaults.warm_start_steps(config.sft_steps, config.model))
        config = config.set(micro_batch_tokens=model_defaults.passes(config))
    return config, device


def _open_folder(job: TrainJob, resumed: bool, held: ExitStack) -> None:
    """Write the config into the run folder, which is made if the run is new.

    Raises:
        ValueError: if the run is complete.
    """
    run = job.run
    if not resumed:
        run.create(job.written, job.config.overwrite, held)
        return
    result, done = processes.on_main(lambda: run.result), getattr(job.agent, job.counter)
    if done >= job.goal and result.get("updates") == job.agent.num_updates and result.get("eval") is not None:
        more = f"pass --{job.counter.removeprefix('num_')} above {done}"
        raise ValueError(f"the run {str(run.path)!r} is complete; to go on, {more}")
    if "stopped" in result or result.get("interrupted"):  # it goes on, and nothing is to call it that
        (run.path / RESULT).unlink(missing_ok=True)
    run.write(CONFIG, job.written)


@contextmanager
def _explained(job: TrainJob) -> Iterator[None]:
    """Keep the reason why the run stops in its folder; errors that stop training say where they go on from."""
    saved, again = job.run.path / CHECKPOINT, resume_command(job.run.path, job.written)
    try:
        yield
    except Exception as error:
        known = explain(error)
        why, code = known or (f"{type(error).__name__}: {first_line(error)}", 1)
        with suppress(OSError):  # the disk may be full, or the folder gone
            job.run.write(RESULT, job.result() | {"stopped": why, "error": type(error).__name__})
        if isinstance(error, (VerifierError, DivergedError, EngineError)):
            if job.config.report:
                _report(job.run.path)
            hint = "A smaller --learning-rate may help. " if isinstance(error, DivergedError) else ""
            error.add_note(f"{hint}The last checkpoint: {saved}. To go on: {again}")
        elif known and code == 1:  # a disk or memory: the run is in order
            say(f"stopped; what was saved before goes on with: {again}")
        raise
    except KeyboardInterrupt:
        say(f"aborted; what was saved before goes on with: {again}")
        raise


def _check(config: TrainConfig) -> None:
    """Refuse options that exclude each other, and a tracker that is not installed."""
    for name in ("plan_processes", "plan_memory"):
        if getattr(config, name) is not None and not config.dry_run:
            raise ValueError(f"{config.flag(name)} plans a run that is not started here: pass --dry-run, too")
    if config.typed >= {"save_every", "save_every_updates"}:
        raise ValueError("--save-every and --save-every-updates exclude each other")
    for name in ("eval_every", "stop_reward"):
        if config.eval_episodes == 0 and (value := getattr(config, name)):
            raise ValueError(f"--eval-episodes 0 and {config.flag(name)} {value:g} exclude each other")
    if config.track is not None:
        library(config.track)  # before any work


def show(run: TrainedRun, as_json: bool) -> None:
    """Print the result of a run."""
    if run.samples and not as_json:
        show_samples(run.samples, run.result["eval"]["split"])
    if missing := {name: count for name, count in run.result["failures"].items() if count}:
        why = run.agent.failure_watch.reason
        counts = ", ".join(f"{count} {name}" for name, count in missing.items())
        say(f"failures: {counts}{f'; the last reason: {why}' * bool(why)}")
    if as_json:
        click.echo(json.dumps(run.result))
    else:
        click.echo(f"Run folder: {run.folder}  (tensorboard --logdir {run.folder.parent})")
        if run.report:
            click.echo(f"Report: {run.report}")


def _report(folder: Path) -> bool:
    """Write the report of a run; return whether that was possible: without one, the result is still shown."""
    from ..reports.page import write_report

    try:
        write_report([folder], folder / REPORT)
    except (OSError, ValueError) as error:
        say(f"no report was written: {error}")
        return False
    return True


def _new(config: TrainConfig, held: ExitStack) -> tuple[Agent, RunFolder]:
    """Return the agent of a new run, and its folder, which `held` removes if it stays empty."""
    agent = build_agent(config.agent, config)
    agent.check_ready()  # before the warm start
    of_text = [short_name(named(config.verifier))] if config.is_text else []
    name = "-".join([config.env_id.split(":")[-1], *of_text, short_name(named(config.agent))]).lower()
    return agent, RunFolder(processes.on_main(lambda: choose(config.log_dir, config.overwrite, name, held)))
