"""Reads the rows of a large file one after the other, and a single row from its place."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TextIO

from ..rows import Row, checked_header, csv_row, json_row, text_of_file

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".jsonl", ".ndjson", *DELIMITERS)
CHUNK = 1 << 20
_MARK = codecs.BOM_UTF8


@dataclass(frozen=True)
class Stamp:
    """What tells a file from an earlier or later one at the same path."""

    size: int
    changed: int  # ns
    moved: int  # ns: its entry, which a program that sets `changed` back does not
    number: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Return that of the file at a path."""
        return cls.of_entry(path.stat())

    @classmethod
    def of_entry(cls, entry: os.stat_result) -> Stamp:
        """Return that of a file by its entry."""
        return cls(entry.st_size, entry.st_mtime_ns, entry.st_ctime_ns, entry.st_ino)


def digest_of(path: Path) -> str:
    """Return the hash of a file's bytes, and check that they are text.

    Raises:
        ValueError: in one line, for a file that is unreadable, empty or not UTF-8.
    """
    digest, decoder = hashlib.blake2b(digest_size=16), codecs.getincrementaldecoder("utf-8")()
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
    except (OSError, UnicodeDecodeError):
        text_of_file(path)  # says what is wrong
        raise
    return digest.hexdigest()


@dataclass
class Lines:
    """The rows of a file of lines.

    Args:
        path: of the file.
        header: the columns of a table; empty until its first row was read.
    """

    path: Path
    header: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.delimiter = DELIMITERS.get(self.path.suffix.lower())  # None for JSON lines

    def rows(self) -> Iterator[tuple[int, int, Row | str]]:
        """Yield the first byte of each row, the number of its line, and its columns or what is wrong with it.

        Raises:
            ValueError: in one line, for a table with two columns of one name.
        """
        with self.path.open("rb") as file:
            yield from self._objects(file) if self.delimiter is None else self._table(file, self.delimiter)

    def row(self, data: bytes) -> Row | str:
        """Return the row at the beginning of these bytes, which end before the next row, or what is wrong with it."""
        text = data.decode("utf-8")
        if self.delimiter is None:
            return json_row(text.partition("\n")[0])
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, strict=True)
        try:
            return csv_row(self.header, next(reader, []))
        except csv.Error as error:
            return str(error)

    def number(self, start: int) -> int:
        """Return the number of the line that begins at a byte."""
        ends, last = 1, b""
        with self.path.open("rb") as file:
            while start > 0 and (chunk := file.read(min(CHUNK, start))):
                start -= len(chunk)
                ends += chunk.count(b"\n")
                if self.delimiter is not None:  # a table's lines may end as those of old Macs
                    ends += chunk.count(b"\r") - chunk.count(b"\r\n") - (last == b"\r" and chunk[:1] == b"\n")
                last = chunk[-1:]
        return ends

    def _objects(self, file: BinaryIO) -> Iterator[tuple[int, int, Row | str]]:
        start = _skip_mark(file)
        for number, line in enumerate(file, 1):
            text = line.decode("utf-8").removesuffix("\n")
            if text.strip():
                yield start, number, json_row(text)
            start += len(line)

    def _table(self, file: BinaryIO, delimiter: str) -> Iterator[tuple[int, int, Row | str]]:
        start = _skip_mark(file)
        with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
            lines = _Counted(text)
            reader, header = csv.reader(lines, delimiter=delimiter, strict=True), False
            while True:
                first, number = start + lines.taken, reader.line_num + 1
                try:
                    fields = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield first, number, str(error)
                    continue
                if fields and header:
                    yield first, number, csv_row(self.header, fields)
                elif fields:  # not an empty line
                    self.header, header = checked_header(self.path, fields), True


class _Counted:
    """The lines of a text, with the bytes of those taken so far."""

    def __init__(self, lines: TextIO) -> None:
        self.lines, self.taken = lines, 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.taken += len(line) if line.isascii() else len(line.encode("utf-8"))
        return line


def _skip_mark(file: BinaryIO) -> int:
    """Go to the first byte after a byte order mark, if any, and return its number."""
    length = len(_MARK) if file.read(len(_MARK)) == _MARK else 0
    file.seek(length)
    return length
