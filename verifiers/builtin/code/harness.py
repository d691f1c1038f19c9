"""Calls the functions of a program inside the sandbox; its two codecs serve `code.py` on the outside as well.

Standard input is a marshalled list of calls [name, arguments, keyword arguments]. Standard output is one line of JSON a
call, in order: [value], or [] for a call that failed or returned something else than plain data. No expected value is
ever here.
"""

from __future__ import annotations

import importlib
import json
import marshal
import os
import sys
from typing import Any

DEEPEST = 50


def encode(value: Any, depth: int = 0) -> Any:
    """Return plain data as JSON can hold it: what JSON knows as it is, tuples, sets and dicts under their names.

    Raises:
        ValueError: for any other type, subclasses of the plain ones included, and for data nested too deeply.
    """
    kind = type(value)
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [encode(item, depth + 1) for item in value]
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [encode(item, depth + 1) for item in value]}
    if kind is dict:
        return {"dict": [[encode(key, depth + 1), encode(item, depth + 1)] for key, item in value.items()]}
    raise ValueError(f"{kind.__name__} is not plain data")


def decode(data: Any, depth: int = 0) -> Any:
    """Return the plain data that `encode` wrote.

    Raises:
        ValueError: for anything that `encode` would not write.
        TypeError: for members of a set or keys of a dict that cannot be such.
    """
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if isinstance(data, list):
        return [decode(item, depth + 1) for item in data]
    if not isinstance(data, dict):
        return data
    [(name, items)] = data.items()
    if name not in ("tuple", "set", "frozenset", "dict") or not isinstance(items, list):
        raise ValueError(f"unknown data {name!r}")
    members = [decode(item, depth + 1) for item in items]
    if name == "dict":
        return dict(members)
    return {"tuple": tuple, "set": set, "frozenset": frozenset}[name](members)


def main() -> None:
    """Import the program, make the calls and report each of them."""
    calls = marshal.load(sys.stdin.buffer)
    results = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the program prints is not a result
    program = importlib.import_module("solution")
    for name, arguments, keywords in calls:
        os.write(results, (call(program, name, arguments, keywords) + "\n").encode())
    os._exit(0)  # without waiting for what the program left running


def call(program: Any, name: str, arguments: Any, keywords: Any) -> str:
    """Return the line that reports one call."""
    try:
        return json.dumps([encode(getattr(program, name)(*arguments, **keywords))])
    except BaseException as error:  # SystemExit too: one failed call says nothing about the next one
        print(f"{name}: {type(error).__name__}", file=sys.stderr)
        return "[]"


if __name__ == "__main__":
    main()
