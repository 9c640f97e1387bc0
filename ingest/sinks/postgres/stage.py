"""One split's rows, or dead letters, in an unlogged table whose name no other attempt uses. Runs on executors; nothing becomes visible.

The table is made and filled in one transaction. So an attempt that dies leaves nothing, and its rows needn't be looked at again before they
are read (COPY with FREEZE). A server that crashes empties unlogged tables: the commit counts what it moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql

from ingest.errors import RefusedError, UnreachableError
from ingest.model.plan import Split
from ingest.model.staged import Staging
from ingest.schema.checksum import checksum, text
from ingest.sinks.postgres.columns import column_type
from ingest.sinks.postgres.encode import HEAD, TAIL, UnfitValueError, rows_of
from ingest.sinks.postgres.names import staged_name
from ingest.sinks.postgres.server import Connection, TablePlace, _connect, as_error, begin, commit, identifier
from ingest.sinks.staging import Layout

_CREATE = "CREATE UNLOGGED TABLE {staged} ({columns}) WITH (autovacuum_enabled = false)"
_COPY = "COPY {staged} FROM STDIN (FORMAT binary, FREEZE)"


class StagedTable(msgspec.Struct, frozen=True):
    """A staged table in the sink's own words: small, JSON, safe to lose."""

    name: str
    rows: int
    columns: tuple[str, ...]


class PostgresStagerFactory(msgspec.Struct, frozen=True):
    """Picklable; all that a stager needs to know. `place`: of the table that the rows are for."""

    place: TablePlace
    layout: Layout

    def __call__(self, split: Split) -> PostgresStager:
        """A stager whose table is unique to this call."""
        return PostgresStager(self, split)


class PostgresStager:
    """Stages one split into one table, by one COPY. Memory: one batch."""

    def __init__(self, made_by: PostgresStagerFactory, split: Split) -> None:
        self._place, self._layout, self._split = made_by.place, made_by.layout, split
        self._rows = self._checksum = 0
        self._copying: _Copying | None = None

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """See `ports.sink.Stager.add`.

        Raises:
            RefusedError: a value that a table of PostgreSQL can't hold; says of which column and offset.
            UnreachableError: the server is lost, or has no room.
        """
        if not rows.num_rows and not messages.num_rows:
            return
        batch = self._layout.batch(rows, messages, self._split)
        try:
            octets = rows_of(batch)
        except UnfitValueError as unfit:
            do = (
                "Nothing was committed. Refuse such values by a rule of the schema, so that their messages become dead letters; "
                "or give the column another type: bytes hold NUL."
            )
            offset = messages["offset"][unfit.row].as_py()
            raise RefusedError(unfit.what, "stage", do, self._split.topic, self._split.partition, offset) from None
        with self._explained():
            if self._copying is None:
                self._copying = _Copying(self._place, self._layout.schema)
            self._copying.write(octets.data)
        self._rows += batch.num_rows
        self._checksum += checksum(batch)

    def finish(self) -> Staging:
        """See `ports.sink.Stager.finish`."""
        if self._copying is None:
            return Staging()
        with self._explained():
            name = self._copying.finish(self._rows)
        word = StagedTable(name, self._rows, tuple(self._layout.schema.names))
        return Staging(self._rows, text(self._checksum), (msgspec.json.encode(word).decode(),))

    def discard(self) -> None:
        """See `ports.sink.Stager.discard`: the table goes with its transaction."""
        if self._copying is not None:
            self._copying.abandon()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if self._copying is not None:
                self._copying.abandon()
            found = as_error(self._place.url, error, "stage")
            raise type(found)(found.what, "stage", found.do, self._split.topic, self._split.partition, self._split.start) from error


class _Copying:
    """A COPY under way, into a table that its transaction makes."""

    def __init__(self, place: TablePlace, schema: pa.Schema) -> None:
        self._connection: Connection = _connect(place.url)
        begin(self._connection, durable=False)
        row = self._connection.execute("SELECT extract(epoch FROM clock_timestamp())::bigint").fetchone()
        assert row is not None
        self.name = staged_name(place.name, row[0])
        staged = place.mine(self.name)
        columns = sql.SQL(", ").join(sql.SQL("{} {}").format(identifier(f.name), sql.SQL(str(column_type(f.type)))) for f in schema)
        self._connection.execute(sql.SQL(_CREATE).format(staged=staged, columns=columns), ())
        self._cursor = self._connection.cursor()
        self._context = self._cursor.copy(sql.SQL(_COPY).format(staged=staged))
        self._copy = self._context.__enter__()
        self._copy.write(HEAD)

    def write(self, octets: memoryview) -> None:
        """Rows, as COPY takes them."""
        self._copy.write(octets)

    def finish(self, rows: int) -> str:
        """Make the table durable, so that the commit finds it; its name."""
        self._copy.write(TAIL)
        self._context.__exit__(None, None, None)
        if self._cursor.rowcount != rows:
            what = f"the server counted {self._cursor.rowcount} staged rows, not {rows}"
            raise UnreachableError(what, "stage", "Nothing was committed. Run the window again.")
        commit(self._connection)
        self._connection.close()
        return self.name

    def abandon(self) -> None:
        """Lose the connection, and with it the table."""
        with suppress(psycopg.Error):
            self._connection.pgconn.finish()


def staged_tables(committables: Iterable[str]) -> list[StagedTable]:
    """The tables that committables name."""
    return [msgspec.json.decode(word, type=StagedTable) for word in committables]


def move(connection: Connection, place: TablePlace, staged: StagedTable, window_column: str, key: str) -> None:
    """Move staged rows into the table, within a transaction: those that are staged are gone with its commit, and only with it.

    Raises:
        RefusedError: the staged rows are gone, or not all there.
    """
    names = sql.SQL(", ").join(map(identifier, staged.columns))
    source = place.mine(staged.name)
    insert = place.query(
        "INSERT INTO {table} ({names}, {window}) SELECT {names}, %s FROM {source}",
        names=names, window=identifier(window_column), source=source,
    )  # fmt: skip
    try:
        moved = connection.execute(insert, [key]).rowcount
    except psycopg.errors.UndefinedTable:
        raise _gone(place, "a table of staged rows is gone: the server crashed since, or windrow sweep gave it up") from None
    if moved != staged.rows:
        raise _gone(place, f"{moved} of {staged.rows} staged rows are there: the server crashed since, which empties unlogged tables")
    connection.execute(sql.SQL("DROP TABLE {}").format(source), ())


def _gone(place: TablePlace, what: str) -> RefusedError:
    return RefusedError(f"{place}: {what}", "commit", "Nothing was committed. Run the window again.")
