"""Problems of a large file, which are read from it one by one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from verifiers import Problem

from .cache import code_hash, load, name_of, save
from .index import Index, index_of
from .lines import SUFFIXES

if TYPE_CHECKING:  # it takes seconds to import
    from ...text.encoder import Encoder

LARGE = 1 << 20  # bytes of a file
BLOCK = 1024  # problems in memory at once


def is_large(path: Path) -> bool:
    """Tell whether the problems of a file are read one by one."""
    return path.suffix.lower() in SUFFIXES and path.is_file() and path.stat().st_size > LARGE


def open_lazily(path: Path, columns: Mapping[str, str] | None = None, template: str | None = None) -> LazyProblems:
    """Return the problems of a file of lines, in its order.

    Args:
        path: of the file.
        columns: which column of the file holds what.
        template: makes prompts from columns.

    Raises:
        ValueError: as `files.load_problems`.
    """
    return LazyProblems(index_of(path, columns, template))


class LazyProblems(Sequence[Problem]):
    """Problems of a file, of which only the index is in memory.

    Args:
        source: the index of the file.
        rows: the numbers of the rows, in order; None for all.
    """

    def __init__(self, source: Index, rows: np.ndarray | None = None) -> None:
        self.source, self.rows = source, rows

    def __len__(self) -> int:
        return len(self.source.arrays["texts"] if self.rows is None else self.rows)

    @overload
    def __getitem__(self, index: int, /) -> Problem: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Problem]: ...
    def __getitem__(self, index: int | slice, /) -> Problem | list[Problem]:
        """Read a problem, or several.

        Raises:
            ValueError: if the file has changed since it was opened, or is gone.
        """
        numbers = range(len(self))[index]
        several = np.array([numbers] if isinstance(numbers, int) else numbers, np.int64)
        with self.source.opened() as file:
            found = list(self.source.problems(file, self._rows(several)))
        return found[0] if isinstance(numbers, int) else found

    def __iter__(self) -> Iterator[Problem]:
        for block in self.blocks():
            yield from block

    def blocks(self) -> Iterator[Sequence[Problem]]:
        """Yield the problems in order, `BLOCK` at once."""
        for start in range(0, len(self), BLOCK):
            yield self[start : start + BLOCK]

    def only(self, rows: np.ndarray) -> LazyProblems:
        """Return the problems with these numbers, in their order."""
        return LazyProblems(self.source, self._rows(rows).astype(np.uint32))

    def place(self, index: int) -> str:
        """Return where a problem stands, for an error message: its line."""
        number = self.source.lines.number(int(self.source.arrays["starts"][self._rows(np.array([index]))[0]]))
        return f"{str(self.source.path)!r}, line {number}"

    def kept(self, name: str, depends: Any, find: Callable[[], np.ndarray], length: int | None = None) -> np.ndarray:
        """Return what a pass over the problems finds, or has found in this run or an earlier one."""
        if depends is None:
            return find()
        source, key = self.source, name_of(code_hash(), self.source.digest, self._which, name, depends)
        if key not in source.found:
            _, arrays = load(source.folder / key) or ({}, {})
            found = arrays.get("found")
            if found is None or length not in (None, len(found)):
                found = find()
                save(source.folder / key, {}, {"found": found})
            source.found[key] = found
        return source.found[key]

    def prompt_lengths(self, encoder: Encoder) -> np.ndarray:
        """Return the number of tokens of each prompt."""
        whole = name_of(code_hash(), self.source.digest, "", "prompt lengths", encoder.identity)
        if whole in self.source.found:
            return self._of_rows(self.source.found[whole])
        return self.kept("prompt lengths", encoder.identity, lambda: self._prompt_lengths(encoder), len(self))

    def texts(self) -> np.ndarray:
        """Return the hash of each prompt's text."""
        return self._of_rows(self.source.arrays["texts"])

    def answers(self) -> np.ndarray:
        """Return the hash of each answer; 0 for none."""
        return self._of_rows(self.source.arrays["answers"])

    def sides(self) -> np.ndarray:
        """Return the split that each problem names, as its place in `SIDES`."""
        return self._of_rows(self.source.sides)

    def levels(self) -> np.ndarray:
        """Return the level of each problem; 1 if it has none."""
        return np.maximum(self._of_rows(self.source.levels), 1)

    def columns(self) -> set[str]:
        """Return the names of all metadata."""
        if self.source.columns is not None:
            return set(self.source.columns)

        def find() -> np.ndarray:
            names = {name for problem in self for name in problem.metadata}
            return np.frombuffer(json.dumps(sorted(names)).encode(), np.uint8)

        return set(json.loads(self.kept("columns", [], find).tobytes()))

    @cached_property
    def _which(self) -> str:
        """What tells these rows from others of the file; empty for all of them."""
        return "" if self.rows is None else hashlib.blake2b(self.rows.tobytes(), digest_size=16).hexdigest()

    def _rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rows of the problems with these numbers."""
        return numbers if self.rows is None else self.rows[numbers]

    def _of_rows(self, values: np.ndarray) -> np.ndarray:
        return values if self.rows is None else values[self.rows]

    def _prompt_lengths(self, encoder: Encoder) -> np.ndarray:
        lengths = np.empty(len(self), np.uint32)
        try:
            for start, block in zip(range(0, len(self), BLOCK), self.blocks(), strict=True):
                lengths[start : start + len(block)] = encoder.counted([problem.prompt for problem in block])
        except ValueError:
            for chats in (False, True):  # as in memory: the first text that is refused, else the first conversation
                for block in self.blocks():
                    prompts = [problem.prompt for problem in block]
                    encoder.counted([prompt for prompt in prompts if encoder.is_chat(prompt) == chats])
            raise
        return lengths
