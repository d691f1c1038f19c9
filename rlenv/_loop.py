"""Event loops and threads that a process waits for; the module imports nothing of rlenv, so that all may share it."""

from __future__ import annotations

import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from concurrent.futures import Future

G = TypeVar("G")
T = TypeVar("T")
SOON = 0.1  # seconds between two questions whether a wait goes on
_loops: dict[str, tuple[AbstractEventLoop, threading.Thread]] = {}
_making = threading.RLock()  # two threads that ask first get the same loop


def wait_for(result: Any, whose: str = "coroutines") -> Any:
    """Return a result, of a coroutine at its end, even if an event loop is already running (as in a notebook).

    Coroutines of one kind share a loop, so that a connection which one call opens serves the next. The user's may
    block it, so requests with a deadline and worker processes have others.
    """
    if not inspect.isawaitable(result):
        return result
    import asyncio  # slow, and every worker process would wait for it and for the next one
    from concurrent.futures import ThreadPoolExecutor

    async def finish() -> tuple[Any, BaseException | None]:
        try:
            return await result, None
        except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop
            return None, error

    loop, thread = _loop(whose)
    if threading.current_thread() is thread:  # a coroutine called us: the loop waits for it, and cannot run another
        with ThreadPoolExecutor(1) as apart:
            value, error = apart.submit(asyncio.run, finish()).result()
    else:
        future = asyncio.run_coroutine_threadsafe(finish(), loop)
        try:
            value, error = future.result()
        finally:
            future.cancel()  # if waiting was interrupted
    if error is not None:
        raise error
    return value


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether a function, a method, a partial one or an object that is called returns coroutines."""
    while isinstance(function, partial):
        function = function.func
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def begin(coroutine: Coroutine[Any, Any, Any], whose: str) -> Future[Any]:
    """Start a coroutine in the loop of its kind; return the future of its result."""
    import asyncio

    return asyncio.run_coroutine_threadsafe(coroutine, _loop(whose)[0])


def runs_in(whose: str = "coroutines") -> bool:
    """Tell whether the caller runs in the loop of this kind, which cannot run others until it returns.

    The loop is made if there is none, so that threads that begin afterwards find the same.
    """
    return threading.current_thread() is _loop(whose)[1]


def _loop(whose: str) -> tuple[AbstractEventLoop, threading.Thread]:
    """Return the loop and the thread in which it runs until the process ends."""
    import asyncio

    with _making:
        if whose not in _loops:
            loop = asyncio.new_event_loop()
            _loops[whose] = loop, threading.Thread(target=loop.run_forever, name=whose, daemon=True)
            _loops[whose][1].start()
        return _loops[whose]


def always() -> bool:
    """Return True."""
    return True


@contextmanager
def in_threads(work: Callable[[G], T], given: Sequence[G], most: int) -> Iterator[list[Future[T]]]:
    """Call a function that waits with each of some values, in so many threads at most; yield futures of its results.

    Neither an interrupt nor the end of the process waits for the threads, as it would for those of an executor. After
    an error, the calls that have not begun have the same one.
    """
    from concurrent.futures import Future  # slow, as asyncio is

    asked = [(each, Future[T]()) for each in given]
    waiting = deque(asked)

    def call() -> None:
        with suppress(IndexError):  # none is left
            while True:
                each, future = waiting.popleft()
                try:
                    future.set_result(work(each))
                except BaseException as error:  # whatever it raises goes to who asked
                    future.set_exception(error)
                    while True:
                        waiting.popleft()[1].set_exception(error)

    try:
        for _ in range(min(len(given), most)):
            threading.Thread(target=call, daemon=True).start()
        yield [future for _, future in asked]
    finally:
        waiting.clear()


def results(futures: Sequence[Future[T]], goes_on: Callable[[], bool]) -> list[T]:
    """Return the results of futures once all are there, which may be made only when they are asked for.

    Raises:
        CancelledError: if `goes_on` returns False before.
    """
    from concurrent.futures import CancelledError

    for future in futures:
        while True:
            with suppress(TimeoutError):
                future.exception(SOON)
            if future.done():
                break
            if not goes_on():
                raise CancelledError("the wait was ended")
    return [future.result() for future in futures]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loops.clear)  # threads do not survive a fork
