"""Sinks with a primary key on a real server; a place is as in `world.py`, whose broken
twins append, and are none of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from psycopg import sql

from tests.sinks.keyed_logs import ROWS as KEYED_ROWS
from tests.sinks.keyed_logs import Keyed
from tests.sinks.postgres.world import PostgresBoth, place_of
from tests.sinks.things import ROWS
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.postgres.catalog import table_at
from windrow.ingest.sinks.postgres.columns import HASH
from windrow.ingest.sinks.postgres.read import rows
from windrow.ingest.sinks.postgres.server import TablePlace, reading

LOCKS_BETWEEN = True


class PostgresKeyedBoth(PostgresBoth):
    """With a primary key."""

    def __init__(
        self,
        place: TablePlace,
        schema: pa.Schema,
        primary_key: PrimaryKey,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
    ) -> None:
        super().__init__(place, schema, metadata, evolve, primary_key)
        self.primary_key = primary_key


def sink_at(place: str) -> Any:
    """The sink with its dead letters at hand, on a place that may be there already."""
    return PostgresKeyedBoth(place_of(place), ROWS, PrimaryKey(("id",)))


def pieces(sink: Any) -> list[pa.Table]:
    """All visible rows, in the log's order: in the table they stand in none."""
    schema = pa.schema([f for f in sink.columns if f.name != HASH.name])
    order = [sql.Identifier(sink.metadata[name]) for name in ("window", "partition", "offset")]
    ordered = sql.SQL("ORDER BY {}").format(sql.SQL(", ").join(order))
    with reading(sink.place.url) as connection:
        found = (
            []
            if table_at(connection, sink.place) is None
            else list(rows(connection, sink.place, schema, ordered, ()))
        )
    return [pa.Table.from_batches(found, schema)] if found else []


class PostgresKeyed(Keyed):
    """See `Keyed`; `uri` is a place as this module has places.

    A model that was widened stays so: narrower rows are refused here.
    """

    def made(self) -> PostgresKeyedBoth:
        return PostgresKeyedBoth(place_of(self.uri), self.rows, self.key, evolve="widen")

    def turn_to(self, rows: pa.Schema) -> None:
        super().turn_to(self.rows if self.rows is KEYED_ROWS else rows)

    def read(self) -> list[dict[str, Any]]:
        return [row for piece in pieces(self.sink) for row in piece.to_pylist()]
