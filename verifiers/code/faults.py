"""The fault of a program that failed a test, in one line."""

from __future__ import annotations

import json

from ..sandbox.run import Outcome
from .cases import CallCase, InputCase
from .harness import decode


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
