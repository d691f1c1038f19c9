"""Progress on stderr, as a live line or as plain lines, and a clean end on signals."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from .terminal import console, plain
from .torchrun import count

LINE_SECONDS = 20.0  # between two plain lines
REDRAWN, BAR = 4, 20  # live lines per second; columns of a bar
Show = Callable[..., None]  # of the amount done, a note and the amount of work; see `progress_bar`


def say(text: str) -> None:
    """Print a line on stderr, above a bar if there is one."""
    click.echo(plain(text), err=True)


@contextmanager
def progress_bar(title: str, total: int, done: int = 0, passing: bool = False) -> Iterator[Show]:
    """Show progress, as a line of rich's that is redrawn on a terminal and printed now and then elsewhere.

    Args:
        title: of the work.
        total: the amount of work.
        done: the work that was done before.
        passing: whether the line vanishes at the end, or none is printed then.

    Yields:
        A function of the amount done, a note, and the amount of work if that has turned out to be another one.
    """
    screen = console(error=True)
    live = screen.is_interactive and screen.file.isatty()  # FORCE_COLOR makes no terminal
    columns = (
        TextColumn("{task.description}:"),
        *([BarColumn(BAR)] if live else []),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn(" {task.fields[note]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
    )
    progress = Progress(
        *columns, console=screen, transient=passing, refresh_per_second=REDRAWN, expand=live, disable=not live
    )
    printed = time.monotonic()

    def show(amount: int, note: str = "", total: int | None = None) -> None:
        nonlocal printed
        progress.update(task, total=total, completed=amount, note=plain(note))
        if not live and time.monotonic() - printed >= LINE_SECONDS:
            printed = time.monotonic()
            screen.print(progress.get_renderable())

    with progress:
        task = progress.add_task(title, total=total, completed=done, note="")
        yield show
    if not (live or passing):
        screen.print(progress.get_renderable())


class Rate:
    """Says how fast steps of the environment, such as "tokens", have been counted since the first count."""

    def __init__(self, unit: str, count: int = 0) -> None:
        self.unit, self._begun, self._count = unit, time.monotonic(), count

    def __call__(self, count: int, ended: bool = True) -> str:
        """Return the rate, such as "1,234 tokens/s", or the steps taken while no episode has ended."""
        steps = count - self._count
        if not ended:
            return f"{steps:,} {self.unit}, no episode has ended yet"
        return f"{steps / max(time.monotonic() - self._begun, 1e-9):,.0f} {self.unit}/s"


def counting(show: Show, episodes: int, unit: str) -> Callable[[int, dict[str, Any]], bool]:
    """Return an `on_step` that shows how many of the episodes have ended, and the steps per second in this unit."""
    rate, done, steps = Rate(unit), 0, 0

    def on_step(taken: int, local: dict[str, Any]) -> bool:
        nonlocal done, steps
        all_of = count()  # the others have about as many
        done, steps = done + all_of * int(local["dones"].sum()), steps + all_of * taken
        show(min(done, episodes), rate(steps, ended=done > 0))
        return True

    return on_step


class SignalError(Exception):
    """Work that need not be finished was ended by a signal."""


class Interrupt:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP into a flag, so that work ends between two steps; a second one aborts.

    A signal that the process ignores stays ignored, such as SIGHUP under `nohup`.

    Args:
        notice: about what the first one does, and a second one.

    Attributes:
        signal: the number of the signal, 0 before.
    """

    def __init__(self, notice: str = "stopping and saving; once more aborts without saving") -> None:
        self.notice, self.signal = notice, 0

    def __enter__(self) -> Interrupt:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        listens = current_thread() is main_thread()  # Python lets no other thread handle signals
        heard = [number for number in numbers if listens and signal.getsignal(number) != signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._handle) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt(number)
        self.signal = number
        with suppress(OSError, RuntimeError):  # the terminal has gone, or this came in the middle of another line
            say(f"{signal.Signals(number).name}: {self.notice}")
