"""The tests of a program: its inputs, the expected results, the comparison, and the fault in one line."""

from __future__ import annotations

import ast
import json
import math
import operator
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

from typing_extensions import override

from ..base import Problem
from ..sandbox.run import Outcome
from .harness import decode, encode

_FORM = (
    "assert f(1, [2], key='c') == [3], or `is` with True, False or None, or assert f(1), assert not f(1), "
    "set(f(1)) == {3}, abs(f(1) - 0.5) < 1e-6, math.isclose(f(1), 0.5), with plain literals"
)
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_KINDS: dict[str, Callable[[Any], Any]] = {
    "frozenset": frozenset,
    "int": int,
    "list": list,
    "set": set,
    "sorted": sorted,
    "tuple": tuple,
}
_MAKERS: dict[str, Callable[..., Any]] = {
    "Counter": Counter,
    "Decimal": Decimal,
    "Fraction": Fraction,
    "OrderedDict": OrderedDict,
    **_KINDS,
}
_SLACK = 400  # characters: the digits of the largest float, were it written as an integer, and some


@dataclass(frozen=True)
class CallCase:
    """A function call and the value expected of it.

    Args:
        function: its name.
        arguments: plain data.
        keywords: plain data by name.
        expected: the value that it has to return.
        comparison: tells whether a returned value passes, given the expected one.
    """

    function: str
    arguments: list[Any]
    keywords: dict[str, Any]
    expected: Any
    comparison: Callable[[Any, Any], Any] = operator.eq

    def request(self) -> list[Any]:
        """Return the sandbox's part of a case: everything but the expected output."""
        return [self.function, self.arguments, self.keywords, self.comparison is _is_as_true]

    def is_passed_by(self, line: bytes | None) -> bool:
        """Tell whether a line that came back, from whomever, holds the expected value."""
        if line is None or len(line) > 2 * len(json.dumps(encode(self.expected))) + _SLACK:
            return False  # unread: sets and dicts can be made that take very long to read
        try:
            [value] = decode(json.loads(line))
            return bool(self.comparison(value, self.expected))
        except (ValueError, TypeError, ArithmeticError, RecursionError):  # Decimal("sNaN") raises when compared
            return False


@dataclass(frozen=True)
class InputCase:
    """A text on standard input and the text expected on standard output."""

    input: str
    output: str

    def is_passed_by(self, output: bytes) -> bool:
        """Tell whether an output is the expected one, up to whitespace at the ends of lines and of the text."""
        return _lines(output.decode("utf-8", "replace")) == _lines(self.output)


def read_tests(problem: Problem) -> list[CallCase] | list[InputCase]:
    """Return the tests of a problem.

    Raises:
        ValueError: for a problem without tests, or a test of another form, which is named.
    """
    tests, cases, check = map(problem.metadata.get, ("tests", "cases", "test"))
    if tests is None and cases is None and check is not None:
        tests = assertions_in(check, problem.metadata.get("entry_point"))
    if (tests is None) == (cases is None):
        raise ValueError(
            f"code: problem {problem.text[:60]!r} needs a column 'tests', a column 'cases', or columns 'test' and "
            "'entry_point', one of them"
        )
    column, rows = ("cases", cases) if tests is None else ("tests", tests)
    if isinstance(rows, str) or not isinstance(rows, Sequence) or not rows:
        raise ValueError(f"code: column {column!r} must be a list with at least one test, got {rows!r:.100}")
    return [_case(row) for row in rows] if tests is None else [_call(row) for row in rows]


def assertions_in(source: Any, name: Any) -> list[str]:
    """Return the assertions of HumanEval's `check(candidate)` about this function, without `assert True` and the like.

    Raises:
        ValueError: if there is no such function.
    """
    try:
        functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
        [check] = [function for function in functions if function.name == "check"]
        candidate = check.args.args[0].arg
    except (TypeError, ValueError, IndexError, SyntaxError) as error:
        raise ValueError(f"code: column 'test' must define check(candidate), got {source!r:.100} ({error})") from error
    for node in ast.walk(check):
        if isinstance(node, ast.Name) and node.id == candidate:
            node.id = str(name)
    return [ast.unparse(node) for node in check.body if not _says_nothing(node)]


def _says_nothing(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr() | ast.Assert(ast.Constant(True)):
            return True
        case ast.Assert(ast.Compare(left, [ast.Eq()], [right])):
            return ast.dump(left) == ast.dump(right)
    return False


def _case(row: Any) -> InputCase:
    try:
        case = InputCase(row["input"], row["output"])
    except (KeyError, TypeError):
        case = None
    if case is None or not isinstance(case.input, str) or not isinstance(case.output, str):
        raise ValueError(f"code: a case is a mapping of 'input' and 'output' to texts, got {row!r:.100}")
    if not case.output.strip():
        raise ValueError(f"code: a case must expect some output, for a program that crashes has none; got {row!r:.100}")
    return case


def _call(row: Any) -> CallCase:
    try:
        [statement] = _Folding().visit(ast.parse(row.strip())).body
        if not isinstance(statement, ast.Assert):
            raise ValueError("another form")
        call = _call_in(statement.test)
        encode(call.expected)
        call.comparison(call.expected, call.expected)
    except (AttributeError, SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(f"code: a test has the form {_FORM}; got {row!r:.100} ({error})") from error
    return call


def _call_in(test: ast.expr) -> CallCase:
    match test:
        case ast.Compare(ast.Call(ast.Name(kind), [ast.Call() as call], []), [ast.Eq()], [expected]) if kind in _KINDS:
            return _made(call, _value(expected), lambda value, wanted: _KINDS[kind](value) == wanted)
        case ast.Compare(
            ast.Call(ast.Name("abs"), [ast.BinOp(ast.Call() as call, ast.Sub(), expected)]),
            [ast.Lt()],
            [ast.Constant(int() | float() as bound)],
        ):
            return _made(call, _value(expected), lambda value, wanted: abs(value - wanted) < bound)
        case ast.Call(ast.Attribute(ast.Name("math"), "isclose"), [ast.Call() as call, expected], keywords):
            return _made(call, _value(expected), partial(math.isclose, **_named(keywords)))
        case ast.Compare(ast.Call() as call, [ast.Eq()], [expected]):
            return _made(call, _value(expected), operator.eq)
        case ast.Compare(ast.Call() as call, [ast.Is()], [ast.Constant(True | False | None as expected)]):
            return _made(call, expected, operator.is_)
        case ast.UnaryOp(ast.Not(), ast.Call() as call):
            return _made(call, False, _is_as_true)
        case ast.Call():
            return _made(test, True, _is_as_true)
    raise ValueError("another form")


def _made(call: ast.Call, expected: Any, comparison: Callable[[Any, Any], Any]) -> CallCase:
    if not isinstance(call.func, ast.Name):
        raise ValueError("another form")
    arguments = [ast.literal_eval(each) for each in call.args]
    return CallCase(call.func.id, arguments, _named(call.keywords), expected, comparison)


def _named(keywords: list[ast.keyword]) -> dict[str, Any]:
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords if keyword.arg}
    if len(named) != len(keywords):
        raise ValueError("another form")
    return named


def _is_as_true(value: Any, wanted: bool) -> bool:
    return bool(value) is wanted


def _value(node: ast.expr) -> Any:
    """Return an expected value: a literal, or such as Fraction(1, 2), Counter("aab") or set() of literals."""
    match node:
        case ast.Call(ast.Name(name), arguments, keywords) if name in _MAKERS:
            named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
            return _MAKERS[name](*map(ast.literal_eval, arguments), **named)
    return ast.literal_eval(node)


class _Folding(ast.NodeTransformer):
    """Puts results in the place of arithmetic, such as 57 for `3 * 19` and "ab" for `"a" + "b"`."""

    @override
    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.BinOp(ast.Constant(str() as left), ast.Add(), ast.Constant(str() as right)):
                return ast.Constant(left + right)
            case ast.BinOp(ast.Constant(int() | float() as left), sign, ast.Constant(int() | float() as right)):
                small = not isinstance(sign, ast.Pow) or max(abs(left), abs(right)) < 10  # 9**9**9 takes for ever
                if small and type(sign) in _OPERATORS:
                    return ast.Constant(_OPERATORS[type(sign)](left, right))
        return node


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def fault_of_call(call: CallCase, line: bytes | None, outcome: Outcome) -> str:
    """Return the fault of a call that fails, given the line that reports it, if any, and the run."""
    if line is None:
        return f"the program {_end_of(outcome) or 'ended before it was called'}"
    named = [f"{key}={value!r}" for key, value in call.keywords.items()]
    asked = f"{call.function}({', '.join([*map(repr, call.arguments), *named])})"
    shown = asked if len(asked) <= 100 else f"{asked[:100]}..."
    return f"{shown} {_returned(line) or _end_of(outcome, f'{call.function}: ') or 'failed'}"


def fault_of_case(case: InputCase, outcome: Outcome) -> str:
    """Return the fault of an input for which a program prints something else."""
    printed = outcome.output.decode("utf-8", "replace").rstrip()
    return f"for the input {case.input!a:.80} it {_end_of(outcome) or f'printed {printed!a:.100}'}"


def _returned(line: bytes) -> str:
    """Return the value of a call, from the line that reports it; empty if it raised."""
    try:
        [value] = decode(json.loads(line))
        return f"returned {value!r:.100}"
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return ""


def _end_of(outcome: Outcome, prefix: str = "") -> str:
    """Return how a program ended: too late, with too much output, or with the first line of errors of this prefix."""
    if outcome.ended != "itself":
        return {"timeout": "took too long", "flood": "printed too much"}[outcome.ended]
    errors = outcome.errors.decode("utf-8", "replace").strip().splitlines()
    found = [line.removeprefix(prefix) for line in errors if line.startswith(prefix)]
    return f"raised {(found[0] if prefix else found[-1])[:150]}".rstrip(": ") if found else ""
