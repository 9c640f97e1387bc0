"""What verification asks of a table in PostgreSQL (`ports.sink.Audit`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from psycopg import sql

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import KeyedAudit, RowsHeld, Unreadable
from windrow.ingest.sinks.postgres import catalog
from windrow.ingest.sinks.postgres.columns import HASH
from windrow.ingest.sinks.postgres.form import KeyedForm
from windrow.ingest.sinks.postgres.merge import graves_name, refuse_lost_graves
from windrow.ingest.sinks.postgres.read import rows
from windrow.ingest.sinks.postgres.server import TablePlace, Unanswered, identifier, reading, transact

_HELD = """
SELECT coalesce({topic}, ''), coalesce({partition}, -1), count(*), count(DISTINCT coalesce({offset}, -1)), min(coalesce({offset}, -1)),
    max(coalesce({offset}, -1))
FROM {table} WHERE {window} = %s GROUP BY 1, 2 ORDER BY 1, 2
"""


class PostgresAudit:
    """Each question is one transaction, which sees one state of the table.

    Args:
        place: the table's.
        metadata: what its metadata columns are called.
    """

    def __init__(self, place: TablePlace, metadata: Mapping[str, str]) -> None:
        self.metadata = metadata
        self._place = place

    @property
    def keyed(self) -> KeyedAudit | None:
        """See `ports.sink.Audit.keyed`."""
        return None

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """See `ports.sink.Audit.receipts`."""
        with reading(self._place.url, "check") as connection:
            found = catalog.table_at(connection, self._place)
            if found is not None and found.target is not None:
                for kept in catalog.every(connection, self._place, found.target):
                    yield kept.committed()

    def windows(self) -> set[str]:
        """See `ports.sink.Audit.windows`."""
        with reading(self._place.url, "check") as connection:
            found = catalog.table_at(connection, self._place)
            return set() if found is None or found.target is None else catalog.windows(connection, self._place, found.target)

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """See `ports.sink.Audit.rows_held`."""
        names = {name: identifier(self.metadata[name]) for name in ("topic", "partition", "offset", "window")}
        with reading(self._place.url, "check") as connection:
            if catalog.table_at(connection, self._place) is None:
                return []
            return [RowsHeld(*row) for row in connection.execute(self._place.query(_HELD, **names), [window.key])]

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.Audit.contents`."""
        with reading(self._place.url, "check") as connection:
            found = catalog.table_at(connection, self._place)
            if found is not None and found.target is not None:
                column = found.target.window_column
                where = sql.SQL("WHERE {} = %s").format(identifier(column))
                in_files = pa.schema([f for f in found.target.columns if f.name != column])
                yield from rows(connection, self._place, in_files, where, [window.key])

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """See `ports.sink.Audit.restore`."""
        done = transact(self._place.url, lambda c: catalog.restore(c, self._place, window, text, dry_run=dry_run), "check")
        if isinstance(done, Unanswered):
            raise RefusedError(f"whether the receipt of window {window.key} was restored isn't known", "check", "Look again.")


class PostgresKeyedAudit(PostgresAudit):
    """The same of a table with a primary key.

    Args:
        place: the table's.
        form: its key, and what its metadata columns are called.
    """

    def __init__(self, place: TablePlace, form: KeyedForm) -> None:
        super().__init__(place, form.metadata)
        self._form = form

    @property
    def keyed(self) -> PostgresKeyedAudit:
        """See `ports.sink.Audit.keyed`."""
        return self

    def rows(self) -> int:
        """See `ports.sink.KeyedAudit.rows`."""
        with reading(self._place.url, "check") as connection:
            if catalog.table_at(connection, self._place) is None:
                return 0
            row = connection.execute(self._place.query("SELECT count(*) FROM {table}"), ()).fetchone()
            return 0 if row is None else int(row[0])

    def every(self) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.KeyedAudit.every`: without the hashes, which the values are held against."""
        with reading(self._place.url, "check") as connection:
            found = catalog.table_at(connection, self._place)
            if found is not None and found.target is not None:
                columns = pa.schema([f for f in found.target.columns if f.name != HASH.name])
                yield from rows(connection, self._place, columns, sql.SQL(""), ())

    def graves(self) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.KeyedAudit.graves`: without the hashes, as of rows."""
        with reading(self._place.url, "check") as connection:
            found = catalog.table_at(connection, self._place)
            if self._form.buries and found is not None and found.target is not None:
                refuse_lost_graves(connection, self._place, found.target)
                there = TablePlace(self._place.url, graves_name(self._place, found.target), self._place.own)
                columns = pa.schema([found.target.columns.field(name) for name in self._form.grave])
                yield from rows(connection, there, columns, sql.SQL(""), ())

    def lost_graves(self, receipts: Sequence[Receipt]) -> Iterator[tuple[Receipt, RefusedError | UnreachableError]]:
        """See `ports.sink.KeyedAudit.lost_graves`: those of all windows are in one table, which is looked for once."""
        deleting = [receipt for receipt in receipts if receipt.counts.deletes]
        if not deleting or not self._form.buries:
            return
        try:
            with reading(self._place.url, "check") as connection:
                found = catalog.table_at(connection, self._place)
                if found is not None and found.target is not None:
                    refuse_lost_graves(connection, self._place, found.target)
        except (RefusedError, UnreachableError) as error:
            yield from ((receipt, error) for receipt in deleting)
