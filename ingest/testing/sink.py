"""A table in memory, and a store of dead letters in memory, with faults on demand."""

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
from windrow.ingest.model.plan import Covered, Split, Window, covered_ranges
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
- unknown: the commit arrives, but its answer is lost.
- lost: the commit doesn't arrive, and there is no answer.
"""


class InlineStagerFactory(msgspec.Struct, frozen=True):
    """A factory of stagers. Picklable.

    Attributes:
        layout: the columns to store.
        window: the value of the window column.
    """

    layout: Layout
    window: str

    def __call__(self, split: Split) -> InlineStager:
        """Makes a stager for one attempt at a split."""
        return InlineStager(self, split)


class InlineStager:
    """A stager that keeps one split's batches in memory.

    Its committable has the rows themselves, as Arrow IPC in base64.
    """

    def __init__(self, made_by: InlineStagerFactory, split: Split) -> None:
        self._made_by, self._split = made_by, split
        self._batches: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._batches.append(self._made_by.layout.batch(rows, messages, self._split))

    def finish(self) -> Staging:
        """Returns one committable; none if there are no rows."""
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
        """Does nothing, because nothing was written."""


def decode_tables(committables: Sequence[str]) -> tuple[pa.Table, ...]:
    """Returns the rows in committables, with the window column."""
    return tuple(map(_table, committables))


def _table(committable: str) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(committable)) as reader:
        return reader.read_all()


@dataclass(frozen=True)
class MemoryContent:
    """The whole content of a table. Each change replaces it.

    Attributes:
        owner: the table's owner.
        version: the number of changes.
        rows: the staged pieces of each window, by the window's key.
        receipts: version and receipt of each window, by the window's key.
        notes: values of notes, by their names.
    """

    owner: TableOwner
    version: int = 0
    rows: dict[str, tuple[pa.Table, ...]] = field(default_factory=dict)
    receipts: dict[str, tuple[int, Receipt]] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)


class MemoryStore:
    """A table in this process. Threads may share it.

    Attributes:
        fault: the fault of the next change; None for no fault.
        conflicts: the number of conflicts until now.
        content: the content; None if the table doesn't exist yet.
    """

    capabilities = Capabilities()
    primary_key = None
    staged = None
    waits = ()

    def __init__(self, name: str, metadata: Mapping[str, str] = DEFAULT) -> None:
        self.location = self.identity = f"memory:{name}"
        self.metadata = metadata
        self.fault: Fault | None = None
        self.conflicts = 0
        self.content: MemoryContent | None = None
        self._lock = threading.Lock()

    def is_at(self, identity: str) -> bool:
        """Returns whether this is the table's name; the table has only one."""
        return identity == self.identity

    def places(self) -> Sequence[str]:
        """Returns no places, because tasks return the rows with their results."""
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
        """Replaces the content, unless another change came first.

        Args:
            expected: the content that the change was made for.
            new: the new content.
        """
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
    """A state of the table: a `sinks.kit.commit.table_store.TableState`."""

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
            if any(a.overlaps(b) for a in covered_ranges(receipt.plan) for b in ranges)
        }

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        selected = (
            self._content.rows.keys() if keys is None else self._content.rows.keys() & set(keys)
        )
        return {key for key in selected if any(piece.num_rows for piece in self._content.rows[key])}

    def size(self) -> None:
        """Returns None: the size is unknown."""

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
        """Returns nothing, because staged rows aren't files."""
        return {}

    def put(self, change: TableChange) -> Answer:
        content, version = self._content, self.version + 1
        rows, receipts = content.rows, content.receipts
        if change.window is not None:
            key = change.window.key
            stay = () if change.replaces else rows.get(key, ())
            rows = rows | {key: (*stay, *decode_tables(change.staged))}
            if change.receipt is not None:
                receipts = receipts | {key: (version, change.receipt)}
        for expired in change.expired:
            rows = rows | {expired.window.key: ()}
            receipts = receipts | {expired.window.key: (version, expired)}
        return self._store.swap(
            content,
            MemoryContent(
                content.owner, version, rows, receipts, content.notes | dict(change.notes)
            ),
        )

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        """Refuses each call, because this table never loses a receipt."""
        del text, dry_run
        raise RefusedError(
            f"the commit of window {window.key} named another receipt", "check", "Look again."
        )


class MemorySink(WindowTable):
    """A table in this process.

    Attributes:
        store: the table's store, on which faults are set.
    """

    store: MemoryStore

    def __init__(self, name: str, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> None:
        super().__init__(MemoryStore(name, metadata), schema)

    def pieces(self) -> list[pa.Table]:
        """Returns all visible rows, one table per staged piece, in the order of staging."""
        content = self.store.content
        return (
            []
            if content is None
            else [piece for pieces in content.rows.values() for piece in pieces]
        )


class MemoryDeadLetters(DeadLetterTable):
    """A store of dead letters in this process, for any sink."""

    def __init__(self) -> None:
        super().__init__(MemoryStore("dead letters"))
