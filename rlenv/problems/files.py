"""Problems from lists and files: those in memory, and those of a file that is mapped into it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from verifiers import Problem
from verifiers.base import template_parts
from verifiers.conversation import shown

from ..text.texts import NOT_UNICODE, is_unicode
from .rows import MappedRows, Row, columns_of, digest_of, hash_text, made_of, no_column, read_rows


class Problems(Sequence[Problem]):
    """Problems of a list or a file, in its order.

    Args:
        rows: the problems with their places; of a file that is mapped into memory, its rows.
        path: of the file, if any.
        digest: the hash of the file; empty for one of the problems.
        make: makes a problem of a mapped row.
    """

    def __init__(
        self,
        rows: Sequence[tuple[str, Any]],
        path: Path | None = None,
        digest: str = "",
        make: Callable[[Row], Problem] | None = None,
    ) -> None:
        self.rows, self.path, self._digest, self.make = rows, path, digest, make

    @classmethod
    def of(cls, items: Iterable[Problem | Mapping[str, Any] | Sequence[Any] | str]) -> Problems:
        """Return the problems in a list.

        Raises:
            ValueError: as `as_problem`, with the number of the problem.
        """
        rows = []
        for number, item in enumerate(items, 1):
            try:
                rows.append((f"problem {number}", _unicode(as_problem(item))))
            except ValueError as error:
                raise ValueError(f"problem {number}: {error}") from error
        return cls(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(len(self))[index]]
        return self._problem(*self.rows[index])

    def __iter__(self) -> Iterator[Problem]:
        return (self._problem(place, row) for place, row in self.rows)

    def _problem(self, place: str, row: Any) -> Problem:
        if self.make is None:
            return row
        return made_of(self.path, [(place, row)], self.make)[0]

    def place(self, index: int) -> str:
        """Return where a problem stands, for error messages."""
        place = self.rows[index][0]
        return place if self.path is None else f"{str(self.path)!r}, {place}"

    @cached_property
    def digest(self) -> str:
        """A hash of the file, or of all problems."""
        rows = [[problem.prompt, problem.answer, dict(problem.metadata)] for problem in ([] if self._digest else self)]
        return self._digest or hash_text(json.dumps(rows, default=repr))


def listed_problems(
    problems: str | Path | Sequence[Problem | Mapping[str, Any] | str] | None,
    columns: Mapping[str, str] | None,
    template: str | None,
) -> Problems | None:
    """Return the problems of a file or a list; None for None, which means that the verifier samples them.

    Raises:
        ValueError: for an empty list, and any error of `load_problems` and `as_problem`.
    """
    if isinstance(problems, (str, Path)):
        return load_problems(problems, columns, template)
    if columns or template is not None:
        raise ValueError("columns and template are for problems from a file: pass its path as problems (--problems)")
    if problems is None:
        return None
    if not len(problems):
        raise ValueError("problems is an empty list; pass None to have the verifier sample them")
    return Problems.of(problems)


def as_problem(item: Problem | Mapping[str, Any] | Sequence[Any] | str) -> Problem:
    """Return a Problem made from a Problem, a prompt, or a row with a `prompt` and optionally an `answer`.

    Raises:
        ValueError: as `Problem.from_row`, or for a malformed conversation.
    """
    if isinstance(item, Problem):
        return item
    if isinstance(item, Mapping):
        return Problem.from_row(item)
    if isinstance(item, (str, list, tuple)):
        return Problem(item)  # type: ignore[arg-type]  # a list is checked there
    raise ValueError(f"a problem is a prompt, a Problem or a mapping with a 'prompt', got {shown(item)}")


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
    problems = made_of(path, rows, lambda row: _unicode(make(row)))
    return Problems([(place, problem) for (place, _), problem in zip(rows, problems, strict=True)], path, digest)


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


def _unicode(problem: Problem) -> Problem:
    if not is_unicode(problem.text + problem.answer):
        raise ValueError(NOT_UNICODE)
    return problem
