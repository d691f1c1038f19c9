"""From the columns of a row to a problem: column names, prompt templates, and what is wrong with a row."""

from __future__ import annotations

import difflib
import json
import math
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from verifiers import Problem

from ..text.texts import NOT_UNICODE, is_unicode, shown
from .rows import Row
from .splits import NAMED_SPLITS

SHOWN_FAULTS, SHOWN_COLUMNS = 3, 20
MESSAGES = "messages"  # a usual name of the column with conversations
_LEVEL = re.compile(r"(?:level )?([1-9][0-9]{0,8})", re.IGNORECASE)
_Template = Sequence[tuple[str, str | None]]  # literal text, and the name of the field that follows


class MalformedError(Exception):
    """What is wrong with a row."""


@dataclass(frozen=True)
class RowReader:
    """Makes the problems of a file from its rows.

    Args:
        columns: which column of the file holds what.
        fields: of the template for prompts; None without one.
    """

    columns: Mapping[str, str]
    fields: _Template | None

    @classmethod
    def asked(cls, columns: Mapping[str, str] | None, template: str | None) -> RowReader:
        """Return what a user asks for, whatever columns the file has.

        Raises:
            ValueError: for columns that are not a mapping of names, or a malformed template.
        """
        return cls(_checked(columns or {}), None if template is None else _parsed(template))

    def of_file(self, path: Path, known: Sequence[str]) -> RowReader:
        """Return the reader for a file with these columns.

        Raises:
            ValueError: for a column that the file does not have.
        """
        columns = dict(self.columns)
        if self.fields is None and "prompt" not in known and MESSAGES in known:
            columns.setdefault("prompt", MESSAGES)
        if known:  # otherwise no row can be read, and the error about malformed rows says so
            _check_columns(path, known, columns, self.fields)
        if columns.get("answer", "answer") in known:
            columns.setdefault("answer", "answer")
        return RowReader(columns, self.fields)

    def problem(self, row: Row | str) -> Problem:
        """Return the problem in a row.

        Raises:
            MalformedError: if there is none.
        """
        return _problem(row, self.columns, self.fields)


def malformed(path: Path, faults: Iterable[str], count: int) -> ValueError:
    """Return the error about the malformed rows of a file.

    Args:
        path: of the file.
        faults: of the first rows, at least `SHOWN_FAULTS` if there are so many, each with its place.
        count: malformed rows in all.
    """
    more = f"; and {count - SHOWN_FAULTS} more" if count > SHOWN_FAULTS else ""
    rows = f"{count} malformed row{'s' if count > 1 else ''}"
    return ValueError(f"{str(path)!r} has {rows}: {'; '.join(list(faults)[:SHOWN_FAULTS])}{more}")


def _checked(columns: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(columns, Mapping) or not all(isinstance(name, str) for pair in columns.items() for name in pair):
        raise ValueError(f"columns must be a mapping such as {{'prompt': 'question'}}, got {columns!r}")
    return dict(columns)


def _parsed(template: str) -> _Template:
    """Return a template as literal texts, each with the field that follows it."""
    if not isinstance(template, str):
        raise ValueError(f"a prompt template must be text, got {template!r}")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"prompt template {template!r}: {error}; braces are written {{{{ and }}}}") from error
    fields = [(name, form, conversion) for _, name, form, conversion in parts if name is not None]
    if not fields:
        raise ValueError(f"prompt template {template!r} has no field such as {{question}}")
    if any(not name or form or conversion for name, form, conversion in fields):
        raise ValueError(f"prompt template {template!r}: only plain {{name}} fields are allowed")
    return [(literal, name) for literal, name, _, _ in parts]


def _check_columns(path: Path, known: Sequence[str], columns: Mapping[str, str], fields: _Template | None) -> None:
    """Check that the file has every column that is needed."""
    if fields is None:
        columns = {"prompt": "prompt", **columns}
    asked = {name: "--prompt-template" for _, name in fields or () if name is not None and name not in columns}
    asked |= {column: f"--column {name}=NAME" for name, column in columns.items()}
    for column, option in asked.items():
        if column not in known:
            close = difflib.get_close_matches(column, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ";"
            there = ", ".join(map(repr, known[:SHOWN_COLUMNS])) + (", ..." if len(known) > SHOWN_COLUMNS else "")
            option = option.replace("NAME", close[0]) if close else option
            raise ValueError(f"{str(path)!r} has no column {column!r}{hint} columns there: {there}; set with {option}")


def _problem(row: Row | str, columns: Mapping[str, str], fields: _Template | None) -> Problem:
    """Return the problem in a row."""
    if isinstance(row, str):
        raise MalformedError(row)
    renamed = {name: _value(row, column) for name, column in columns.items()}
    # A reward function may ask for `solution`, the answer, by its own name; a conversation is in the prompt already.
    gone = {column for name, column in columns.items() if name not in ("prompt", "answer") or _is_list(row, column)}
    taken = {*columns, *gone, "prompt", "answer"}
    metadata = {name: value for name, value in row.items() if name not in taken} | {
        name: value for name, value in renamed.items() if name not in ("prompt", "answer")
    }
    if "split" in metadata:
        metadata["split"] = _split(metadata["split"])
    if "level" in metadata:
        metadata["level"] = _level(metadata["level"])
    row = {**row, **renamed}
    prompt = _value(row, "prompt") if fields is None else _filled_in(fields, row)
    if not isinstance(prompt, (str, list)) or prompt == "":
        raise MalformedError(f"the prompt must be text or a list of messages, got {shown(prompt)}")
    try:
        problem = Problem(prompt, _answer(renamed.get("answer", "")), metadata)
    except ValueError as error:  # a malformed conversation
        raise MalformedError(str(error)) from error
    if not is_unicode(problem.text + problem.answer):
        raise MalformedError(NOT_UNICODE)
    return problem


def _is_list(row: Row, column: str) -> bool:
    return isinstance(row.get(column), list)


def _value(row: Row, column: str) -> Any:
    if column not in row:
        raise MalformedError(f"there is no {column!r}")
    return row[column]


def _filled_in(fields: _Template, row: Row) -> str:
    return "".join(literal + ("" if name is None else _inserted(name, _value(row, name))) for literal, name in fields)


def _inserted(name: str, value: Any) -> str:
    if value is None:
        raise MalformedError(f"there is nothing in {name!r}")
    if isinstance(value, (list, dict, bool)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _answer(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool) or not math.isfinite(value):
        raise MalformedError(f"the answer must be text or a number, got {shown(value)}")
    return str(value)


def _split(value: Any) -> str:
    if not isinstance(value, str) or value not in NAMED_SPLITS:
        raise MalformedError(f"the split must be one of {', '.join(NAMED_SPLITS)}, got {shown(value)}")
    return NAMED_SPLITS[value]


def _level(value: Any) -> int:
    whole = isinstance(value, float) and value.is_integer()
    found = _LEVEL.fullmatch(str(int(value) if whole else value))
    if found is None:
        raise MalformedError(f"the level must be a whole number from 1, got {shown(value)}")
    return int(found[1])
