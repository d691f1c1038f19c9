"""Problems from lists and files: which columns and rows they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from verifiers import Problem, Verifier
from verifiers.base import template_parts

from .listed import Problems, as_problem
from .rows import MappedRows, columns_of, digest_of, hash_text, made_of, no_column, read_rows


def listed_problems(
    problems: str | Path | Sequence[Problem | Mapping[str, Any] | str] | None,
    columns: Mapping[str, str] | None,
    template: str | None,
    verifier: Verifier,
) -> Problems | None:
    """Return the problems of a file or a list, as the verifier opens them; None to have it sample them.

    Raises:
        ValueError: for an empty list, and any error of `load_problems` and `as_problem`.
    """
    if isinstance(problems, (str, Path)):
        return _opened(load_problems(problems, columns, template), verifier)
    if columns or template is not None:
        raise ValueError("columns and template are for problems from a file: pass its path as problems (--problems)")
    if problems is None:
        return None
    if not len(problems):
        raise ValueError("problems is an empty list; pass None to have the verifier sample them")
    return _opened(Problems.of(problems), verifier)


def _opened(found: Problems, verifier: Verifier) -> Problems:
    if getattr(verifier.opened, "__func__", None) is Verifier.opened:
        return found
    return Problems([(found.place(row), verifier.opened(problem)) for row, problem in enumerate(found)])


def load_problems(path: str | Path, columns: Mapping[str, str] | None = None, template: str | None = None) -> Problems:
    """Return the problems of a file, in its order; see `Problem.from_row`.

    Rows of JSON, CSV and TSV are in memory. A Parquet file or a folder of `datasets` is mapped into memory: a row
    becomes a problem when it is asked for.

    Args:
        path: a .jsonl, .ndjson, .json (a list of objects), .csv, .tsv or .parquet file, or a folder of datasets'
            `save_to_disk`, where the split of a `DatasetDict` is a column `split`; text is UTF-8, with or without a
            byte order mark.
        columns: which column of the file to use, such as {"prompt": "question", "answer": "target"}. If the file also
            has a column "prompt", that one is then left out.
        template: makes the prompt from a row's columns, as in "Q: {question}\\nA:"; {name} is replaced, and {{ and }}
            are braces.

    Raises:
        ValueError: in one line, for a file that cannot be read or has no rows, a missing column, a template that cannot
            be filled in, and malformed rows, with their line numbers; of mapped files, these when they are read.
    """
    path, fields = Path(path), [] if template is None else template_parts(template)
    if not isinstance(columns or {}, Mapping) or not all(
        isinstance(name, str) for pair in (columns or {}).items() for name in pair
    ):
        raise ValueError(f"columns must be a mapping such as {{'prompt': 'question'}}, got {columns!r}")
    rows = read_rows(path)
    names = _names(path, columns_of(rows), dict(columns or {}), template, [name for _, name in fields if name])
    digest = hash_text(f"{digest_of(path)}{names}{template}")
    make = partial(Problem.from_row, columns=names, template=template)
    if isinstance(rows, MappedRows):
        return Problems(rows, path, digest, make)
    return Problems(made_of(path, rows, lambda row: as_problem(make(row))), path, digest)


def _names(
    path: Path, known: Sequence[str], columns: dict[str, str], template: str | None, fields: Sequence[str]
) -> dict[str, str]:
    """Return which column of a file is used as what, after checking that they are there."""
    if template is None:
        columns.setdefault("prompt", "messages" if "messages" in known and "prompt" not in known else "prompt")
    asked = {name: "--prompt-template" for name in fields if name not in columns}
    asked |= {column: f"--column {name}=NAME" for name, column in columns.items()}
    for column, option in asked.items():
        if known and column not in known:  # without columns, the error about malformed rows says why
            raise no_column(path, column, known, option)
    return {"answer": "answer", **columns} if "answer" in known else columns
