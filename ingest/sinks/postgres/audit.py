"""What verification asks of a table in PostgreSQL (`ports.sink.Audit`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from psycopg import sql

from ingest.errors import RefusedError
from ingest.model.receipt import Committed
from ingest.model.window import Window
from ingest.ports.sink import KeyedAudit, RowsHeld, Unreadable
from ingest.sinks.postgres import catalog
from ingest.sinks.postgres.read import rows
from ingest.sinks.postgres.server import TablePlace, Unanswered, identifier, reading, transact

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
