"""Reads rows of a table, a bounded number at a time, exactly as they were staged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from psycopg import sql
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.types.json import set_json_loads

from windrow.ingest.sinks.json_columns import LOADS
from windrow.ingest.sinks.postgres.columns import JSON, column_type
from windrow.ingest.sinks.postgres.encode import DAYS, MICROS, from_json
from windrow.ingest.sinks.postgres.server import Connection, TablePlace, identifier

_BATCH_ROWS = 2048


class _Since1970(Loader):
    """Loads a date as days since 1970, and a timestamp, which is longer, as microseconds.

    Python's own end with the year 9999.
    """

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        return int.from_bytes(data, signed=True) + (DAYS if len(data) == 4 else MICROS)


def rows(
    connection: Connection,
    place: TablePlace,
    schema: pa.Schema,
    where: sql.Composable,
    values: Sequence[object],
    of: sql.Composable | None = None,
) -> Iterator[pa.RecordBatch]:
    """Reads rows of a table with some of its columns, within a transaction.

    Args:
        connection: in a transaction.
        place: the table's.
        schema: the columns to read.
        where: the part of the query behind the table's name.
        values: of the query's placeholders.
        of: another table to read from.
    """
    set_json_loads(LOADS, connection)
    for name in ("date", "timestamp", "timestamptz"):
        connection.adapters.register_loader(name, _Since1970)
    columns = sql.SQL(", ").join(map(identifier, schema.names))
    with connection.cursor("rows", binary=True) as cursor:
        query = place.query(
            "SELECT {columns} FROM {rows} {where}",
            columns=columns,
            where=where,
            rows=of or place.table,
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
