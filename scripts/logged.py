"""What a run has logged. A log is not needed to go on, so a damaged line is skipped, and counted on stderr."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from agents.files import read_table

from .progress import say

T = TypeVar("T")
NO_TEXT = "\N{REPLACEMENT CHARACTER}"  # for bytes that are not UTF-8; logs never contain it


def read_rows(table: Path) -> Iterator[dict[str, float]]:
    """Yield the lines of a progress.csv by column, NaN for cells that are empty or texts; not a half-written last one.

    Lines with another number of cells, or that are not UTF-8, are skipped.
    """
    names, damaged = list[str](), 0
    with table.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            if not line.endswith("\n"):
                break
            cells = next(csv.reader([line]), [])
            if not names:
                names = cells
            elif len(cells) == len(names) and NO_TEXT not in line:
                yield {name: _number(cell) for name, cell in zip(names, cells, strict=True)}
            else:
                damaged += 1
    _say_skipped(table, damaged)


def read_lines(file: Path, read: Callable[[Any], T]) -> list[T]:
    """Return what `read` makes of each JSON value of a file with one per line; a half-written last one is left out."""
    found, lines = [], file.read_bytes().split(b"\n")[:-1]
    for line in lines:
        try:
            found.append(read(json.loads(line)))
        except (ValueError, RecursionError, TypeError, KeyError):
            continue
    _say_skipped(file, len(lines) - len(found))
    return found


def read_result(file: Path) -> dict[str, Any]:
    """Return the object in a file that nothing depends on; empty if there is none, or if it is damaged."""
    try:
        return read_table(file) if file.is_file() else {}
    except ValueError as error:
        say(f"{error}; it is left out")
        return {}


def _say_skipped(file: Path, damaged: int) -> None:
    if damaged:
        say(f"skipped {damaged} damaged line{'s' * (damaged > 1)} of {str(file)!r}")


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def said(row: Mapping[str, Any]) -> str:
    """Return a completion; of a dialogue, all of its turns, each reply in brackets behind its turn."""
    turns = row.get("dialogue") or [{"text": row["completion"], "reply": ""}]
    return " ".join(f"{turn['text']} [{turn['reply'].strip()}]" if turn["reply"] else turn["text"] for turn in turns)
