"""`rlenv` commands under torchrun, as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from processes import eventually

Job = subprocess.Popen[str]


class Jobs:
    """Starts commands in a folder; none is left at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Job] = []

    def start(self, *args: Any, processes: int = 2, program: Sequence[str] = ("-m", "rlenv")) -> Job:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        job = subprocess.Popen(
            [*command, *program, *map(str, args)], cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(job)
        return job

    def run(self, *args: Any, processes: int = 2) -> tuple[int, str, str]:
        return finished(self.start(*args, processes=processes))

    def close(self) -> None:
        for job in self.started:
            if job.poll() is None:
                for process in [*psutil.Process(job.pid).children(recursive=True), psutil.Process(job.pid)]:
                    process.kill()
                job.communicate()


def finished(job: Job) -> tuple[int, str, str]:
    out, errors = job.communicate(timeout=600)
    return job.returncode, out, errors


def worker(job: Job, rank: int) -> psutil.Process:
    """Return the process of a job with this rank, as soon as it has begun."""
    found: list[psutil.Process] = []

    def begun() -> bool:
        children = psutil.Process(job.pid).children()
        found[:] = [child for child in children if child.environ().get("RANK") == str(rank)]
        return bool(found)

    assert eventually(begun), f"process {rank} has not begun"
    return found[0]
