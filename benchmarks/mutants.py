"""Wrong answers made from right ones, for `judged`: numbers, formulas, choices and programs."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

FIVE = 5
_AROUND = re.compile(
    r"\\(?:text|mbox|mathrm) ?\{[^{}]*\}(?:\^\{?\d\}?)?|\\[!,;: ]|\\?[$%]|\^\{?\\circ\}?|(?<=\d)(?:,|\{,\})(?=\d{3})"
)
_DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")
_FRACTION = re.compile(r"(-?)(?:\\[dt]?frac ?\{(-?\d+)\} ?\{(\d+)\}|\\[dt]?frac ?(\d)(\d)|(\d+)/(\d+))")
_WHOLE = re.compile(r"\d+")
_SWAPPED: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def value_of(text: str) -> Fraction | None:
    r"""Return the value of a number in LaTeX, such as 1,234, \frac{3}{4} or 5\text{ cm}; None for anything else.

    It is read apart from the verifiers, which are what is tried.
    """
    text = _AROUND.sub("", text).strip()
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    if (found := _FRACTION.fullmatch(text)) is None:
        return None
    above, below = (int(part) for part in found.groups()[1:] if part)
    return None if below == 0 else (-1 if found[1] else 1) * Fraction(above, below)


def wrong_numbers(value: Fraction, others: Iterable[Fraction]) -> list[str]:
    """Return five numbers: off by one, negated, tenfold, one of `others`; none is the value or its hundredth."""
    tried = [value + 1, value - 1, -value, 10 * value, *others, value + 2, value + 3, value + 7, value + 11]
    wrong = [each for each in dict.fromkeys(tried) if each not in (value, 100 * value, value / 100)]
    return [str(each) for each in wrong[:FIVE]]


def wrong_formulas(reference: str, others: Iterable[str]) -> list[str]:
    """Return five formulas: with the first or the last whole number one higher, and some of `others`."""
    found = [*_WHOLE.finditer(reference)]
    higher = [
        f"{reference[: each.start()]}{int(each[0]) + 1}{reference[each.end() :]}" for each in (*found[:1], *found[-1:])
    ]
    known = _squeezed(reference)
    wrong = {_squeezed(each): each for each in (*higher, *others)}
    return [each for key, each in wrong.items() if key != known][:FIVE]


def wrong_choices(choices: Sequence[str], right: int) -> list[str]:
    """Return up to five wrong answers: other labels, a whole number's negative and half more, other choices' texts."""
    others = [index for index in range(len(choices)) if index != right]
    wrong = [chr(ord("A") + index) for index in others]
    if re.fullmatch("-?[1-9][0-9]*", number := choices[right].strip()):  # neither is among the choices, mostly
        wrong += [number[1:] if number[0] == "-" else f"-{number}", f"{number}.5"]
    wrong += [choices[index] for index in others if _squeezed(choices[index]) != _squeezed(choices[right])]
    return [*dict.fromkeys(wrong)][:FIVE]


def wrong_programs(program: str, rng: random.Random) -> list[str]:
    """Return up to five programs that differ in one place: an operator, a constant, a condition or what is returned.

    What is in a `while` stays as it is: most changes there never end.
    """
    places = _Changed(program).places
    chosen = sorted(rng.sample(range(1, places + 1), min(FIVE, places)))
    return [ast.unparse(_Changed(program, which).tree) for which in chosen]


def _squeezed(text: str) -> str:
    text = re.sub(r"\s+|\\[!,;: ]|\\(?:left|right)(?![A-Za-z])|\$", "", text).replace("dfrac", "frac").casefold()
    return re.sub(r"\{\((\w)\)\}", r"{\1}", text)  # \text{(C)} is \text{C}


class _Changed(ast.NodeTransformer):
    """A program with the change of one place, counted from 1; without any for 0."""

    def __init__(self, program: str, which: int = 0) -> None:
        self.which, self.places = which, 0
        self.tree = self.visit(ast.parse(program))

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.While):
            return node
        for changed in _alternatives(node):
            self.places += 1
            if self.places == self.which:
                return changed
        return self.generic_visit(node)


def _alternatives(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(left, operator, right) if type(operator) in _SWAPPED:
            yield ast.BinOp(left, _SWAPPED[type(operator)](), right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(_SWAPPED[type(operator)](), values)
        case ast.Compare(left, [operator, *operators], comparators) if type(operator) in _SWAPPED:
            yield ast.Compare(left, [_SWAPPED[type(operator)](), *operators], comparators)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.If(test, body, otherwise):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, otherwise)
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
