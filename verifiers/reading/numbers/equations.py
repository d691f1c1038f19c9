"""Equations in text: whether their sides are the same number, so that "9 * 3 = 18" states nothing."""

from __future__ import annotations

import re
from fractions import Fraction

from ..expressions import ExpressionError, evaluate
from .plain import has_digit
from .quantities import Quantity, quantities
from .units import SIGN, UNIT, converted

EQUAL = re.compile(r"(?<![<>!≠:=])==?(?![=>])|\\(?:approx|equiv|cong|simeq)(?![a-z])|≅")
_CONVERSION = Fraction(2, 100)  # 5 miles = 8 km
_CLAUSE = re.compile(r"[,;:](?= )|\b(?:and|is|are|equals|becomes?|gives?|makes?)\b")  # 10% of 50 is 0.1 * 50
_CALCULATES = re.compile(r"[-+*/×÷·^]")
_WORDS = re.compile(rf"(?<=[0-9]) ?{UNIT}|{SIGN}|\\[a-z]+|[A-Za-z]+(?: of)?|[{{}}\\]")
_ARITHMETIC = re.compile(r"-?[0-9(][-0-9+*/(). ]*")
_REWRITES = [
    (re.compile(pattern), to)
    for pattern, to in (
        (r"(?:÷|\\div(?![a-z])) ?([0-9]+/[0-9]+)", r"/(\1)"),
        (r"÷|\\div(?![a-z])", "/"),
        (r"×|·|\\times|\\cdot|(?<=[0-9)]) ?x ?(?=[0-9(])", "*"),
        (r"([0-9.]+)%", r"(\1/100)"),
        (r"(?<=[0-9]),(?=[0-9]{3})", ""),
        (r"(?<=[-+*/]) ?-([0-9.]+)", r"(0-\1)"),
    )
]


def is_chain(sides: list[str], result: Quantity) -> bool:
    """Tell whether no side of an equation before its result is another number: "64 × 25 m = 1600 m = 1.6 km"."""
    for side in reversed(sides):
        *others, last = _CLAUSE.split(side)
        agrees = is_result(last, result)
        if agrees is False:
            return False
        if agrees is None or others:
            break
        result = _unconverted(last, result)
    return True


def _unconverted(side: str, result: Quantity) -> Quantity:
    """Return the quantity of a side that a result converts exactly into another unit, else the result."""
    found = quantities(side)
    if len(found) != 1 or not found[0].units or _CALCULATES.search(side):
        return result
    return found[0] if result.value in converted(found[0].value, found[0].units, result.units) else result


def is_result(side: str, result: Quantity) -> bool | None:
    """Tell whether one side of an equation is the result, rounded to its places; None if it cannot be calculated."""
    found = quantities(side)
    if len(found) == 1 and found[0].units and not _CALCULATES.search(side):
        values = converted(found[0].value, found[0].units, result.units)
        return any(abs(each - result.value) <= _CONVERSION * abs(each) for each in values) if values else None
    value = _value_of(side)
    if value is None:
        return None
    margin = Fraction(1, 2 * 10**result.places) if result.places else Fraction(0)
    points = result.percent and abs(value - 100 * result.value) <= 100 * margin
    return points or abs(value - result.value) <= margin


def _value_of(side: str) -> Fraction | None:
    """Return the value of arithmetic, without the words and units in it."""
    for pattern, to in _REWRITES:
        side = pattern.sub(to, side)
    bare = side.strip()
    if not _ARITHMETIC.fullmatch(bare):
        bare = _WORDS.sub(" ", bare).strip()
        if not _ARITHMETIC.fullmatch(bare) or not re.search(r"[0-9)] ?[-+*/] ?[0-9(]", bare):
            return None
    text = re.sub(r"([0-9]*)\.([0-9]+)", _as_fraction, bare.rstrip("."))
    if not has_digit(text):
        return None
    try:
        return Fraction(evaluate(f"0{text}" if text[0] == "-" else text, whole=False)[0])
    except ExpressionError:
        return None


def _as_fraction(found: re.Match[str]) -> str:
    return f"({int(found[1] + found[2])}/{10 ** len(found[2])})"
