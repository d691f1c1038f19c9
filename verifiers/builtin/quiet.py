"""A block in which Python does not warn about a model's text.

Python warns programmers: `[0--` may one day be another regular expression, `1is 1` another program. Where the text is a
model's, nobody can mend it, and with `-W error` the warning would take the place of the verdict.

`warnings.catch_warnings` changes and restores the filters of the whole process, so two threads that use it can leave
them changed. Here one filter is added and stays, which applies only to the thread, or the asyncio task, that is inside
`quiet`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


class _WhileQuiet:
    """In the place of a filter's regular expression, of which `warnings` calls `match` with the text of a warning."""

    def match(self, text: str) -> bool:
        return _QUIET.get()


_FILTER = ("ignore", _WhileQuiet(), Warning, None, 0)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore the warnings of this block, in this thread; also a decorator: `@quiet()`."""
    filters = cast("list[Any]", warnings.filters)
    if not filters or filters[0] is not _FILTER:  # the first one that matches counts
        filters.insert(0, _FILTER)
    token = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(token)
