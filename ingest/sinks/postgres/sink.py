"""The PostgreSQL sink: rows and receipt in one transaction, exactly once.

A commit goes: lock the table's row among the targets -> look -> decide -> change columns -> take an older generation out -> stream the
staged files in -> put the receipt -> COMMIT; if that didn't surely arrive, again from the top.

Race of two runs of one window:  1 A locks.  2 B waits for the lock.  3 A brings its rows, puts its receipt, commits.  4 B has the lock,
and looks: each statement sees what is committed before it, so it finds A's receipt: already done.  Had B looked before it waited, it would
write twice; and where two windows overlap, neither would see the other.

To keep progress in the transaction that keeps the data is PostgreSQL's own strength, and the advice of Kafka's documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property

import pyarrow as pa

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.binding import Binding
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import AlreadyDone, Audit, Done, Outcome, Promises, Unknown
from windrow.ingest.schema.metadata import refuse_wrong
from windrow.ingest.sinks.columns import file_schema
from windrow.ingest.sinks.decision import decide, is_this
from windrow.ingest.sinks.postgres import catalog
from windrow.ingest.sinks.postgres.catalog import Target
from windrow.ingest.sinks.postgres.columns import ColumnChanges, Evolve, check_rows, evolution
from windrow.ingest.sinks.postgres.form import KeyedForm
from windrow.ingest.sinks.postgres.prepare import (
    WantedTable,
    become_of,
    change_columns,
    ensure,
    refuse_others_rows,
    seen,
)
from windrow.ingest.sinks.postgres.server import Connection, Rollback, TablePlace, Unanswered, reading, transact
from windrow.ingest.sinks.postgres.stage import CopyFile, CopyFiles, PostgresStagerFactory, copy_in, staged_files
from windrow.ingest.sinks.postgres.unfit import refuse_unwritable
from windrow.ingest.sinks.rights import refuse_unwritable as refuse_unwritable_folder
from windrow.ingest.sinks.staging import RowLayout


class PostgresSink:
    """`ports.sink.Sink` on a table in PostgreSQL.

    Args:
        place: the table's; it belongs to one pipeline.
        staging: where tasks keep rows until their window is committed: a folder or a place in an object store that all of them share.
        schema: the columns of a row, without the ones that windrow adds; or what loads them, called at the first write.
        metadata: those that it adds, by name (see `ingest.schema.metadata`).
        evolve: what may become of the columns of a table that is there.

    Raises:
        SpecError: if PostgreSQL can't store these columns as they are; of a schema to load, at the first write.
    """

    promises = Promises(atomic="window", replaces=True, mode="append")

    def __init__(
        self,
        place: TablePlace,
        staging: str,
        schema: pa.Schema | Callable[[], pa.Schema],
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
    ) -> None:
        if isinstance(schema, pa.Schema):
            check_rows(schema, metadata)
        else:
            refuse_wrong((), metadata)
        self.place, self.metadata = place, dict(metadata)
        self._staged = CopyFiles(staging, place)
        self._load, self._evolve = schema, evolve

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row, without the ones that windrow adds."""
        loaded = self._load() if callable(self._load) else self._load
        check_rows(loaded, self.metadata)
        return loaded

    @cached_property
    def _wanted(self) -> WantedTable:
        return wanted_table(self.schema, self.metadata, self._evolve)

    @property
    def identity(self) -> str:
        """Which table this is."""
        return self.place.identity

    def is_at(self, identity: str) -> bool:
        """See `ports.sink.Sink.is_at`."""
        return identity == self.identity

    def refuse_unwritable(self) -> None:
        """See `ports.sink.Sink.refuse_unwritable`."""
        refuse_unwritable_folder(self._staged.staging, "sink.staging")
        refuse_unwritable(self.place, merged=self.promises.mode == "upsert")

    def places(self) -> Sequence[str]:
        """See `ports.sink.Sink.places`."""
        return [self._staged.staging]

    def binding(self) -> Binding | None:
        """See `ports.sink.Sink.binding`; None also of a table without rows that is still to be bound."""
        with reading(self.place.url) as connection:
            found = catalog.table_at(connection, self.place)
            if found is not None and found.target is None:
                refuse_others_rows(connection, self.place)
        return None if found is None or found.target is None else found.target.binding

    def prepare(self, binding: Binding) -> None:
        """See `ports.sink.Sink.prepare`."""
        ensure(self.place, self._wanted, binding)

    def columns_to_come(self) -> Sequence[str]:
        """See `ports.sink.Sink.columns_to_come`."""
        with reading(self.place.url) as connection:
            found = seen(connection, self.place, self._wanted)
        if found is None or found.target is None:
            return ()
        return evolution(found.target.columns, self._wanted.schema, self._evolve).changes

    def look(self, window: Window) -> Committed | None:
        """See `ports.sink.Sink.look`."""
        return next(self.looks([window]))

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        """See `ports.sink.Sink.looks`."""
        kept: Mapping[str, catalog.KeptReceipt] = {}
        if windows:
            with reading(self.place.url) as connection:
                found = catalog.table_at(connection, self.place)
                if found is not None and found.target is not None:
                    kept = catalog.newest(connection, self.place, found.target, [window.key for window in windows])
        return ((None if window.key not in kept else kept[window.key].whole()) for window in windows)

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        """See `ports.sink.Sink.committed`."""
        keys: set[str] = set()
        if windows:
            with reading(self.place.url) as connection:
                found = catalog.table_at(connection, self.place)
                if found is not None and found.target is not None:
                    keys = catalog.committed(connection, self.place, found.target)
        return {window for window in windows if window.key in keys}

    def receipts(self) -> Iterator[Committed]:
        """See `ports.sink.Sink.receipts`. Rows of a window that was never committed are looked for at its commit, and by verification."""
        with reading(self.place.url) as connection:
            found = catalog.table_at(connection, self.place)
            if found is None or found.target is None:
                return
            for kept in catalog.every(connection, self.place, found.target):
                yield kept.whole()

    def receipt_text(self, receipt: Receipt) -> str:
        """See `ports.sink.Sink.receipt_text`."""
        with reading(self.place.url) as connection:
            found = catalog.table_at(connection, self.place)
            if found is not None and found.target is not None:
                text = catalog.text_of(connection, self.place, found.target, receipt)
                if text is not None:
                    return text
        return to_json(receipt)

    def stager(self, plan: Plan, generation: int, attempt: str) -> PostgresStagerFactory:
        """See `ports.sink.Sink.stager`; a row says nothing of its generation."""
        del generation
        return self._staged.stager(RowLayout(self.schema, self.metadata, attempt), self.metadata["window"], plan.window.key)

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """See `ports.sink.Sink.commit`.

        Raises:
            RefusedError: the window is there under another plan, or has rows that no commit brought; a generation was left out; staged
                rows are gone or damaged; or a constraint or a trigger of the table refuses the rows.
            UnreachableError: the server is lost, and surely nothing was committed.
        """
        files = staged_files(word for s in staged for word in s.rows)
        done = transact(self.place.url, lambda connection: self._commit(connection, receipt, files), marked=True)
        if isinstance(done, Unanswered):
            return Unknown(done.why)
        outcome = done.value
        self._staged.remove(files)
        if isinstance(outcome, AlreadyDone) and done.sent and is_this(outcome.committed.receipt, receipt):
            return Done(outcome.committed)
        return outcome

    def audit(self) -> Audit:
        """See `ports.sink.Sink.audit`."""
        from windrow.ingest.sinks.postgres.audit import PostgresAudit  # noqa: PLC0415  # only verification needs it

        return PostgresAudit(self.place, self.metadata)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """See `ports.sink.Sink.sweep`."""
        return self._staged.sweep(older_than, dry_run=dry_run)

    # ------------------------------------------------------------------------------------------------------------- look, decide, write

    def _commit(self, connection: Connection, receipt: Receipt, files: Sequence[CopyFile]) -> Outcome:
        """Within a transaction.

        Raises:
            Rollback: with the outcome, if there is nothing to write.
        """
        target, columns = catalog.locked(connection, self.place)
        seen = catalog.seen(connection, self.place, target, receipt)
        committed = decide(receipt, seen)
        if committed is not None:
            raise Rollback(AlreadyDone(committed))
        become = become_of(self.place, target, columns, self._wanted) if files else ColumnChanges.none(target.columns)
        change_columns(connection, self.place, target, become, self._wanted)
        whole = self._write(connection, target, become.schema, receipt, seen.committed, files)
        if files:
            catalog.summarize(connection, self.place)
        return Done(catalog.put_receipt(connection, self.place, target, whole))

    def _write(
        self, connection: Connection, target: Target, columns: pa.Schema, receipt: Receipt, older: Committed | None,
        files: Sequence[CopyFile],
    ) -> Receipt:  # fmt: skip
        """Bring staged rows into the table, which has these columns, in the place of an older generation; the receipt to be kept."""
        del older
        self._replace(connection, target, receipt)
        copy_in(connection, self.place, columns, self._staged, files)
        return receipt

    def _replace(self, connection: Connection, target: Target, receipt: Receipt) -> None:
        """Take an older generation's rows out; of a new window there are none."""
        key = receipt.window.key
        if receipt.generation == 0:
            if catalog.has_rows(connection, self.place, target, key):
                raise _strange(self.place, key)
        elif receipt.mending is None:
            catalog.delete_rows(connection, self.place, target, key)


def wanted_table(rows: pa.Schema, metadata: Mapping[str, str], evolve: Evolve, merged: KeyedForm | None = None) -> WantedTable:
    """What the table is to be like that holds such rows. `merged`: where rows replace each other."""
    window = pa.field(metadata["window"], pa.string(), nullable=False)
    columns = file_schema(rows, metadata).append(window)
    return WantedTable(columns if merged is None else columns.with_metadata(merged.key_properties), window.name, evolve, merged=merged)


def _strange(place: TablePlace, key: str) -> RefusedError:
    what = f"the table {place} holds rows of window {key} that no commit of windrow brought"
    return RefusedError(what, "commit", "Something else writes into this table: windrow verify shows what; remove those rows.")
