"""regex: completions that match a regular expression from the first to the last character."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from .arguments import whole_number
from .base import RIGHT, WRONG, Problem, Verdict, Verifier
from .registry import register_verifier


@register_verifier("regex")
class Regex(Verifier):
    r"""The whole completion matches the pattern; reward 1.0, else 0.0.

    The pattern is one of Python's `re`, such as `\d{4}-\d\d-\d\d` or `(?i)yes|no`. The problem's metadata may have a
    "pattern" of its own, which goes first. Longer completions than `max_length` score 0.

    Some patterns, such as `(a+)+b`, take time exponential in the completion, and Python cannot be made to stop.
    So this verifier works in worker processes that are killed at the deadline; such a verdict is a "timeout".

    Prompts and alphabet: those of the problems, which come from elsewhere; the answer, where there is one, is a text
    that matches. What it does not catch: whatever the pattern lets through; `\d` matches the digits of every script,
    and `[0-9]` does not.

    Args:
        pattern: the pattern of problems that have none of their own.
        max_length: the longest completion that is looked at, 1 to 100000 characters.

    Raises:
        ValueError: if the pattern is none, or the length out of range.
    """

    isolated = True
    timeout = 1.0
    does_not_catch = {"nonsense-of-the-form": "whatever the pattern lets through is paid for"}

    def __init__(self, pattern: str | None = None, max_length: int = 10_000) -> None:
        self.pattern = pattern
        self.max_length = whole_number("regex", "max_length", max_length, 1, 100_000)
        if pattern is not None:
            compiled(pattern)

    def examples(self) -> list[Problem]:
        """Return problems with patterns of their own."""
        return [Problem(f"{task}\n", answer, {"pattern": pattern}) for task, answer, pattern, _ in _EXAMPLES]

    def counterexamples(self, problem: Problem) -> dict[str, list[str]]:
        """Return texts that an example's pattern lets through and a reader would not."""
        nonsense = {f"{task}\n": texts for task, _, _, texts in _EXAMPLES}
        return {"nonsense-of-the-form": nonsense.get(problem.prompt, [])}

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Match the completion."""
        pattern = problem.metadata.get("pattern") or self.pattern
        if pattern is None:
            return Verdict(0.0, status="error", reason="there is no pattern: pass one, or put it into the metadata")
        try:
            matcher = compiled(pattern)
        except ValueError as error:
            return Verdict(0.0, status="error", reason=str(error))
        return RIGHT if len(completion) <= self.max_length and matcher.fullmatch(completion) else WRONG


def compiled(pattern: Any) -> re.Pattern[str]:
    """Return a compiled pattern.

    Raises:
        ValueError: if it is none, with what is wrong with it.
    """
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"regex: a pattern is a text such as [0-9]+, got {pattern!r}")
    return _compiled(pattern)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"regex: {pattern[:200]!r} is no pattern: {error}") from error


# Task, a right answer, the pattern, and nonsense that the pattern lets through.
_EXAMPLES = [
    ("Write a date such as 2001-12-31.", "1999-02-28", r"[0-9]{4}-[0-9]{2}-[0-9]{2}", ["2001-13-99", "0000-00-00"]),
    ("Write a time of day such as 09:30.", "23:59", r"(?:[01][0-9]|2[0-3]):[0-5][0-9]", []),
    ("Write yes or no.", "yes", r"yes|no", []),
    ("Write a colour such as #00ff00.", "#12ab9f", r"#[0-9a-f]{6}", []),
    ("Write a ticket such as AB-1234.", "XY-0815", r"[A-Z]{2}-[0-9]{4}", []),
    ("Write three pairs of digits such as 12-34-56.", "31-41-59", r"[0-9]{2}(?:-[0-9]{2}){2}", []),
    ("Write a temperature such as 21 degrees.", "-4 degrees", r"-?[0-9]+ degrees", ["-99999 degrees"]),
    ("Write a number plate such as 7 ABC 42.", "3 QXZ 14", r"[0-9] [A-Z]{3} [0-9]{2}", []),
]
