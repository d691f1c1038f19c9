"""What verifiers take for the answer of a completion, the argument `extract`, and its default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..plugins.arguments import one_of

STATED, STRICT, LAST, BOXED = EXTRACTS = ("stated", "strict", "last", "boxed")
_DEFAULT: ContextVar[str] = ContextVar("extract", default=STATED)


@contextmanager
def extracting(extract: str) -> Iterator[None]:
    """Set the default of `extract` for verifiers made in this block."""
    token = _DEFAULT.set(one_of("verifiers", "extract", extract, EXTRACTS))
    try:
        yield
    finally:
        _DEFAULT.reset(token)


def extract_rule(owner: str, extract: str | None) -> str:
    """Return which text of a completion a verifier takes for its answer.

    Args:
        owner: the name of the verifier, for errors.
        extract: "stated": the result that the completion states, see `builtin/stated.py`; "strict": the last line;
            "last": the last result anywhere; "boxed": what is in `\\boxed{}`. None for the default.

    Raises:
        ValueError: for another value.
    """
    return _DEFAULT.get() if extract is None else one_of(owner, "extract", extract, EXTRACTS)
