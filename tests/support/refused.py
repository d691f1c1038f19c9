"""The one check of all refusals."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest


def row(make: Callable[..., Any], arguments: dict[str, Any], *names: str) -> Any:
    """Return a row of a refusal table; without names, the first argument and its value are what has to be named."""
    setting, value = next(iter(arguments.items()), ("", ""))
    name = re.sub(r" at 0x\w+", "", f"{make.__name__}-{arguments}")  # the same in every process
    return pytest.param(make, arguments, names or (setting, repr(value)), id=name[:80])


def check_refused(make: Callable[..., Any], arguments: dict[str, Any], names: Sequence[str]) -> str:
    """Check that a call is a ValueError or TypeError of one line that has all the names, and return the line."""
    return refusal(lambda: make(**arguments), *names, kind=(ValueError, TypeError))


def refusal(call: Callable[[], Any], *names: str, kind: Any = ValueError) -> str:
    """Check that a call is an error of this kind, of one line that has all the names, and return the line."""
    with pytest.raises(kind) as refused:
        call()
    message = str(refused.value)
    assert "\n" not in message and [name for name in names if name not in message] == [], message
    return message
