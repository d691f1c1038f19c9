"""What a run has logged, read forgivingly: a damaged line is named on stderr, once, and left out.

A log is not needed to go on. So a flipped bit in it costs that line, and neither the run nor the other figures.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ..console.progress import say

T = TypeVar("T")
NAMED = 5  # numbers of damaged lines in a message
NO_TEXT = "\N{REPLACEMENT CHARACTER}"  # for bytes that are not UTF-8; logs never contain it


def tell(text: str) -> None:
    """Print a line on stderr, once per command: a report reads a table twice."""
    context = click.get_current_context(silent=True)
    told = set() if context is None else context.meta.setdefault(__name__, set())
    if text not in told:
        told.add(text)
        say(text)


def read_rows(table: Path) -> Iterator[dict[str, float]]:
    """Yield the lines of a progress.csv by column, NaN for cells that are empty or texts.

    Of a run that goes on, a last line that is half written is left out without a word.
    """
    names: list[str] = []
    for _, cells, whole in _checked_lines(table):
        if not names:
            names = cells
        elif whole:
            yield {name: _number(cell) for name, cell in zip(names, cells, strict=True)}


def mended_lines(table: Path) -> list[str]:
    """Return the complete lines of a progress.csv, empty cells in the place of a damaged line.

    Nothing is returned if no line fits the names of the columns: those are damaged then.
    """
    lines: list[str] = []
    fitting, empty, width = 0, "", 1
    for line, cells, whole in _checked_lines(table):
        if not lines:
            empty, width = "," * (len(cells) - 1) + "\n", len(cells)
        elif whole:
            fitting += 1
        else:  # with a line break lost, two lines are one
            lines += [empty] * max(1, round(len(cells) / width))
            continue
        lines.append(line)
    return lines if fitting or len(lines) <= 1 else []


def read_lines(file: Path, read: Callable[[Any], T]) -> list[T]:
    """Return what `read` makes of each JSON value of a file with one per line; a half-written last one is left out."""
    found, damaged = _parsed(file.read_bytes(), read)
    _name(file, damaged)
    return found


def damaged_lines(content: bytes) -> list[int]:
    """Return the numbers of the complete lines that are no JSON objects."""
    return _parsed(content, dict)[1]


def _parsed(content: bytes, read: Callable[[Any], T]) -> tuple[list[T], list[int]]:
    """Return what `read` makes of the complete lines, and the numbers of those that it cannot read."""
    found, damaged = [], []
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            found.append(read(json.loads(line)))
        except (ValueError, RecursionError, TypeError, KeyError):
            damaged.append(number)
    return found, damaged


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a file; unlike agents.core.files.read_table without an import of torch.

    Raises:
        ValueError: if it holds anything else.
    """
    try:
        table = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(file)!r} is damaged: {error}") from error
    if not isinstance(table, dict):
        raise ValueError(f"{str(file)!r} is damaged: it holds no JSON object")
    return table


def read_result(file: Path) -> dict[str, Any]:
    """Return the object in a file that nothing depends on; empty if there is none, or if it is damaged."""
    if not file.is_file():
        return {}
    try:
        return read_json(file)
    except ValueError as error:
        tell(f"{error}; it is left out")
        return {}


def _checked_lines(table: Path) -> Iterator[tuple[str, list[str], bool]]:
    """Yield each complete line, its cells, and whether it is what a log has written; then name those that are not."""
    damaged, width = [], 0
    with table.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line = raw.decode("utf-8", "replace")
            if not line.endswith("\n"):
                break
            cells = _cells(line)
            width = width or len(cells)
            whole = len(cells) == width and NO_TEXT not in line and not any(map(_was_number, cells))
            damaged += [] if whole else [number]
            yield line, cells, whole
    _name(table, damaged)


def _name(file: Path, damaged: Sequence[int]) -> None:
    """Say which lines of a file are damaged, if any."""
    if damaged:
        shown = ", ".join(map(str, damaged[:NAMED])) + (f" and {len(damaged) - NAMED} more" * (len(damaged) > NAMED))
        lines, are = ("line", "is") if len(damaged) == 1 else ("lines", "are")
        tell(f"{lines} {shown} of {str(file)!r} {are} damaged and left out")


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _was_number(cell: str) -> bool:
    """Tell whether a cell is not a number, but would be with one character replaced."""
    if not cell or not cell[-1:].isascii() or len(cell) > 30 or _is_number(cell):
        return False
    return len(cell) > 1 and any(_is_number(f"{cell[:at]}0{cell[at + 1 :]}") for at in range(len(cell)))


def _is_number(text: str) -> bool:
    return text == "nan" or not math.isnan(_number(text))


def said(row: Mapping[str, Any]) -> str:
    """Return a completion; of a dialogue, all of its turns, each reply in brackets behind its turn."""
    turns = row.get("dialogue") or [{"text": row["completion"], "reply": ""}]
    return " ".join(f"{turn['text']} [{turn['reply'].strip()}]" if turn["reply"] else turn["text"] for turn in turns)
