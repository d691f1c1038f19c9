"""Run `rlenv train` with several seeds in this process, each in a thread; see agents/rollouts/seed_stack.py."""

from __future__ import annotations

import shlex
import sys
import threading
import traceback
from collections.abc import Generator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import partial
from typing import Any, TextIO

import click

from agents.rollouts.seed_stack import Stack

from ..console.errors import explain
from ..runs.children import Job
from ..training.command import train


class _ByThread:
    """A standard stream whose place the log of a thread takes in that thread."""

    def __init__(self, otherwise: TextIO, logs: dict[int, TextIO]) -> None:
        self.otherwise, self.logs = otherwise, logs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logs.get(threading.get_ident(), self.otherwise), name)


def run_together(groups: Sequence[Sequence[Job]]) -> Generator[tuple[Job, int], None, None]:
    """Run the jobs of each group together, group after group; yield each job as it ends, with its exit code.

    Close the generator to end the others early.

    Args:
        groups: jobs of the command `train` whose options are the same but for the seed and the folder.
    """
    logs: dict[int, TextIO] = {}
    out: Any = _ByThread(sys.stdout, logs)
    err: Any = _ByThread(sys.stderr, logs)
    with redirect_stdout(out), redirect_stderr(err):
        for jobs in filter(None, groups):
            with closing(Stack([partial(_run, job, logs) for job in jobs]).run()) as ended:
                for i, code, error in ended:
                    yield jobs[i], 1 if error is not None else code


def _run(job: Job, logs: dict[int, TextIO]) -> int:
    """Do in this thread what the process of a job does; return its exit code."""
    arguments = list(job.command[job.command.index(str(train.name)) + 1 :])
    with job.log.open("w", encoding="utf-8") as log:
        log.write(shlex.join(job.command) + "\n")
        logs[threading.get_ident()] = log
        try:
            code = train.main(arguments, prog_name=f"rlenv {train.name}", standalone_mode=False)
        except SystemExit as end:
            code = end.code
        except Exception as error:
            said = (
                (error.format_message(), error.exit_code) if isinstance(error, click.ClickException) else explain(error)
            )
            log.write(f"Error: {said[0]}\n" if said else traceback.format_exc())
            code = said[1] if said else 1
        finally:
            del logs[threading.get_ident()]
    return code if isinstance(code, int) else 0
