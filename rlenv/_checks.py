"""Checks that all packages share, and the wording of errors from other libraries."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Integral
from typing import Any

SHOWN = 200  # characters of a wrong value in a message


def check_count(name: str, value: Any, low: int | None = 1, high: float | None = None) -> int:
    """Return a whole number, which may be written as 1e3, of at least `low` and at most `high`; None for no limit.

    Raises:
        ValueError: naming the parameter, the value and the allowed ones.
    """
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    inside = whole and (low is None or value >= low) and (high is None or value <= high)
    if isinstance(value, bool) or not inside:
        limits = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
        of = f" of {' and '.join(limits)}" if limits else ""
        raise ValueError(f"{name} must be a whole number{of}, got {value!r:.{SHOWN}}")
    return int(value)


def check_flag(name: str, value: Any) -> bool:
    """Return True or False.

    Raises:
        ValueError: for anything else, naming the parameter and the value.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r:.{SHOWN}}")
    return value


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return one of the allowed names.

    Raises:
        ValueError: naming the parameter, the value, the allowed ones and the closest match.
    """
    names = list(allowed)
    if value in names:
        return value
    close = difflib.get_close_matches(str(value)[:SHOWN], names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ValueError(f"unknown {name} {value!r:.{SHOWN}}; {hint}allowed: {', '.join(names)}")


def message_of(error: BaseException) -> str:
    """Return the message of an exception; empty if the exception raises another one when it is asked."""
    try:
        return str.__str__(str(error))  # a plain text, whatever its class
    except (Exception, SystemExit):
        return ""


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message; its type if it has none."""
    return (message_of(error).strip().splitlines() or [type(error).__name__])[0]
