"""Run `rlenv` commands as child processes, several at a time; Ctrl-C and SIGTERM end them with their parent."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .progress import Interrupt

POLL_SECONDS, GRACE_SECONDS = 0.05, 5.0
OF_TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"}  # in a process
THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Child:
    """A command to run, and the file for the command itself, then its standard output and standard error."""

    command: tuple[str, ...]
    log: Path

    def last_line(self) -> str:
        """Return the last line of output that is not empty."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")[1:]
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def run_jobs(
    jobs: Sequence[Child], limit: int, threads: int, gpus: Sequence[str] = ()
) -> Generator[tuple[Child, int], None, None]:
    """Run jobs in this order, `limit` at a time with so many threads each; yield each with its exit code as it ends.

    Close the generator to end the children early. Ctrl-C, SIGTERM and SIGHUP end them with a `KeyboardInterrupt`.

    Args:
        jobs: to run.
        limit: how many at a time.
        threads: of each.
        gpus: as in CUDA_VISIBLE_DEVICES; a job sees the one with the fewest jobs. Empty for no choice.
    """
    waiting, running = list(jobs), dict[subprocess.Popen, tuple[Child, str]]()
    with Interrupt("ending the runs; once more kills them") as interrupt:
        try:
            while waiting or running:
                if interrupt.signal:
                    raise KeyboardInterrupt(interrupt.signal)
                while waiting and len(running) < limit:
                    job, busy = waiting.pop(0), [gpu for _, gpu in running.values()]
                    gpu = min(gpus, key=busy.count, default="")
                    running[_start(job, threads, gpu)] = job, gpu
                for process in [process for process in running if process.poll() is not None]:
                    yield running.pop(process)[0], process.returncode
                time.sleep(POLL_SECONDS)
        finally:
            _end(running)


def _start(job: Child, threads: int, gpu: str) -> subprocess.Popen:
    own = dict.fromkeys(THREAD_LIMITS, str(threads)) | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})
    inherited = {name: value for name, value in os.environ.items() if name not in OF_TORCHRUN}
    job.log.write_text(shlex.join(job.command) + "\n", encoding="utf-8")
    with job.log.open("a", encoding="utf-8") as log:
        return subprocess.Popen(
            job.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=inherited | own, start_new_session=True,
        )  # fmt: skip


def _end(processes: Collection[subprocess.Popen]) -> None:
    """End processes and their children; kill them after a while, or at a second signal."""
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        _signal(processes, signal.SIGTERM)
        for process in processes:
            process.wait(GRACE_SECONDS)
    _signal(processes, signal.SIGKILL)
    for process in processes:
        process.wait()


def _signal(processes: Collection[subprocess.Popen], number: int) -> None:
    """Send a signal to the groups of the processes that still run."""
    for process in processes:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
