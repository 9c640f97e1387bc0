"""A table in memory, and its dead letters: `ports.sink.Sink` and `ports.dead_letters.DeadLetters` without files, with their bad days."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec
import pyarrow as pa

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.binding import Binding, refuse_other_binding
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.dead_letters import Publication
from windrow.ingest.ports.sink import AlreadyDone, Done, Outcome, Unknown
from windrow.ingest.sinks.columns import DEAD_LETTERS
from windrow.ingest.sinks.decision import Seen, decide
from windrow.ingest.sinks.inline import InlineSink, InlineStagerFactory, tables
from windrow.ingest.sinks.staging import DeadLetterLayout

Fault = Literal["conflict", "unknown", "lost"]
"""The next commit: loses against another one first; arrives and isn't answered; neither arrives nor is answered."""


class _State(msgspec.Struct, frozen=True):
    """All that the table holds, replaced whole by each commit. `rows`: per window key its staged pieces."""

    version: int = 0
    binding: Binding | None = None
    rows: dict[str, tuple[pa.Table, ...]] = {}
    committed: dict[Window, Committed] = {}


class MemorySink(InlineSink):
    """A table in this process; `fault` is what happens to the next commit. Safe under threads."""

    def __init__(self, name: str, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> None:
        super().__init__(f"memory:{name}", schema, metadata)
        self.fault: Fault | None = None
        self.conflicts = 0
        self._state = _State()
        self._lock = threading.Lock()

    def binding(self) -> Binding | None:
        """See `ports.sink.Sink.binding`."""
        return self._state.binding

    def prepare(self, binding: Binding) -> None:
        """See `ports.sink.Sink.prepare`; the columns are those of the constructor, and so never differ."""
        with self._lock:
            if self._state.binding is None:
                self._state = msgspec.structs.replace(self._state, binding=binding)
        refuse_other_binding(self.identity, self._state.binding or binding, binding)

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        """See `ports.sink.Sink.looks`."""
        return map(self._state.committed.get, windows)

    def receipts(self) -> Iterator[Committed]:
        """See `ports.sink.Sink.receipts`."""
        committed = self._state.committed
        return iter([committed[w] for w in sorted(committed)])

    def kept_rows(self) -> Mapping[str, Sequence[pa.Table]]:
        """See `sinks.inline.InlineSink.kept_rows`."""
        return self._state.rows

    def pieces(self) -> list[pa.Table]:
        """All rows that are visible, one table per staged piece, in the order in which they were staged."""
        return [piece for pieces in self._state.rows.values() for piece in pieces]

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """See `ports.sink.Sink.commit`."""
        while True:
            state = self._state
            if state.binding is None:
                raise RefusedError("the memory table isn't there", "commit", "Prepare it first.")
            committed = decide(receipt, Seen.among(receipt, self.identity, state.binding, state.committed.values()))
            if committed is not None:
                return AlreadyDone(committed)
            done = Committed(receipt, state.version + 1)
            stays = () if receipt.mending is None else state.rows.get(receipt.window.key, ())
            rows = state.rows | {receipt.window.key: (*stays, *(t for s in staged for t in tables(s.rows)))}
            new = _State(state.version + 1, state.binding, rows, state.committed | {receipt.window: done})
            crash_point("commit.before")
            fault = self._swap(state, new)
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


class MemoryDeadLetters:
    """Dead letters in this process, for any sink."""

    def __init__(self) -> None:
        self._binding: Binding | None = None
        self._attempts: dict[tuple[Window, str], tuple[pa.Table, ...]] = {}
        self._publications: dict[tuple[Window, str], Publication] = {}
        self._lock = threading.Lock()

    def refuse_unwritable(self) -> None:
        """See `ports.dead_letters.DeadLetters.refuse_unwritable`: it always can."""

    def prepare(self, binding: Binding) -> None:
        """See `ports.dead_letters.DeadLetters.prepare`."""
        with self._lock:
            self._binding = self._binding or binding
        refuse_other_binding("of dead letters in memory", self._binding, binding)

    def stager(self, plan: Plan, generation: int, attempt: str) -> InlineStagerFactory:
        """See `ports.dead_letters.DeadLetters.stager`."""
        return InlineStagerFactory(DeadLetterLayout(attempt, generation, plan.window.pipeline), plan.window.key)

    def commit(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        """See `ports.dead_letters.DeadLetters.commit`."""
        with self._lock:
            self._attempts.setdefault((plan.window, attempt), tuple(t for s in staged for t in tables(s.dead)))

    def read(self, window: Window, attempt: str, limit: int | None = None) -> pa.Table:
        """See `ports.dead_letters.DeadLetters.read`."""
        every = pa.concat_tables([DEAD_LETTERS.empty_table(), *self._attempts.get((window, attempt), ())])
        return every if limit is None else every.slice(0, limit)

    def attempts(self, wanted: Callable[[str], bool]) -> dict[str, str]:
        """See `ports.dead_letters.DeadLetters.attempts`."""
        return {window.key: attempt for (window, attempt), pieces in self._attempts.items() if pieces and wanted(window.key)}

    def count(self, window: Window, attempt: str) -> int:
        """See `ports.dead_letters.DeadLetters.count`."""
        return int(self.read(window, attempt).num_rows)

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.dead_letters.DeadLetters.contents`."""
        kept = [pieces for (of, _), pieces in self._attempts.items() if of == window]
        return (batch for pieces in kept for table in pieces for batch in table.to_batches())

    def publication(self, window: Window, attempt: str) -> Publication | None:
        """See `ports.dead_letters.DeadLetters.publication`."""
        return self._publications.get((window, attempt))

    def begin_publication(self, window: Window, attempt: str, now: datetime) -> datetime:
        """See `ports.dead_letters.DeadLetters.begin_publication`."""
        whole = now.replace(microsecond=now.microsecond // 1000 * 1000)
        with self._lock:
            return self._publications.setdefault((window, attempt), Publication(whole, done=False)).begun

    def end_publication(self, window: Window, attempt: str) -> None:
        """See `ports.dead_letters.DeadLetters.end_publication`."""
        with self._lock:
            self._publications[window, attempt] = self._publications[window, attempt]._replace(done=True)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """See `ports.dead_letters.DeadLetters.sweep`: what is staged lies nowhere."""
        del older_than, dry_run
        return []
