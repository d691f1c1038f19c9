"""Checks of arguments, and of the optional packages of a verifier; a failed check is a ValueError of one line."""

from __future__ import annotations

import importlib
from fractions import Fraction
from typing import Any

from rlenv._checks import in_one_line, is_number


def not_negative(owner: str, name: str, value: Any) -> Fraction:
    """Return a finite number of at least 0 as the exact fraction that its decimal digits mean."""
    if not isinstance(value, (int, float)) or not is_number(value) or value < 0:
        raise ValueError(f"{owner}: {name} must be a number of at least 0, got {in_one_line(value)}")
    return Fraction(str(value))


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
