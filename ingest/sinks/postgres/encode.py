"""Encodes Arrow batches as rows of PostgreSQL's binary COPY, by pgpq.

No Python object is made of a value. pgpq checks no values: one that its column can't hold is
refused here, with its row. PostgreSQL's error would name none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pgpq
import pyarrow as pa
import pyarrow.compute as pc
from pgpq.encoders import LargeStringEncoderBuilder
from pgpq.schema import Jsonb

from windrow.ingest.schema.calendar import WHAT, RowNumbers, without_text
from windrow.ingest.sinks.postgres.columns import JSON, column_type
from windrow.ingest.sinks.postgres.json_text import json_texts
from windrow.ingest.sinks.text_concat import octets_of

HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TAIL = b"\xff\xff"

DAYS = 10_957
MICROS = DAYS * 86_400_000_000
"""The distance from 1970-01-01 to PostgreSQL's epoch, 2000-01-01."""

_FIRST_DAY, _LAST_DAY = -2_451_545 + DAYS, 2_145_031_948 + DAYS
_FIRST_MICRO = -211_813_488_000_000_000 + MICROS
"""The bounds of PostgreSQL's calendar, which begins in 4713 BC. Arrow's timestamps end earlier."""


def copy_rows(batch: pa.RecordBatch) -> bytes:
    """Encodes a batch's rows, without COPY's header and trailer. None of them is `unstorable`."""
    encoders: dict[str, Any] = {}
    columns, names = [], [str(number) for number in range(batch.num_columns)]
    for name, array in zip(names, batch.columns, strict=True):
        if column_type(array.type) == JSON:
            texts = json_texts(array)
            plain = pc.if_else(array.is_valid(), texts, None) if array.null_count else texts
            as_text = pa.field(name, plain.type)
            encoders[name] = LargeStringEncoderBuilder.new_with_output(as_text, Jsonb())
        else:
            plain = array
            encoders[name] = pgpq.ArrowToPostgresBinaryEncoder.infer_encoder(
                pa.field(name, array.type)
            )
        columns.append(plain)
    plain_batch = pa.RecordBatch.from_arrays(columns, names)
    encoder = pgpq.ArrowToPostgresBinaryEncoder.new_with_encoders(plain_batch.schema, encoders)
    encoder.write_header()
    # a small batch may come only with the end
    octets, rest = encoder.write_batch(plain_batch), encoder.finish()
    return octets if len(rest) == len(TAIL) else octets + rest[: -len(TAIL)]


def unstorable(batch: pa.RecordBatch) -> tuple[RowNumbers, str] | None:
    """Finds the first column with values that it can't hold: their rows, ascending, and why."""
    return next(
        (
            (rows, f"column {name} {what}")
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
            for rows, what in _unstorable(array)
        ),
        None,
    )


def _unstorable(array: pa.Array) -> Iterator[tuple[RowNumbers, str]]:
    """Yields the rows with values that the column can't hold, and the problem."""
    kind = array.type
    if column_type(kind) == JSON:
        without = without_text({"": array})
        if without is not None:
            yield without[0], WHAT
    elif pa.types.is_list(kind):
        for elements, what in _unstorable(array.flatten()):
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


def _rows(wrong: pa.Array, what: str) -> Iterator[tuple[RowNumbers, str]]:
    if pc.any(wrong).as_py():
        yield np.flatnonzero(wrong.fill_null(False).to_numpy(zero_copy_only=False)), what
