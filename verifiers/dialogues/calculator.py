"""The tool `calculator`: arithmetic with exact numbers of bounded size."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from .toolbox import Tool

LONGEST = 200  # characters
LARGEST = 1000  # bits of a numerator or denominator, which a float still holds
_LETTERS = re.compile(r"[0-9+\-*/().%^×÷−\s]*")  # without letters, a number has no exponent
_NUMBER = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
_SPELLED = str.maketrans({"×": "*", "÷": "/", "−": "-", "^": "**", "\n": " "})
Operation = Callable[..., Fraction]
_ALLOWED = "only numbers, + - * / // % ** and parentheses"


def calc(expression: str) -> str:
    """Calculate an arithmetic expression.

    Args:
        expression: Numbers with + - * / // % ** and parentheses, such as (12+34)*5.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"an expression has at most {LONGEST} characters")
    if not _LETTERS.fullmatch(expression):
        raise ValueError(_ALLOWED)
    value, _ = calculate(expression.translate(_SPELLED), OPERATORS)
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.12g}"


def calculate(expression: str, operators: Mapping[type, Operation]) -> tuple[Fraction, list[Fraction]]:
    """Return the exact value of an expression, and the numbers in it, in order.

    Args:
        expression: numbers without exponents, operators and parentheses.
        operators: the allowed ones of `OPERATORS`.

    Raises:
        ValueError: for anything else, a division by zero, or a value that is too large.
    """
    numbers: dict[str, Fraction] = {}

    def name(found: re.Match[str]) -> str:  # a number becomes a name, for Python would round it
        numbers[f"n{len(numbers)}"] = Fraction(found[0])
        return f"n{len(numbers) - 1}"

    def value_of(node: ast.expr) -> Fraction:
        match node:
            case ast.Name(name) if name in numbers:
                return numbers[name]
            case ast.UnaryOp(kind, inner) if type(kind) in operators:
                return operators[type(kind)](value_of(inner))
            case ast.BinOp(left, kind, right) if type(kind) in operators:
                value = operators[type(kind)](value_of(left), value_of(right))
                if _bits(value) > LARGEST:
                    raise ValueError("the result is too large")
                return value
        raise ValueError(_ALLOWED)

    try:
        tree = ast.parse(_NUMBER.sub(name, expression).strip(), mode="eval").body
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"not an expression: {expression[:40]}") from error
    return value_of(tree), list(numbers.values())


def _divided(by: Callable[[Fraction, Fraction], Fraction | int]) -> Operation:
    def apply(left: Fraction, right: Fraction) -> Fraction:
        if right == 0:
            raise ValueError("division by zero")
        return Fraction(by(left, right))

    return apply


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ValueError("a power must be a whole number")
    if base == 0 and exponent < 0:
        raise ValueError("division by zero")
    if abs(base) == 1:
        return base if exponent % 2 else Fraction(1)
    if (_bits(base) - 1) * abs(exponent) > LARGEST:
        raise ValueError("the result is too large")
    return Fraction(base ** int(exponent))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


OPERATORS: Mapping[type, Operation] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided(operator.truediv),
    ast.FloorDiv: _divided(operator.floordiv),
    ast.Mod: _divided(operator.mod),
    ast.Pow: _power,
}


def calculator() -> Tool:
    """Return the tool."""
    return Tool(calc, isolated=False)
