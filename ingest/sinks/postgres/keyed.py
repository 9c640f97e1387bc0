"""The PostgreSQL sink of a table with a primary key: rows of one key replace each other, in one transaction with the receipt.

A commit goes as in `sink.py`; in the place of the COPY into the table the window's changes are merged into it (`merge.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.ports.sink import Audit, Promises
from windrow.ingest.schema.changes import UNAVAILABLE, change_schema
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.postgres.catalog import Target
from windrow.ingest.sinks.postgres.columns import HASH, Evolve, check_rows
from windrow.ingest.sinks.postgres.form import KeyedForm
from windrow.ingest.sinks.postgres.merge import merge
from windrow.ingest.sinks.postgres.prepare import WantedTable
from windrow.ingest.sinks.postgres.server import Connection, TablePlace
from windrow.ingest.sinks.postgres.sink import PostgresSink, wanted_table
from windrow.ingest.sinks.postgres.stage import CopyFile, PostgresStagerFactory
from windrow.ingest.sinks.staging import RowLayout


class PostgresKeyedSink(PostgresSink):
    """`ports.sink.Sink` on a table in PostgreSQL with a primary key.

    Args:
        place: the table's; it belongs to one pipeline.
        staging: as of `PostgresSink`.
        schema: the columns of a row, without the ones that windrow adds; or what loads them, called at the first write.
        primary_key: by which rows replace each other; of its buckets nothing is made here.
        metadata: the columns that windrow adds, by name.
        evolve: as of `PostgresSink`.

    Raises:
        SpecError: as `PostgresSink`; or the key doesn't fit the columns.
    """

    promises = Promises(atomic="window", replaces=True, mode="upsert")

    def __init__(
        self,
        place: TablePlace,
        staging: str,
        schema: pa.Schema | Callable[[], pa.Schema],
        primary_key: PrimaryKey,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
    ) -> None:
        super().__init__(place, staging, schema, metadata, evolve)
        self.primary_key = primary_key
        self._form = KeyedForm(primary_key, self.metadata)
        if isinstance(schema, pa.Schema):
            self._refuse_unfit(schema)

    def _refuse_unfit(self, schema: pa.Schema) -> None:
        self.primary_key.refuse_unfit(schema)
        check_rows(schema.append(HASH), self.metadata)

    @cached_property
    def _wanted(self) -> WantedTable:
        self._refuse_unfit(self.schema)
        rows = change_schema(self.schema, self.primary_key.columns) if self.primary_key.marks else self.schema
        return wanted_table(rows.append(HASH), self.metadata, self._evolve, self._form)

    def stager(self, plan: Plan, generation: int, attempt: str) -> PostgresStagerFactory:
        """See `ports.sink.Sink.stager`: what is staged are changes (`ingest.schema.changes`)."""
        del generation
        layout = RowLayout(change_schema(self.schema, self.primary_key.columns), self.metadata, attempt, UNAVAILABLE)
        return self._staged.stager(layout, self.metadata["window"], plan.window.key, self._form)

    def audit(self) -> Audit:
        """See `ports.sink.Sink.audit`."""
        from windrow.ingest.sinks.postgres.audit import PostgresKeyedAudit  # noqa: PLC0415  # only verification needs it

        return PostgresKeyedAudit(self.place, self._form)

    def _write(
        self, connection: Connection, target: Target, columns: pa.Schema, receipt: Receipt, older: Committed | None,
        files: Sequence[CopyFile],
    ) -> Receipt:  # fmt: skip
        before = None if older is None else older.receipt
        return merge(connection, self.place, target, self._form, columns, receipt, before, self._staged, files)
