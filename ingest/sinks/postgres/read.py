"""Reads rows back, a bounded number at a time, with the values that were staged: for
verification, and for dead letters.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from psycopg import sql
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.types.json import set_json_loads

from windrow.ingest.sinks.postgres.columns import JSON, column_type
from windrow.ingest.sinks.postgres.json_text import from_json, loads
from windrow.ingest.sinks.postgres.server import Connection, TablePlace, identifier

_BATCH_ROWS = 2048
_DAYS = 10_957
_MICROS = _DAYS * 86_400_000_000


class _Days(Loader):
    """A date as days since the epoch: Python's dates end with the year 9999."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        """The number."""
        return int(struct.unpack("!i", data)[0]) + _DAYS


class _Micros(Loader):
    """A time as microseconds since the epoch."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        """The number."""
        return int(struct.unpack("!q", data)[0]) + _MICROS


def rows(
    connection: Connection,
    place: TablePlace,
    schema: pa.Schema,
    where: sql.Composable,
    values: Sequence[object],
    of: sql.Composable | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a table, or some of them, with these columns; within a transaction.

    `where`: what follows the table's name; `of`: another table, in place of that one.
    """
    set_json_loads(loads, connection)
    for name, loader in (("date", _Days), ("timestamp", _Micros), ("timestamptz", _Micros)):
        connection.adapters.register_loader(name, loader)
    columns = sql.SQL(", ").join(map(identifier, schema.names))
    with connection.cursor("rows", binary=True) as cursor:
        query = place.query(
            "SELECT {columns} FROM {rows} {where}",
            columns=columns,
            where=where,
            rows=of or place.table,
        )
        cursor.execute(query, values)
        while found := cursor.fetchmany(_BATCH_ROWS):
            yield _batch(found, schema)


def _batch(found: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        _array(values, field.type)
        for values, field in zip(zip(*found, strict=True), schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(
        [from_json(value, kind) for value in values] if column_type(kind) == JSON else values, kind
    )
