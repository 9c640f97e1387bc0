"""Iceberg's counts and bounds of one Parquet file, from those of its row groups.

Pure; loads no PyIceberg.

Only top-level columns of plain types have them. An unknown bound is left out, and then no
reader skips the file by that column. Parquet leaves NaN out of its bounds, as Iceberg demands.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

_SHORT = 16
"""The most characters, or bytes, of a text's bounds, as in Iceberg's own writers."""

_LAST = "\U0010ffff"
_FIXED = {
    "int32": "<i",
    "int64": "<q",
    "float": "<f",
    "double": "<d",
    "bool": "<?",
    "date32[day]": "<i",
}


class Metrics(msgspec.Struct, frozen=True):
    """Counts and bounds of a file by field id, in Iceberg's encoding of single values.

    Attributes:
        values: number of values, including nulls.
        nulls: number of nulls.
        lower: lower bounds.
        upper: upper bounds.
        splits: the offsets of the row groups.
    """

    values: dict[int, int]
    nulls: dict[int, int]
    lower: dict[int, bytes]
    upper: dict[int, bytes]
    splits: tuple[int, ...]


def metrics(about: pq.FileMetaData, columns: pa.Schema, ids: list[int]) -> Metrics:
    """Returns the metrics of a file whose columns have these field ids."""
    result = Metrics(
        {},
        {},
        {},
        {},
        tuple(sorted(_begin(about.row_group(g).column(0)) for g in range(about.num_row_groups))),
    )
    leaf = 0
    for field, field_id in zip(columns, ids, strict=True):
        if not pa.types.is_nested(field.type):
            chunks = [about.row_group(g).column(leaf) for g in range(about.num_row_groups)]
            _add_column(
                result, field_id, field.type, about.num_rows, [chunk.statistics for chunk in chunks]
            )
        leaf += _leaves(field.type)
    return result


def _add_column(
    result: Metrics, field_id: int, kind: pa.DataType, rows: int, groups: list[Any]
) -> None:
    """Adds the metrics of one column, from the statistics of its row groups."""
    result.values[field_id] = rows
    if not all(g is not None and g.has_null_count for g in groups):
        return
    result.nulls[field_id] = sum(g.null_count for g in groups)
    filled = [g for g in groups if g.num_values > 0]
    if not filled or not all(g.has_min_max for g in filled):
        return  # Parquet keeps no bounds of values of more than 4 KiB
    lows, highs = ([_plain(kind, g, end) for g in filled] for end in ("min", "max"))
    low, high = _low(kind, min(lows)), _high(kind, max(highs))
    if low is not None:
        result.lower[field_id] = low
    if high is not None:
        result.upper[field_id] = high


def _plain(kind: pa.DataType, group: Any, end: str) -> Any:
    """Returns a bound of a row group as a value that compares correctly.

    Parquet has the digits of a decimal as bytes; here they are a number.
    """
    raw = getattr(group, f"{end}_raw")
    if pa.types.is_string(kind):
        return raw.decode() if isinstance(raw, bytes) else raw
    if pa.types.is_decimal(kind) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _low(kind: pa.DataType, value: Any) -> bytes | None:
    return _encoded(kind, value[:_SHORT] if _is_text(kind) else value)


def _high(kind: pa.DataType, value: Any) -> bytes | None:
    """Returns an upper bound as Iceberg encodes it, or None.

    A long text is cut, and gets a last character that makes it greater than the text. Long
    bytes have no bound. A text has none if the character after the cut is the last one of
    Unicode.
    """
    if not _is_text(kind) or len(value) <= _SHORT:
        return _encoded(kind, value)
    if pa.types.is_binary(kind) or value[_SHORT] == _LAST:
        return None
    return _encoded(kind, value[:_SHORT] + _LAST)


def _encoded(kind: pa.DataType, value: Any) -> bytes | None:
    """Encodes a bound in Iceberg's form for single values; None for a type without bounds."""
    if pa.types.is_string(kind):
        return bytes(value.encode())
    if pa.types.is_binary(kind):
        return bytes(value)
    if pa.types.is_decimal(kind):
        return int(value).to_bytes(
            ((value if value >= 0 else ~value).bit_length() // 8) + 1, "big", signed=True
        )
    form = "<q" if pa.types.is_timestamp(kind) else _FIXED.get(str(kind))
    return None if form is None else struct.pack(form, value)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _leaves(kind: pa.DataType) -> int:
    """Returns the number of the file's columns for one column of the table."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields))


def _begin(chunk: pq.ColumnChunkMetaData) -> int:
    """Returns the offset in the file at which a column chunk begins."""
    dictionary = chunk.dictionary_page_offset
    return int(
        chunk.data_page_offset if dictionary is None else min(dictionary, chunk.data_page_offset)
    )
