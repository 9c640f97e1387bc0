"""Tables on a real server for tests.

A location is the server's URL and the table, `url#schema.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from tests.chaos import servers
from tests.sinks.keyed_logs import ROWS as KEYED_ROWS
from tests.sinks.keyed_logs import Keyed
from tests.sinks.postgres.twins import looks_then_writes
from tests.sinks.world import SinkWorld
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.schema.row_changes import DELETED
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.kit.commit.dead_letter_table import DeadLetterTable
from windrow.ingest.sinks.kit.commit.window_table import WindowTable
from windrow.ingest.sinks.postgres import server
from windrow.ingest.sinks.postgres.catalog import find_table
from windrow.ingest.sinks.postgres.columns import HASH
from windrow.ingest.sinks.postgres.encode import read_rows
from windrow.ingest.sinks.postgres.names import table_name
from windrow.ingest.sinks.postgres.server import TablePlace, begin_read
from windrow.ingest.sinks.postgres.store import PostgresStore
from windrow.ingest.sinks.postgres.url import server_url
from windrow.ingest.testing.contracts.commit_hooks import before_look
from windrow.ingest.testing.contracts.with_dead_letters import WithDeadLetters


class PostgresBoth(WithDeadLetters, WindowTable):
    """A PostgreSQL table with its dead letters."""

    def __init__(
        self,
        location: TablePlace,
        schema: pa.Schema,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
        primary_key: PrimaryKey | None = None,
    ) -> None:
        store = PostgresStore(location, staging_of(location), metadata, evolve, primary_key)
        super().__init__(store, schema)
        self.place = location
        dead = msgspec.structs.replace(location, name=location.name.dead)
        self.dead_letters = DeadLetterTable(PostgresStore(dead, staging_of(location)))


class PostgresKeyedBoth(PostgresBoth):
    """A PostgreSQL table with a primary key, and its dead letters."""

    def __init__(
        self,
        location: TablePlace,
        schema: pa.Schema,
        primary_key: PrimaryKey,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
    ) -> None:
        super().__init__(location, schema, metadata, evolve, primary_key)
        self.primary_key = primary_key


def place_of(location: str, own_schema: str = "windrow") -> TablePlace:
    url, _, table = location.partition("#")
    return TablePlace(server_url(url), table_name(table), own_schema)


def staging_of(location: TablePlace) -> str:
    """Returns a folder beside the server's socket.

    Any process finds it, and it is deleted with the server.
    """
    return f"{location.url.hosts[0]}/windrow-staging/{location.url.database}"


def pieces(sink: Any) -> list[pa.Table]:
    """Returns all visible rows, one Arrow table per window and topic-partition, in the log's
    order.

    A table has no order.
    """
    location, schema, window, topic, partition = (
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
    cuts_query = location.query(
        "SELECT DISTINCT {window}, {topic}, {partition}, xmin::text FROM {table} ORDER BY 1, 2,"
        " 3, 4",
        **names,
    )
    rows_query = sql.SQL(
        "WHERE {window} = %s AND {topic} = %s AND {partition} = %s AND xmin::text = %s ORDER BY"
        " {offset}"
    ).format(**names)
    with begin_read(location) as connection:
        cuts = (
            []
            if find_table(connection, location) is None
            else connection.execute(cuts_query).fetchall()
        )
        return [
            pa.Table.from_batches(read_rows(connection, location, schema, rows_query, cut), schema)
            for cut in cuts
        ]


def keyed_pieces(sink: Any) -> list[pa.Table]:
    """Returns all visible rows in the log's order. A table has no order."""
    schema = pa.schema([f for f in sink.columns if f.name != HASH.name])
    order = [sql.Identifier(sink.metadata[name]) for name in ("window", "partition", "offset")]
    ordered = sql.SQL("ORDER BY {}").format(sql.SQL(", ").join(order))
    with begin_read(sink.place) as connection:
        batches = (
            []
            if find_table(connection, sink.place) is None
            else list(read_rows(connection, sink.place, schema, ordered, ()))
        )
    return [pa.Table.from_batches(batches, schema)] if batches else []


class PostgresWorld(SinkWorld):
    """PostgreSQL tables, with a primary key if `key` is set."""

    server = "database"
    twins = (looks_then_writes,)
    strikes = (servers.kill_postmaster, servers.end_backends)
    locks_between = True
    key: PrimaryKey | None = None

    def new_location(self, folder: Path, server: Any) -> str:
        return f"{server}#{folder.name}"

    @contextmanager
    def serve_location(self, folder: Path) -> Iterator[str]:
        with servers.postgres() as url:
            yield f"{url}#public.orders"

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        if self.key is None:
            return PostgresBoth(place_of(location), rows, metadata)
        return PostgresKeyedBoth(place_of(location), rows, self.key, metadata)

    def pieces(self, sink: Any) -> list[pa.Table]:
        """Omits the column of the mark, which the suites don't know."""
        if self.key is None:
            return pieces(sink)
        tables = keyed_pieces(sink)
        return [table.drop_columns([DELETED]) for table in tables] if self.key.marks else tables

    def let_overtake(self, sink: Any, turn: Callable[[], object]) -> None:
        """Calls `turn` before the look, because a run has the lock after its look."""
        before_look(sink, turn)

    @contextmanager
    def no_answer(self, sink: Any) -> Iterator[None]:
        commit = server.commit
        with pytest.MonkeyPatch.context() as patch:

            def commit_unanswered(connection: Any) -> None:
                patch.undo()
                commit(connection)
                raise psycopg.OperationalError("the connection is lost")

            patch.setattr(server, "commit", commit_unanswered)
            yield


class PostgresKeyedWorld(PostgresWorld):
    """Tables with a primary key. With `marks`, a deleted key stays."""

    twins = ()

    def __init__(self, *, marks: bool = False) -> None:
        self.key = PrimaryKey(("id",), marks=marks)


sink_at = PostgresWorld().sink_at


class PostgresKeyed(Keyed):
    """A PostgreSQL table with a primary key, see `Keyed`; `uri` is a location
    `url#schema.table`.

    A widened model stays widened, because narrower rows are refused here.
    """

    def make_sink(self) -> PostgresKeyedBoth:
        return PostgresKeyedBoth(place_of(self.uri), self.rows, self.key, evolve="widen")

    def turn_to(self, rows: pa.Schema) -> None:
        super().turn_to(self.rows if self.rows is KEYED_ROWS else rows)

    def read(self) -> list[dict[str, Any]]:
        return [row for piece in keyed_pieces(self.sink) for row in piece.to_pylist()]
