"""Delta's statistics of one Parquet file, from the statistics of its row groups."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC
from math import isfinite
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

_JSON = msgspec.json.Encoder(decimal_format="number")

_BOUNDED = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_timestamp,
    pa.types.is_date32,
    pa.types.is_boolean,
    pa.types.is_string,
)
_SHORT = 32
_LAST = "\U0010ffff"

Bounds = tuple[Any, Any]


def statistics(metadata: pq.FileMetaData, schema: pa.Schema, unbounded: Collection[str]) -> str:
    """Returns the number of records, and nulls and bounds of top-level columns, as Delta's JSON.

    There are bounds of all plain columns with a value, or of no column. If some bounds are
    missing, deltalake 1.6.6 reads them as `column >= null`. Then `to_pyarrow_dataset` skips
    rows that match a filter (measured; without any bounds it skips nothing). A struct has no
    bounds as a whole and counts as missing; lists and maps don't (measured too).

    Args:
        metadata: the footer of the file.
        schema: its columns.
        unbounded: the columns with a NaN. Parquet leaves NaN out of its bounds, but readers
            sort it above all numbers. With such bounds they would skip a file that has matching
            rows.
    """
    nulls: dict[str, int] = {}
    bounds: dict[str, Bounds | None] = {}
    leaves = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for field in schema:
        if field.name not in leaves:
            continue  # a nested column: Delta demands no statistics
        groups = [
            metadata.row_group(g).column(leaves[field.name]).statistics
            for g in range(metadata.num_row_groups)
        ]
        if all(g is not None and g.has_null_count for g in groups):
            nulls[field.name] = sum(g.null_count for g in groups)
        if nulls.get(field.name) != metadata.num_rows and any(
            test(field.type) for test in _BOUNDED
        ):
            bounds[field.name] = None if field.name in unbounded else _bounds(field.type, groups)
    stats: dict[str, Any] = {"numRecords": metadata.num_rows, "nullCount": nulls}
    known_bounds = {name: both for name, both in bounds.items() if both is not None}
    if known_bounds.keys() == bounds.keys() and not any(pa.types.is_struct(f.type) for f in schema):
        stats["minValues"] = {name: low for name, (low, _) in known_bounds.items()}
        stats["maxValues"] = {name: high for name, (_, high) in known_bounds.items()}
    return _JSON.encode(stats).decode()


def _bounds(kind: pa.DataType, groups: list[Any]) -> Bounds | None:
    """Returns a column's least and greatest value as Delta writes them; None if unknown."""
    filled = [g for g in groups if g is None or g.num_values > 0]
    if not all(g is not None and g.has_min_max for g in filled):
        return None  # Parquet keeps no bounds of values of more than 4 KiB
    try:
        return _low(kind, min(g.min for g in filled)), _high(kind, max(g.max for g in filled))
    except (OverflowError, ValueError):
        # A timestamp that Python's datetime can't hold, an infinity, or a text that can't be
        # cut to an upper bound.
        return None


def _low(kind: pa.DataType, value: Any) -> Any:
    """Returns a lower bound as Delta writes it. A long text is cut."""
    return value[:_SHORT] if pa.types.is_string(kind) else _plain(kind, value)


def _high(kind: pa.DataType, value: Any) -> Any:
    """Returns an upper bound as Delta writes it.

    A long text is cut, and gets a last character that makes it greater than the text.
    """
    if not pa.types.is_string(kind):
        return _plain(kind, value)
    if len(value) <= _SHORT:
        return value
    if value[_SHORT] == _LAST:
        msg = "nothing sorts behind this text"
        raise ValueError(msg)
    return value[:_SHORT] + _LAST


def _plain(kind: pa.DataType, value: Any) -> Any:
    """Converts a bound to a value of Delta's JSON.

    Raises:
        ValueError: the bound is infinite or NaN.
    """
    if pa.types.is_floating(kind) and not isfinite(value):
        msg = "JSON has no infinity, and readers take null for a bound that nothing fits"
        raise ValueError(msg)
    if pa.types.is_timestamp(kind):
        # Not strftime: its %Y doesn't pad the years before 1000, and a reader then
        # skips the file for any filter.
        naive = value.astimezone(UTC).replace(tzinfo=None) if kind.tz else value
        return naive.isoformat(timespec="microseconds") + ("Z" if kind.tz else "")
    return value.isoformat() if pa.types.is_date32(kind) else value
