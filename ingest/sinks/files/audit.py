"""What verification asks of a table of files (`ports.sink.Audit`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from windrow.ingest.errors import DamagedError, RefusedError
from windrow.ingest.model.receipt import Committed
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import RowsHeld, Unreadable
from windrow.ingest.sinks.files.log import FilesLog
from windrow.ingest.sinks.files.stage import rows_of
from windrow.ingest.sinks.place import Place


class FilesAudit:
    """Each question reads the log anew.

    Args:
        uri: the table's place.
        metadata: what its metadata columns are called.
        schema: loads what its files hold.
    """

    def __init__(self, uri: str, metadata: Mapping[str, str], schema: Callable[[], pa.Schema]) -> None:
        self.metadata = metadata
        self._uri, self._place, self._schema = uri, Place(uri), schema

    @property
    def keyed(self) -> None:
        """See `ports.sink.Audit.keyed`: no table of files has a primary key."""

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """See `ports.sink.Audit.receipts`."""
        log = FilesLog(self._uri)
        state = log.look()
        for key in [] if state is None else sorted(state.windows):
            try:
                committed = log.committed(state, key) if state is not None else None
            except DamagedError as error:
                yield Unreadable(key, error.what, error.do)
            else:
                assert committed is not None
                yield committed

    def windows(self) -> set[str]:
        """See `ports.sink.Audit.windows`."""
        state = FilesLog(self._uri).look()
        return set() if state is None else {key for key, window in state.windows.items() if any(f.rows for f in window.files)}

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """See `ports.sink.Audit.rows_held`."""
        from windrow.ingest.sinks.counting import rows_held_in  # noqa: PLC0415  # brings DuckDB

        names = [self.metadata[name] for name in ("topic", "partition", "offset", "window")]
        columns = pa.schema([pa.field(name, kind) for name, kind in zip(names, _COORDINATES, strict=True)])
        return rows_held_in(lambda: self.contents(window), columns, self.metadata, window)

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.Audit.contents`."""
        state = FilesLog(self._uri).look()
        held = None if state is None else state.windows.get(window.key)
        for file in () if held is None else held.files:
            yield from rows_of(self._place, file.path, self._schema())

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """See `ports.sink.Audit.restore`: receipt and files are one entry, so that whole entry is put back.

        Raises:
            DamagedError: no checkpoint stands behind the entry, so that nothing else tells its files; or one beside it is damaged, too.
        """
        log = FilesLog(self._uri)
        state = log.look()
        if state is None or window.key not in state.windows:
            raise RefusedError(f"window {window.key} is not committed", "check", "There is no receipt to restore: run the window.")
        log.restore(state, window.key, text, dry_run=dry_run)


_COORDINATES = (pa.string(), pa.int32(), pa.int64(), pa.string())
