"""The tests of a program: its inputs, the expected results, and the comparison."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...base import Problem
from .harness import decode, encode

_FORM = "assert f(1, [2], key='c') == [3], or `is` with True, False or None, with plain literals"
_SLACK = 400  # characters: the digits of the largest float, were it written as an integer, and some


@dataclass(frozen=True)
class Call:
    """A function call and the value expected of it."""

    function: str
    arguments: list[Any]
    keywords: dict[str, Any]
    expected: Any
    identical: bool = False

    def request(self) -> list[Any]:
        """Return what the sandbox is told: everything but what is expected."""
        return [self.function, self.arguments, self.keywords]

    def is_passed_by(self, line: bytes) -> bool:
        """Tell whether a line that came back, from whomever, holds the expected value."""
        if len(line) > 2 * len(json.dumps(encode(self.expected))) + _SLACK:
            return False  # unread: sets and dicts can be made that take very long to read
        try:
            [value] = decode(json.loads(line))
            return value is self.expected if self.identical else bool(value == self.expected)
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
        call = _call_in(statement)
        encode(call.expected)
    except (AttributeError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"code: a test has the form {_FORM}; got {row!r:.100} ({error})") from error
    return call


def _call_in(statement: ast.stmt) -> Call:
    match statement:
        case ast.Assert(ast.Compare(ast.Call(ast.Name(name), arguments, keywords), [operator], [expected])):
            named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords if keyword.arg}
            call = Call(
                name,
                [ast.literal_eval(argument) for argument in arguments],
                named,
                ast.literal_eval(expected),
                isinstance(operator, ast.Is),
            )
            singleton = any(call.expected is value for value in (True, False, None))
            if len(named) == len(keywords) and (isinstance(operator, ast.Eq) or (call.identical and singleton)):
                return call
    raise ValueError("another form")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]
