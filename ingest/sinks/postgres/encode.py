"""Arrow batches as rows of PostgreSQL's binary COPY, whole columns at a time: no object is made of a value.

What a column can't hold is refused before it is sent, at the row that holds it: PostgreSQL would name none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.compiled.calling import Compiled
from windrow.ingest.sinks.iso_times import WHAT, without_text
from windrow.ingest.sinks.joining import ends_of
from windrow.ingest.sinks.postgres.columns import JSON, column_type
from windrow.ingest.sinks.postgres.json_text import json_texts

Octets = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TAIL = b"\xff\xff"

_PASSES = Compiled("windrow.ingest.sinks.postgres.passes")
_NONE = np.empty(0, np.uint8)
_ELEMENTS = {
    "boolean": 16, "bytea": 17, "bigint": 20, "smallint": 21, "integer": 23, "text": 25, "real": 700, "double precision": 701,
    "date": 1082, "timestamp without time zone": 1114, "timestamp with time zone": 1184, "numeric": 1700,
}  # fmt: skip
"""PostgreSQL's numbers for the types of an array's elements; they are the same in every server."""

_DAYS = 10_957
_MICROS = _DAYS * 86_400_000_000
"""From the epoch to PostgreSQL's, which is 2000-01-01."""

_FIRST_DAY, _LAST_DAY = -2_451_545 + _DAYS, 2_145_031_948 + _DAYS
_FIRST_MICRO = -211_813_488_000_000_000 + _MICROS
"""PostgreSQL's calendar, from 4713 BC on; its end for times lies behind that of Arrow's."""


class UnfitValueError(Exception):  # becomes an UnfitRowsError where it is known what messages the rows came from
    """Values that a column can't hold: at which rows of the batch (ascending), and what is wrong with them."""

    def __init__(self, rows: Places, what: str) -> None:
        super().__init__(rows, what)
        self.rows, self.what = rows, what


class _Column(msgspec.Struct, frozen=True):
    """A column, ready to be put into rows: how long each value is, and what puts it there. A null's length means nothing."""

    lengths: Places
    present: Octets
    put: Callable[[Octets, Places], None]

    @property
    def sizes(self) -> Places:
        """Of the fields, with their own lengths."""
        return 4 + (self.lengths * self.present if len(self.present) else self.lengths)


def rows_of(batch: pa.RecordBatch) -> Octets:
    """The batch's rows, as they stand between COPY's head and tail.

    Raises:
        UnfitValueError: a value can't be held.
    """
    columns = []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        try:
            columns.append(_column(array))
        except UnfitValueError as unfit:
            raise UnfitValueError(unfit.rows, f"column {field.name} {unfit.what}") from None
    return _assembled(columns, batch.num_rows)


def _assembled(columns: list[_Column], rows: int) -> Octets:
    sizes = np.full(rows, 2, np.int64)
    for column in columns:
        sizes += column.sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    at = np.cumsum(sizes) - sizes
    _PASSES.put_heads(out, at, len(columns))
    for column in columns:
        column.put(out, at)
    return out


def _column(array: pa.Array) -> _Column:
    kind = array.type
    if column_type(kind) == JSON:
        untold = without_text({"": array})
        if untold is not None:
            raise UnfitValueError(untold[0], WHAT)
        return _texts(json_texts(array), _present(array), first=1)
    if pa.types.is_list(kind):
        return _arrays(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        if pa.types.is_string(kind):
            _refuse_nul(array)
        return _texts(array, _present(array))
    if pa.types.is_decimal128(kind):
        return _numerics(array)
    return _numbers(array)


def _present(array: pa.Array) -> Octets:
    """0 where there is a null; empty, if there is none."""
    if not array.null_count:
        return _NONE
    present: Octets = array.is_valid().cast(pa.uint8()).to_numpy()
    return present


# ----------------------------------------------------------------------------------------------------------------------- by their kind


def _numbers(array: pa.Array) -> _Column:
    values, present = _big_endian(array), _present(array)
    width = values.dtype.itemsize
    octets = values.view(np.uint8)
    return _Column(np.full(len(array), width, np.int64), present, lambda out, at: _PASSES.put_numbers(out, at, octets, width, present))


def _big_endian(array: pa.Array) -> npt.NDArray[Any]:
    kind = array.type
    if pa.types.is_boolean(kind):
        return _buffer(array.cast(pa.uint8()), np.uint8)
    if pa.types.is_date32(kind):
        days = _buffer(array, np.int32)
        _refuse(array, (days < _FIRST_DAY) | (days > _LAST_DAY), "is a date outside PostgreSQL's calendar")
        return (days - np.int32(_DAYS)).astype(">i4")
    if pa.types.is_timestamp(kind):
        micros = _buffer(array, np.int64)
        _refuse(array, micros < _FIRST_MICRO, "is a time outside PostgreSQL's calendar")
        return (micros - _MICROS).astype(">i8")
    if pa.types.is_int8(kind):
        array = array.cast(pa.int16())
    dtype = np.dtype(array.type.to_pandas_dtype())
    return _buffer(array, dtype).astype(dtype.newbyteorder(">"))


def _buffer(array: pa.Array, dtype: npt.DTypeLike, width: int = 1) -> npt.NDArray[Any]:
    size = np.dtype(dtype).itemsize
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array) * width, array.offset * width * size)


def _texts(array: pa.Array, present: Octets, first: int = -1) -> _Column:
    data, ends = _ends(array)
    lengths = np.diff(ends) + (first >= 0)
    return _Column(lengths, present, lambda out, at: _PASSES.put_texts(out, at, data, ends, first, present))


def _ends(array: pa.Array) -> tuple[Octets, Places]:
    """The bytes of a column of texts, and where each begins and ends in them."""
    data = array.buffers()[2]
    return _NONE if data is None or not len(array) else np.frombuffer(data, np.uint8), ends_of(array).astype(np.int64)


def _numerics(array: pa.Array) -> _Column:
    present = _present(array)
    halves = np.ascontiguousarray(_buffer(array, np.uint64, 2).reshape(-1, 2))
    out, ends = np.empty(32 * len(array), np.uint8), np.empty(len(array) + 1, np.int64)
    _PASSES.numerics(halves, present, array.type.scale, np.empty(5, np.uint64), out, ends)
    return _Column(np.diff(ends), present, lambda rows, at: _PASSES.put_texts(rows, at, out, ends, -1, present))


def _arrays(array: pa.Array) -> _Column:
    present, elements = _present(array), array.flatten()
    counts = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    try:
        column = _column(elements)
    except UnfitValueError as unfit:
        raise UnfitValueError(np.unique(np.searchsorted(ends, unfit.rows, side="right") - 1), unfit.what) from None
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(column.sizes)])
    fields = np.empty(int(starts[-1]), np.uint8)
    column.put(fields, starts[:-1].copy())
    lengths = np.where(counts > 0, 20, 12) + starts[ends[1:]] - starts[ends[:-1]]
    element = _ELEMENTS[(column_type(array.type.value_type) or "").partition("(")[0]]
    return _Column(lengths, present, lambda out, at: _PASSES.put_arrays(out, at, fields, starts, ends, element, present))


# ------------------------------------------------------------------------------------------------------------------------ what can't be


def _refuse(array: pa.Array, wrong: npt.NDArray[np.bool_], what: str) -> None:
    present = _present(array)
    found = np.flatnonzero(wrong & present.astype(bool) if len(present) else wrong)
    if len(found):
        raise UnfitValueError(found, what)


def _refuse_nul(array: pa.Array) -> None:
    """The one character that a text of PostgreSQL can't hold. Looked for in all of the batch's bytes at once: there is none, as a rule."""
    data, ends = _ends(array)
    zeros = np.flatnonzero(data[ends[0] : ends[-1]] == 0)
    if len(zeros):
        rows = np.zeros(len(array), np.bool_)
        rows[np.searchsorted(ends, zeros + ends[0], side="right") - 1] = True
        _refuse(array, rows, "holds the character NUL, which no text of PostgreSQL can hold")  # of a null's bytes nothing is sent
