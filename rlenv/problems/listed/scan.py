"""One pass over a large file: what the index holds of each row, and what is wrong with them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verifiers import Problem

from ..row_problems import SHOWN_FAULTS, MalformedError, RowReader
from ..splits import hash_of
from .lines import Lines
from .listed import SIDES

LEVEL_BITS = 30  # of a mark; the others are the split that a row names
ARRAYS = {"starts": np.uint64, "texts": np.uint64, "answers": np.uint64, "marks": np.uint32}


def answer_hash(answer: str) -> int:
    """Return the hash of an answer; 0 for none."""
    return hash_of(answer) if answer else 0


def first_names(path: Path) -> Sequence[str]:
    """Return the columns of the first row that can be read."""
    return next((list(row) for _, _, row in Lines(path.absolute()).rows() if not isinstance(row, str)), [])


class Scan:
    """One pass over a file.

    Args:
        path: of the file.
        reader: makes problems; None to find out the columns only.
    """

    def __init__(self, path: Path, reader: RowReader | None) -> None:
        self.lines, self.known = Lines(path.absolute()), dict[str, None]()
        self.starts, self.texts, self.answers, self.marks = array("Q"), array("Q"), array("Q"), array("I")
        self.columns: dict[str, None] | None = {}
        self.faults: list[str] = []
        self.faulty = 0
        names: Any = None
        for start, number, row in self.lines.rows():
            if not isinstance(row, str) and row.keys() != names:
                names = row.keys()
                self.known |= dict.fromkeys(row)
            try:
                problem = None if reader is None else reader.problem(row)
            except MalformedError as fault:
                self.faulty += 1
                if self.faulty <= SHOWN_FAULTS:
                    self.faults.append(f"line {number}: {fault}")
                continue
            if problem is not None:
                self._add(start, problem)

    def arrays(self, size: int) -> dict[str, np.ndarray]:
        """Return the arrays of an index; see `index.Index`."""
        self.starts.append(size)
        return {name: np.frombuffer(getattr(self, name), kind) for name, kind in ARRAYS.items()}

    def _add(self, start: int, problem: Problem) -> None:
        named = dict.fromkeys(problem.metadata)
        if not self.starts:
            self.columns = named
        elif self.columns is not None and named.keys() != self.columns.keys():
            self.columns = None
        self.starts.append(start)
        self.texts.append(hash_of(problem.text))
        self.answers.append(answer_hash(problem.answer))
        side, level = problem.metadata.get("split"), problem.metadata.get("level", 0)
        self.marks.append(SIDES.index(side) << LEVEL_BITS | level)
