"""regex: completions that match a regular expression from the first to the last character."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from typing_extensions import override

from ..base import RIGHT, WRONG, Execution, Problem, Verdict, Verifier
from ..plugins.registry import register_verifier
from ..problem import examples_beside

LONGEST = 100_000  # characters of a completion
_FOREIGN = re.compile(r"[^\x00-\x7f]")


@register_verifier("regex")
class Regex(Verifier):
    r"""The whole completion matches the pattern; reward 1.0, else 0.0.

    The pattern is one of Python's `re`, such as `\d{4}-\d\d-\d\d` or `(?i)yes|no`. The problem's metadata may have a
    "pattern", which has priority. Completions of more than 100,000 characters score 0. `\d` and `(?i)[a-z]` match ASCII
    characters only: what other scripts write for them, such as ٤, does not match where a letter would not.

    Some patterns, such as `(a+)+b`, take exponential time, and Python cannot interrupt them. So this verifier runs in
    worker processes, which are killed at the deadline; the verdict is then a "timeout".

    Prompts and alphabet: from the listed problems; the answer, if any, is a text
    that matches. Not caught: whatever the pattern lets through; `$` and `\Z` are not needed, and `\s` and `[^,]` match
    line ends.

    Args:
        pattern: for problems without a pattern in their metadata.

    Raises:
        ValueError: if the pattern is invalid.
    """

    execution = Execution(isolated=True, timeout=1.0)
    examples = examples_beside(__file__)

    def __init__(self, pattern: str | None = None) -> None:
        self.pattern = pattern
        if pattern is not None:
            compiled(pattern)

    @override
    def verify(self, problem: Problem, completion: str) -> Verdict:
        pattern = problem.metadata.get("pattern") or self.pattern
        if pattern is None:
            return Verdict(0.0, status="error", reason="no pattern given: pass one, or put it into the metadata")
        try:
            matcher = compiled(pattern)
        except ValueError as error:
            return Verdict(0.0, status="error", reason=str(error))
        if len(completion) > LONGEST or not matcher.fullmatch(completion):
            return WRONG
        foreign = pattern.isascii() and _plain(completion)
        return RIGHT if not foreign or foreign == completion or matcher.fullmatch(foreign) else WRONG


def _plain(text: str) -> str:
    """Return a text with a letter for each character that Python's `re` takes for an ASCII digit or letter."""
    return text if text.isascii() else _FOREIGN.sub(lambda found: "ª" if _passes(found[0]) else found[0], text)


def _passes(sign: str) -> bool:
    return sign.isdecimal() or sign.lower().isascii() or sign.upper().isascii()


def compiled(pattern: Any) -> re.Pattern[str]:
    """Return a compiled pattern.

    Raises:
        ValueError: if it is invalid, with the reason.
    """
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"regex: a pattern is a text such as [0-9]+, got {pattern!r}")
    return _compiled(pattern)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"regex: {pattern[:200]!r} is not a pattern: {error}") from error
