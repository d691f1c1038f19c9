"""Reads rows from files: JSON lines, JSON, CSV, TSV, Parquet, or a folder saved by `datasets`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from verifiers.base import first_line
from verifiers.plugins.extras import require

from ..text.texts import shown

Row = Mapping[str, Any]
PlacedRow = tuple[str, Row | str]  # its place in the file, and its columns or what is wrong with it
MOST_BYTES = 1 << 29  # of a Parquet file in memory
_CELL = 8  # bytes: the least that a value takes, also a missing one


def read_rows(path: Path) -> list[PlacedRow]:
    """Return the rows of a file in order, each with its place, such as "line 3".

    A row that cannot be read is a text that says why.

    Raises:
        ValueError: in one line, for a file that is missing, of an unknown kind, unreadable, empty or too large in
            memory, and for a pipe or device.
    """
    rows = list(_reader_of(path)(path))
    if not rows:
        raise no_rows(path)
    return rows


def no_rows(path: Path) -> ValueError:
    """Return the error about a file without rows."""
    return ValueError(f"{str(path)!r} has no rows")


def _reader_of(path: Path) -> Callable[[Path], Iterator[PlacedRow]]:
    if path.is_dir():
        return _read_datasets
    if not path.exists():
        raise ValueError(f"no file or folder {str(path)!r}")
    if not path.is_file():
        raise ValueError(
            f"{str(path)!r} is neither a file nor a folder, but a pipe or device; copy its contents into a file"
        )
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        allowed = f"{', '.join(_READERS)}, or a folder saved by datasets"
        raise ValueError(f"{str(path)!r} is of an unknown kind, {suffix!r}; allowed: {allowed}")
    return _READERS[suffix]


def text_of_file(path: Path) -> str:
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


def _object(value: Any) -> Row | str:
    return value if isinstance(value, dict) else f"expected an object, got {shown(value)}"


def _read_json_lines(path: Path) -> Iterator[PlacedRow]:
    for number, line in enumerate(text_of_file(path).split("\n"), 1):  # splitlines() would also split inside strings
        if line.strip():
            yield f"line {number}", json_row(line)


def json_row(line: str) -> Row | str:
    """Return the row in a line of JSON, or what is wrong with it."""
    try:
        return _object(json.loads(line))
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error})"


def _read_json(path: Path) -> Iterator[PlacedRow]:
    text = text_of_file(path)
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not JSON: {error}") from error
    if not isinstance(rows, list):
        raise ValueError(f"{str(path)!r} must hold a list of objects, got {shown(rows)}")
    for number, row in enumerate(rows, 1):
        yield f"row {number}", _object(row)


def _read_csv(path: Path, delimiter: str = ",") -> Iterator[PlacedRow]:
    reader = csv.reader(io.StringIO(text_of_file(path), newline=""), delimiter=delimiter, strict=True)
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
            header = checked_header(path, fields)
        else:
            yield place, csv_row(header, fields)


def checked_header(path: Path, header: list[str]) -> list[str]:
    """Return the names of a table's columns.

    Raises:
        ValueError: if two are the same.
    """
    if twice := [name for name in dict.fromkeys(header) if header.count(name) > 1]:
        raise ValueError(f"{str(path)!r} has more than one column {twice[0]!r}")
    return header


def csv_row(header: list[str], fields: list[str]) -> Row | str:
    """Return the row with these fields, or what is wrong with it."""
    if len(fields) != len(header):
        return f"{len(fields)} fields where the header has {len(header)}"
    return dict(zip(header, fields, strict=True))


def _read_parquet(path: Path) -> Iterator[PlacedRow]:
    modules = ("pyarrow", "pyarrow.parquet", "pyarrow.compute")
    arrow, parquet, _ = (require(name, "data", "a Parquet file") for name in modules)
    try:
        _check_size(path, _unpacked_size(parquet.read_metadata(path)))
        _check_size(path, _text_size(arrow, parquet, path))
        rows = parquet.ParquetFile(path).read().to_pylist()
    except _TooLargeError:
        raise
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {first_line(error)}") from error
    for number, row in enumerate(rows, 1):
        yield f"row {number}", row


class _TooLargeError(ValueError):
    """A file that would take too much memory."""


def _check_size(path: Path, size: int) -> None:
    if size > MOST_BYTES:
        sizes = f"{size >> 20} MiB of memory or more; allowed: {MOST_BYTES >> 20} MiB"
        raise _TooLargeError(f"{str(path)!r} needs {sizes}; split it into several files, or leave out columns")


def _unpacked_size(metadata: Any) -> int:
    """Return the bytes of a Parquet file without its compression, from its metadata alone."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    return sum(max(column.total_uncompressed_size, _CELL * column.num_values) for column in columns)


def _text_size(arrow: Any, parquet: Any, path: Path) -> int:
    """Return the bytes that the texts of a Parquet file take with every repetition written out.

    Dictionary encoding can turn a thousand bytes into a gigabyte. Counting stops above `MOST_BYTES`.
    """
    metadata = parquet.read_metadata(path)
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    texts = [
        column.path
        for column in columns
        if column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "DECIMAL"
    ]
    total = 0
    file = parquet.ParquetFile(path, read_dictionary=texts)
    for group in range(metadata.num_row_groups):  # nested columns are read one group at a time
        for batch in file.iter_batches(row_groups=[group]):
            total += sum(_written_out(arrow, column) for column in batch.columns)
            if total > MOST_BYTES:
                return total
    return total


def _written_out(arrow: Any, array: Any) -> int:
    kind = array.type
    if isinstance(kind, arrow.BaseExtensionType):
        return _written_out(arrow, array.storage)
    if arrow.types.is_dictionary(kind):
        lengths = arrow.compute.binary_length(array.dictionary)
        return arrow.compute.sum(arrow.compute.take(lengths, array.indices)).as_py() or 0
    if arrow.types.is_struct(kind):
        return sum(_written_out(arrow, part) for part in array.flatten())
    if arrow.types.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return sum(_written_out(arrow, part.slice(first, last - first)) for part in (array.keys, array.items))
    if arrow.types.is_nested(kind):
        return _written_out(arrow, array.flatten())
    return 0  # counted by `_unpacked_size`


def _read_datasets(path: Path) -> Iterator[PlacedRow]:
    datasets = require("datasets", "data", f"the folder {str(path)!r}")
    try:
        saved = datasets.load_from_disk(str(path))
        splits = {split: part.to_list() for split, part in saved.items()} if isinstance(saved, dict) else {}
        rows = [] if splits else saved.to_list()
    except (OSError, ValueError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {first_line(error)}") from error
    except LookupError as error:
        raise ValueError(f"{str(path)!r} has no rows, or is damaged") from error
    for number, row in enumerate(rows, 1):
        yield f"row {number}", row
    for split, part in splits.items():
        for number, row in enumerate(part, 1):
            yield f"row {number} of {split!r}", {"split": split, **row}


_READERS: dict[str, Callable[[Path], Iterator[PlacedRow]]] = {
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": partial(_read_csv, delimiter="\t"),
    ".parquet": _read_parquet,
}
