"""Progress on stderr, as a live line or as plain lines, and a clean end on signals."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from .terminal import console, interactive, plain

LINE_SECONDS, LINE_SHARE = 60.0, 0.05  # a plain line is printed after either,
LEAST_SECONDS = 2.0  # but no sooner than this after the one before
REDRAWN, FIGURES = 4, 90  # live lines per second; columns of one without its bar
Show = Callable[..., None]  # of the amount done and a note; see `progress_bar`
_bars: list[Console] = []  # of the bars on the screen: lines printed by their console go above them


def say(text: str, quiet: bool = False) -> None:
    """Print a line on stderr; a `quiet` one only where no bar is shown."""
    if not (quiet and interactive(sys.stderr)):
        _console().print(plain(text), markup=False, soft_wrap=True)


def _console() -> Console:
    return _bars[-1] if _bars else console(error=True)


@contextmanager
def progress_bar(title: str, total: int, done: int = 0, passing: bool = False) -> Iterator[Show]:
    """Show progress, as a line of rich's that is redrawn on a terminal and elsewhere as a few lines.

    Args:
        title: of the work.
        total: the amount of work.
        done: what was done before.
        passing: whether the line vanishes at the end, and short work prints none.

    Yields:
        A function of the amount done and a note.
    """
    if not interactive(sys.stderr):
        yield _lines(title, total, done, passing)
        return
    _bars.append(_console())
    try:
        with _live(_bars[-1], passing) as progress:
            task = progress.add_task(title, total=total, completed=done, note="")

            def show(amount: int, note: str = "") -> None:
                progress.update(task, completed=amount, note=plain(note))

            yield show
    finally:
        _bars.pop()


def _live(screen: Console, passing: bool) -> Progress:
    """Return a line of progress that is cut at the width of the terminal."""
    columns = (
        TextColumn("{task.description}"),
        *([BarColumn(min(screen.width - FIGURES, 40))] if screen.width > FIGURES else []),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn(" {task.fields[note]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
    )
    return Progress(*columns, console=screen, transient=passing, refresh_per_second=REDRAWN, expand=True)


def _lines(title: str, total: int, before: int, passing: bool) -> Show:
    """Return what prints a line after a minute, or after 5 % of the work and two seconds, and at the end."""
    shown, started = before, time.monotonic()
    at = started

    def show(done: int, note: str = "") -> None:
        nonlocal shown, at
        now = time.monotonic()
        complete = not passing and done >= total > shown
        enough = done - shown >= LINE_SHARE * total and now - at >= LEAST_SECONDS
        if complete or enough or now - at >= LINE_SECONDS:
            shown, at, moved = done, now, max(done - before, 1)
            took = now - started
            passed, left = (timedelta(seconds=round(each)) for each in (took, took * max(total - done, 0) / moved))
            say(f"{title}: {min(done / total, 1):4.0%}  {passed}, {left} left  {note}".rstrip())

    return show


class Rate:
    """Says how fast something such as "tokens" has been counted since the first count."""

    def __init__(self, unit: str, count: int = 0) -> None:
        self.unit, self._begun, self._count = unit, time.monotonic(), count

    def __call__(self, count: int) -> str:
        """Return the rate, such as "1,234 tokens/s"."""
        return f"{(count - self._count) / max(time.monotonic() - self._begun, 1e-9):,.0f} {self.unit}/s"


def before_first_end(steps: int, unit: str) -> str:
    """The note of progress while no episode has ended, such as "1,234 steps, no episode has ended yet"."""
    return f"{steps:,} {unit}, no episode has ended yet"


class SignalError(Exception):
    """Work that need not be finished was ended by a signal."""


class Interrupt:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP into a flag, so that work ends between two steps; a second one aborts.

    A signal that the process ignores stays ignored, such as SIGHUP under `nohup`.

    Args:
        said: about what the first one does, and a second one.

    Attributes:
        asked: the number of the signal, 0 before.
    """

    def __init__(self, said: str = "stopping and saving; once more aborts without saving") -> None:
        self.said, self.asked = said, 0

    def __enter__(self) -> Interrupt:
        numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
        if threading.current_thread() is not threading.main_thread():
            numbers = []  # only the main thread gets signals
        heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._handle) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def check(self, *_: object) -> bool:
        """Return True; raise `SignalError` after a signal."""
        if self.asked:
            raise SignalError
        return True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt(number)
        self.asked = number
        with suppress(OSError, RuntimeError):  # the terminal has gone, or this came in the middle of another line
            say(f"{signal.Signals(number).name}: {self.said}")
