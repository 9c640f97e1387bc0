"""Encodes Arrow batches as rows of PostgreSQL's binary COPY, by pgpq.

No Python object is made of a value. pgpq checks no values: one that its column can't hold is
refused here, with its row. PostgreSQL's error would name none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pgpq
import pyarrow as pa
import pyarrow.compute as pc
from pgpq.encoders import LargeStringEncoderBuilder
from pgpq.schema import Jsonb

from windrow.ingest.sinks.iso_times import WHAT, without_text
from windrow.ingest.sinks.joining import octets_of
from windrow.ingest.sinks.postgres.columns import JSON, column_type
from windrow.ingest.sinks.postgres.json_text import json_texts

HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TAIL = b"\xff\xff"

DAYS = 10_957
MICROS = DAYS * 86_400_000_000
"""The distance from 1970-01-01 to PostgreSQL's epoch, 2000-01-01."""

_FIRST_DAY, _LAST_DAY = -2_451_545 + DAYS, 2_145_031_948 + DAYS
_FIRST_MICRO = -211_813_488_000_000_000 + MICROS
"""The bounds of PostgreSQL's calendar, which begins in 4713 BC. Arrow's timestamps end earlier."""

_ZONED = pa.timestamp("us", tz="UTC")
_ZONED_NUMBER = np.frombuffer((1184).to_bytes(4, "big"), np.uint8)
"""The oid of the type `timestamptz`, in four bytes."""


class UnfitValueError(Exception):
    """Raised for values that a column can't hold; becomes an UnstorableRowsError in the stager.

    `rows`: their rows in the batch, ascending. `what`: the column, and the problem.
    """

    def __init__(self, rows: npt.NDArray[np.int64], what: str) -> None:
        super().__init__(rows, what)
        self.rows, self.what = rows, what


def copy_rows(batch: pa.RecordBatch) -> bytes:
    """Encodes a batch's rows, without COPY's header and trailer.

    Raises:
        UnfitValueError: a column can't hold a value.
    """
    columns, names = [], [str(number) for number in range(batch.num_columns)]
    for field, array in zip(batch.schema, batch.columns, strict=True):
        for rows, what in _unfit(array):
            raise UnfitValueError(rows, f"column {field.name} {what}")
        columns.append(_plain(array))
    jsonb = [
        name for name, f in zip(names, batch.schema, strict=True) if column_type(f.type) == JSON
    ]
    return _encoded(pa.RecordBatch.from_arrays(columns, names), jsonb)


def _encoded(batch: pa.RecordBatch, jsonb: list[str]) -> bytes:
    encoder = pgpq.ArrowToPostgresBinaryEncoder.new_with_encoders(
        batch.schema,
        {
            field.name: (
                LargeStringEncoderBuilder.new_with_output(field, Jsonb())
                if field.name in jsonb
                else pgpq.ArrowToPostgresBinaryEncoder.infer_encoder(field)
            )
            for field in batch.schema
        },
    )
    encoder.write_header()
    # a small batch may come only with the end
    octets, rest = encoder.write_batch(batch), encoder.finish()
    return octets if len(rest) == len(TAIL) else octets + rest[: -len(TAIL)]


def _plain(array: pa.Array) -> pa.Array:
    """Converts a column to a type that pgpq encodes."""
    if column_type(array.type) == JSON:
        texts = json_texts(array)
        return texts if not array.null_count else pc.if_else(array.is_valid(), texts, None)
    is_zoned = pa.types.is_list(array.type) and array.type.value_type == _ZONED
    return _zoned(array) if is_zoned else array


def _zoned(array: pa.Array) -> pa.Array:
    """Encodes lists of instants as PostgreSQL's arrays, to be written as bytes.

    pgpq writes the type of a timestamp without time zone into their headers.
    """
    lists = array.cast(pa.list_(pa.timestamp("us")))
    octets = np.frombuffer(_encoded(pa.RecordBatch.from_arrays([lists], ["0"]), []), np.uint8)
    nulls = np.concatenate(
        [[0], np.cumsum(lists.flatten().is_null().to_numpy(zero_copy_only=False))]
    )
    counts = pc.list_value_length(lists).fill_null(0).to_numpy()
    ends = np.concatenate([[0], np.cumsum(counts)])
    sizes = np.where(
        array.is_valid().to_numpy(zero_copy_only=False),
        20 + 12 * counts - 8 * np.diff(nulls[ends]),
        0,
    )
    places = np.concatenate([[0], np.cumsum(sizes)])
    # each row begins with its number of fields, in two bytes, and the field's length, in four
    heads = places[:-1] + 6 * np.arange(len(array))
    values = np.delete(octets, (heads[:, None] + np.arange(6)).ravel())
    values[(places[:-1][sizes > 0][:, None] + np.arange(8, 12)).ravel()] = np.tile(
        _ZONED_NUMBER, int((sizes > 0).sum())
    )
    valid = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(
        pa.large_binary(), len(array), [valid, pa.py_buffer(places), pa.py_buffer(values)]
    )


# --------------------------------------------------------------------------------------------------


def _unfit(array: pa.Array) -> Iterator[tuple[npt.NDArray[np.int64], str]]:
    """Yields the rows with values that the column can't hold, and the problem."""
    kind = array.type
    if column_type(kind) == JSON:
        without = without_text({"": array})
        if without is not None:
            yield without[0], WHAT
    elif pa.types.is_list(kind):
        for elements, what in _unfit(array.flatten()):
            yield np.unique(pc.list_parent_indices(array).take(pa.array(elements)).to_numpy()), what
    elif pa.types.is_string(kind):
        # a look at all bytes at once is far cheaper than one at each text
        if (octets_of(array) == 0).any():
            yield from _rows(
                pc.match_substring(array, "\0"),
                "holds the character NUL, which no text of PostgreSQL can hold",
            )
    elif pa.types.is_date32(kind):
        days = array.view(pa.int32())
        yield from _rows(
            pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY)),
            "is a date outside PostgreSQL's calendar",
        )
    elif pa.types.is_timestamp(kind):
        yield from _rows(
            pc.less(array.view(pa.int64()), _FIRST_MICRO), "is a time outside PostgreSQL's calendar"
        )


def _rows(wrong: pa.Array, what: str) -> Iterator[tuple[npt.NDArray[np.int64], str]]:
    if pc.any(wrong).as_py():
        yield np.flatnonzero(wrong.fill_null(False).to_numpy(zero_copy_only=False)), what
