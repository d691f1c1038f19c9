"""The one timing loop: pairs of measurements taken in turn, and the row of results made of them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import torch

THREADS = 2
PACKAGES = ("torch", "transformers", "gymnasium", "stable-baselines3", "trl", "numpy")


@dataclass
class Row:
    """One line of a benchmark's table.

    Attributes:
        name: what is measured.
        ratio: how many times better ours is: median, min and max over the pairs.
        ours: our median, in `unit`.
        peer: the peer's median.
        unit: of both.
        pairs: number of pairs.
        quality: evidence that both sides do the same work equally well.
        details: other figures.
    """

    name: str
    ratio: dict[str, float]
    ours: float
    peer: float
    unit: str
    pairs: int
    quality: str
    details: dict[str, Any] = field(default_factory=dict)

    def as_dict(self, command: str) -> dict[str, Any]:
        """Return the row for the results, with machine, versions, command and date."""
        where = {"machine": machine(), "versions": versions(), "command": command}
        return asdict(self) | where | {"date": datetime.date.today().isoformat()}


Pair = Callable[[], tuple[float, float]]


@dataclass
class Case:
    """One comparison of a benchmark.

    Attributes:
        name: what is measured.
        unit: of both figures.
        pair: takes a turn of each side; returns the figures of ours and of the peer.
        quality: evidence, asked for after the last pair.
        details: other figures, asked for after the last pair.
        less_is_better: whether the figures are times.
        warm_up: pairs that are dropped at first.
    """

    name: str
    unit: str
    pair: Pair
    quality: Callable[[], str] = str
    details: Callable[[], dict[str, Any]] = dict
    less_is_better: bool = True
    warm_up: int = 1


def rows(cases: Iterable[Case], pairs: int, minutes: float | None = None) -> Iterator[Row]:
    """Measure each case in turn; yield its row as soon as it is made.

    When the minutes are used up, no further case begins, and standard error names the cases not measured.

    Raises:
        RuntimeError: of the first case that failed, such as by too little memory, after all others.
    """
    began, failed = time.monotonic(), None
    for case in cases:
        if minutes is not None and time.monotonic() - began >= 60 * minutes:
            print(f"the time is used up; not measured: {case.name} and what follows", file=sys.stderr)
            break
        try:
            yield measured(case, pairs)
        except RuntimeError as error:
            print(f"{case.name} failed: {error}", file=sys.stderr)
            failed = failed or error
    if failed is not None:
        raise failed


def measured(case: Case, pairs: int) -> Row:
    """Take so many pairs after the warm-up; return the row."""
    taken = [case.pair() for _ in range(case.warm_up + pairs)][case.warm_up :]
    ratios = [peer / ours if case.less_is_better else ours / peer for ours, peer in taken]
    ratio = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    ratio = {key: round(value, 3) for key, value in ratio.items()}
    ours, peer = (float(f"{statistics.median(side):.4g}") for side in zip(*taken, strict=True))
    return Row(case.name, ratio, ours, peer, case.unit, pairs, case.quality(), case.details())


def in_turn(ours: Callable[[], float], peer: Callable[[], float]) -> Pair:
    """Return a function that measures ours, then the peer."""
    return lambda: (ours(), peer())


def mean_and_range(values: list[float]) -> str:
    """Return "mean (least to largest)", or the only value."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


class Side:
    """A separate process that takes turns: for every line it gets it answers with the figures of a turn, as JSON.

    So the sides of a comparison have a peak of memory each, and still run in turn.

    Args:
        module: which loops over `wait_for_turns`.
        arguments: of its command line.

    Raises:
        RuntimeError: from any call if the process has failed, with the end of what it said.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self.said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (closed at the end)
        command = [sys.executable, "-m", module, *arguments]
        self.name = " ".join(command[2:])
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.said}
        self.process = subprocess.Popen(command, text=True, **pipes)

    def __enter__(self) -> Self:
        self._answer()  # it is ready
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self.process.kill()
        self.process.communicate()
        self.said.close()

    def turn(self) -> dict[str, Any]:
        """Let it take a turn; return the figures."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the answer says why
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.said.seek(0)
            raise RuntimeError(f"{self.name} failed with status {status}: {self.said.read()[-500:]}")
        return json.loads(line)


def wait_for_turns() -> Iterator[Callable[[dict[str, Any]], None]]:
    """In a `Side`, yield once for every turn: a function that answers with its figures, to which its peak is added."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not be taken for an answer

    def answer(figures: dict[str, Any]) -> None:
        print(json.dumps(figures), file=answers, flush=True)

    answer({})
    for _ in sys.stdin:
        yield lambda figures: answer(figures | {"peak": peak_memory()})


def peak_memory() -> float:
    """Return the largest memory of this process so far (RSS), in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def peak_of_gpu() -> float:
    """Return the peak of the device's memory in GiB since the last call; 0 without a GPU."""
    if not torch.cuda.is_initialized():
        return 0.0
    peak = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return peak


@contextmanager
def clock() -> Iterator[Callable[[], float]]:
    """Yield a function that returns the seconds since the block began, or its duration after it; waits for the GPU."""
    started, ended = now(), None
    yield lambda: (ended or now()) - started
    ended = now()


def now() -> float:
    """Return the seconds of a clock, after what the GPU has to do."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def machine() -> dict[str, Any]:
    """Return processor, number of cores and GPU."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.is_file() else []
    processor = names[0].split(":")[1].strip() if names else platform.processor()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": processor, "cores": os.cpu_count(), "gpu": gpu}


def versions() -> dict[str, str]:
    """Return the versions of Python and of `PACKAGES`."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
