"""A table in memory: `ports.sink.Sink` without files, with the outcomes that a real one has on bad days."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
import pyarrow as pa

from ingest.crashpoints import crash_point
from ingest.errors import BindingError, GridError, RefusedError, SchemaChangedError
from ingest.model.codec import to_json
from ingest.model.plan import Plan, Split
from ingest.model.receipt import Checksums, Committed, Receipt
from ingest.model.staged import Staged
from ingest.model.window import Window
from ingest.ports.sink import AlreadyDone, Done, Outcome, Unknown, Unreadable
from ingest.schema.checksum import checksum, text
from ingest.schema.metadata import DEFAULT
from ingest.sinks.columns import DEAD_FILE, file_schema
from ingest.sinks.decision import adjacent, refuse_overlap, refuse_torn, settled
from ingest.sinks.delta.columns import check_rows
from ingest.sinks.delta.table import Binding
from ingest.sinks.metadata import columns as metadata_columns
from ingest.sinks.metadata import dead_columns, in_files

Fault = Literal["conflict", "unknown", "lost"]
"""The next commit: loses against another one first; arrives and isn't answered; neither arrives nor is answered."""


class _State(msgspec.Struct, frozen=True):
    """All that the table holds, replaced whole by each commit. `rows`: per window key its staged pieces."""

    version: int = 0
    bound: tuple[str, str, str] | None = None
    rows: dict[str, tuple[pa.Table, ...]] = {}
    held: dict[Window, Committed] = {}


class MemorySink:
    """A table in this process; `fault` is what happens to the next commit. Safe under threads."""

    def __init__(self, name: str, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> None:
        check_rows(schema, metadata)
        self.schema, self.metadata = schema, dict(metadata)
        self.fault: Fault | None = None
        self.conflicts = 0
        self._name = name
        self._state = _State()
        self._dead: dict[tuple[Window, str], tuple[pa.Table, ...]] = {}
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """Which table this is."""
        return f"memory:{self._name}"

    def is_at(self, identity: str) -> bool:
        """See `ports.sink.Sink.is_at`; it has one name."""
        return identity == self.identity

    def refuse_other(self, ledger: str, pipeline: str, grid: str) -> None:
        """See `ports.sink.Sink.refuse_other`."""
        if self._state.bound is not None:
            self._refuse_other(pipeline, ledger, grid)

    def prepare(self, ledger: str, pipeline: str, grid: str) -> None:
        """See `ports.sink.Sink.prepare`; the columns are those of the constructor, and so never differ."""
        with self._lock:
            if self._state.bound is None:
                self._state = msgspec.structs.replace(self._state, bound=(pipeline, ledger, grid))
        self._refuse_other(pipeline, ledger, grid)

    def binding(self) -> Binding | None:
        """See `ports.sink.Sink.binding`."""
        return None if self._state.bound is None else Binding(*self._state.bound)

    def look(self, window: Window) -> Committed | None:
        """See `ports.sink.Sink.look`."""
        return self._state.held.get(window)

    def receipts(self) -> Iterator[Committed]:
        """See `ports.sink.Sink.receipts`."""
        held = self._state.held
        return iter([held[w] for w in sorted(held)])

    def inspect(self) -> Iterator[Committed | Unreadable]:
        """See `ports.sink.Sink.inspect`; in memory nothing gets damaged."""
        return self.receipts()

    def written(self, receipt: Receipt) -> str:
        """See `ports.sink.Sink.written`."""
        return to_json(receipt)

    def restore(self, window: Window, written: str, *, dry_run: bool = False) -> None:  # noqa: ARG002 - nothing is ever lost here
        """See `ports.sink.Sink.restore`."""
        held = self.look(window)
        if held is None or to_json(held.receipt) != written:
            raise RefusedError(f"the commit of window {window.key} named another receipt, or there is none", "check", "Look again.")

    def stager(self, plan: Plan, generation: int, attempt: str) -> MemoryStagerFactory:
        """See `ports.sink.Sink.stager`."""
        return MemoryStagerFactory(self.schema, self.metadata, plan.window, generation, attempt)

    def commit_dead(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        """See `ports.sink.Sink.commit_dead`."""
        with self._lock:
            self._dead.setdefault((plan.window, attempt), tuple(_table(word) for s in staged for word in s.dead))

    def read_dead(self, window: Window, limit: int | None = None, attempt: str | None = None) -> pa.Table:
        """See `ports.sink.Sink.read_dead`."""
        held = self.look(window) if attempt is None else None
        pieces = self._dead.get((window, (attempt or "") if held is None else held.receipt.attempt), ())
        every = pa.concat_tables([DEAD_FILE.append(pa.field(DEFAULT["window"], pa.string())).empty_table(), *pieces])
        return every if limit is None else every.slice(0, limit)

    def refused(self) -> dict[str, str]:
        """See `ports.sink.Sink.refused`."""
        return {window.key: attempt for (window, attempt), pieces in self._dead.items() if pieces and window not in self._state.held}

    def pieces(self) -> list[pa.Table]:
        """All rows that are visible, one table per staged piece, in the order in which they were staged."""
        return [piece for pieces in self._state.rows.values() for piece in pieces]

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """See `ports.sink.Sink.commit`."""
        while True:
            seen = self._state
            self._refuse_other(receipt.window.pipeline, receipt.ledger, receipt.grid)
            found = settled(receipt, seen.held.get(receipt.window))
            if found is not None:
                return AlreadyDone(found)
            refuse_overlap(receipt.plan, [c.receipt for c in seen.held.values()])
            by_key: dict[str | None, Committed] = {w.key: c for w, c in seen.held.items()}
            before, after = adjacent(receipt)
            refuse_torn(receipt.plan, by_key.get(before), by_key.get(after))
            done = Committed(receipt, seen.version + 1)
            rows = seen.rows | {receipt.window.key: tuple(_table(word) for s in staged for word in s.rows)}
            new = _State(seen.version + 1, seen.bound, rows, seen.held | {receipt.window: done})
            crash_point("commit.before")
            fault = self._swap(seen, new)
            crash_point("commit.after")
            if fault in {"unknown", "lost"}:
                return Unknown("the memory sink was told not to answer")
            if fault is None:
                return Done(done)

    def _swap(self, seen: _State, new: _State) -> Fault | None:
        """Put the new state in the place of the one that was looked at, if it still is there."""
        with self._lock:
            fault, self.fault = self.fault, None
            if self._state is not seen or fault == "conflict":
                self.conflicts += 1
                return "conflict"
            if fault != "lost":
                self._state = new
            return fault

    def _refuse_other(self, pipeline: str, ledger: str, grid: str) -> None:
        bound = self._state.bound
        if bound is None:
            raise RefusedError("the memory table isn't there", "commit", "Prepare it first.")
        if bound[0] != pipeline or bound[1] != ledger:
            what = f"the memory table belongs to pipeline {bound[0]!r} and ledger {bound[1]}, not {pipeline!r} and {ledger}"
            raise BindingError(what, "setup", "Use another table, or the ledger it was begun with.")
        if bound[2] != grid:
            raise GridError(f"the memory table was begun with {bound[2]} windows, not {grid}", "setup", "Set the grid back.")


class MemoryStager:
    """Stages into the word itself: it travels as Arrow IPC in base64, also between processes."""

    def __init__(self, factory: MemoryStagerFactory) -> None:
        self._made_by = factory
        self._rows: list[pa.RecordBatch] = []
        self._dead: list[pa.RecordBatch] = []

    def rows(self, messages: pa.RecordBatch, columns: pa.RecordBatch) -> None:
        """See `ports.sink.Stager.rows`."""
        if columns.schema.names != self._made_by.schema.names:
            what = f"rows of {columns.schema.names} were to be staged; the table has {self._made_by.schema.names}"
            raise SchemaChangedError(what, "stage", "The rows must be exactly the table's columns.")
        made = self._made_by
        beside = metadata_columns(in_files(made.metadata), messages, made.attempt)
        self._add(self._rows, [*columns.columns, *beside], file_schema(made.schema, made.metadata))

    def dead(self, messages: pa.RecordBatch, stage: pa.Array, reason: pa.Array, detail: pa.Array) -> None:
        """See `ports.sink.Stager.dead`."""
        made = self._made_by
        self._add(
            self._dead, dead_columns(messages, (stage, reason, detail), made.attempt, made.generation, made.window.pipeline), DEAD_FILE
        )

    def finish(self) -> tuple[int, int, tuple[str, ...], tuple[str, ...]]:
        """See `ports.sink.Stager.finish`."""
        counts = sum(b.num_rows for b in self._rows), sum(b.num_rows for b in self._dead)
        crash_point("write.after")
        return *counts, self._word(self._rows, self._made_by.metadata["window"]), self._word(self._dead, DEFAULT["window"])

    def checksums(self) -> Checksums:
        """See `ports.sink.Stager.checksums`."""
        return Checksums(*(text(sum(map(checksum, held))) for held in (self._rows, self._dead)))

    def discard(self) -> None:
        """See `ports.sink.Stager.discard`: nothing was written anywhere."""

    def _add(self, held: list[pa.RecordBatch], arrays: list[pa.Array], schema: pa.Schema) -> None:
        cast = [a.cast(f.type) for a, f in zip(arrays, schema, strict=True)]
        held.append(pa.RecordBatch.from_arrays(cast, schema=schema))
        crash_point("write.middle")

    def _word(self, held: list[pa.RecordBatch], window: str) -> tuple[str, ...]:
        if not held:
            return ()
        table = pa.Table.from_batches(held)
        table = table.append_column(window, pa.repeat(self._made_by.window.key, table.num_rows))
        out = io.BytesIO()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        return (base64.b64encode(out.getvalue()).decode(),)


class MemoryStagerFactory(msgspec.Struct, frozen=True):
    """Picklable."""

    schema: pa.Schema
    metadata: dict[str, str]
    window: Window
    generation: int
    attempt: str

    def __call__(self, split: Split) -> MemoryStager:  # noqa: ARG002 - part of the interface; a word needs no name here
        """A stager of its own for each attempt."""
        return MemoryStager(self)


def _table(word: str) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(word)) as reader:
        return reader.read_all()
