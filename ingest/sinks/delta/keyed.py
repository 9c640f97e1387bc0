"""The Delta sink of a table with a primary key: rows of one key replace each other, in one commit with the receipt.

A commit goes as in `sink.py`; between the look and the write the window's changes are merged into the state that was looked at
(`merge.py`). If another commit comes first, that is done again on the next state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from deltalake.transaction import AddAction, CommitProperties, RemoveAction

from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Audit, Promises
from windrow.ingest.schema.changes import UNAVAILABLE, change_schema
from windrow.ingest.schema.metadata import fields
from windrow.ingest.schema.primary_key import BUCKET, PrimaryKey
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.columns import Evolution, Evolve, in_files
from windrow.ingest.sinks.delta.names import receipts_among
from windrow.ingest.sinks.delta.newest import State
from windrow.ingest.sinks.delta.sink import DeltaSink
from windrow.ingest.sinks.delta.stage import DeltaStagerFactory, StagedFile
from windrow.ingest.sinks.delta.table import Writing
from windrow.ingest.sinks.delta.wide import WideFiles
from windrow.ingest.sinks.staging import RowLayout

if TYPE_CHECKING:
    from windrow.ingest.sinks.delta.merge import Renews


class DeltaKeyedSink(DeltaSink):
    """`ports.sink.Sink` on a Delta table with a primary key.

    Args:
        uri: the table's path or URI; it belongs to one pipeline.
        schema: the columns of a row, without the ones that windrow adds; or what loads them, called at the first write.
        primary_key: by which rows replace each other.
        metadata: the columns that windrow adds, by name.
        evolve: as of `DeltaSink`.

    Raises:
        SpecError: as `DeltaSink`; or the key doesn't fit the columns.
    """

    promises = Promises(atomic="window", replaces=True, mode="upsert")

    def __init__(
        self,
        uri: str,
        schema: pa.Schema | Callable[[], pa.Schema],
        primary_key: PrimaryKey,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
    ) -> None:
        super().__init__(uri, schema, metadata, evolve)
        self.primary_key = primary_key
        if isinstance(schema, pa.Schema):
            primary_key.refuse_unfit(schema)
        self._laid = tables.Laid(BUCKET, pa.int32(), _properties(primary_key))

    @cached_property
    def _file(self) -> pa.Schema:
        self.primary_key.refuse_unfit(self.schema)
        rows = change_schema(self.schema, self.primary_key.columns) if self.primary_key.marks else self.schema
        return pa.schema([*rows, *fields(self.metadata)])

    def stager(self, plan: Plan, generation: int, attempt: str) -> DeltaStagerFactory:
        """See `ports.sink.Sink.stager`: what is staged are changes (`ingest.schema.changes`), divided by the buckets of their keys."""
        del generation
        layout = RowLayout(change_schema(self.schema, self.primary_key.columns), self.metadata, attempt, UNAVAILABLE)
        return DeltaStagerFactory(self.uri, layout, plan.window.key, self.primary_key)

    def audit(self) -> Audit:
        """See `ports.sink.Sink.audit`."""
        from windrow.ingest.sinks.delta.audit import DeltaKeyedAudit  # noqa: PLC0415  # brings DuckDB

        return DeltaKeyedAudit(self.uri, self.metadata, self._receipts_or_damage, self._restore)

    def _refuse_unfit(self, state: State, receipt: Receipt, files: Sequence[StagedFile]) -> None:
        super()._refuse_unfit(state, receipt, files)
        tables.refuse_hidden_rows(self.uri, state.table)

    def _refuse_strange_rows(self, state: State, key: str) -> None:
        """Rows lie by their keys; whose they are, verification tells."""

    def _writing(self, state: State, receipt: Receipt, files: Sequence[StagedFile], wide: WideFiles) -> tuple[Receipt, Writing]:
        from windrow.ingest.sinks.delta.merge import Form, merge  # noqa: PLC0415  # brings polars, and only who commits needs it

        del wide  # what is written anew is merged, too: for each state again
        table, become = tables.brought_to(state.table, state.version), self._become(state, files)
        older = self._committed(state, receipt.window.pipeline, receipt.window.key)
        renews: Renews = "table" if become.widened else "buckets" if become.changes else "few"
        form = Form(self.primary_key, self.metadata, in_files(become.schema, BUCKET), renews)
        merged, actions = merge(
            self._place, table, form, receipt, files, self._after(state, receipt), None if older is None else older.receipt
        )
        return msgspec.structs.replace(receipt, merged=merged), _renewing(actions, become)

    def _after(self, state: State, receipt: Receipt) -> list[Receipt]:
        """The committed receipts of all windows after this one: none, as long as windows come in their order."""
        pipeline, own = receipt.window.pipeline, receipt.window.key
        named = {name.key for name in self._receipts.names()} if state.every is None else receipts_among(state.every, pipeline)
        found = [self._committed(state, pipeline, key) for key in sorted(named) if key > own]
        return [committed.receipt for committed in found if committed is not None]

    def _write(self, state: State, writing: Writing, properties: CommitProperties) -> None:
        table = tables.brought_to(state.table, state.version)
        if writing.appends:
            tables.append(table, writing.actions, properties)
        else:
            tables.overwrite(table, writing, properties)

    def _filled(self, state: State) -> set[str]:
        """None: that isn't told without reading rows."""
        del state
        return set()


def _renewing(actions: list[AddAction | RemoveAction], become: Evolution) -> Writing:
    """A merge's actions; where columns change, all files of each bucket that loses one go, and deltalake names them."""
    if not become.changes:
        return Writing(actions)
    lose = {str(a.partition_values[BUCKET]) for a in actions if isinstance(a, RemoveAction) and a.partition_values is not None}
    return Writing([a for a in actions if isinstance(a, AddAction)], become.schema, None if become.widened else lose)


def _properties(key: PrimaryKey) -> dict[str, str]:
    """What the table says of its key, for ever: with another one its rows would be in another order, or in other buckets."""
    told = {"columns": list(key.columns), "marks": key.marks, "version": key.version, "buckets": key.buckets}
    return {"windrow.primary-key": json.dumps(told)}
