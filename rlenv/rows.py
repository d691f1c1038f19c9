"""Reads rows: JSON lines, JSON, CSV, TSV into memory; Parquet, folders of `datasets` and its hub are mapped."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rlenv._checks import first_line, require
from rlenv.verifiers.conversation import shown
from rlenv.verifiers.problem import NAMED_SPLITS

Row = Mapping[str, Any]
Made = TypeVar("Made")
PlacedRow = tuple[str, Row | ValueError]  # its place in the file, and its columns or what is wrong with it
SHOWN_FAULTS, SHOWN_COLUMNS = 3, 20
BLOCK = 1000  # mapped rows in memory at once


def read_rows(path: str | Path) -> Sequence[PlacedRow]:
    """Return the rows of a file, a folder, or a data set "hf:NAME" in order, each with its place, such as "line 3".

    A row that cannot be read is an error that says why.

    Raises:
        ValueError: in one line, for a file that is missing, of an unknown kind, unreadable or empty, and for a pipe or
            device.
    """
    if isinstance(path, Path):
        found = _reader_of(path)(path)
    else:
        from . import hub  # for these alone

        found = _of_splits(hub.load(path), path)
    rows = found if isinstance(found, MappedRows) else list(found)
    if not len(rows):
        raise ValueError(f"{str(path)!r} has no rows")
    return rows


def columns_of(rows: Sequence[PlacedRow]) -> list[str]:
    """Return the names of all columns."""
    if isinstance(rows, MappedRows):
        return rows.columns
    return list(dict.fromkeys(name for _, row in rows if isinstance(row, Mapping) for name in row))


def check_columns(path: str | Path, known: Sequence[str], asked: Mapping[str, str]) -> None:
    """Refuse a file that lacks a column, given the option that sets the name of each that is asked for."""
    there = ", ".join(map(repr, known[:SHOWN_COLUMNS])) + (", ..." if len(known) > SHOWN_COLUMNS else "")
    for column, option in asked.items():
        if known and column not in known:  # without columns, the error about malformed rows says why
            close = difflib.get_close_matches(column, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ";"
            option = option.replace("NAME", close[0]) if close else option
            raise ValueError(f"{str(path)!r} has no column {column!r}{hint} columns there: {there}; set with {option}")


def made_of(
    path: str | Path | None, rows: Iterable[tuple[str, Any]], make: Callable[[Any], Made]
) -> list[tuple[str, Made]]:
    """Return the problem or pair of each row of a file, or of a list, with its place.

    Raises:
        ValueError: in one line, with the places of rows that cannot be read or used.
    """
    made, faults = [], []
    for place, row in rows:
        try:
            if isinstance(row, ValueError):
                raise row
            made.append((place, make(row)))
        except ValueError as fault:
            faults.append(f"{place}: {fault}")
    if faults:
        more = f"; and {len(faults) - SHOWN_FAULTS} more" if len(faults) > SHOWN_FAULTS else ""
        count = f"{len(faults)} malformed row{'s' if len(faults) > 1 else ''}"
        whose = "the list of problems" if path is None else repr(str(path))
        raise ValueError(f"{whose} has {count}: {'; '.join(faults[:SHOWN_FAULTS])}{more}")
    return made


def hash_text(text: str) -> str:
    """Return the hash of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def digest_of(path: Path) -> str:
    """Return the hash of a file, or of the data in a folder of `datasets`."""
    digest = hashlib.blake2b(digest_size=16)
    tables = [each for each in path.rglob("*.arrow") if not each.name.startswith("cache-")]  # results of its methods
    for each in sorted(tables) if path.is_dir() else [path]:
        with each.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


class MappedRows(Sequence[tuple[str, Row]]):
    """Rows of a file that is mapped into memory: reading one takes no memory that is not given back.

    Args:
        parts: the data sets with the rows, by split; None for none.
        path: of the file or folder, or name of the data set.

    Raises:
        ValueError: for damaged tables, of which reading a row may end the process, and texts that are not UTF-8.
    """

    def __init__(self, parts: Mapping[str | None, Any], path: str | Path) -> None:
        self.parts = {split: part.with_format("arrow") for split, part in parts.items() if len(part)}
        for part in self.parts.values():
            try:
                part.data.validate(full=True)
            except ValueError as error:  # pyarrow's
                raise ValueError(f"{str(path)!r} is damaged: {first_line(error)}") from error
        self.fingerprint = "".join(part._fingerprint for part in parts.values())
        names = [*(part.column_names for part in self.parts.values()), ["split"] if any(parts) else []]
        self.columns = list(dict.fromkeys(name for each in names for name in each))

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    def __getitem__(self, index: Any) -> Any:
        for split, part in self.parts.items():
            if index < len(part):
                return _placed(split, index, part[int(index)].to_pylist()[0])
            index -= len(part)
        raise IndexError(index)

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        for split, part in self.parts.items():
            rows = (row for block in part.iter(BLOCK) for row in block.to_pylist())
            yield from (_placed(split, index, row) for index, row in enumerate(rows))


def _placed(split: str | None, index: int, row: Row) -> tuple[str, Row]:
    return (f"row {index + 1}", row) if split is None else (f"row {index + 1} of {split!r}", {"split": split, **row})


def _reader_of(path: Path) -> Callable[[Path], Iterable[PlacedRow]]:
    if path.is_dir():
        return _read_datasets
    if not path.exists():
        raise ValueError(f"no file or folder {str(path)!r}; if it has moved, name its new place (--problems, --pairs)")
    if not path.is_file():
        raise ValueError(
            f"{str(path)!r} is neither a file nor a folder, but a pipe or device; copy its contents into a file"
        )
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        allowed = f"{', '.join(_READERS)}, or a folder saved by datasets"
        raise ValueError(f"{str(path)!r} is of an unknown kind, {suffix!r}; allowed: {allowed}")
    return _READERS[suffix]


def _text_of(path: Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        ValueError: in one line, for a file that is unreadable, empty or not UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if not data:
        raise ValueError(f"{str(path)!r} is empty")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + error.object.count(b"\n", 0, error.start)
        raise ValueError(
            f"{str(path)!r} is not UTF-8 text: line {line} has the byte 0x{error.object[error.start]:02x}"
        ) from error


def _object(value: Any) -> Row | ValueError:
    return value if isinstance(value, dict) else ValueError(f"expected an object, got {shown(value)}")


def _read_json_lines(path: Path) -> Iterator[PlacedRow]:
    for number, line in enumerate(_text_of(path).split("\n"), 1):  # splitlines() would also split inside strings
        if line.strip():
            try:
                row = _object(json.loads(line))
            except (ValueError, RecursionError) as error:
                row = ValueError(f"not JSON ({error})")
            yield f"line {number}", row


def _read_json(path: Path) -> Iterator[PlacedRow]:
    text = _text_of(path)
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = "; with one object per line, name it .jsonl" if "Extra data" in str(error) else ""
        raise ValueError(f"{str(path)!r} is not JSON: {error}{lines}") from error
    if not isinstance(rows, list):
        raise ValueError(f"{str(path)!r} must hold a list of objects, got {shown(rows)}")
    for number, row in enumerate(rows, 1):
        yield f"row {number}", _object(row)


def _read_csv(path: Path, delimiter: str = ",") -> Iterator[PlacedRow]:
    text = _text_of(path)
    bare = re.sub(r'"[^"]*("|\Z)', "", text.lstrip("\r\n").partition("\n")[0])  # the header without quoted names
    if delimiter not in bare and ";" in bare:
        delimiter = ";"  # of spreadsheets in countries whose decimals have a comma
    spaced = f"{delimiter} " in bare  # so in all lines
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=spaced)
    header: list[str] = []
    while True:
        place = f"line {reader.line_num + 1}"
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield place, ValueError(str(error))
            continue
        if not fields:  # an empty line
            continue
        if any("\0" in field for field in fields):
            raise ValueError(f"{str(path)!r} has a NUL character in {place}; save it as plain UTF-8 text")
        if not header:
            header = [name.strip() for name in fields]
            if len({*header}) < len(header):
                twice = next(name for name in header if header.count(name) > 1)
                raise ValueError(f"{str(path)!r} has more than one column {twice!r}")
        elif len(fields) != len(header):
            yield place, ValueError(f"{len(fields)} fields where the header has {len(header)}")
        else:
            yield place, dict(zip(header, fields, strict=True))


def _read_parquet(path: Path) -> MappedRows:
    datasets, parquet = (require(name, "data", "a Parquet file") for name in ("datasets", "pyarrow.parquet"))
    try:
        there = parquet.read_metadata(path).num_rows  # the next line refuses a file without rows
        parts: dict[str | None, Any] = {None: datasets.Dataset.from_parquet(str(path))} if there else {}
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {first_line(error)}") from error
    return MappedRows(parts, path)


def _read_datasets(path: Path) -> MappedRows:
    datasets = require("datasets", "data", f"the folder {str(path)!r}")
    try:
        saved = datasets.load_from_disk(str(path))
    except IndexError as error:
        raise ValueError(f"{str(path)!r} has no rows, or is damaged") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {first_line(error)}") from error
    return _of_splits(saved, path)


def _of_splits(found: Any, path: str | Path) -> MappedRows:
    """Return the rows of a data set, with the column `split` if it has several that a problem may name.

    Others, as the examples for prompts of MBPP, are left out beside these; a single one says nothing about its rows.
    """
    parts = found if isinstance(found, dict) else {None: found}
    parts = {split: part for split, part in parts.items() if split in NAMED_SPLITS} or parts
    return MappedRows(parts if len(parts) > 1 else dict(zip([None], parts.values(), strict=False)), path)


_READERS: dict[str, Callable[[Path], Iterable[PlacedRow]]] = {
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": partial(_read_csv, delimiter="\t"),
    ".parquet": _read_parquet,
}
