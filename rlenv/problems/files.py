"""Problems from lists and files: column names, prompt templates, and the line of every malformed row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from verifiers import Problem

from ..text.texts import NOT_UNICODE, is_unicode, shown
from .listed.lazy import LazyProblems, is_large, open_lazily
from .listed.listed import ProblemList, as_problem
from .row_problems import MalformedError, RowReader, malformed
from .rows import read_rows


def listed_problems(
    problems: str | Path | Sequence[Problem | Mapping[str, Any] | str] | None,
    columns: Mapping[str, str] | None,
    template: str | None,
) -> ProblemList | LazyProblems | None:
    """Return the problems of a file or a list; None for None, which means that the verifier samples them.

    Raises:
        ValueError: for an empty list, and any error of `load_problems` and `as_problem`.
    """
    if isinstance(problems, (str, Path)):
        return open_problems(problems, columns, template)
    if columns or template is not None:
        raise ValueError("columns and template are for problems from a file: pass its path as problems (--problems)")
    if problems is None:
        return None
    if not len(problems):
        raise ValueError("problems is an empty list; pass None to have the verifier sample them")
    listed = ProblemList(_placed(index, item) for index, item in enumerate(problems))
    for problem in listed:
        if not is_unicode(problem.text + problem.answer):
            raise ValueError(f"problem {shown(problem.prompt)}: {NOT_UNICODE}")
    return listed


def _placed(index: int, item: Any) -> Problem:
    try:
        return as_problem(item)
    except ValueError as error:
        raise ValueError(f"problem {index + 1}: {error}") from error


def open_problems(
    path: str | Path, columns: Mapping[str, str] | None = None, template: str | None = None
) -> ProblemList | LazyProblems:
    """Return the problems of a file, in its order: those of a large file of lines are read one by one, when needed.

    Args:
        path: as for `load_problems`.
        columns: as for `load_problems`.
        template: as for `load_problems`.

    Raises:
        ValueError: as `load_problems`.
    """
    path = Path(path)
    if is_large(path):
        return open_lazily(path, columns, template)
    return ProblemList(load_problems(path, columns, template), partial(_place, path))


def _place(path: Path, index: int) -> str:
    """Return the place of a row for an error message."""
    return f"{str(path)!r}, {read_rows(path)[index][0]}"


def load_problems(
    path: str | Path, columns: Mapping[str, str] | None = None, template: str | None = None
) -> list[Problem]:
    """Return the problems of a file, in its order.

    The columns `prompt` and `answer` (if any) become the problem's prompt and answer; the others are its metadata. A
    prompt is text or a conversation, a list of messages; without a column `prompt`, the column `messages` is it. A
    column `split` (train, test, or validation, which counts as test), or the split of a `DatasetDict`, assigns the
    problem to a split. A column `level` (a whole number from 1, or "Level 3") is its difficulty. What is used as prompt
    or answer under another name is also metadata of that name.

    Args:
        path: a .jsonl, .ndjson, .json (a list of objects), .csv, .tsv or .parquet file, or a folder of datasets'
            `save_to_disk`; text is UTF-8, with or without a byte order mark.
        columns: which column of the file to use, such as {"prompt": "question", "answer": "target"}. If the file also
            has a column "prompt", that one is then left out.
        template: makes the prompt from a row's columns, as in "Q: {question}\\nA:"; {name} is replaced, and {{ and }}
            are braces.

    Raises:
        ValueError: in one line, for a file that cannot be read or has no rows, a missing column, a template that cannot
            be filled in, and malformed rows, with their line numbers.
    """
    path, asked = Path(path), RowReader.asked(columns, template)
    rows = read_rows(path)
    known = dict.fromkeys(name for _, row in rows if not isinstance(row, str) for name in row)
    reader = asked.of_file(path, list(known))
    problems, faults = [], []
    for place, row in rows:
        try:
            problems.append(reader.problem(row))
        except MalformedError as fault:
            faults.append(f"{place}: {fault}")
    if faults:
        raise malformed(path, faults, len(faults))
    return problems
