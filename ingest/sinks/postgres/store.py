"""A table in PostgreSQL as a table store, with pessimistic locking.

    1 Lock the table's row in `targets`.
    2 Look at receipts, ranges and columns.
    3 Put rows, receipt and notes.
    4 COMMIT.

The lock comes before the look, and each statement sees all commits before it. So a run that has
waited for another run finds its receipt, and no put ever conflicts. If a COMMIT gets no answer, a
new session looks for its receipt under the same lock. The old session holds the lock until the
server has ended it, so the look sees whether the COMMIT arrived. Progress is stored in the
transaction of the data, as Kafka's documentation advises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg
import pyarrow as pa
from psycopg import sql

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.sinks.kit import (
    Answer,
    DeadLetterLayout,
    Evolve,
    Layout,
    PrimaryKey,
    TableChange,
    Unanswered,
    WindowTable,
    Written,
    refuse_unwritable,
    table_schema,
)
from windrow.ingest.sinks.postgres import catalog, server
from windrow.ingest.sinks.postgres.catalog import (
    BoundTable,
    ExistingTable,
    Target,
    tombstones_name,
)
from windrow.ingest.sinks.postgres.columns import (
    HASH,
    CatalogColumn,
    KeyedColumns,
    check_rows,
)
from windrow.ingest.sinks.postgres.create import (
    TableSpec,
    change_columns,
    check_table,
    column_changes,
    ensure,
    refuse_foreign_rows,
    try_to_create,
)
from windrow.ingest.sinks.postgres.encode import read_rows
from windrow.ingest.sinks.postgres.merge import merge
from windrow.ingest.sinks.postgres.server import Connection, TablePlace, identifier
from windrow.ingest.sinks.postgres.stage import CopyFiles, PostgresStagerFactory, ShownNul, copy_in


class PostgresStore:
    """A table on a server, with or without a primary key. It holds rows or dead letters.

    Args:
        table: the table's place. The table belongs to one pipeline.
        staging: a folder or a place in an object store, which all tasks and the driver share. Tasks
            keep rows there until their window is committed.
        metadata: the names of the metadata columns.
        evolve: which changes of an existing table's columns are allowed.
        primary_key: the columns by which rows replace each other.
    """

    waits = server.WAITS

    def __init__(
        self,
        table: TablePlace,
        staging: str,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
        primary_key: PrimaryKey | None = None,
    ) -> None:
        self.capabilities = Capabilities(mode="append" if primary_key is None else "upsert")
        self.table, self.location, self.identity = table, str(table), table.identity
        self.database = table.url
        self.primary_key = primary_key
        self.metadata, self._evolve = dict(metadata), evolve
        position = [self.metadata[name] for name in ("topic", "partition", "offset")]
        self.staged = CopyFiles(staging, table, position)
        self.keyed = None if primary_key is None else KeyedColumns(primary_key, self.metadata)

    def is_at(self, identity: str) -> bool:
        return identity == self.identity

    def places(self) -> Sequence[str]:
        return [self.staged.uri]

    def check_columns(self, rows: pa.Schema) -> None:
        check_rows(rows if self.keyed is None else rows.append(HASH), self.metadata)

    def columns(self, rows: pa.Schema) -> pa.Schema:
        if self.keyed is None:
            return table_schema(rows, self.metadata)
        keyed_columns = table_schema(rows.append(HASH), self.metadata)
        return keyed_columns.with_metadata(self.keyed.key_properties)

    def check_write(self) -> None:
        refuse_unwritable(self.staged.uri, "sink.staging")
        try_to_create(self.table)

    def ensure(self, columns: pa.Schema, owner: TableOwner) -> None:
        ensure(self.table, self.to_table_spec(columns), owner)

    def to_table_spec(self, columns: pa.Schema) -> TableSpec:
        """Makes the spec of the table, with these columns."""
        return TableSpec(columns, self.metadata["window"], self._evolve, self.keyed)

    @contextmanager
    def reading(self) -> Iterator[PostgresState | None]:
        with server.begin_read(self.table) as connection:
            existing = catalog.find_table(connection, self.table)
            if existing is not None and existing.target is None:
                refuse_foreign_rows(connection, self.table)
            yield self.state_in(connection, existing)

    @contextmanager
    def writing(self) -> Iterator[PostgresState | None]:
        with self.writing_all([self]) as (state,):
            yield state

    @contextmanager
    def writing_all(
        self, stores: Sequence[PostgresStore]
    ) -> Iterator[Sequence[PostgresState | None]]:
        with server.begin_write(self.table) as connection:
            yield [
                store.state_in(connection, catalog.find_table(connection, store.table, lock=True))
                for store in stores
            ]

    def state_in(
        self, connection: Connection, existing: ExistingTable | None
    ) -> PostgresState | None:
        if existing is None or existing.target is None:
            return None
        return PostgresState(self, connection, existing.target, existing.columns)

    def stager(self, layout: Layout, window: Window) -> PostgresStagerFactory:
        if isinstance(layout, DeadLetterLayout):
            layout = ShownNul(layout.attempt, layout.generation, layout.pipeline)
        (folder,), column = self.staged.folders, self.metadata["window"]
        return PostgresStagerFactory(
            self.staged.uri, folder, layout, column, window.key, self.keyed
        )


class PostgresState(BoundTable):
    """The table in one transaction (`sinks.kit.commit.table_store.TableState`)."""

    def __init__(
        self,
        store: PostgresStore,
        connection: Connection,
        target: Target,
        columns: Sequence[CatalogColumn],
    ) -> None:
        super().__init__(connection, store.table, target, columns)
        self._store = store

    def size(self) -> None:
        """Returns None, because the server only estimates the number of rows."""

    def column_changes(self, columns: pa.Schema) -> Sequence[str]:
        return column_changes(self, self._store.to_table_spec(columns))

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Reads rows without hashes: verification compares the values themselves with receipts."""
        columns = self.target.columns
        row_columns = [
            name for name in columns.names if self._store.keyed is None or name != HASH.name
        ]
        schema = pa.schema([columns.field(name) for name in names or row_columns])
        if window is None:
            return read_rows(self.connection, self.location, schema, sql.SQL(""), ())
        where = sql.SQL("WHERE {} = %s").format(identifier(self.target.window_column))
        return read_rows(self.connection, self.location, schema, where, [window.key])

    def unneeded(self, old: Mapping[str, int], _cutoff: int) -> Mapping[str, int]:
        """Returns all files: a commit copies their rows, and is refused if they are gone."""
        return old

    def put(self, change: TableChange) -> Answer:
        return self.commit(self.write(change))

    def commit(self, receipt: Receipt | None) -> Answer:
        try:
            server.commit(self.connection)
        except psycopg.Error as error:
            if not server.is_lost(error):
                raise
            return Unanswered(server.reason(self.location.url, error))
        return Written(self.version + 1, receipt)

    def write(self, change: TableChange) -> Receipt | None:
        """Writes a change in the transaction; returns the receipt with the counts of a merge."""
        for name, value in change.notes.items():
            self.put_note(name, value)
        for expiry in change.expiries():
            self.write(expiry)
        if change.window is None:
            return None
        columns, keyed = self.target.columns, self._store.keyed
        if change.columns is not None:
            columns = change_columns(self, self._store.to_table_spec(change.columns))
        key, receipt, staged = change.window.key, change.receipt, self._store.staged
        files = staged.decode_committables(change.staged)
        if keyed is not None and receipt is not None:
            receipt = merge(self, keyed, columns, receipt, staged, files)
        else:
            old_counts = self.row_counts(key)
            if change.replaces:
                self.delete_rows(key)
            copy_in(self.connection, self.location, staged, files)
            if old_counts is not None:
                gained = sum(file.rows for file in files) - (
                    old_counts[0] if change.replaces else 0
                )
                self.refuse_other_counts(key, old_counts, gained, gained)
        if files:
            self.summarize()
        if receipt is not None:
            self.put_receipt(receipt, to_json(receipt))
        return receipt

    # ------------------------------------------------ of a table with a primary key (`KeyedAudit`)

    def rows(self) -> int:
        row = self.connection.execute(
            self.location.query("SELECT count(*) FROM {table}"), ()
        ).fetchone()
        return 0 if row is None else int(row[0])

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        return self.scan(None)

    def tombstones(self) -> Iterator[pa.RecordBatch]:
        """Reads tombstones without their hashes, like `scan`."""
        keyed = self._store.keyed
        if keyed is not None and keyed.has_tombstones:
            name = tombstones_name(self.location, self.target)
            tombstones_location = TablePlace(self.location.url, name, self.location.own_schema)
            columns = pa.schema([self.target.columns.field(name) for name in keyed.tombstone])
            yield from read_rows(self.connection, tombstones_location, columns, sql.SQL(""), ())

    def lost_tombstones(
        self, receipts: Sequence[Receipt]
    ) -> Iterator[tuple[Receipt, RefusedError | UnreachableError]]:
        """Yields nothing: all tombstones are in one table, which `tombstones` reads."""
        del receipts
        return iter(())


class PostgresSink(WindowTable):
    """A table in PostgreSQL that receives windows."""

    store: PostgresStore

    def columns_to_come(self) -> Sequence[str]:
        """Checks the columns, also of a table that somebody made and no run has bound yet."""
        with server.begin_read(self.store.table) as connection:
            check_table(connection, self.store.table, self.store.to_table_spec(self.columns))
        return super().columns_to_come()
