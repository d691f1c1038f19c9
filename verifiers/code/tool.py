"""The tool `python`: runs a program in the sandbox of the verifier `code`."""

from __future__ import annotations

import re
import signal

from ..dialogues.toolbox import Tool
from ..sandbox.run import ProgramLimits, run, unavailable

LIMITS = ProgramLimits(seconds=4.0, clock=4.0)  # less than a verdict may take, so that the model reads about it
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration)\b.*")


def python(code: str) -> str:
    """Run a Python program, which has the standard library and no network, and return what it prints.

    Args:
        code: The program; print what you want to know.
    """
    outcome = run({"main.py": code}, limits=LIMITS)
    if outcome.ended == "timeout":
        raise ValueError(f"the program took longer than {LIMITS.seconds:g} s")
    if outcome.ended == "flood":
        raise ValueError(f"the program printed more than {LIMITS.output} bytes")
    output, errors = (text.decode("utf-8", "replace").strip() for text in (outcome.output, outcome.errors))
    last = errors.splitlines()[-1] if errors else ""
    if _RAISED.fullmatch(last):
        raise ValueError(last)
    if outcome.code:
        names = [f" ({each.name})" for each in signal.Signals if each == outcome.code - 128]
        said = [f": {text}" for text in (last, output) if text]
        raise ValueError("".join([f"the program exited with code {outcome.code}", *names, *said[:1]]))
    return output or errors


def python_tool() -> Tool:
    """Return the tool.

    Raises:
        ValueError: where programs cannot be isolated.
    """
    if reason := unavailable():
        raise ValueError(f"tool 'python': programs cannot be isolated here ({reason})")
    return Tool(python)
