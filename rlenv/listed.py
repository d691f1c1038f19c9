"""Problems that are listed, in a file or in Python, and how long their texts may be by default."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verifiers import Problem

from .problem_files import load_problems
from .problems import as_problem, is_unicode
from .rows import read_rows, shown

MOST_TOKENS = 4096  # of a listed prompt or demonstration, which sets the length of every buffer, unless asked for
_FOR_MORE = {
    "prompt": "a larger max_prompt_tokens (--max-prompt-tokens), "
    "or long_prompts='skip' (--long-prompts skip) to leave it out",
    "demonstration": "max_new_tokens (--max-new-tokens)",
}


def listed_problems(
    problems: str | Path | Sequence[Problem | Mapping[str, Any] | str] | None,
    columns: Mapping[str, str] | None,
    template: str | None,
) -> list[Problem] | None:
    """Return the problems that were listed, None where the verifier is to make them."""
    if isinstance(problems, (str, Path)):
        return load_problems(problems, columns, template)
    if columns or template is not None:
        raise ValueError("columns and template are for problems from a file: pass its path as problems (--problems)")
    if problems is None:
        return None
    if not len(problems):
        raise ValueError("problems is an empty list; pass None where the verifier is to make them")
    listed = [as_problem(item) for item in problems]
    for problem in listed:
        if not is_unicode(problem.prompt + problem.answer):
            raise ValueError(f"problem {shown(problem.prompt)}: half of a surrogate pair is no text")
    return listed


def longest_of(what: str, texts: Sequence[str], lengths: Sequence[int], place: Callable[[int], str]) -> int:
    """Return the greatest of the lengths of listed texts; one above the default cap is an error."""
    for index, length in enumerate(lengths):
        if length > MOST_TOKENS:
            raise ValueError(
                f"{place(index)}: {what} {shown(texts[index])} has {length} tokens; allowed by default: {MOST_TOKENS}; "
                f"pass {_FOR_MORE[what]}"
            )
    return max(lengths)


def place_of(problems: Any, index: int) -> str:
    """Return where a listed problem stands, for an error: its row in a file, which is read again for that."""
    if isinstance(problems, (str, Path)):
        return f"{str(problems)!r}, {read_rows(Path(problems))[index][0]}"
    return f"problem {index + 1}"
