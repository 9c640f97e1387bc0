"""Search for dates and times outside the years 1 to 9999, which ISO 8601 can't write.

A sink that writes text refuses rows with such dates. Libraries write them in different ways, and
no reader reads them as dates. They come from these sources: dates of Avro and Debezium are plain
numbers, DuckDB computes dates, and PostgreSQL's `infinity` arrives as the greatest date.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

RowNumbers = npt.NDArray[np.int64]

OUTSIDE_CALENDAR = "holds a date or time outside the years 1 to 9999, which has no text"

_FIRST_DAY, _END_DAY = -719_162, 2_932_897
_DAY = 86_400
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6}
"""Number of units in a second. Nanoseconds of 64 bits don't reach years outside 1 to 9999."""


def find_outside_calendar(columns: Mapping[str, pa.Array]) -> tuple[RowNumbers, str] | None:
    """Finds the first column with a date or time outside the calendar, at any depth.

    Returns:
        The numbers of the column's rows with such a value, ascending; and a sentence that
        names the column. None if there is no such column.
    """
    return next(
        (
            (np.unique(rows), f"column {name} {OUTSIDE_CALENDAR}")
            for name, column in columns.items()
            if len(rows := rows_beyond(column))
        ),
        None,
    )


def rows_beyond(column: pa.Array) -> RowNumbers:
    """Finds the rows of a column with a date or time outside the calendar, at any depth.

    A row's number may be returned several times.
    """
    kind = column.type
    if not _may_hold(kind):
        return np.empty(0, np.int64)
    if pa.types.is_dictionary(kind):
        return rows_beyond(column.dictionary_decode())
    if pa.types.is_struct(kind):
        return np.concatenate([rows_beyond(child) for child in column.flatten()])
    if pa.types.is_nested(kind):
        return _rows_of_lists(column)
    first, end = _bounds(kind)
    numbers = pc.fill_null(
        column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()), 0
    ).to_numpy(zero_copy_only=False)
    return np.flatnonzero((numbers < first) | (numbers >= end))


def _rows_of_lists(column: pa.Array) -> RowNumbers:
    present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    if pa.types.is_map(column.type):
        entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        column = pa.ListArray.from_arrays(column.offsets, entries)
    column = column.take(pa.array(present))
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    return np.repeat(present, lengths)[rows_beyond(column.flatten())]


@lru_cache(maxsize=1024)
def _may_hold(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _may_hold(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_may_hold(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit in _UNITS))


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    units_per_day = (
        1
        if pa.types.is_date32(kind)
        else _DAY * (1000 if pa.types.is_date(kind) else _UNITS[kind.unit])
    )
    return _FIRST_DAY * units_per_day, _END_DAY * units_per_day
