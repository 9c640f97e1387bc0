"""For sinks of small windows, which need no files: committables hold the rows themselves, as Arrow IPC in base64."""

from __future__ import annotations

import base64
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property

import msgspec
import pyarrow as pa

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.plan import Plan, Split
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staging
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Promises, RowsHeld, Unreadable
from windrow.ingest.schema.checksum import checksum, text
from windrow.ingest.schema.metadata import refuse_wrong
from windrow.ingest.sinks.staging import Layout, RowLayout


class InlineStagerFactory(msgspec.Struct, frozen=True):
    """Picklable. `window`: the key of the window that the rows are of, for the window's column."""

    layout: Layout
    window: str

    def __call__(self, split: Split) -> InlineStager:
        """A stager of its own for each attempt."""
        return InlineStager(self, split)


class InlineStager:
    """Keeps one split's batches in memory."""

    def __init__(self, made_by: InlineStagerFactory, split: Split) -> None:
        self._made_by, self._split = made_by, split
        self._batches: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """See `ports.sink.Stager.add`."""
        if rows.num_rows:
            self._batches.append(self._made_by.layout.batch(rows, messages, self._split))

    def finish(self) -> Staging:
        """See `ports.sink.Stager.finish`: one committable, or none for no rows."""
        if not self._batches:
            return Staging()
        table = pa.Table.from_batches(self._batches)
        window = pa.repeat(self._made_by.window, table.num_rows)
        table = table.append_column(self._made_by.layout.metadata["window"], window)
        out = io.BytesIO()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        whole = text(sum(map(checksum, self._batches)))
        return Staging(table.num_rows, whole, (base64.b64encode(out.getvalue()).decode(),))

    def discard(self) -> None:
        """See `ports.sink.Stager.discard`: nothing was written anywhere."""


class InlineSink(ABC):
    """The part of `ports.sink.Sink` that is the same for all sinks that keep rows and receipts in one store, and stage nowhere.

    There no receipt can be lost without its rows, and nothing that is staged has to be swept.

    Args:
        identity: which table this is.
        rows: the columns of a row, without the ones that windrow adds; or what loads them, called at the first write.
        metadata: those that it adds, by name.

    Raises:
        SpecError: metadata columns can't be called that.
    """

    promises = Promises(atomic="window", replaces=True, mode="append")

    def __init__(self, identity: str, rows: pa.Schema | Callable[[], pa.Schema], metadata: Mapping[str, str]) -> None:
        refuse_wrong(rows.names if isinstance(rows, pa.Schema) else (), metadata)
        self.identity, self.metadata = identity, dict(metadata)
        self._load = rows

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row, without the ones that windrow adds."""
        return self._load() if callable(self._load) else self._load

    @abstractmethod
    def receipts(self) -> Iterator[Committed]:
        """See `ports.sink.Sink.receipts`; in the order of windows."""

    @abstractmethod
    def kept_rows(self) -> Mapping[str, Sequence[pa.Table]]:
        """All visible rows by the key of their window."""

    def is_at(self, identity: str) -> bool:
        """See `ports.sink.Sink.is_at`; it has one name."""
        return identity == self.identity

    def refuse_unwritable(self) -> None:  # noqa: B027 - not every sink has something to try
        """See `ports.sink.Sink.refuse_unwritable`: nothing is tried."""

    def places(self) -> Sequence[str]:
        """See `ports.sink.Sink.places`: rows travel with what tasks bring back."""
        return ()

    def columns_to_come(self) -> Sequence[str]:
        """See `ports.sink.Sink.columns_to_come`: rows are kept with whatever columns they have."""
        return ()

    def look(self, window: Window) -> Committed | None:
        """See `ports.sink.Sink.look`."""
        return next(self.looks([window]))

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        """See `ports.sink.Sink.looks`."""
        committed = {c.receipt.window: c for c in self.receipts()}
        return map(committed.get, windows)

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        """See `ports.sink.Sink.committed`."""
        return {c.receipt.window for c in self.receipts()}.intersection(windows)

    def receipt_text(self, receipt: Receipt) -> str:
        """See `ports.sink.Sink.receipt_text`."""
        return to_json(receipt)

    def stager(self, plan: Plan, generation: int, attempt: str) -> InlineStagerFactory:
        """See `ports.sink.Sink.stager`."""
        del generation
        return InlineStagerFactory(RowLayout(self.schema, self.metadata, attempt), plan.window.key)

    def audit(self) -> InlineAudit:
        """See `ports.sink.Sink.audit`."""
        return InlineAudit(self)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """See `ports.sink.Sink.sweep`: what is staged lies nowhere."""
        del older_than, dry_run
        return []


class InlineAudit:
    """`ports.sink.Audit` by such a sink's own answers. Holds all rows of a window."""

    def __init__(self, sink: InlineSink) -> None:
        self._sink = sink

    @property
    def metadata(self) -> Mapping[str, str]:
        """See `ports.sink.Audit.metadata`."""
        return self._sink.metadata

    @property
    def keyed(self) -> None:
        """See `ports.sink.Audit.keyed`: none of these has a primary key."""

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """See `ports.sink.Audit.receipts`."""
        return iter(self._sink.receipts())

    def windows(self) -> set[str]:
        """See `ports.sink.Audit.windows`."""
        return {key for key, kept in self._sink.kept_rows().items() if any(table.num_rows for table in kept)}

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """See `ports.sink.Audit.rows_held`."""
        return _counted(self._sink.kept_rows().get(window.key, ()), self.metadata)

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.Audit.contents`."""
        return (batch for table in self._sink.kept_rows().get(window.key, ()) for batch in table.to_batches())

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """See `ports.sink.Audit.restore`: nothing is ever lost, so there is only the comparison."""
        del dry_run
        committed = self._sink.look(window)
        if committed is None or self._sink.receipt_text(committed.receipt) != text:
            raise RefusedError(f"the commit of window {window.key} named another receipt, or there is none", "check", "Look again.")


def _counted(kept: Sequence[pa.Table], metadata: Mapping[str, str]) -> list[RowsHeld]:
    if not kept:
        return []
    topic, partition, offset = names = [metadata[name] for name in ("topic", "partition", "offset")]
    groups = (
        pa.concat_tables([table.select(names) for table in kept])
        .group_by([topic, partition])
        .aggregate([(offset, "count"), (offset, "count_distinct"), (offset, "min"), (offset, "max")])
    )
    return sorted(
        RowsHeld(g[topic], g[partition], g[f"{offset}_count"], g[f"{offset}_count_distinct"], g[f"{offset}_min"], g[f"{offset}_max"])
        for g in groups.to_pylist()
    )


def tables(committables: Sequence[str]) -> tuple[pa.Table, ...]:
    """The rows that committables hold, each with its window's column."""
    return tuple(map(_table, committables))


def _table(committable: str) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(committable)) as reader:
        return reader.read_all()
