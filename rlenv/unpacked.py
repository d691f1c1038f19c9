"""How large a Parquet file gets in memory: compression and dictionaries make a thousand bytes of a gigabyte."""

from __future__ import annotations

from typing import Any

_CELL = 8  # bytes: the least that a value takes, an absent one too


def packed_size(metadata: Any) -> int:
    """Return the bytes of a file without its compression, from its metadata alone."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    return sum(max(column.total_uncompressed_size, _CELL * column.num_values) for column in columns)


def text_size(arrow: Any, parquet: Any, path: Any, most: int) -> int:
    """Return the bytes of a file's texts once every repetition is written out, read without doing so.

    Args:
        arrow: the module pyarrow, with its submodule `compute` imported.
        parquet: the module pyarrow.parquet.
        path: the file.
        most: the count ends above this.
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
    for group in range(metadata.num_row_groups):  # nested columns cannot be read so beyond the end of one
        for batch in file.iter_batches(row_groups=[group]):
            total += sum(_written_out(arrow, column) for column in batch.columns)
            if total > most:
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
    return 0  # counted by `packed_size`
