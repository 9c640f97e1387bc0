"""A table in memory, and its dead letters: a store without files, with faults on demand."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import pyarrow as pa

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered, Split, Window, covered
from windrow.ingest.model.receipt import Receipt, Staging
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.schema.checksum import checksum, checksum_text
from windrow.ingest.sinks.kit.columns.table_columns import table_schema
from windrow.ingest.sinks.kit.commit.dead_letter_table import DeadLetterTable
from windrow.ingest.sinks.kit.commit.table_store import (
    Answer,
    Conflict,
    StoredReceipt,
    TableChange,
    Unanswered,
    Written,
)
from windrow.ingest.sinks.kit.commit.window_table import WindowTable
from windrow.ingest.sinks.kit.files.file_stager import Layout

Fault = Literal["conflict", "unknown", "lost"]
"""A fault of the next commit.

- conflict: another commit comes first.
- unknown: it arrives, and isn't answered.
- lost: it neither arrives nor is answered.
"""


class InlineStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers. Picklable. `window` is the value of the window column."""

    layout: Layout
    window: str

    def __call__(self, split: Split) -> InlineStager:
        """Makes a stager for one attempt at a split."""
        return InlineStager(self, split)


class InlineStager:
    """Keeps one split's batches in memory; a committable has the rows, as Arrow IPC in base64."""

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
        rows_checksum = checksum_text(sum(map(checksum, self._batches)))
        return Staging(table.num_rows, rows_checksum, (base64.b64encode(out.getvalue()).decode(),))

    def discard(self) -> None:
        """Does nothing: nothing was written."""


def tables(committables: Sequence[str]) -> tuple[pa.Table, ...]:
    """The rows in committables, with the window's column."""
    return tuple(map(_table, committables))


def _table(committable: str) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(committable)) as reader:
        return reader.read_all()


@dataclass(frozen=True)
class MemoryContent:
    """The whole content of a table, replaced by each change.

    `rows`: the staged pieces of each window, by its key.
    """

    owner: TableOwner
    version: int = 0
    rows: dict[str, tuple[pa.Table, ...]] = field(default_factory=dict)
    receipts: dict[str, tuple[int, Receipt]] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)


class MemoryStore:
    """A table in this process. `fault` happens to the next change. Threads may share it."""

    capabilities = Capabilities()
    primary_key = None
    staged = None
    waits = ()

    def __init__(self, name: str, metadata: Mapping[str, str] = DEFAULT) -> None:
        self.place = self.identity = f"memory:{name}"
        self.metadata = metadata
        self.fault: Fault | None = None
        self.conflicts = 0
        self.content: MemoryContent | None = None
        self._lock = threading.Lock()

    def is_at(self, identity: str) -> bool:
        """True for this table's only name."""
        return identity == self.identity

    def places(self) -> Sequence[str]:
        """None: rows travel with the results of tasks."""
        return ()

    def check_columns(self, rows: pa.Schema) -> None:
        """Accepts all columns."""

    def columns(self, rows: pa.Schema) -> pa.Schema:
        return table_schema(rows, self.metadata)

    def check_write(self) -> None:
        """Accepts all writes."""

    def ensure(self, _columns: pa.Schema, owner: TableOwner) -> None:
        with self._lock:
            if self.content is None:
                self.content = MemoryContent(owner)

    @contextmanager
    def reading(self) -> Iterator[MemoryState | None]:
        yield None if self.content is None else MemoryState(self, self.content)

    writing = reading

    def stager(self, layout: Layout, window: Window) -> InlineStagerFactory:
        return InlineStagerFactory(layout, window.key)

    def swap(self, expected: MemoryContent, new: MemoryContent) -> Answer:
        """Replaces the content that was read, unless another commit came first."""
        with self._lock:
            fault, self.fault = self.fault, None
            if self.content is not expected or fault == "conflict":
                self.conflicts += 1
                return Conflict("another change came first")
            if fault != "lost":
                self.content = new
        return (
            Written(new.version)
            if fault is None
            else Unanswered("the memory table was set not to answer")
        )


class MemoryState:
    """One state of the table (`sinks.kit.commit.table_store.TableState`)."""

    def __init__(self, store: MemoryStore, content: MemoryContent) -> None:
        self._store, self._content = store, content
        self.version, self.owner = content.version, content.owner

    def note(self, name: str) -> int | None:
        return self._content.notes.get(name)

    def notes(self) -> Mapping[str, int]:
        return self._content.notes

    def committed(self) -> Collection[str]:
        return self._content.receipts.keys()

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt]:
        for key in sorted(
            self._content.receipts.keys()
            if keys is None
            else self._content.receipts.keys() & set(keys)
        ):
            version, receipt = self._content.receipts[key]
            yield StoredReceipt(key, to_json(receipt), version)

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        receipts = self._content.receipts.items()
        return {
            key
            for key, (_, receipt) in receipts
            if any(a.overlaps(b) for a in covered(receipt.plan) for b in ranges)
        }

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        selected = (
            self._content.rows.keys() if keys is None else self._content.rows.keys() & set(keys)
        )
        return {key for key in selected if any(piece.num_rows for piece in self._content.rows[key])}

    def size(self) -> None:
        """The size is unknown."""

    def column_changes(self, _columns: pa.Schema) -> Sequence[str]:
        return ()

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        del names
        window_pieces = (
            self._content.rows.values()
            if window is None
            else [self._content.rows.get(window.key, ())]
        )
        return (
            batch for pieces in window_pieces for piece in pieces for batch in piece.to_batches()
        )

    def unneeded(self, _old: Mapping[str, int], _cutoff: int) -> Mapping[str, int]:
        """Nothing: staged rows aren't files."""
        return {}

    def put(self, change: TableChange) -> Answer:
        content, version = self._content, self.version + 1
        rows, receipts = content.rows, content.receipts
        if change.window is not None:
            key = change.window.key
            stay = () if change.replaces else rows.get(key, ())
            rows = rows | {key: (*stay, *tables(change.staged))}
            if change.receipt is not None:
                receipts = receipts | {key: (version, change.receipt)}
        return self._store.swap(
            content,
            MemoryContent(
                content.owner, version, rows, receipts, content.notes | dict(change.notes)
            ),
        )

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        """Refuses: no receipt is ever lost."""
        del text, dry_run
        raise RefusedError(
            f"the commit of window {window.key} named another receipt", "check", "Look again."
        )


class MemorySink(WindowTable):
    """A table in this process. Its `store` has `fault` and `conflicts`."""

    store: MemoryStore

    def __init__(self, name: str, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> None:
        super().__init__(MemoryStore(name, metadata), schema)

    def pieces(self) -> list[pa.Table]:
        """All visible rows, one table for each staged piece, in the order of staging."""
        content = self.store.content
        return (
            []
            if content is None
            else [piece for pieces in content.rows.values() for piece in pieces]
        )


class MemoryDeadLetters(DeadLetterTable):
    """Dead letters in this process, for any sink."""

    def __init__(self) -> None:
        super().__init__(MemoryStore("dead letters"))
