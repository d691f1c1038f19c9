"""`rlenv` commands under torchrun, as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

Job = subprocess.Popen[str]


class Jobs:
    """Starts commands in a folder; none is left at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Job] = []

    def start(self, *args: Any, processes: int = 2) -> Job:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        job = subprocess.Popen(
            [*command, "-m", "rlenv", *map(str, args)],
            cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(job)
        return job

    def run(self, *args: Any, processes: int = 2, seconds: float = 600) -> tuple[int, str, str]:
        """Run a command to its end; return its exit code, its output and its errors."""
        return finished(self.start(*args, processes=processes), seconds)

    def close(self) -> None:
        for job in self.started:
            if job.poll() is None:
                for process in [*psutil.Process(job.pid).children(recursive=True), psutil.Process(job.pid)]:
                    process.kill()
                job.communicate()


def finished(job: Job, seconds: float = 600) -> tuple[int, str, str]:
    out, errors = job.communicate(timeout=seconds)
    return job.returncode, out, errors


def worker(job: Job, rank: int, seconds: float = 60) -> psutil.Process:
    """Return the process of a job with this rank, as soon as it has begun."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for child in psutil.Process(job.pid).children():
            if child.environ().get("RANK") == str(rank):
                return child
        time.sleep(0.1)
    raise AssertionError(f"process {rank} has not begun")
