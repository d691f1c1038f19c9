"""Whether two texts are the same answer, and which wrong numbers are close to a right one."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

NUMBER = re.compile(r"[-+]?(?:[0-9]{1,60}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})")


def same(text: str, other: str) -> bool:
    """Tell whether two texts differ at most in case, spaces, ASCII punctuation, or notation of a number."""
    one, two = number(text), number(other)
    if one is not None and two is not None:
        rounding = 0 if one.denominator == two.denominator == 1 else max(abs(one), abs(two)) / 1000
        return abs(one - two) <= rounding
    letters = _letters(text)
    return text == other or (letters != "" and letters == _letters(other) and _operators(text) == _operators(other))


def near_misses(answer: str) -> list[str]:
    """Return wrong numbers close to a whole number, in value or in writing; empty for other texts."""
    if not re.fullmatch(r"-?[0-9]{1,15}", answer):
        return []
    value = int(answer)
    close = [value + 1, value - 1] if abs(value) < 1000 else []  # a tolerance may be relative
    return [str(each) for each in (*close, 2 * value + 7, 10 * value + 3)]


@lru_cache(maxsize=64)  # one text is compared with many
def number(text: str) -> Fraction | None:
    """Return the number that a text is, in ASCII digits; None if it is not a number."""
    return Fraction(text.strip().rstrip(".")) if NUMBER.fullmatch(text.strip()) and text.strip(" .+-") else None


@lru_cache(maxsize=64)
def _letters(text: str) -> str:
    return re.sub(r"[\s!-/:-@[-`{-~]+", "", text).casefold() if len(text) <= 1000 else text


def _operators(text: str) -> str:
    """Return the operators between numbers: 1+2 and 1-2 have the same letters."""
    return re.sub(r"[^-+*/^=]", "", text) if re.search("[0-9]", text) else ""
