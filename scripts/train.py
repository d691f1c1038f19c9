"""rlenv train: supervised warm start, reinforcement learning, evaluation before and after; or the rest of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from .agent_names import resume_command
from .command import Command
from .options import adapter, common, environment, one_budget, processes, run_folder, text, warm_start
from .parameters import flag_of, typed
from .train_options import agent_options, checkpoints, evaluation, sharding, update_options


@click.command(
    cls=Command,
    examples={
        "rlenv train": "A small language model learns two-digit addition",
        "rlenv train --env CartPole-v1 --timesteps 50000": "The same agent balances a pole",
        "rlenv train --model FOLDER_OR_ID --problems FILE --verifier rewards.py:f --agent grpo": "A model of your own, "
        "on your problems, with your reward",
        "rlenv train --resume runs/NAME": "Go on after Ctrl-C, SIGTERM or a kill",
    },
    often={
        "What is learned": ("env_id", "verifier", "verifier_args", "problems", "max_new_tokens"),
        "Who learns": ("agent", "model", "chat", "lora_rank", "learning_rate"),
        "How much": ("sft_steps", "episodes", "timesteps", "episodes_per_update", "group_size", "eval_every"),
        "The run": ("config", "log_dir", "seed", "device", "resume", "dry_run"),
    },
)
@environment
@text
@agent_options
@update_options
@adapter
@warm_start
@evaluation
@checkpoints
@run_folder
@sharding
@processes
@common
def train(**given: Any) -> None:
    """Train an agent.

    Without options, a small language model learns two-digit addition: a warm start on solved sums, then a verifier's
    reward.

    Ctrl-C, SIGTERM and SIGHUP write a checkpoint; --resume RUN goes on from it.
    """
    from verifiers.plugins.registry import trusting

    from . import model_defaults, resume
    from . import run_folder as folder
    from .memory_plan import dry_run
    from .progress import Interrupt
    from .torchrun import join, own_folder, restarts

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
        agent, run_dir = resume.continued(here) if resumed else _new(here)
        run_dir, given = own_folder(run_dir, given)
        job = _job(agent, given, run_dir, interrupt)
    model_defaults.announce(agent, given)
    with interrupt:  # not before: a signal while a model is loaded ends the command at once
        _open_folder(job, run_dir, given, resumed)
        with _told(job, run_dir, given):
            result = job.run()
    _show(result, job.shown_samples, given)
    if interrupt.asked:
        checkpoint = run_dir / folder.CHECKPOINT
        click.echo(
            f"Interrupted; checkpoint written to {checkpoint}. To go on: {resume_command(run_dir, given)}", err=True
        )
        sys.exit(128 + interrupt.asked)


def _open_folder(job: Any, run_dir: Path, given: dict[str, Any], resumed: bool) -> None:
    """Write the options into the run folder, which is made if the run is new.

    Raises:
        ValueError: if the run is complete.
    """
    from agents import processes

    from . import run_folder as folder

    agent = job.agent
    if resumed and job.finished and processes.on_main(lambda: folder.is_evaluated(run_dir, agent.num_updates)):
        more = f"pass --timesteps (or --episodes) above {job.goal}"
        raise ValueError(f"the run {str(run_dir)!r} is complete; to go on, {more}")
    if not resumed:
        folder.create(run_dir, job.config, given["overwrite"])
    elif agent.num_updates == 0 and not agent.extra_state:
        folder.begin_again(run_dir, job.config)
    else:
        folder.write_json(run_dir / folder.CONFIG, job.config)


@contextmanager
def _told(job: Any, run_dir: Path, given: dict[str, Any]) -> Iterator[None]:
    """End the command with one line that says why the run stopped and where its last checkpoint is; keep the reason."""
    from agents import DivergedError, VerifierError
    from agents.checks import first_line

    from . import run_folder as folder
    from .errors import explain, is_out_of_memory, out_of_memory
    from .progress import say

    saved = run_dir / folder.CHECKPOINT
    try:
        yield
    except (VerifierError, DivergedError) as error:
        _keep_reason(job, run_dir, error, str(error))
        if given["report"]:
            _report(run_dir)
        hint = " A smaller --learning-rate may help." if isinstance(error, DivergedError) else ""
        click.echo(
            f"Stopped: {error}.{hint} The last checkpoint: {saved}. To go on: {resume_command(run_dir, given)}",
            err=True,
        )
        sys.exit(1)
    except Exception as error:
        if not is_out_of_memory(error):
            line, _ = explain(error) or (f"{type(error).__name__}: {first_line(error)}", 1)
            _keep_reason(job, run_dir, error, line)
            raise
        _keep_reason(job, run_dir, error, out_of_memory(job.phase))
        last = f"the last checkpoint: {saved}" if saved.exists() else "there is no checkpoint yet"
        click.echo(f"Stopped: {out_of_memory(job.phase)}; {last}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        say(f"aborted; what was saved before goes on with: {resume_command(run_dir, given)}")
        raise


def _keep_reason(job: Any, run_dir: Path, error: Exception, why: str) -> None:
    """Write why a run stopped into its folder, if that is possible: the disk may be full, or the folder gone."""
    from . import run_folder as folder

    with suppress(OSError):
        record = job.result() | {"stopped": why, "error": type(error).__name__}
        folder.write_json(run_dir / folder.RESULT, record)


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options, without those that a typed one replaces.

    Raises:
        ValueError: for options that exclude each other, or a --stop-reward that is not finite.
    """
    from agents.checks import check_number

    from .trackers import library

    given = one_budget(given)
    if typed("save_every"):
        if typed("save_every_updates"):
            raise ValueError("--save-every and --save-every-updates exclude each other")
        given["save_every_updates"] = None
    if given["stop_reward"] is not None:
        check_number("stop_reward", given["stop_reward"])
    for name in ("eval_every", "stop_reward"):
        if given["eval_episodes"] == 0 and given[name]:
            raise ValueError(f"--eval-episodes 0 and {flag_of(name)} {given[name]:g} exclude each other")
    if given["track"] is not None:
        library(given["track"])  # before any work
    return given


def _job(agent: Any, given: dict[str, Any], run_dir: Path, interrupt: Any) -> Any:
    """Return the run, with its evaluation environments and, if its warm start is not over, demonstrations."""
    from . import session, settings
    from .job import Job

    text, episodes = settings.is_text(given["env_id"]), given["eval_episodes"]
    if episodes is None:
        sizes = session.task_of(agent.env).stream.sizes if text else {}
        held_out = sizes.get("test") or sizes.get("train")
        most = session.evaluation_episodes(text)
        episodes = min(most, held_out or most)  # no problem twice
    shown = envs = None
    if text and ("warm_start" not in agent.extra_state or "imitation" in agent.extra_state):
        shown = session.warm_start(agent, given)
        given["sft_steps"] = 0 if shown is None else given["sft_steps"]
    if episodes:
        envs = session.held_out_envs(given["env_id"], session.arguments_of(agent), agent.device, episodes)
    return Job(agent, envs, episodes, shown, given, run_dir, interrupt)


def _show(result: dict[str, Any], samples: list[Any], given: dict[str, Any]) -> None:
    """Write the result into the run folder, and print it."""
    from . import run_folder as folder
    from . import session
    from .logged import said
    from .progress import say

    run_dir = Path(result["run_dir"])
    folder.write_json(run_dir / folder.RESULT, result)
    reported = given["report"] and _report(run_dir)
    if samples and not given["as_json"]:
        session.print_samples([(row["prompt"], said(row), row["reward"]) for row in samples], result["eval"]["split"])
    if missing := {name: count for name, count in result["failures"].items() if count}:
        say(f"failures: {', '.join(f'{count} {name}' for name, count in missing.items())}")
    if given["as_json"]:
        click.echo(json.dumps(result))
    else:
        click.echo(f"Run folder: {run_dir}  (tensorboard --logdir {run_dir.parent})")
        if reported:
            click.echo(f"Report: {run_dir / folder.REPORT}")


def _report(run_dir: Path) -> bool:
    """Write the report of a run; return whether that was possible: without one, the result is still shown."""
    from . import run_folder as folder
    from .progress import say
    from .reports.page import write_report  # matplotlib takes half a second

    try:
        write_report([run_dir], run_dir / folder.REPORT)
    except (OSError, ValueError) as error:
        say(f"no report was written: {error}")
        return False
    return True


def _new(given: dict[str, Any]) -> tuple[Any, Path]:
    """Return the agent that the options describe and the path of its run folder; writes nothing."""
    from agents import processes

    from . import run_folder as folder
    from . import session, settings
    from .agent_names import label
    from .verifier_names import short_name

    agent = session.build_agent(given["agent"], given)
    agent.check_ready()  # before the warm start
    if given["log_kl"] and agent.anchor.reference is not None:
        raise ValueError("--log-kl keeps the policy of the start, and this agent a teacher (train/kl_teacher); omit it")
    of_text = [short_name(given["verifier"])] if settings.is_text(given["env_id"]) else []
    name = "-".join([given["env_id"].split(":")[-1], *of_text, label(given["agent"])])
    return agent, processes.on_main(lambda: folder.choose(given["log_dir"], given["overwrite"], name.lower()))
