"""The index of a large file of problems: where its rows begin, and 20 more bytes about each."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from verifiers import Problem

from ..row_problems import MalformedError, RowReader, malformed
from ..rows import no_rows
from ..splits import hash_of
from .cache import ROWS, clear, code_hash, folder_of, load, save
from .lines import Lines, Stamp, digest_of
from .scan import ARRAYS, LEVEL_BITS, Scan, answer_hash, first_names

CLOCK = 2_000_000_000  # ns: a file that changed so recently may change again without another time


@dataclass
class Index:
    """A file of problems, of which every row was read once and is well-formed.

    Args:
        path: as the user wrote it.
        lines: reads its rows.
        reader: makes problems of them.
        stamp: of the file when it was read.
        digest: of its bytes.
        folder: for what is kept between runs.
        arrays: per row: its first byte, and after the last row the file's size; the hashes of its text and its answer,
            0 for none; the split that it names and its level.
        columns: the names of metadata; None if rows have different ones.
        found: what passes over the problems found, by name.
    """

    path: Path
    lines: Lines
    reader: RowReader
    stamp: Stamp
    digest: str
    folder: Path
    arrays: Mapping[str, np.ndarray]
    columns: list[str] | None
    found: dict[str, np.ndarray] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without what passes found: another process reads it from the cache."""
        return self.__dict__ | {"found": {}}

    @property
    def sides(self) -> np.ndarray:
        """The split that each row names, as its place in `SIDES`."""
        return (self.arrays["marks"] >> np.uint32(LEVEL_BITS)).astype(np.uint8)

    @property
    def levels(self) -> np.ndarray:
        """The level of each row; 0 if it has none."""
        return self.arrays["marks"] & np.uint32((1 << LEVEL_BITS) - 1)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file.

        Raises:
            ValueError: if it has changed or is gone.
        """
        try:
            with self.lines.path.open("rb") as file:
                found = Stamp.of_entry(os.fstat(file.fileno()))
                if (found.size, found.changed) != (self.stamp.size, self.stamp.changed):
                    raise changed(self.path)
                yield file
        except OSError as error:
            raise ValueError(
                f"{str(self.path)!r} cannot be read: {error.strerror}; it is read while a run goes on, and must stay"
            ) from error

    def problems(self, file: BinaryIO, rows: np.ndarray) -> Iterator[Problem]:
        """Yield the problems in these rows of the opened file.

        Raises:
            ValueError: if a row is another one than it was.
        """
        starts, texts, answers = (self.arrays[name] for name in ("starts", "texts", "answers"))
        columns = (starts[rows], starts[rows + 1], texts[rows], answers[rows])
        places = zip(*(column.tolist() for column in columns), strict=True)
        for start, end, text, answer in places:
            file.seek(start)
            try:
                problem = self.reader.problem(self.lines.row(file.read(end - start)))
            except (MalformedError, UnicodeDecodeError) as error:
                raise changed(self.path) from error
            if (hash_of(problem.text), answer_hash(problem.answer)) != (text, answer):
                raise changed(self.path)
            yield problem


def changed(path: Path) -> ValueError:
    """Return the error about a file that is not what it was."""
    return ValueError(
        f"{str(path)!r} has changed since it was opened: its problems are read while a run goes on; "
        "start again, or resume with the file as it was"
    )


def index_of(path: Path, columns: Mapping[str, str] | None, template: str | None) -> Index:
    """Return the index of a file of problems, from an earlier run or made now.

    Args:
        path: of a file of lines.
        columns: which column of the file holds what.
        template: makes prompts from columns.

    Raises:
        ValueError: in one line, for a file that cannot be read or has no rows, a missing column, a template that cannot
            be filled in, and malformed rows, with their line numbers.
    """
    asked = RowReader.asked(columns, template)
    folder = folder_of(path, list((columns or {}).items()), template)
    try:
        return _kept_or_made(path, asked, folder)
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:  # it was text a moment ago
        raise changed(path) from error


def _kept_or_made(path: Path, asked: RowReader, folder: Path) -> Index:
    """Return the index that an earlier run kept, or make one and keep it."""
    before = Stamp.of(path)
    recent = time.time_ns() - max(before.changed, before.moved) < CLOCK
    facts, arrays = load(folder / ROWS) or ({}, {})
    kept = _kept(path, before, asked, folder, facts, arrays)
    if kept is None:
        clear(folder)
        kept = _made(path, before, asked, folder)
    elif not recent and facts["stamp"] == asdict(before) and not facts["recent"]:
        return kept
    if Stamp.of(path) != before:
        raise changed(path)
    save(
        folder / ROWS,
        {
            "code": code_hash(), "digest": kept.digest, "stamp": asdict(before), "recent": recent,
            "header": kept.lines.header, "names": dict(kept.reader.columns), "columns": kept.columns,
        },
        kept.arrays,
    )  # fmt: skip
    return kept


def _kept(
    path: Path,
    stamp: Stamp,
    asked: RowReader,
    folder: Path,
    facts: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> Index | None:
    """Return the index that an earlier run kept; None if it kept none, or of another state of the file."""
    with suppress(LookupError, TypeError, ValueError, AttributeError):
        if facts["code"] != code_hash() or facts["stamp"]["size"] != stamp.size or not _are_whole(arrays, stamp.size):
            return None
        known = facts["stamp"] == asdict(stamp) and not facts["recent"]
        if not known and facts["digest"] != digest_of(path):  # the same bytes may have another time, or none that tells
            return None
        lines, reader = Lines(path.absolute(), list(facts["header"])), RowReader(dict(facts["names"]), asked.fields)
        return Index(path, lines, reader, stamp, facts["digest"], folder, arrays, facts["columns"])
    return None


def _are_whole(arrays: Mapping[str, np.ndarray], size: int) -> bool:
    """Tell whether these are the arrays of an index of a file of this size."""
    if {name: kept.dtype.type for name, kept in arrays.items()} != ARRAYS:
        return False
    starts = arrays["starts"]
    return (
        {len(kept) for kept in arrays.values()} == {len(starts), len(starts) - 1}
        and len(starts) == len(arrays["texts"]) + 1 > 1
        and bool(np.all(starts[1:] > starts[:-1]))
        and int(starts[-1]) == size
    )


def _made(path: Path, stamp: Stamp, asked: RowReader, folder: Path) -> Index:
    """Return a new index."""
    digest = digest_of(path)
    names = first_names(path)
    reader: RowReader | None = None
    with suppress(ValueError):  # a later row may have the column that the first one lacks
        reader = asked.of_file(path, names)
    while True:
        scan = Scan(path, reader)
        needed = asked.of_file(path, list(scan.known))
        if needed == reader:
            break
        reader = needed
    if scan.faults:
        raise malformed(path, scan.faults, scan.faulty)
    if not scan.starts:
        raise no_rows(path)
    columns = None if scan.columns is None else list(scan.columns)
    return Index(path, scan.lines, needed, stamp, digest, folder, scan.arrays(stamp.size), columns)
