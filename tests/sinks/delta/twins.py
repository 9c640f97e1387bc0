"""Broken Delta stores.

Each differs from the real one in one step, as some sinks of other projects do.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from deltalake.transaction import CommitProperties, Transaction

from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.table import PAGES_APP
from windrow.ingest.sinks.kit.commit.table_store import Answer, TableChange, Written
from windrow.ingest.testing.contracts.commit_hooks import on_put


def appends_by_path(sink: Any) -> None:
    """Makes a sink write by path: the write loads a newer snapshot than the look saw."""

    def put(state: Any, change: TableChange) -> Answer:
        receipt = change.receipt
        assert receipt is not None
        rows = pa.concat_tables(
            pq.read_table(f"{sink.uri}/{file.path}", partitioning=None)
            for file in sink.store.staged.decode_committables(change.staged)
        )
        window = pa.field("_window", pa.string(), nullable=False)
        rows = rows.append_column(window, [[receipt.window.key] * rows.num_rows])
        page = state.put_page([receipt], {}, state.version + 1)
        apps = CommitProperties(app_transactions=[Transaction(PAGES_APP, int(page, 16))])
        write_deltalake(sink.uri, rows, mode="append", commit_properties=apps)
        return Written(None, receipt)

    on_put(sink, put)


def lets_delta_rs_retry(sink: Any) -> None:
    """Makes a sink commit with delta-rs's own retry, and without the application transaction."""

    def properties(custom_metadata: dict[str, str], **more: Any) -> CommitProperties:
        is_windows = custom_metadata["windrow"].startswith("{")
        return CommitProperties(custom_metadata=custom_metadata, **({} if is_windows else more))

    def put(state: Any, change: TableChange) -> Answer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "CommitProperties", properties)
            return state.put(change)  # type: ignore[no-any-return]

    on_put(sink, put)
