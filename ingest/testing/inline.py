"""Staging without files, for sinks of small windows.

Committables hold the rows themselves, as Arrow IPC in base64.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import msgspec
import pyarrow as pa

from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged import Staging
from windrow.ingest.schema.checksum import checksum, text
from windrow.ingest.sinks.stage import Layout


class InlineStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers. Picklable. `window` is the value of the window column."""

    layout: Layout
    window: str

    def __call__(self, split: Split) -> InlineStager:
        """Makes a stager for one attempt at a split."""
        return InlineStager(self, split)


class InlineStager:
    """Keeps one split's batches in memory."""

    def __init__(self, made_by: InlineStagerFactory, split: Split) -> None:
        self._made_by, self._split = made_by, split
        self._batches: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._batches.append(self._made_by.layout.batch(rows, messages, self._split))

    def finish(self) -> Staging:
        """Returns one committable, or none without rows."""
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
        """Does nothing: nothing was written."""


def tables(committables: Sequence[str]) -> tuple[pa.Table, ...]:
    """The rows in committables, with the window's column."""
    return tuple(map(_table, committables))


def _table(committable: str) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(committable)) as reader:
        return reader.read_all()
