"""Commands as child processes: so many at a time, and none that outlives its parent.

Standard input is a lifeline. The parent alone holds its other end and never writes, so a child that reads its end knows
at once that the parent has gone, even by kill -9, and goes, too.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

POLL_SECONDS = 0.05
GRACE_SECONDS = 5.0
THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """A command to run.

    Attributes:
        command: the program and its arguments.
        log: file for the command itself, then its standard output and standard error.
    """

    command: tuple[str, ...]
    log: Path

    def last_line(self) -> str:
        """Return the last line of the log that says something."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")[1:]
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def rlenv_command(command: click.Command, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the program and the arguments that run one of our commands.

    Args:
        command: such as `train`.
        options: by parameter name; what the command does not take, and what is its default anyway, is left out.
    """
    arguments = [sys.executable, "-m", __name__, str(command.name)]
    for parameter in command.params:
        value = options.get(str(parameter.name))
        if value is None or value is False or value == parameter.default:
            continue
        flag = parameter.opts[-1]
        if parameter.multiple:
            arguments += [f"{flag}={key}={json.dumps(setting)}" for key, setting in dict(value).items()]
        else:
            arguments.append(flag if value is True else f"{flag}={value}")
    return tuple(arguments)


def run_jobs(jobs: Sequence[Job], limit: int, threads: int) -> Generator[tuple[Job, int], None, None]:
    """Run jobs, `limit` at a time; yield each one as it ends, with its exit code.

    Whatever ends the iteration early ends the children, too: close the generator.

    Args:
        jobs: are started in this order.
        limit: how many run at a time.
        threads: what the libraries in each child may use.
    """
    waiting, running = list(jobs), dict[subprocess.Popen, Job]()
    try:
        while waiting or running:
            while waiting and len(running) < limit:
                job = waiting.pop(0)
                running[_start(job, threads)] = job
            for process in [process for process in running if process.poll() is not None]:
                _cut_lifeline(process)
                yield running.pop(process), process.returncode
            time.sleep(POLL_SECONDS)
    finally:
        _stop(list(running))


def _start(job: Job, threads: int) -> subprocess.Popen:
    limits = dict.fromkeys(THREAD_LIMITS, str(threads))
    with job.log.open("w", encoding="utf-8") as log:
        log.write(shlex.join(job.command) + "\n")
        log.flush()
        return subprocess.Popen(
            job.command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **limits},
            start_new_session=True,  # Ctrl-C in the terminal is for the parent
        )


def _stop(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _cut_lifeline(process)


def _cut_lifeline(process: subprocess.Popen) -> None:
    assert process.stdin is not None
    process.stdin.close()


def end_with_parent() -> None:
    """Make this process, a child of `run_jobs`, end as soon as its parent has ended."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    from .main import main

    end_with_parent()
    main(prog_name="rlenv")
