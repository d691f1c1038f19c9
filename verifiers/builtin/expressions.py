"""Arithmetic as puzzles have it: numbers, `+ - * /`, parentheses and spaces."""

from __future__ import annotations

import ast
import re
from fractions import Fraction

from ..dialogues.tools.calculator import OPERATORS, calculate

LONGEST = 200  # characters
_FORM = re.compile(r"(?:[-+*/() ]|(?<![0-9])(?:0|[1-9][0-9]{0,8})(?![0-9]))*+")
_KINDS: tuple[type, ...] = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_ALLOWED = {kind: OPERATORS[kind] for kind in _KINDS}


class ExpressionError(ValueError):
    """The text is not an expression."""


def evaluate(text: str) -> tuple[Fraction, list[Fraction]]:
    """Return the exact value of an expression and the numbers in it, in order.

    Products come before sums, both from left to right. Numbers have no sign, no leading zero, and at most nine digits.

    Args:
        text: any text.

    Raises:
        ExpressionError: if it is longer than `LONGEST`, not an expression, or divides by zero.
    """
    if len(text) > LONGEST or not _FORM.fullmatch(text):
        raise ExpressionError(f"not an expression of at most {LONGEST} characters: {text[:40]}")
    try:
        return calculate(text, _ALLOWED)
    except ValueError as error:
        raise ExpressionError(str(error)) from error
