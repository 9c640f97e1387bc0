r"""Encodes Arrow batches as rows of PostgreSQL's binary COPY, by pgpq; and reads rows back.

Encoding makes no Python object for a value. pgpq doesn't check values. So this module refuses a
value that its column can't hold, and names its row. PostgreSQL's own error would name no row.

Nested values are JSON in a `jsonb` column, encoded by whole columns:

    struct, map, list  see `sinks.kit.columns.json_columns`; a map that has a key with NUL
                       is a list of its entries, since such a key can't be a name
    number             a number; a number that JSON lacks is a string: "NaN", "Infinity",
                       "-Infinity", "-0.0"
    bytes              a string that PostgreSQL reads as bytes: "\\x6869"
    date, timestamp    a string that PostgreSQL reads as a date or a timestamp
    text               a string; with NUL in it, which jsonb can't hold, {"bytea": "\\x..."}

So no value is lost: the values that are read back have the checksum of the staged values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pgpq
import pyarrow as pa
import pyarrow.compute as pc
from pgpq.encoders import LargeStringEncoderBuilder
from pgpq.schema import Jsonb
from psycopg import sql
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.types.json import set_json_loads

from windrow.ingest.sinks.kit import (
    JsonEncoder,
    concat_texts,
    find_outside_calendar,
    json_texts,
    value_buffers,
)
from windrow.ingest.sinks.postgres.columns import JSON, column_type
from windrow.ingest.sinks.postgres.server import Connection, TablePlace, identifier

_ODD = {
    "nan": '"NaN"',
    "inf": '"Infinity"',
    "-inf": '"-Infinity"',
    "-0": '"-0.0"',
    "-0.0": '"-0.0"',
}
_BYTES = "bytea"
_TEXT = pa.large_string()


def _leaf(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_string(kind):
        return _strings(array)
    if pa.types.is_binary(kind):
        return _hexadecimal(array)
    plain = array.cast(_TEXT)
    if pa.types.is_floating(kind):
        return _floats(plain)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return concat_texts('"', plain, '"')
    return plain  # numbers, true and false


def _floats(plain: pa.Array) -> pa.Array:
    odd = pc.is_in(plain, pa.array(list(_ODD), _TEXT))
    if not pc.any(odd).as_py():
        return plain
    index = pc.index_in(plain, pa.array(list(_ODD), _TEXT))
    return pc.if_else(odd, pa.array(list(_ODD.values()), _TEXT).take(index), plain)


def _strings(array: pa.Array) -> pa.Array:
    nul, texts = _has_nul(array), json_texts(array)
    if not pc.any(nul).as_py():
        return texts
    return pc.if_else(nul, concat_texts(f'{{"{_BYTES}":', _hexadecimal(array), "}"), texts)


def _has_nul(array: pa.Array) -> pa.Array:
    return pc.match_substring(array, "\0").fill_null(False)


_ENCODER = JsonEncoder(leaf=_leaf, no_name=_has_nul)


def _hexadecimal(array: pa.Array) -> pa.Array:
    """Encodes bytes as strings that PostgreSQL reads as bytes, a whole column at once."""
    offsets, octets = value_buffers(array)
    ends, digits = offsets.astype(np.int64), octets.data.hex().encode()
    valid = array.is_valid().buffers()[1] if array.null_count else None
    buffers = [valid, pa.py_buffer((ends - ends[0]) * 2), pa.py_buffer(digits)]
    return concat_texts(r'"\\x', pa.Array.from_buffers(_TEXT, len(array), buffers), '"')


# --------------------------------------------------------------------------------------------------


def from_json(value: Any, kind: pa.DataType) -> Any:
    """Converts a value from `json`, with all of its digits, to a value that pyarrow accepts."""
    return None if value is None else _reader(kind)(value)


@lru_cache(maxsize=1024)
def _reader(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_struct(kind):
        fields = [(f.name, f.type) for f in kind]
        return lambda value: {name: from_json(value.get(name), inner) for name, inner in fields}
    if pa.types.is_map(kind):
        return lambda value: [
            (from_json(k, kind.key_type), from_json(v, kind.item_type))
            for k, v in JsonEncoder.map_entries(value)
        ]
    if pa.types.is_list(kind):
        return lambda value: [from_json(member, kind.value_type) for member in value]
    if pa.types.is_binary(kind):
        return _bytes
    if pa.types.is_string(kind):
        return lambda value: _bytes(value[_BYTES]).decode() if isinstance(value, dict) else value
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return lambda value: (
            pa.scalar(value)
            .cast(kind)
            .cast(pa.int32() if pa.types.is_date(kind) else pa.int64())
            .as_py()
        )
    return lambda value: value


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TAIL = b"\xff\xff"

DAYS = 10_957
MICROS = DAYS * 86_400_000_000
"""The distance from 1970-01-01 to PostgreSQL's epoch, 2000-01-01."""

_FIRST_DAY, _LAST_DAY = -2_451_545 + DAYS, 2_145_031_948 + DAYS
_FIRST_MICRO = -211_813_488_000_000_000 + MICROS
"""The bounds of PostgreSQL's calendar, which begins in 4713 BC. Arrow's timestamps end earlier."""


def encode_copy_rows(batch: pa.RecordBatch) -> bytes:
    """Encodes a batch's rows, without COPY's header and trailer. The table must accept each row."""
    encoders: dict[str, Any] = {}
    columns, names = [], [str(number) for number in range(batch.num_columns)]
    for name, array in zip(names, batch.columns, strict=True):
        if column_type(array.type) == JSON:
            texts = _ENCODER.texts(array)
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
    # the encoder may return a small batch only at its end
    octets, rest = encoder.write_batch(plain_batch), encoder.finish()
    return octets if len(rest) == len(TAIL) else octets + rest[: -len(TAIL)]


def find_unstorable(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], str] | None:
    """Finds the first column that can't hold its values; returns the rows, ascending, and why."""
    return next(
        (
            misfit
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
            for misfit in _unstorable(name, array)
        ),
        None,
    )


def _unstorable(name: str, array: pa.Array) -> Iterator[tuple[npt.NDArray[np.int64], str]]:
    """Yields the rows with values that the column can't hold, and the problem."""
    kind = array.type
    if column_type(kind) == JSON:
        misfit = find_outside_calendar({name: array})
        if misfit is not None:
            yield misfit
    elif pa.types.is_list(kind):
        for elements, problem in _unstorable(name, array.flatten()):
            yield (
                np.unique(pc.list_parent_indices(array).take(pa.array(elements)).to_numpy()),
                problem,
            )
    elif pa.types.is_string(kind):
        # searching all bytes at once is far cheaper than searching each text
        if (value_buffers(array)[1] == 0).any():
            yield from _rows(
                pc.match_substring(array, "\0"),
                f"column {name} holds the character NUL, which no text of PostgreSQL can hold",
            )
    elif pa.types.is_date32(kind):
        days = array.view(pa.int32())
        yield from _rows(
            pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY)),
            f"column {name} is a date outside PostgreSQL's calendar",
        )
    elif pa.types.is_timestamp(kind):
        yield from _rows(
            pc.less(array.view(pa.int64()), _FIRST_MICRO),
            f"column {name} is a time outside PostgreSQL's calendar",
        )


def _rows(bad_mask: pa.Array, problem: str) -> Iterator[tuple[npt.NDArray[np.int64], str]]:
    if pc.any(bad_mask).as_py():
        yield np.flatnonzero(bad_mask.fill_null(False).to_numpy(zero_copy_only=False)), problem


_BATCH_ROWS = 2048


class _Since1970(Loader):
    """Loads a date as days since 1970, and a timestamp (8 bytes) as microseconds since 1970.

    Python's own dates and timestamps end with the year 9999.
    """

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        return int.from_bytes(data, signed=True) + (DAYS if len(data) == 4 else MICROS)


def read_rows(
    connection: Connection,
    location: TablePlace,
    schema: pa.Schema,
    where: sql.Composable,
    values: Sequence[object],
    source: sql.Composable | None = None,
) -> Iterator[pa.RecordBatch]:
    """Reads some columns of a table's rows, within a transaction.

    Args:
        connection: a connection in a transaction.
        location: the table's place.
        schema: the columns to read.
        where: the part of the query after the table's name.
        values: the values of the query's placeholders.
        source: another table to read from; None: the table itself.
    """
    set_json_loads(partial(json.loads, parse_float=Decimal), connection)
    for name in ("date", "timestamp", "timestamptz"):
        connection.adapters.register_loader(name, _Since1970)
    columns = sql.SQL(", ").join(map(identifier, schema.names))
    with connection.cursor("rows", binary=True) as cursor:
        query = location.query(
            "SELECT {columns} FROM {rows} {where}",
            columns=columns,
            where=where,
            rows=source or location.table,
        )
        cursor.execute(query, values)
        while fetched := cursor.fetchmany(_BATCH_ROWS):
            yield _batch(fetched, schema)


def _batch(fetched: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for values, kind in zip(zip(*fetched, strict=True), schema.types, strict=True):
        json = column_type(kind) == JSON
        arrays.append(pa.array([from_json(v, kind) for v in values] if json else values, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
