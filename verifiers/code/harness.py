"""Calls the functions of a program inside the sandbox; its two codecs serve `cases.py` on the outside as well.

Standard input is a marshalled list of calls [name, arguments, keyword arguments, whether the truth of the value is
enough]. Standard output is one line of JSON per call, in order: [value], or [] for a call that failed or returned
something else than plain data, of which the truth is reported if that is enough. No expected value is ever here.
"""

from __future__ import annotations

import importlib
import json
import marshal
import os
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

DEEPEST = 50

# Read with the methods of the kind itself; views of a dict are equal to sets.
_SCALARS: dict[type, Callable[[Any], Any]] = {
    bool: lambda value: value,
    type(None): lambda value: None,
    int: int.__pos__,
    float: float.__pos__,
    str: str.__str__,
}
_GROUPS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    list: ("list", list.__iter__),
    tuple: ("tuple", tuple.__iter__),
    set: ("set", set.__iter__),
    frozenset: ("frozenset", frozenset.__iter__),
    dict: ("dict", dict.items),
    type({}.keys()): ("set", iter),
    type({}.items()): ("set", iter),
    complex: ("complex", lambda value: (float(value.real), float(value.imag))),
    Fraction: ("Fraction", lambda value: (int(value.numerator), int(value.denominator))),
    Decimal: ("Decimal", lambda value: (str(value),)),
}


def encode(value: Any, depth: int = 0) -> Any:
    """Return plain data in a form that JSON can hold: JSON's types unchanged, other types under their names.

    A value of a derived class, such as a Counter, a namedtuple or an IntEnum, is the plain value in it. Its own `==` is
    not asked.

    Raises:
        ValueError: for any other type, and for data nested too deeply.
    """
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    for kind in type(value).__mro__:
        if kind in _SCALARS:
            return _SCALARS[kind](value)
        if kind in _GROUPS:
            name, members = _GROUPS[kind]
            written = [encode(list(item) if name == "dict" else item, depth + 1) for item in members(value)]
            return written if name == "list" else {name: written}
    raise ValueError(f"{type(value).__name__} is not plain data")


def decode(data: Any, depth: int = 0) -> Any:
    """Return the plain data that `encode` wrote.

    Raises:
        ValueError: for anything that `encode` would not write.
        TypeError: for members of a set or keys of a dict that cannot be such.
        ArithmeticError: for numbers that there are not.
    """
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if isinstance(data, list):
        return [decode(item, depth + 1) for item in data]
    if not isinstance(data, dict):
        return data
    [(name, items)] = data.items()
    if name not in _MADE or not isinstance(items, list):
        raise ValueError(f"unknown data {name!r}")
    return _MADE[name]([decode(item, depth + 1) for item in items])


def _number(kind: Callable[..., Any], of: tuple[type, ...], count: int) -> Callable[[list[Any]], Any]:
    def make(members: list[Any]) -> Any:
        if len(members) != count or not all(type(member) in of for member in members):  # Fraction("1e999999999") hangs
            raise ValueError(f"no number: {members!r:.100}")
        return kind(*members)

    return make


_MADE: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "complex": _number(complex, (float,), 2),
    "Fraction": _number(Fraction, (int,), 2),
    "Decimal": _number(Decimal, (str,), 1),
}


def main() -> None:
    """Import the program, make the calls and report each of them."""
    calls = marshal.load(sys.stdin.buffer)
    results = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the program prints is not a result
    program = importlib.import_module("solution")
    for each in calls:
        os.write(results, (call(program, *each) + "\n").encode())
    os._exit(0)  # without waiting for what the program left running


def call(program: Any, name: str, arguments: Any, keywords: Any, as_truth: bool) -> str:
    """Return the line that reports one call."""
    try:
        value = getattr(program, name)(*arguments, **keywords)
        try:
            return json.dumps([encode(value)])
        except ValueError:
            if as_truth:
                return json.dumps([bool(value)])
            raise
    except BaseException as error:  # SystemExit too: one failed call says nothing about the next one
        print(f"{name}: {type(error).__name__}: {_said(error)}", file=sys.stderr)
        return "[]"


def _said(error: BaseException) -> str:
    """Return the message of an exception, in one line; a program may raise one that fails when it is asked."""
    try:
        return " ".join(str(error).split())[:200]
    except BaseException:
        return ""


if __name__ == "__main__":
    main()
