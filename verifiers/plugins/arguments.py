"""Checks of arguments, and of the optional packages of a verifier; a failed check is a ValueError of one line."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rlenv._checks import in_one_line, is_number

MANY = 50  # names, too many for a message


def not_negative(owner: str, name: str, value: Any) -> Fraction:
    """Return a finite number of at least 0 as the exact fraction that its decimal digits mean."""
    if not isinstance(value, (int, float)) or not is_number(value) or value < 0:
        raise ValueError(f"{owner}: {name} must be a number of at least 0, got {in_one_line(value)}")
    return Fraction(str(value))


def hint(name: Any, known: Sequence[str]) -> str:
    """Return the known names closest to an unknown one; without any, all of them, or of very many how many."""
    close = difflib.get_close_matches(str(name), known, n=3)
    if not close and len(known) > MANY:
        return f"there are {len(known)}, such as {known[0]}"
    return f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(known)}"


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
