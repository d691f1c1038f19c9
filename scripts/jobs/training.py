"""One invocation of `rlenv train`: from its options to the result in the run folder, or to why it stopped."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from rlenv.agents import Agent, DivergedError, EngineError, VerifierError, processes
from rlenv.agents.checks import first_line
from rlenv.verifiers.plugins.registry import trusting

from ..config.arguments import is_text
from ..config.names import resume_command, short_name
from ..config.options import one_budget
from ..config.parameters import flag_of, typed
from ..process.errors import explain
from ..process.progress import Interrupt, say
from ..process.torchrun import count, join, restarts
from ..run.folder import CHECKPOINT, CONFIG, REPORT, RESULT, Run, choose, own_run, said
from ..run.trackers import library
from . import model_defaults, session
from .job import Job
from .memory_plan import dry_run
from .resume import continued


def run_training(given: dict[str, Any]) -> None:
    """Train as the options say; exit with 128 and the number of a signal, if one came, and 1 if training stopped."""
    given = _checked(given)
    if restarts() and given["resume"] is None:
        raise ValueError("torchrun started this new run again after a failure; go on with --resume RUN")
    device = join(given["device"], given["process_timeout"])
    if given["resume"] is None:
        given = model_defaults.fill_in(given)
    if given["dry_run"]:
        dry_run(given)
        return
    resumed = given["resume"] is not None
    interrupt = Interrupt()
    with trusting(given["trust_checkpoint"] or not resumed):
        here = given | {"device": device}
        agent, run = continued(here) if resumed else _new(here)
        run, given = own_run(run, given)
        job = Job(agent, given, run, interrupt)
    model_defaults.announce(agent, given)
    with interrupt:  # not before: a signal while a model is loaded ends the command at once
        _open_folder(job, given, resumed)
        with _explained(job, given):
            result = job.do()
    _show(job, result, given)
    if interrupt.asked:
        saved, again = run.path / CHECKPOINT, resume_command(run.path, given)
        click.echo(f"Interrupted; checkpoint written to {saved}. To go on: {again}", err=True)
        sys.exit(128 + interrupt.asked)


def _open_folder(job: Job, given: dict[str, Any], resumed: bool) -> None:
    """Write the options into the run folder, which is made if the run is new.

    Raises:
        ValueError: if the run is complete.
    """
    run = job.run
    if not resumed:
        run.create(job.config, given["overwrite"])
        return
    result = processes.on_main(lambda: run.result)
    if job.finished and result.get("updates") == job.agent.num_updates and result.get("eval") is not None:
        more = f"pass --timesteps (or --episodes) above {job.goal}"
        raise ValueError(f"the run {str(run.path)!r} is complete; to go on, {more}")
    if "stopped" in result or result.get("interrupted"):  # it goes on, and nothing is to call it that
        (run.path / RESULT).unlink(missing_ok=True)
    run.write(CONFIG, job.config)


@contextmanager
def _explained(job: Job, given: dict[str, Any]) -> Iterator[None]:
    """End the command with one line that says why the run stopped and where its last checkpoint is; keep the reason."""
    saved, again = job.run.path / CHECKPOINT, resume_command(job.run.path, given)
    try:
        yield
    except (VerifierError, DivergedError, EngineError) as error:
        _keep_reason(job, error, str(error))
        if given["report"]:
            _report(job.run.path)
        hint = " A smaller --learning-rate may help." if isinstance(error, DivergedError) else ""
        click.echo(f"Stopped: {error}.{hint} The last checkpoint: {saved}. To go on: {again}", err=True)
        sys.exit(1)
    except Exception as error:
        line, _ = explain(error) or (f"{type(error).__name__}: {first_line(error)}", 1)
        _keep_reason(job, error, line)
        raise
    except KeyboardInterrupt:
        say(f"aborted; what was saved before goes on with: {again}")
        raise


def _keep_reason(job: Job, error: Exception, why: str) -> None:
    """Write why a run stopped into its folder, if that is possible: the disk may be full, or the folder gone."""
    with suppress(OSError):
        job.run.write(RESULT, job.result() | {"stopped": why, "error": type(error).__name__})


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options, without those that a typed one replaces.

    Raises:
        ValueError: for options that exclude each other.
    """
    given = one_budget(given)
    for name in ("plan_processes", "plan_memory"):
        if given[name] is not None and not given["dry_run"]:
            raise ValueError(f"{flag_of(name)} plans a run that is not started here: pass --dry-run, too")
        if given[name] is not None and count() > 1:
            raise ValueError(f"{flag_of(name)} is for a plan without torchrun, which has started {count()} processes")
    if typed("save_every"):
        if typed("save_every_updates"):
            raise ValueError("--save-every and --save-every-updates exclude each other")
        given["save_every_updates"] = None
    for name in ("eval_every", "stop_reward"):
        if given["eval_episodes"] == 0 and given[name]:
            raise ValueError(f"--eval-episodes 0 and {flag_of(name)} {given[name]:g} exclude each other")
    if given["track"] is not None:
        library(given["track"])  # before any work
    return given


def _show(job: Job, result: dict[str, Any], given: dict[str, Any]) -> None:
    """Write the result into the run folder, and print it."""
    run, samples = job.run, job.shown_samples
    run.write(RESULT, result)
    reported = given["report"] and _report(run.path)
    if samples and not given["as_json"]:
        session.print_samples([(row["prompt"], said(row), row["reward"]) for row in samples], result["eval"]["split"])
    if missing := {name: count for name, count in result["failures"].items() if count}:
        say(f"failures: {', '.join(f'{count} {name}' for name, count in missing.items())}")
    if given["as_json"]:
        click.echo(json.dumps(result))
    else:
        click.echo(f"Run folder: {run.path}  (tensorboard --logdir {run.path.parent})")
        if reported:
            click.echo(f"Report: {run.path / REPORT}")


def _report(folder: Path) -> bool:
    """Write the report of a run; return whether that was possible: without one, the result is still shown."""
    from ..reports.page import write_report  # matplotlib takes half a second

    try:
        write_report([folder], folder / REPORT)
    except (OSError, ValueError) as error:
        say(f"no report was written: {error}")
        return False
    return True


def _new(given: dict[str, Any]) -> tuple[Agent, Run]:
    """Return the agent that the options describe, and its run; writes nothing."""
    agent = session.build_agent(given["agent"], given)
    agent.check_ready()  # before the warm start
    if given["log_kl"] and agent.needs_teacher:
        raise ValueError("--log-kl keeps the policy of the start, and this agent a teacher (train/kl_teacher); omit it")
    of_text = [short_name(given["verifier"])] if is_text(given["env_id"]) else []
    name = "-".join([given["env_id"].split(":")[-1], *of_text, short_name(given["agent"])]).lower()
    return agent, Run(processes.on_main(lambda: choose(given["log_dir"], given["overwrite"], name)))
