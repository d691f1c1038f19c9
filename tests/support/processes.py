"""Processes that carry a mark in their environment, so that a test finds what it has started, and all below it.

And `rlenv` commands under torchrun, as a user starts them.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

MARK = "RLENV_TEST_MARK"


def new_mark():
    return f"{os.getpid()}-{time.monotonic_ns()}"


def processes_of(mark):
    """Return the living processes with the mark; this one is left out."""
    found = psutil.process_iter(["environ"])
    return [one.pid for one in found if (one.info["environ"] or {}).get(MARK) == mark and one.pid != os.getpid()]


def open_descriptors():
    folder = Path("/proc/self/fd")
    return {entry.name for entry in folder.iterdir()} if folder.exists() else set()


def until(condition, seconds=60.0):
    """Wait until a condition holds, and return its value."""
    held = eventually(condition, seconds)
    assert held, f"it does not hold after {seconds:.0f} s"
    return held


def eventually(condition, seconds=60.0):
    """Wait until a condition holds, and return its last value."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds


def kill_all(mark):
    for pid in processes_of(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Jobs:
    """Starts commands in a folder; none is left at the end."""

    def __init__(self, folder):
        self.folder, self.started = folder, []

    def start(self, *args, processes=2, program=("-m", "rlenv")):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        job = subprocess.Popen(
            [*command, *program, *map(str, args)], cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(job)
        return job

    def run(self, *args, processes=2):
        return finished(self.start(*args, processes=processes))

    def close(self):
        for job in self.started:
            if job.poll() is None:
                for process in [*psutil.Process(job.pid).children(recursive=True), psutil.Process(job.pid)]:
                    process.kill()
                job.communicate()


def finished(job):
    """Return the exit code of a job, and what it printed on both streams."""
    out, errors = job.communicate(timeout=600)
    return job.returncode, out, errors


def worker(job, rank):
    """Return the process of a job with this rank, as soon as it has begun."""

    def begun():
        return [child for child in psutil.Process(job.pid).children() if child.environ().get("RANK") == str(rank)]

    return until(begun)[0]
