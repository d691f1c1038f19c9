"""Checks that all packages share, optional modules, and the wording of errors from other libraries."""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

SHOWN = 200  # characters of a wrong value in a message
MANY = 80  # names, too many for a message


def in_one_line(value: Any) -> str:
    """Return a wrong value for a message; the text of a model or a table has many lines."""
    return repr(value).replace("\n", " ")[:SHOWN]


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
        raise ValueError(f"{name} must be a whole number{of}, got {in_one_line(value)}")
    return int(value)


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number, also as a float: 10**400 is none. A flag is none."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def check_number(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, above: bool = False, below: bool = False
) -> float:
    """Return a finite number from `low` to `high`.

    Args:
        name: of the parameter.
        value: to be checked.
        low: the smallest allowed number, not allowed itself if `above`.
        high: the largest allowed number.
        above: whether the number must be larger than `low`.
        below: whether the number must be smaller than `high`.

    Raises:
        ValueError: naming the parameter, the value and the allowed ones.
    """
    if not is_number(value) or not low <= value <= high or (above and value == low) or (below and value == high):
        least = "" if low == -math.inf else f" above {low:g}" if above else f" of at least {low:g}"
        most = "" if high == math.inf else f" and below {high:g}" if below else f" and at most {high:g}"
        raise ValueError(f"{name} must be a finite number{least}{most}, got {in_one_line(value)}")
    return float(value)


def check_schedule(name: str, value: Any, **bounds: Any) -> Any:
    """Return a number, or a function of the remaining progress with a number as first value; see `check_number`."""
    if callable(value):
        check_number(name, value(1.0), **bounds)
        return value
    return check_number(name, value, **bounds)


def check_flag(name: str, value: Any) -> bool:
    """Return True or False.

    Raises:
        ValueError: for anything else, naming the parameter and the value.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {in_one_line(value)}")
    return value


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return one of the allowed names.

    Raises:
        ValueError: naming the parameter, the value, the allowed ones and the closest match.
    """
    names = list(allowed)
    if value in names:
        return value
    raise ValueError(f"unknown {name} {in_one_line(value)}; {closest(value, names)}")


def closest(value: Any, names: Sequence[str]) -> str:
    """Return the known name that is closest to an unknown one, if any, and all of them; of very many how many."""
    few = ", ".join(names) if len(names) <= MANY else f"{len(names)} names, such as {names[0]}"
    return f"{did_you_mean(value, names)}allowed: {few}"


def did_you_mean(value: Any, names: Iterable[str]) -> str:
    """Return the question about the name that is closest to an unknown one, and a space; empty if none is close."""
    close = difflib.get_close_matches(str(value)[:SHOWN], list(names), n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def require(module: str, extra: str, purpose: str) -> Any:
    """Return an optional module.

    Args:
        module: what to import.
        extra: the extra of this package that installs it.
        purpose: what needs it, such as "verifier 'math'".

    Raises:
        ValueError: if it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{purpose} needs {module}: pip install 'rlenv-lm[{extra}]' ({error})") from error


@contextmanager
def quiet(logging: Any) -> Iterator[None]:
    """Have a library of Hugging Face, given its module `logging`, report errors alone for a while."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def message_of(error: BaseException) -> str:
    """Return the message of an exception; empty if the exception raises another one when it is asked."""
    try:
        return str.__str__(str(error))  # a plain text, whatever its class
    except (Exception, SystemExit):
        return ""


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message; its type if it has none."""
    return (message_of(error).strip().splitlines() or [type(error).__name__])[0]
