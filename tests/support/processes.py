"""Processes that carry a mark in their environment, so that a test finds what it has started, and all below it."""

import contextlib
import os
import signal
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
    """Wait until a condition holds."""
    assert eventually(condition, seconds), f"it does not hold after {seconds:.0f} s"


def eventually(condition, seconds=60.0):
    """Wait until a condition holds, and tell whether it does."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds


def kill_all(mark):
    for pid in processes_of(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
