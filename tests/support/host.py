"""Runs programs in the sandbox and looks at them from the outside."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from other_user import call
from processes import eventually

from verifiers.sandbox import run as sandbox
from verifiers.sandbox.run import Limits, Outcome

MARK = f"probe{os.getpid()}"


def run(files: dict[str, str], stdin: bytes = b"", limits: Limits | None = None, isolated: bool = True) -> Outcome:
    """Run a program as the user of this test."""
    return call(sandbox.run, files, stdin, limits, isolated)


def run_impatiently(files: dict[str, str], limits: Limits) -> Outcome:
    """Run a program and wait 0.3 s, not 10, for a guard that does not end; changes the process that calls it."""
    sandbox._STOP_S = 0.3
    return sandbox.run(files, limits=limits)


def output_of(program: str, isolated: bool = True, stdin: bytes = b"", **limits: float) -> str:
    """Return what a program writes to standard output."""
    return run({"main.py": program}, stdin, Limits(**limits), isolated).output.decode()


def outputs_at_once(program: str, count: int, **limits: float) -> list[str]:
    """Return what a program writes to standard output in each of several sandboxes of this user at the same time."""
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(sandbox.run, {"main.py": program}, limits=Limits(**limits)) for _ in range(count)]
        return [future.result().output.decode() for future in futures]


def ends_at_once(programs: Sequence[str], isolated: bool, **limits: float) -> dict[str, str]:
    """Return how programs end that run at the same time, each in a sandbox of this user."""
    with ThreadPoolExecutor(len(programs)) as pool:
        futures = [pool.submit(sandbox.run, {"main.py": each}, b"", Limits(**limits), isolated) for each in programs]
        return {program: future.result().ended for program, future in zip(programs, futures, strict=True)}


def named(name: str) -> str:
    """Return the lines by which a program gives itself a name that `processes_named` finds."""
    return f"import ctypes\nctypes.CDLL(None).prctl(15, b'{name}')\n"


def processes_named(name: str) -> list[int]:
    """Return the processes alive on this machine, in whatever namespace, that gave themselves this name."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and (fields := status_of(int(folder.name)))["Name"] == name:
                found += [int(folder.name)] * (fields["State"][0] not in "ZX")
    return found


def status_of(pid: int) -> dict[str, str]:
    """Return the fields of a process's status."""
    return dict(
        line.split(":\t")
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        if ":\t" in line
    )


def ancestors(pid: int) -> list[int]:
    """Return the parents of a process, the nearest first."""
    found = []
    while pid := int(status_of(pid)["PPid"]):
        found.append(pid)
    return found


@contextlib.contextmanager
def running(program: str = "") -> Iterator[int]:
    """Have a program do something and wait; give its process id on this machine, and end it."""
    name = f"{MARK}r"
    program += f"\n{named(name)}import time\ntime.sleep(100)\n"
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(run, {"main.py": program}, b"", Limits(seconds=100))
        try:
            assert eventually(lambda: processes_named(name))
            yield processes_named(name)[0]
        finally:
            for pid in processes_named(name):
                os.kill(pid, signal.SIGKILL)
        outcome.result()
