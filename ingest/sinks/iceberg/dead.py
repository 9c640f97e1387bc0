"""Dead letters in an Iceberg table of their own, committed before the data (`ports.dead_letters.DeadLetters`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.binding import Binding
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.dead_letters import Publication
from windrow.ingest.sinks.columns import DEAD_FILE, DEAD_LETTERS
from windrow.ingest.sinks.gone import refuse_gone
from windrow.ingest.sinks.iceberg.at import TableAt
from windrow.ingest.sinks.iceberg.catalogs import WAITS, load
from windrow.ingest.sinks.iceberg.contents import rows_of
from windrow.ingest.sinks.iceberg.janitor import sweep
from windrow.ingest.sinks.iceberg.names import note, window_of
from windrow.ingest.sinks.iceberg.prepare import LakeColumns, ensure, evolved
from windrow.ingest.sinks.iceberg.stage import IcebergStagerFactory, LakeFile, staged_files
from windrow.ingest.sinks.iceberg.table import TRIES, LakeState, LakeTable, LakeWriting, stagers, waits_again
from windrow.ingest.sinks.rights import refuse_unwritable
from windrow.ingest.sinks.staging import DeadLetterLayout

_WINDOW = DEFAULT["window"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WANTED = LakeColumns.of(DEAD_FILE, _WINDOW)


class IcebergDeadLetters:
    """A table of dead letters, for any sink.

    Args:
        at: the table.
    """

    def __init__(self, at: TableAt) -> None:
        self.at = at
        self._lake = LakeTable(at, _WINDOW)

    def refuse_unwritable(self) -> None:
        """See `ports.dead_letters.DeadLetters.refuse_unwritable`."""
        if self.at.warehouse:
            refuse_unwritable(self.at.warehouse, "sink.warehouse")
        else:
            load(self.at)

    def prepare(self, binding: Binding) -> None:
        """See `ports.dead_letters.DeadLetters.prepare`."""
        ensure(self._lake, _WANTED, binding)

    def stager(self, plan: Plan, generation: int, attempt: str) -> IcebergStagerFactory:
        """See `ports.dead_letters.DeadLetters.stager`."""
        table = self._lake.look_now().table
        layout = DeadLetterLayout(attempt, generation, plan.window.pipeline)
        return stagers(self.at, table, layout, _WANTED.files(table), plan.window.key)

    def commit(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        """Add an attempt's files once, noted by (pipeline, window, attempt).

        Raises:
            OutcomeUnknownError: it was sent and can't be told to have arrived.
        """
        files = staged_files(word for s in staged for word in s.dead)
        if files:
            self._put(note("dead", plan.window, attempt), None, plan.window.key, files)

    def publication(self, window: Window, attempt: str) -> Publication | None:
        """See `ports.dead_letters.DeadLetters.publication`."""
        state = self._lake.look()
        begun = None if state is None else state.pages.note(note("publishing", window, attempt))
        if state is None or begun is None:
            return None
        return Publication(_EPOCH + timedelta(milliseconds=begun), state.pages.note(note("published", window, attempt)) is not None)

    def begin_publication(self, window: Window, attempt: str, now: datetime) -> datetime:
        """See `ports.dead_letters.DeadLetters.begin_publication`."""
        millis = self._put(note("publishing", window, attempt), (now - _EPOCH) // timedelta(milliseconds=1), window.key)
        return _EPOCH + timedelta(milliseconds=millis)

    def end_publication(self, window: Window, attempt: str) -> None:
        """See `ports.dead_letters.DeadLetters.end_publication`."""
        self._put(note("published", window, attempt), 1, window.key)

    def _put(self, name: str, value: int | None, key: str, files: Sequence[LakeFile] = ()) -> int:
        """Put a note, and a window's files with it, if it isn't there; what is noted now. None stands for the commit's own number.

        Raises:
            OutcomeUnknownError: it was sent and can't be told to have arrived.
        """
        waits, tries, why = list(WAITS), iter(range(TRIES)), ""
        while True:
            try:
                state = self._lake.look_now()
                found = state.pages.note(name)
                if found is not None:
                    return found
                noted = state.number + 1 if value is None else value
                ready = self._lake.prepared(state, self._writing(state, name, noted, key, files))
            except UnreachableError as error:
                raise (self._lake.unknown(str(error)) if why else error) from error
            failed = self._lake.attempt(ready.send)
            if failed is None:
                return noted
            why = failed
            if not waits_again(why, waits, tries, time.sleep):
                raise self._lake.unknown(why)

    def _writing(self, state: LakeState, name: str, noted: int, key: str, files: Sequence[LakeFile]) -> LakeWriting:
        refuse_gone(state.place, files, state.swept)
        become = evolved(self.at.place, state.table, _WANTED, files)
        return LakeWriting(key, files, schema=become.schema if become.changes else None, notes={name: noted})

    def attempts(self, wanted: Callable[[str], bool]) -> dict[str, str]:
        """See `ports.dead_letters.DeadLetters.attempts`."""
        state = self._lake.look()
        notes = {} if state is None else state.pages.notes()
        left = [(when, said) for name, when in notes.items() if (said := window_of(name, "dead")) is not None]
        return {key: attempt for _, (key, attempt) in sorted(left) if wanted(key)}

    def read(self, window: Window, attempt: str, limit: int | None = None) -> pa.Table:
        """See `ports.dead_letters.DeadLetters.read`; in the order of their files."""
        batches, left = [], limit
        for batch in self._of(window, attempt):
            batches.append(batch if left is None else batch.slice(0, left))
            left = None if left is None else left - batches[-1].num_rows
            if left == 0:
                break
        return pa.Table.from_batches(batches, schema=DEAD_LETTERS)

    def count(self, window: Window, attempt: str) -> int:
        """See `ports.dead_letters.DeadLetters.count`."""
        return sum(int(pc.sum(_mine(batch, attempt)).as_py() or 0) for batch in self._rows(window, ["attempt"]))

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.dead_letters.DeadLetters.contents`."""
        return self._rows(window)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """See `ports.dead_letters.DeadLetters.sweep`."""
        return sweep(self._lake, older_than, dry_run=dry_run)

    def _of(self, window: Window, attempt: str) -> Iterator[pa.RecordBatch]:
        for batch in self._rows(window):
            mine = batch.filter(_mine(batch, attempt))
            arrays = [
                mine.column(f.name).cast(f.type) if f.name in mine.schema.names else pa.nulls(mine.num_rows, f.type) for f in DEAD_LETTERS
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=DEAD_LETTERS)

    def _rows(self, window: Window, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        state = self._lake.look()
        if state is not None:
            yield from rows_of(state, state.tasks(_WINDOW, window.key), columns)


def _mine(batch: pa.RecordBatch, attempt: str) -> pa.BooleanArray:
    return pc.equal(batch.column("attempt").cast(pa.string()), attempt).fill_null(False)
