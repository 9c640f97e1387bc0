"""A table in PostgreSQL as a table store: pessimistic.

    1 The row of the table among windrow's `targets` is locked.   2 Receipts, ranges and columns are
    looked at.   3 Rows, receipt and notes are put.   4 COMMIT.

The lock comes before the look: each statement sees what is committed before it, so
whoever has waited for another run finds its receipt. So no put ever conflicts. One
whose COMMIT was sent and not answered is looked for under the lock, too, which the old
session has until it has ended, one way or the other. To keep progress in the
transaction that keeps the data is PostgreSQL's own strength, and the advice of Kafka's
documentation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial

import psycopg
import pyarrow as pa
from psycopg import sql

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Capabilities, Unreadable
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.columns import whole_schema
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.place import ListedFile, millis
from windrow.ingest.sinks.postgres import catalog, server
from windrow.ingest.sinks.postgres.catalog import Target
from windrow.ingest.sinks.postgres.columns import (
    HASH,
    CatalogColumn,
    check_rows,
    evolution_of,
)
from windrow.ingest.sinks.postgres.create import (
    WantedTable,
    become_of,
    change_columns,
    ensure,
    refuse_other_columns,
    refuse_others_rows,
    seen,
)
from windrow.ingest.sinks.postgres.form import KeyedForm
from windrow.ingest.sinks.postgres.merge import merge, refuse_lost_tombstones, tombstones_name
from windrow.ingest.sinks.postgres.read import rows
from windrow.ingest.sinks.postgres.server import Connection, TablePlace, identifier
from windrow.ingest.sinks.postgres.stage import CopyFiles, PostgresStagerFactory, ShownNul, copy_in
from windrow.ingest.sinks.postgres.unfit import refuse_unwritable
from windrow.ingest.sinks.staging import DeadLetterLayout, Layout
from windrow.ingest.sinks.table_store import (
    Answer,
    StoredReceipt,
    TableChange,
    Unanswered,
    Written,
)
from windrow.ingest.sinks.window_table import WindowTable, committed_by_key
from windrow.ingest.sinks.write_check import refuse_unwritable as refuse_unwritable_folder


class PostgresStore:
    """A table on a server.

    Args:
        table: where it is; it belongs to one pipeline.
        staging: where tasks keep rows until their window is committed: a folder or a place in an
            object store that all of them share.
        metadata: the columns that windrow adds, by name.
        evolve: what may become of the columns of a table that is there.
        primary_key: by which rows replace each other.
    """

    lists_windows = False
    waits = server.WAITS

    def __init__(
        self,
        table: TablePlace,
        staging: str,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
        primary_key: PrimaryKey | None = None,
    ) -> None:
        self.capabilities = Capabilities(
            atomic="window", replaces=True, mode="append" if primary_key is None else "upsert"
        )
        self.table, self.place, self.identity = table, str(table), table.identity
        self.staged = CopyFiles(staging, table)
        self.primary_key = primary_key
        self._metadata, self._evolve = dict(metadata), evolve
        self.form = None if primary_key is None else KeyedForm(primary_key, self._metadata)

    def is_at(self, identity: str) -> bool:
        return identity == self.identity

    def places(self) -> Sequence[str]:
        return [self.staged.uri]

    def check_columns(self, rows: pa.Schema, metadata: Mapping[str, str]) -> None:
        check_rows(rows if self.form is None else rows.append(HASH), metadata)

    def columns(self, rows: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
        if self.form is None:
            return whole_schema(rows, metadata)
        return whole_schema(rows.append(HASH), metadata).with_metadata(self.form.key_properties)

    def check_write(self) -> None:
        refuse_unwritable_folder(self.staged.uri, "sink.staging")
        refuse_unwritable(self.table, merged=self.form is not None)

    def ensure(self, columns: pa.Schema, owner: TableOwner) -> None:
        ensure(self.table, self.wanted(columns), owner)

    def wanted(self, columns: pa.Schema) -> WantedTable:
        """What a table of these columns is to be like."""
        return WantedTable(columns, self._metadata["window"], self._evolve, self.form)

    @contextmanager
    def reading(self) -> Iterator[PostgresState | None]:
        with server.reading(self.table.url) as connection:
            found = catalog.table_at(connection, self.table)
            if found is not None and found.target is not None:
                yield PostgresState(self, connection, found.target, found.columns)
                return
            if found is not None:
                refuse_others_rows(connection, self.table)
            yield None

    @contextmanager
    def writing(self) -> Iterator[PostgresState | None]:
        with server.writing(self.table.url) as connection:
            found = catalog.locked(connection, self.table)
            yield None if found is None else PostgresState(self, connection, *found)

    def stager(self, layout: Layout, window: Window) -> PostgresStagerFactory:
        if isinstance(layout, DeadLetterLayout):
            layout = ShownNul(layout.attempt, layout.generation, layout.pipeline)
        (folder,), column = self.staged.folders, self._metadata["window"]
        return PostgresStagerFactory(self.staged.uri, folder, layout, column, window.key, self.form)


class PostgresState:
    """What one transaction sees of the table (`sinks.table_store.KeyedState`)."""

    def __init__(
        self,
        store: PostgresStore,
        connection: Connection,
        target: Target,
        columns: Sequence[CatalogColumn],
    ) -> None:
        self._store, self._table = store, store.table
        self._connection, self._target, self._columns = connection, target, columns

    @property
    def version(self) -> int:
        return self._target.commits

    @property
    def owner(self) -> TableOwner:
        return self._target.owner

    def note(self, name: str) -> int | None:
        return catalog.note(self._connection, self._table, self._target, name)

    def notes(self) -> Mapping[str, int]:
        return catalog.notes(self._connection, self._table, self._target)

    def committed(self) -> Collection[str]:
        return catalog.committed(self._connection, self._table, self._target)

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        for kept in catalog.receipts(self._connection, self._table, self._target, keys):
            yield kept.stored()

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        return catalog.overlapping(self._connection, self._table, self._target, ranges)

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        if keys is None:
            return catalog.windows(self._connection, self._table, self._target)
        has = partial(catalog.has_rows, self._connection, self._table, self._target)
        return set(filter(has, keys))

    def size(self) -> None:
        """The server only estimates it."""

    def column_changes(self, columns: pa.Schema) -> Sequence[str]:
        wanted = self._store.wanted(columns)
        refuse_other_columns(self._table, self._target, self._columns, wanted)
        return evolution_of(self._target.columns, columns, wanted.evolve).changes

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Without the hashes: it is the values that are held against receipts."""
        held = self._target.columns
        some = [name for name in held.names if self._store.form is None or name != HASH.name]
        schema = pa.schema([held.field(name) for name in names or some])
        if window is None:
            return rows(self._connection, self._table, schema, sql.SQL(""), ())
        of = sql.SQL("WHERE {} = %s").format(identifier(self._target.window_column))
        return rows(self._connection, self._table, schema, of, [window.key])

    def unneeded(self, listed: Iterable[ListedFile], cutoff: int) -> dict[str, int]:
        """A commit copies rows out, so all that is old: whose files are gone is refused."""
        old = {file.path: at for file in listed if (at := millis(file.modified)) <= cutoff}
        return dict(sorted(old.items()))

    def put(self, change: TableChange) -> Answer:
        receipt = self._write(change)
        try:
            server.commit(self._connection)
        except psycopg.Error as error:
            if not server.is_lost(error):
                raise
            return Unanswered(server.reason(self._table.url, error))
        return Written(self.version + 1, receipt)

    def _write(self, change: TableChange) -> Receipt | None:
        """Bring it into the transaction; the receipt as it lies there."""
        connection, table, target = self._connection, self._table, self._target
        for name, value in change.notes.items():
            catalog.put_note(connection, table, target, name, value)
        if change.window is None:
            return None
        columns = target.columns
        if change.columns is not None:
            wanted = self._store.wanted(change.columns)
            become = become_of(table, target, self._columns, wanted)
            change_columns(connection, table, target, become, wanted)
            columns = become.columns
        receipt, staged = change.receipt, self._store.staged
        files = staged.named(change.staged)
        if self._store.form is not None and receipt is not None:
            receipts = partial(committed_by_key, self)
            receipt = merge(
                connection,
                table,
                target,
                self._store.form,
                columns,
                receipt,
                receipts,
                staged,
                files,
            )
        else:
            if change.replaces:
                catalog.delete_rows(connection, table, target, change.window.key)
            copy_in(connection, table, columns, staged, files)
        if files:
            catalog.summarize(connection, table)
        if receipt is not None:
            catalog.put_receipt(connection, table, target, receipt)
        return receipt

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        catalog.restore(self._connection, self._table, self._target, window, text)
        if not dry_run:
            server.commit(self._connection)

    # ------------------------------------------------------------------- of a table with a key

    def rows(self) -> int:
        asked = self._table.query("SELECT count(*) FROM {table}")
        row = self._connection.execute(asked, ()).fetchone()
        return 0 if row is None else int(row[0])

    def tombstones(self) -> Iterator[pa.RecordBatch]:
        """Without the hashes, as of rows."""
        form = self._store.form
        if form is not None and form.buries:
            refuse_lost_tombstones(self._connection, self._table, self._target)
            tombstones = tombstones_name(self._table, self._target)
            there = TablePlace(self._table.url, tombstones, self._table.own)
            columns = pa.schema([self._target.columns.field(name) for name in form.tombstone])
            yield from rows(self._connection, there, columns, sql.SQL(""), ())

    def lost_tombstones(self, receipt: Receipt) -> RefusedError | UnreachableError | None:
        return self._lost_tombstones if receipt.counts.deletes else None

    @cached_property
    def _lost_tombstones(self) -> RefusedError | UnreachableError | None:
        """Those of all windows are in one table, which is looked for once."""
        if self._store.form is not None and self._store.form.buries:
            try:
                refuse_lost_tombstones(self._connection, self._table, self._target)
            except (RefusedError, UnreachableError) as error:
                return error
        return None


class PostgresTable(WindowTable):
    """A table in PostgreSQL that takes windows exactly once."""

    store: PostgresStore

    def columns_to_come(self) -> Sequence[str]:
        """Looks at an empty table of somebody else's, too, which windrow is to take over."""
        with server.reading(self.store.table.url) as connection:
            seen(connection, self.store.table, self.store.wanted(self.columns))
        return super().columns_to_come()
