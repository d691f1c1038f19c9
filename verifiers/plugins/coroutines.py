"""Coroutines of user code, run to their end from code that is not async."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def wait_for(result: Awaitable[Any]) -> Any:
    """Run a coroutine to its end, even if an event loop is already running (as in a notebook).

    All coroutines of a process share one loop, so that a connection which one call opens serves the next.
    """
    import asyncio  # slow, and every worker process would wait for it

    async def finish() -> tuple[Any, BaseException | None]:
        try:
            return await result, None
        except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop
            return None, error

    future = asyncio.run_coroutine_threadsafe(finish(), _loop())
    try:
        value, error = future.result()
    finally:
        future.cancel()  # if waiting was interrupted
    if error is not None:
        raise error
    return value


@lru_cache(maxsize=1)
def _loop() -> AbstractEventLoop:
    """Return the loop, which runs in a thread of its own until the process ends."""
    import asyncio

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="coroutines", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.cache_clear)  # threads do not survive a fork
