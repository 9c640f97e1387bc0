"""What verification asks of a Delta table (`ports.sink.Audit`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import KeyedAudit, RowsHeld, Unreadable
from windrow.ingest.sinks.delta.contents import contents, every
from windrow.ingest.sinks.delta.graves import GravesOf
from windrow.ingest.sinks.delta.rows import counted, rows_in, windows
from windrow.ingest.sinks.place import Place


class DeltaAudit:
    """Each question loads the table afresh.

    Args:
        uri: the table's place.
        metadata: what its metadata columns are called.
        receipts: every committed window, also where its receipt can't be read.
        restore: puts a lost receipt back; see `ports.sink.Audit.restore`.
    """

    def __init__(
        self,
        uri: str,
        metadata: Mapping[str, str],
        receipts: Callable[[], Iterator[Committed | Unreadable]],
        restore: Callable[[Window, str, bool], None],
    ) -> None:
        self.metadata = metadata
        self.receipts = receipts
        self._uri, self._restore = uri, restore

    @property
    def keyed(self) -> KeyedAudit | None:
        """See `ports.sink.Audit.keyed`."""
        return None

    def windows(self) -> set[str]:
        """See `ports.sink.Audit.windows`."""
        return windows(self._uri)

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """See `ports.sink.Audit.rows_held`."""
        return counted(self._uri, self.metadata, window)

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.Audit.contents`."""
        return contents(self._uri, window)

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """See `ports.sink.Audit.restore`."""
        self._restore(window, text, dry_run)


class DeltaKeyedAudit(DeltaAudit):
    """The same of a table with a primary key, whose rows lie by their keys."""

    @property
    def keyed(self) -> DeltaKeyedAudit:
        """See `ports.sink.Audit.keyed`."""
        return self

    def rows(self) -> int:
        """See `ports.sink.KeyedAudit.rows`."""
        return rows_in(self._uri)

    def every(self) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.KeyedAudit.every`."""
        return every(self._uri)

    def graves(self) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.KeyedAudit.graves`: each window has a file of its own."""
        return iter(())

    def lost_graves(self, receipts: Sequence[Receipt]) -> Iterator[tuple[Receipt, RefusedError | UnreachableError]]:
        """See `ports.sink.KeyedAudit.lost_graves`."""
        place = Place(self._uri)
        for receipt in receipts:
            try:
                GravesOf(place, receipt)
            except (RefusedError, UnreachableError) as error:
                yield receipt, error
