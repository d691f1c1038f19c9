"""Progress on stderr, as bars or as plain lines, and a clean end on signals."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

console = Console(stderr=True)
LINE_SECONDS, LINE_SHARE = 60.0, 0.05  # a plain line is printed after either
Show = Callable[..., None]  # of the amount done and a note


def say(text: str, quiet: bool = False) -> None:
    """Print a line on stderr; a `quiet` one only where no bar is shown."""
    if not (quiet and console.is_terminal):
        console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def progress_bar(title: str, total: int, done: int = 0) -> Iterator[Show]:
    """Show progress, as a bar on a terminal and elsewhere as a line per minute or per 5 %.

    Yields:
        A function of the amount done and a note.
    """
    if not console.is_terminal:
        yield PlainProgress(title, total, done)
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total, completed=done, note="")
        yield lambda amount, note="": progress.update(task, completed=amount, note=note)


class PlainProgress:
    """Prints a line when a minute has gone or 5 % more is done.

    Args:
        title: of the work.
        total: the amount of work.
        done: what was done before.
    """

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        self.title, self.total, self.before = title, total, done
        self._shown, self._started = done, time.monotonic()
        self._at = self._started

    def __call__(self, done: int, note: str = "") -> None:
        """Print a line, if it is time."""
        now = time.monotonic()
        complete = done >= self.total > self._shown
        if not complete and done - self._shown < LINE_SHARE * self.total and now - self._at < LINE_SECONDS:
            return
        self._shown, self._at = done, now
        seconds = now - self._started
        left = seconds * max(self.total - done, 0) / max(done - self.before, 1)
        say(f"{self.title}: {done / self.total:4.0%}  {seconds:.0f} s, {left:.0f} s left  {note}".rstrip())


class SignalError(Exception):
    """Work that nobody needs to finish was ended by a signal."""


class Interrupt:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP into a flag, so that work ends between two steps; a second one aborts.

    A signal that the process ignores stays ignored, such as SIGHUP under `nohup`.

    Attributes:
        asked: the number of the signal, 0 before.
    """

    def __init__(self) -> None:
        self.asked = 0

    def __enter__(self) -> Interrupt:
        numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
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
            say(f"{signal.Signals(number).name}: stopping and saving; once more aborts without saving")
