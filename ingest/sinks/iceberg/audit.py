"""What verification asks of an Iceberg table (`ports.sink.Audit`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from windrow.ingest.model.metadata import ALWAYS
from windrow.ingest.model.receipt import Committed
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import RowsHeld, Unreadable
from windrow.ingest.schema.metadata import TYPES
from windrow.ingest.sinks.counting import rows_held_in
from windrow.ingest.sinks.iceberg.contents import rows_of
from windrow.ingest.sinks.iceberg.table import LakeTable


class IcebergAudit:
    """Each question loads the table afresh.

    Args:
        lake: the table.
        metadata: what its metadata columns are called.
        receipts: every committed window, also where its receipt can't be read.
        restore: puts a lost receipt back; see `ports.sink.Audit.restore`.
    """

    def __init__(
        self,
        lake: LakeTable,
        metadata: Mapping[str, str],
        receipts: Callable[[], Iterator[Committed | Unreadable]],
        restore: Callable[[Window, str, bool], None],
    ) -> None:
        self.metadata = metadata
        self.receipts = receipts
        self._lake, self._restore = lake, restore

    @property
    def keyed(self) -> None:
        """See `ports.sink.Audit.keyed`: rows are appended alone."""

    def windows(self) -> set[str]:
        """See `ports.sink.Audit.windows`."""
        state = self._lake.look()
        return set() if state is None else state.filled()

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """See `ports.sink.Audit.rows_held`; of the window's part, whatever its rows say of themselves."""
        state = self._lake.look()
        if state is None:
            return []
        columns = pa.schema([pa.field(self.metadata[name], TYPES[name]) for name in ALWAYS])
        return rows_held_in(
            lambda: rows_of(state, state.tasks(self._lake.column, window.key), columns.names), columns, self.metadata, window
        )

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.Audit.contents`."""
        state = self._lake.look()
        if state is not None:
            yield from rows_of(state, state.tasks(self._lake.column, window.key))

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """See `ports.sink.Audit.restore`."""
        self._restore(window, text, dry_run)
