"""The tests of a program: its inputs, the expected results, and the comparison."""

from __future__ import annotations

import ast
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from ..base import Problem
from .harness import decode, encode

_FORM = (
    "assert f(1, [2], key='c') == [3], or `is` with True, False or None, or assert f(1), assert not f(1), "
    "with plain literals"
)
_MAKERS: dict[str, Callable[..., Any]] = {
    "Counter": Counter,
    "Decimal": Decimal,
    "Fraction": Fraction,
    "OrderedDict": OrderedDict,
    "frozenset": frozenset,
    "set": set,
}
_SLACK = 400  # characters: the digits of the largest float, were it written as an integer, and some


@dataclass(frozen=True)
class Call:
    """A function call and the value expected of it.

    Args:
        function: its name.
        arguments: plain data.
        keywords: plain data by name.
        expected: what it has to return.
        comparison: "==", "is", or "bool": as much true or false as the expected value.
    """

    function: str
    arguments: list[Any]
    keywords: dict[str, Any]
    expected: Any
    comparison: Literal["==", "is", "bool"] = "=="

    def request(self) -> list[Any]:
        """Return the sandbox's part of a case: everything but the expected output."""
        return [self.function, self.arguments, self.keywords]

    def is_passed_by(self, line: bytes | None) -> bool:
        """Tell whether a line that came back, from whomever, holds the expected value."""
        if line is None or len(line) > 2 * len(json.dumps(encode(self.expected))) + _SLACK:
            return False  # unread: sets and dicts can be made that take very long to read
        try:
            [value] = decode(json.loads(line))
            if self.comparison == "is":
                return value is self.expected
            return bool(value == self.expected if self.comparison == "==" else bool(value) is self.expected)
        except (ValueError, TypeError, ArithmeticError, RecursionError):  # Decimal("sNaN") raises when compared
            return False


@dataclass(frozen=True)
class Case:
    """A text on standard input and the text expected on standard output."""

    input: str
    output: str

    def is_passed_by(self, output: bytes) -> bool:
        """Tell whether an output is the expected one, up to whitespace at the ends of lines and of the text."""
        return _lines(output.decode("utf-8", "replace")) == _lines(self.output)


def read_tests(problem: Problem) -> list[Call] | list[Case]:
    """Return the tests of a problem.

    Raises:
        ValueError: for a problem without tests, or a test of another form, which is named.
    """
    tests, cases = problem.metadata.get("tests"), problem.metadata.get("cases")
    if (tests is None) == (cases is None):
        raise ValueError(f"code: problem {problem.text[:60]!r} needs a column 'tests' or a column 'cases', one of them")
    column, rows = ("cases", cases) if tests is None else ("tests", tests)
    if isinstance(rows, str) or not isinstance(rows, Sequence) or not rows:
        raise ValueError(f"code: column {column!r} must be a list with at least one test, got {rows!r:.100}")
    return [_case(row) for row in rows] if tests is None else [_call(row) for row in rows]


def _case(row: Any) -> Case:
    try:
        case = Case(row["input"], row["output"])
    except (KeyError, TypeError):
        case = None
    if case is None or not isinstance(case.input, str) or not isinstance(case.output, str):
        raise ValueError(f"code: a case is a mapping of 'input' and 'output' to texts, got {row!r:.100}")
    if not case.output.strip():
        raise ValueError(f"code: a case must expect some output, for a program that crashes has none; got {row!r:.100}")
    return case


def _call(row: Any) -> Call:
    try:
        [statement] = ast.parse(row.strip()).body
        if not isinstance(statement, ast.Assert):
            raise ValueError("another form")
        call = _call_in(statement.test)
        encode(call.expected)
    except (AttributeError, SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(f"code: a test has the form {_FORM}; got {row!r:.100} ({error})") from error
    return call


def _call_in(test: ast.expr) -> Call:
    match test:
        case ast.Compare(ast.Call() as call, [ast.Eq()], [expected]):
            return _made(call, _value(expected), "==")
        case ast.Compare(ast.Call() as call, [ast.Is()], [ast.Constant(True | False | None as expected)]):
            return _made(call, expected, "is")
        case ast.UnaryOp(ast.Not(), ast.Call() as call):
            return _made(call, False, "bool")
        case ast.Call():
            return _made(test, True, "bool")
    raise ValueError("another form")


def _made(call: ast.Call, expected: Any, comparison: Literal["==", "is", "bool"]) -> Call:
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
    if not isinstance(call.func, ast.Name) or len(named) != len(call.keywords):
        raise ValueError("another form")
    return Call(call.func.id, [ast.literal_eval(each) for each in call.args], named, expected, comparison)


def _value(node: ast.expr) -> Any:
    """Return an expected value: a literal, or such as Fraction(1, 2), Counter("aab") or set() of literals."""
    match node:
        case ast.Call(ast.Name(name), arguments, keywords) if name in _MAKERS:
            named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
            return _MAKERS[name](*map(ast.literal_eval, arguments), **named)
    return ast.literal_eval(node)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]
