"""Problems from lists and files: column names, prompt templates, and the line of every malformed row."""

from __future__ import annotations

import difflib
import json
import math
import re
import string
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from verifiers import Problem

from ..text.texts import NOT_UNICODE, is_unicode, shown
from .rows import Row, read_rows
from .stream import MESSAGES, NAMED_SPLITS, as_problem

SHOWN_FAULTS, SHOWN_COLUMNS = 3, 20
_LEVEL = re.compile(r"(?:level )?([1-9][0-9]{0,8})", re.IGNORECASE)
_Template = Sequence[tuple[str, str | None]]  # literal text, and the name of the field that follows


class _MalformedError(Exception):
    """What is wrong with a row."""


def listed_problems(
    problems: str | Path | Sequence[Problem | Mapping[str, Any] | str] | None,
    columns: Mapping[str, str] | None,
    template: str | None,
) -> list[Problem] | None:
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
    listed = [_placed(index, item) for index, item in enumerate(problems)]
    for problem in listed:
        if not is_unicode(problem.text + problem.answer):
            raise ValueError(f"problem {shown(problem.prompt)}: {NOT_UNICODE}")
    return listed


def _placed(index: int, item: Any) -> Problem:
    try:
        return as_problem(item)
    except ValueError as error:
        raise ValueError(f"{place_of(None, index)}: {error}") from error


def place_of(problems: Any, index: int) -> str:
    """Return where a listed problem stands, for an error message: its row in the file, or its place in the list."""
    if isinstance(problems, (str, Path)):
        return f"{str(problems)!r}, {read_rows(Path(problems))[index][0]}"
    return f"problem {index + 1}"


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
    path, columns = Path(path), _checked(columns or {})
    fields = None if template is None else _parsed(template)
    rows = read_rows(path)
    known = list(dict.fromkeys(name for _, row in rows if not isinstance(row, str) for name in row))
    if fields is None and "prompt" not in known and MESSAGES in known:
        columns.setdefault("prompt", MESSAGES)
    if known:  # otherwise no row can be read, and the error below says so
        _check_columns(path, known, columns, fields)
    if columns.get("answer", "answer") in known:
        columns.setdefault("answer", "answer")
    problems, faults = [], []
    for place, row in rows:
        try:
            problems.append(_problem(row, columns, fields))
        except _MalformedError as fault:
            faults.append(f"{place}: {fault}")
    if faults:
        more = f"; and {len(faults) - SHOWN_FAULTS} more" if len(faults) > SHOWN_FAULTS else ""
        count = f"{len(faults)} malformed row{'s' if len(faults) > 1 else ''}"
        raise ValueError(f"{str(path)!r} has {count}: {'; '.join(faults[:SHOWN_FAULTS])}{more}")
    return problems


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


def _check_columns(path: Path, known: list[str], columns: Mapping[str, str], fields: _Template | None) -> None:
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
        raise _MalformedError(row)
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
        raise _MalformedError(f"the prompt must be text or a list of messages, got {shown(prompt)}")
    try:
        problem = Problem(prompt, _answer(renamed.get("answer", "")), metadata)
    except ValueError as error:  # a malformed conversation
        raise _MalformedError(str(error)) from error
    if not is_unicode(problem.text + problem.answer):
        raise _MalformedError(NOT_UNICODE)
    return problem


def _is_list(row: Row, column: str) -> bool:
    return isinstance(row.get(column), list)


def _value(row: Row, column: str) -> Any:
    if column not in row:
        raise _MalformedError(f"there is no {column!r}")
    return row[column]


def _filled_in(fields: _Template, row: Row) -> str:
    return "".join(literal + ("" if name is None else _inserted(name, _value(row, name))) for literal, name in fields)


def _inserted(name: str, value: Any) -> str:
    if value is None:
        raise _MalformedError(f"there is nothing in {name!r}")
    if isinstance(value, (list, dict, bool)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _answer(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool) or not math.isfinite(value):
        raise _MalformedError(f"the answer must be text or a number, got {shown(value)}")
    return str(value)


def _split(value: Any) -> str:
    if not isinstance(value, str) or value not in NAMED_SPLITS:
        raise _MalformedError(f"the split must be one of {', '.join(NAMED_SPLITS)}, got {shown(value)}")
    return NAMED_SPLITS[value]


def _level(value: Any) -> int:
    whole = isinstance(value, float) and value.is_integer()
    found = _LEVEL.fullmatch(str(int(value) if whole else value))
    if found is None:
        raise _MalformedError(f"the level must be a whole number from 1, got {shown(value)}")
    return int(found[1])
