"""Processes that carry a mark in their environment, so that a test finds what it has started, and all below it."""

import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "RLENV_TEST_MARK"


def new_mark():
    return f"{os.getpid()}-{time.monotonic_ns()}"


def processes_of(mark):
    """Return the living processes with the mark; this one is left out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes() and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


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
