"""What verification asks, for sinks that keep receipts and rows in one store: there no receipt can be lost without its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from ingest.errors import RefusedError
from ingest.model.receipt import Committed
from ingest.model.window import Window
from ingest.ports.sink import RowsHeld, Sink, Unreadable


def counted(tables: Sequence[pa.Table], metadata: Mapping[str, str]) -> list[RowsHeld]:
    """Rows per topic-partition. Holds all of them: for small windows."""
    names = [metadata[name] for name in ("topic", "partition", "offset")]
    if not tables:
        return []
    topic, partition, offset = names
    coordinates = pa.concat_tables([table.select(names) for table in tables])
    groups = coordinates.group_by([topic, partition]).aggregate(
        [(offset, "count"), (offset, "count_distinct"), (offset, "min"), (offset, "max")]
    )
    return sorted(
        RowsHeld(g[topic], g[partition], g[f"{offset}_count"], g[f"{offset}_count_distinct"], g[f"{offset}_min"], g[f"{offset}_max"])
        for g in groups.to_pylist()
    )


class PlainAudit:
    """`ports.sink.Audit` by a sink's own answers.

    Args:
        sink: whose receipts and texts are asked.
        metadata: what its metadata columns are called.
        rows: all rows by the key of their window, as they are now.
    """

    def __init__(self, sink: Sink, metadata: Mapping[str, str], rows: Callable[[], Mapping[str, Sequence[pa.Table]]]) -> None:
        self.metadata = metadata
        self._sink, self._rows = sink, rows

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """See `ports.sink.Audit.receipts`."""
        return iter(self._sink.receipts())

    def windows(self) -> set[str]:
        """See `ports.sink.Audit.windows`."""
        return {key for key, tables in self._rows().items() if any(table.num_rows for table in tables)}

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """See `ports.sink.Audit.rows_held`."""
        return counted(self._rows().get(window.key, ()), self.metadata)

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.Audit.contents`."""
        return (batch for table in self._rows().get(window.key, ()) for batch in table.to_batches())

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """See `ports.sink.Audit.restore`: nothing is ever lost, so there is only the comparison."""
        del dry_run
        committed = self._sink.look(window)
        if committed is None or self._sink.receipt_text(committed.receipt) != text:
            raise RefusedError(f"the commit of window {window.key} named another receipt, or there is none", "check", "Look again.")
