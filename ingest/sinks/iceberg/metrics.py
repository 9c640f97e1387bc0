"""Iceberg's counts and bounds of one Parquet file, from the statistics that Parquet
itself keeps per row group.

Pure; loads no PyIceberg.

Given for top-level columns of plain types alone, like Spark's writer does by default
for nested ones. A bound that isn't known is left out: then no reader skips the file
by that column. Parquet keeps NaN out of its bounds, and Iceberg wants it so.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

_SHORT = 16
"""So many characters, or bytes, of a text's bounds are kept, as Iceberg's own writers do."""

_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xE000)
_FIXED = {
    "int32": "<i",
    "int64": "<q",
    "float": "<f",
    "double": "<d",
    "bool": "<?",
    "date32[day]": "<i",
}


class Metrics(msgspec.Struct, frozen=True):
    """By field id: values with nulls, nulls, and the bounds as Iceberg's single-value bytes.

    `splits`: where row groups begin.
    """

    values: dict[int, int]
    nulls: dict[int, int]
    lower: dict[int, bytes]
    upper: dict[int, bytes]
    splits: tuple[int, ...]


def metrics(about: pq.FileMetaData, columns: pa.Schema, ids: list[int]) -> Metrics:
    """Of a file whose columns have these field ids."""
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
            _of_column(
                result, field_id, field.type, about.num_rows, [chunk.statistics for chunk in chunks]
            )
        leaf += _leaves(field.type)
    return result


def _of_column(
    result: Metrics, field_id: int, kind: pa.DataType, rows: int, groups: list[Any]
) -> None:
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
    """A bound as Parquet holds it: a number, or bytes; of a decimal its digits as a
    number, so that they compare as they should.
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
    """A shortened text is followed by the next one of its length: that sorts behind
    whatever was cut off.
    """
    if not _is_text(kind) or len(value) <= _SHORT:
        return _encoded(kind, value)
    short = _next_text(value[:_SHORT]) if pa.types.is_string(kind) else _next_bytes(value[:_SHORT])
    return None if short is None else _encoded(kind, short)


def _next_text(value: str) -> str | None:
    for at in range(len(value) - 1, -1, -1):
        code = ord(value[at]) + 1
        if code == _SURROGATES[0]:
            code = _SURROGATES[1]
        if code <= _LAST:
            return value[:at] + chr(code)
    return None


def _next_bytes(value: bytes) -> bytes | None:
    for at in range(len(value) - 1, -1, -1):
        if value[at] < 0xFF:
            return value[:at] + bytes([value[at] + 1])
    return None


def _encoded(kind: pa.DataType, value: Any) -> bytes | None:
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
    """How many columns of the file a column of the table is."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields))


def _begin(chunk: pq.ColumnChunkMetaData) -> int:
    dictionary = chunk.dictionary_page_offset
    return int(
        chunk.data_page_offset if dictionary is None else min(dictionary, chunk.data_page_offset)
    )
