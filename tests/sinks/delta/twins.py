"""Broken twins of the Delta sink, each one step from the real one. A suite that can't tell them apart proves nothing.

Each takes the same road as many sinks in the wild; `meanwhile` is called between the look and the write, where the other run gets its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import CommitProperties, Transaction

from tests.sinks.beside import DeltaBoth
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import AlreadyDone, Done, Outcome
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.names import app_id, fingerprint, receipt_app, window_app
from windrow.ingest.sinks.delta.receipts import TableSnapshot
from windrow.ingest.sinks.delta.stage import StagedFile


class _Twin(DeltaBoth):
    """Looks, lets the other run in, writes."""

    def __init__(self, uri: str, schema: pa.Schema, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(uri, schema)
        self.meanwhile = meanwhile

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        table = tables.load(self.uri)
        assert table is not None
        held = self._seen(table, receipt)
        if held is not None:
            return AlreadyDone(held)
        self.meanwhile()
        self._receipts.write(receipt)
        self._put(table, receipt, [msgspec.json.decode(w, type=StagedFile) for s in staged for w in s.rows])
        return Done(Committed(receipt, None))

    def _seen(self, table: DeltaTable, receipt: Receipt) -> Committed | None:
        snapshot = TableSnapshot(tables.versions(self.uri, table), receipt.window.pipeline, self._receipts.names())
        held = self._receipts.committed_receipt(snapshot, receipt.window.key)
        return held if held is not None and held.receipt.generation >= receipt.generation else None

    def _put(self, table: DeltaTable, receipt: Receipt, files: Sequence[StagedFile]) -> None:
        raise NotImplementedError

    def _add(self, table: DeltaTable, receipt: Receipt, files: Sequence[StagedFile], apps: Mapping[str, int]) -> None:
        actions, properties = tables.add_actions(table, files, receipt.window.key), _properties(apps)
        if receipt.generation == 0:
            tables.append(table, actions, properties)
        else:
            tables.overwrite(table, tables.Writing(actions, parts={receipt.window.key}), properties)


class AppendByPath(_Twin):
    """Looks first, then writes by path: the write loads a snapshot of its own, which already holds what the look didn't see."""

    def _put(self, table: DeltaTable, receipt: Receipt, files: Sequence[StagedFile]) -> None:
        rows = pa.concat_tables(pq.read_table(f"{self.uri}/{file.path}", partitioning=None) for file in files)
        rows = rows.append_column(pa.field("_window", pa.string(), nullable=False), [[receipt.window.key] * rows.num_rows])
        write_deltalake(self.uri, rows, mode="append", commit_properties=_properties(_apps(receipt)))


class GenerationInTheId(_Twin):
    """One application id per generation: two stale replacements, or a stale first attempt and a replacement, never meet."""

    def _put(self, table: DeltaTable, receipt: Receipt, files: Sequence[StagedFile]) -> None:
        self._add(table, receipt, files, {self._own(receipt): 1})

    def _seen(self, table: DeltaTable, receipt: Receipt) -> Committed | None:
        return None if table.transaction_version(self._own(receipt)) is None else Committed(receipt, None)

    def _own(self, receipt: Receipt) -> str:
        return app_id("window", receipt.window.key, receipt.window.pipeline, str(receipt.generation))


class NoApplicationId(_Twin):
    """The look asks the receipt files alone; no transaction says that the window is taken."""

    def _put(self, table: DeltaTable, receipt: Receipt, files: Sequence[StagedFile]) -> None:
        self._add(table, receipt, files, {})

    def _seen(self, table: DeltaTable, receipt: Receipt) -> Committed | None:
        every = map(self._receipts._receipt, self._receipts.names())
        mine = [r for r in every if r is not None and r.window == receipt.window and r.generation >= receipt.generation]
        return Committed(mine[0], None) if mine else None


def _apps(receipt: Receipt) -> dict[str, int]:
    key, pipeline = receipt.window.key, receipt.window.pipeline
    return {window_app(key, pipeline): receipt.generation + 1, receipt_app(key, pipeline): fingerprint(to_json(receipt).encode())}


def _properties(apps: Mapping[str, int]) -> CommitProperties:
    """With delta-rs's own retry, as is its default."""
    return CommitProperties(app_transactions=[Transaction(a, v) for a, v in apps.items()])
