"""A small parser for arithmetic: numbers, `+ - * /`, parentheses and spaces."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

LONGEST = 200  # characters
DEEPEST = 16  # parentheses inside each other
MOST_DIGITS = 9

_TOKENS = re.compile(rf"0|[1-9][0-9]{{0,{MOST_DIGITS - 1}}}|[-+*/()]")
_SUMS: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS = ("*", "/")


class ExpressionError(ValueError):
    """The text is not an expression, or its value is not whole."""


def evaluate(text: str, whole: bool = True) -> tuple[int | Fraction, list[int]]:
    """Return the value of an expression and the numbers in it, in order.

    Products come before sums, both from left to right. Numbers have no sign and no leading zero.

    Args:
        text: any text.
        whole: whether divisions must not leave a remainder; otherwise the value may be a fraction.

    Raises:
        ExpressionError: if it is longer than `LONGEST`, nested deeper than `DEEPEST`, or not an expression.
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"longer than {LONGEST} characters")
    parser = _Parser(_tokens(text), whole)
    value = parser.sum(0)
    if parser.next:
        raise ExpressionError(f"{parser.next!r} is left over")
    return value, parser.numbers


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    while position < len(text):
        if text[position] == " ":
            position += 1
            continue
        found = _TOKENS.match(text, position)
        if not found:
            raise ExpressionError(f"{text[position]!r} cannot be part of an expression")
        tokens.append(found.group())
        position = found.end()
    return tokens


class _Parser:
    """sum = product (("+" | "-") product)*; product = atom (("*" | "/") atom)*; atom = number | "(" sum ")"."""

    def __init__(self, tokens: list[str], whole: bool) -> None:
        self._whole = whole
        self.numbers: list[int] = []
        self._rest = [*tokens, ""][::-1]

    @property
    def next(self) -> str:
        return self._rest[-1]

    def sum(self, depth: int) -> int | Fraction:
        value = self._product(depth)
        while self.next in _SUMS:
            apply = _SUMS[self._rest.pop()]
            value = apply(value, self._product(depth))
        return value

    def _product(self, depth: int) -> int | Fraction:
        value = self._atom(depth)
        while self.next in _PRODUCTS:
            if self._rest.pop() == "*":
                value *= self._atom(depth)
            else:
                value = _divided(value, self._atom(depth), self._whole)
        return value

    def _atom(self, depth: int) -> int | Fraction:
        if self.next.isdigit():
            self.numbers.append(int(self._rest.pop()))
            return self.numbers[-1]
        if self.next != "(" or depth == DEEPEST:
            raise ExpressionError(f"a number or a parenthesis was expected, not {self.next!r}")
        self._rest.pop()
        value = self.sum(depth + 1)
        if self.next != ")":
            raise ExpressionError("a parenthesis is not closed")
        self._rest.pop()
        return value


def _divided(value: int | Fraction, by: int | Fraction, whole: bool) -> int | Fraction:
    if by == 0 or (whole and value % by):
        raise ExpressionError("a division by zero, or one that does not come out even")
    return value // by if whole else Fraction(value) / by
