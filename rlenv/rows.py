"""Rows from files: JSON lines, JSON, CSV, TSV, Parquet, or a folder that `datasets` has saved."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verifiers.extras import require

from .unpacked import packed_size, text_size

Row = Mapping[str, Any]
PlacedRow = tuple[str, Row | str]  # where it stands, and its columns or what is wrong with it
MOST_BYTES = 1 << 29  # of a Parquet file in memory


def read_rows(path: Path) -> list[PlacedRow]:
    """Return the rows of a file in order, each with its place, such as "line 3"; text for a row that cannot be read.

    Raises:
        ValueError: in one line, for a file that is missing, of an unknown kind, unreadable, empty or too large in
            memory, and for a pipe or device.
    """
    rows = list(_reader_of(path)(path))
    if not rows:
        raise ValueError(f"{str(path)!r} has no rows")
    return rows


def shown(value: Any) -> str:
    """Return a value as an error shows it: in one line, and not all of a long one."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _reader_of(path: Path) -> Callable[[Path], Iterator[PlacedRow]]:
    if path.is_dir():
        return _read_datasets
    if not path.exists():
        raise ValueError(f"there is no file or folder {str(path)!r}")
    if not path.is_file():
        raise ValueError(
            f"{str(path)!r} is neither a file nor a folder, but a pipe or device; copy what it holds into a file"
        )
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        allowed = f"{', '.join(_READERS)}, or a folder that datasets has saved"
        raise ValueError(f"{str(path)!r} is of an unknown kind, {suffix!r}; allowed: {allowed}")
    return _READERS[suffix]


def _text_of(path: Path) -> str:
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
            f"{str(path)!r} is no UTF-8 text: line {line} has the byte 0x{error.object[error.start]:02x}"
        ) from error


def _object(value: Any) -> Row | str:
    return value if isinstance(value, dict) else f"no object, but {shown(value)}"


def _read_json_lines(path: Path) -> Iterator[PlacedRow]:
    for number, line in enumerate(_text_of(path).split("\n"), 1):  # splitlines() cuts at what strings may hold
        if line.strip():
            try:
                row = _object(json.loads(line))
            except (ValueError, RecursionError) as error:
                row = f"no JSON ({error})"
            yield f"line {number}", row


def _read_json(path: Path) -> Iterator[PlacedRow]:
    text = _text_of(path)
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is no JSON: {error}") from error
    if not isinstance(rows, list):
        raise ValueError(f"{str(path)!r} must hold a list of objects, got {shown(rows)}")
    for number, row in enumerate(rows, 1):
        yield f"row {number}", _object(row)


def _read_csv(path: Path, delimiter: str = ",") -> Iterator[PlacedRow]:
    reader = csv.reader(io.StringIO(_text_of(path), newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    while True:
        place = f"line {reader.line_num + 1}"
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield place, str(error)
            continue
        if not fields:  # an empty line
            continue
        if not header:
            header = fields
            if twice := [name for name in dict.fromkeys(header) if header.count(name) > 1]:
                raise ValueError(f"{str(path)!r} has more than one column {twice[0]!r}")
        elif len(fields) != len(header):
            yield place, f"{len(fields)} fields where the header has {len(header)}"
        else:
            yield place, dict(zip(header, fields, strict=True))


def _read_tsv(path: Path) -> Iterator[PlacedRow]:
    return _read_csv(path, "\t")


def _read_parquet(path: Path) -> Iterator[PlacedRow]:
    modules = ("pyarrow", "pyarrow.parquet", "pyarrow.compute")
    arrow, parquet, _ = (require(name, "data", "a Parquet file") for name in modules)
    try:
        _check_size(path, packed_size(parquet.read_metadata(path)))
        _check_size(path, text_size(arrow, parquet, path, MOST_BYTES))
        rows = parquet.ParquetFile(path).read().to_pylist()
    except _TooLargeError:
        raise
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {_first_line(error)}") from error
    for number, row in enumerate(rows, 1):
        yield f"row {number}", row


class _TooLargeError(ValueError):
    """A file that takes more memory than is allowed."""


def _check_size(path: Path, size: int) -> None:
    if size > MOST_BYTES:
        sizes = f"{size >> 20} MiB of memory or more; allowed: {MOST_BYTES >> 20} MiB"
        raise _TooLargeError(f"{str(path)!r} needs {sizes}; split it into several files, or leave out columns")


def _read_datasets(path: Path) -> Iterator[PlacedRow]:
    datasets = require("datasets", "data", f"the folder {str(path)!r}")
    try:
        saved = datasets.load_from_disk(str(path))
        splits = {split: part.to_list() for split, part in saved.items()} if isinstance(saved, dict) else {}
        rows = [] if splits else saved.to_list()
    except (OSError, ValueError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {_first_line(error)}") from error
    except LookupError as error:
        raise ValueError(f"{str(path)!r} has no rows, or is damaged") from error
    for number, row in enumerate(rows, 1):
        yield f"row {number}", row
    for split, part in splits.items():
        for number, row in enumerate(part, 1):
            yield f"row {number} of {split!r}", {"split": split, **row}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_READERS: dict[str, Callable[[Path], Iterator[PlacedRow]]] = {
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".parquet": _read_parquet,
}
