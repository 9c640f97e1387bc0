"""Broken twins of the Delta sink, each one step from the real one.

A suite that can't tell them apart proves nothing.

Each takes the same road as many sinks in the wild; `meanwhile` is called between the
look and the put, where the other run gets its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from deltalake.transaction import CommitProperties, Transaction

from tests.sinks.hooks import on_put
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.table import PAGES_APP
from windrow.ingest.sinks.table_store import Answer, TableChange, Written


class RealSink(DeltaBoth):
    """The sink itself; another run gets its turn between its first look and its first put."""

    def __init__(
        self, uri: str, schema: pa.Schema, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(uri, schema)
        self.meanwhile = meanwhile
        on_put(self, self._late)

    def _late(self, state: Any, change: TableChange) -> Answer:
        turn, self.meanwhile = self.meanwhile, lambda: None
        turn()
        return self.put(state, change)

    def put(self, state: Any, change: TableChange) -> Answer:
        return state.put(change)  # type: ignore[no-any-return]


class AppendByPath(RealSink):
    """Looks first, then writes by path: the write loads a snapshot of its own, which
    already holds what the look didn't see.
    """

    def put(self, state: Any, change: TableChange) -> Answer:
        receipt = change.receipt
        assert receipt is not None
        key = receipt.window.key
        rows = pa.concat_tables(
            pq.read_table(f"{self.uri}/{file.path}", partitioning=None)
            for file in self.store.staged.named(change.staged)
        )
        rows = rows.append_column(
            pa.field("_window", pa.string(), nullable=False), [[key] * rows.num_rows]
        )
        page = state.put_page(receipt, {}, state.version + 1)
        apps = CommitProperties(app_transactions=[Transaction(PAGES_APP, int(page, 16))])
        write_deltalake(self.uri, rows, mode="append", commit_properties=apps)
        return Written(None, receipt)


@contextmanager
def delta_rs_retries() -> Iterator[None]:
    """Windows are committed with delta-rs's own retry, and without the application transaction."""

    def properties(custom_metadata: dict[str, str], **more: Any) -> CommitProperties:
        is_windows = custom_metadata["windrow"].startswith("{")
        return CommitProperties(custom_metadata=custom_metadata, **({} if is_windows else more))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "CommitProperties", properties)
        yield
