"""Sinks on a real server, as another process opens them: a place is the server's URL
and the table, `url#schema.table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from psycopg import sql

from tests.sinks.things import ROWS
from tests.sinks.with_dead_letters import WithDeadLetters
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.dead_letter_table import DeadLetterTable
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.postgres.catalog import table_at
from windrow.ingest.sinks.postgres.names import table_name
from windrow.ingest.sinks.postgres.read import rows
from windrow.ingest.sinks.postgres.server import TablePlace, reading
from windrow.ingest.sinks.postgres.store import PostgresStore
from windrow.ingest.sinks.postgres.url import server_url
from windrow.ingest.sinks.window_table import WindowTable

LOCKS_BETWEEN = True


class PostgresBoth(WithDeadLetters, WindowTable):
    """With its dead letters at hand. `STORE`: of the rows."""

    STORE: type[PostgresStore] = PostgresStore

    def __init__(
        self,
        place: TablePlace,
        schema: pa.Schema,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
        primary_key: PrimaryKey | None = None,
    ) -> None:
        super().__init__(
            self.STORE(place, staging_of(place), metadata, evolve, primary_key), schema
        )
        self.place = place
        self.dead_letters = DeadLetterTable(PostgresStore(place.dead, staging_of(place)))


def place_of(place: str, own: str = "windrow") -> TablePlace:
    url, _, table = place.partition("#")
    return TablePlace(server_url(url), table_name(table), own)


def staging_of(place: TablePlace) -> str:
    """A folder that any process finds, and that goes with the server: beside its socket."""
    return f"{place.url.hosts[0]}/windrow-staging/{place.url.database}"


def sink_at(place: str) -> Any:
    """The sink with its dead letters at hand, on a place that may be there already."""
    return PostgresBoth(place_of(place), ROWS)


def pieces(sink: Any) -> list[pa.Table]:
    """All visible rows, one table for each topic-partition that a commit brought of a
    window, in the log's order: a table has none.
    """
    place, schema, window, topic, partition = (
        sink.place,
        sink.columns,
        *(sink.metadata[n] for n in ("window", "topic", "partition")),
    )
    names = {
        "window": sql.Identifier(window),
        "topic": sql.Identifier(topic),
        "partition": sql.Identifier(partition),
    }
    names["offset"] = sql.Identifier(sink.metadata["offset"])
    every = place.query(
        "SELECT DISTINCT {window}, {topic}, {partition}, xmin::text FROM {table} ORDER BY 1, 2,"
        " 3, 4",
        **names,
    )
    one = sql.SQL(
        "WHERE {window} = %s AND {topic} = %s AND {partition} = %s AND xmin::text = %s ORDER BY"
        " {offset}"
    ).format(**names)
    with reading(place.url) as connection:
        cuts = [] if table_at(connection, place) is None else connection.execute(every).fetchall()
        return [
            pa.Table.from_batches(rows(connection, place, schema, one, cut), schema) for cut in cuts
        ]
