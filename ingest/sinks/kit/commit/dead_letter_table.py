"""Dead letters as a second table over a store of any kind (`ports.dead_letters`).

An attempt's dead letters are put once, with a note that names their window, pipeline and
attempt. They have no receipt, overlap nothing and replace nothing: the sink's receipt names the
attempt that counts. So only the check is different from a window's commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import OutcomeUnknownError, OwnerError, RefusedError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Staged
from windrow.ingest.ports.sink import Maintained, Maintenance, StagerFactory
from windrow.ingest.sinks.kit.columns.table_columns import DEAD_LETTERS, fit_columns
from windrow.ingest.sinks.kit.commit.commit_loop import AlreadyWritten, run_commit_loop
from windrow.ingest.sinks.kit.commit.maintain import maintain
from windrow.ingest.sinks.kit.commit.pages import PagedState
from windrow.ingest.sinks.kit.commit.sweep import check_staged
from windrow.ingest.sinks.kit.commit.table_store import (
    TableChange,
    TableState,
    TableStore,
    Unanswered,
)
from windrow.ingest.sinks.kit.commit.window_table import is_fit, prepare, relist
from windrow.ingest.sinks.kit.files.file_stager import DeadLetterLayout

NoteKind = Literal["dead", "expired", "published"]

COLUMNS = DEAD_LETTERS.set(
    len(DEAD_LETTERS) - 1, pa.field(DEFAULT["window"], pa.string(), nullable=False)
)
"""All columns of the table. The window's column is last."""


class DeadLetterTable:
    """A table of dead letters (`ports.dead_letters.DeadLetters`), over any store.

    Args:
        store: the store of the dead letters, not that of the rows.
    """

    def __init__(self, store: TableStore) -> None:
        self.store = store

    def refuse_unwritable(self) -> None:
        self.store.check_write()

    def refuse_other(self, owner: TableOwner) -> None:
        with self._advising():
            is_fit(self.store, COLUMNS, owner)

    def prepare(self, owner: TableOwner) -> None:
        with self._advising():
            prepare(self.store, COLUMNS, owner)

    @contextmanager
    def _advising(self) -> Iterator[None]:
        """Gives an owner's error the advice for dead letters.

        The table of rows belongs to the pipeline. Only the table of dead letters belongs to
        another.
        """
        try:
            yield
        except OwnerError as error:
            error.advice = (
                "It has the dead letters of another table. If that is gone, move"
                f" {self.store.location} away (in a database, rename it), and run this again. Else"
                " let the sink of the spec name another path (of kafka, another staging)."
            )
            raise

    def stager(self, plan: Plan, generation: int, attempt: str) -> StagerFactory:
        layout = DeadLetterLayout(attempt, generation, plan.window.pipeline)
        return self.store.stager(layout, plan.window)

    def commit(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        committables = tuple(committable for s in staged for committable in s.dead)
        if committables:
            self._put("dead", plan.window, attempt, committables)

    def restore(self, *, dry_run: bool) -> bool:
        with self.store.reading() as state:
            if not isinstance(state, PagedState) or not state.is_lost:
                return False
            version, names = state.version, [DEFAULT["window"], "pipeline", "attempt"]
            read = (batch.select(names).to_pylist() for batch in state.scan(None, names))
            attempts = {tuple(row.values()) for rows in read for row in rows}
        if not dry_run:
            relist(
                self.store,
                version,
                (),
                {_name("dead", *attempt_key): 0 for attempt_key in attempts},
            )
        return True

    def is_published(self, window: Window, attempt: str) -> bool:
        with self.store.reading() as state:
            return state is not None and state.note(note("published", window, attempt)) is not None

    def note_published(self, window: Window, attempt: str) -> None:
        self._put("published", window, attempt)

    def expire(self, window: Window, attempt: str) -> bool:
        name = note("expired", window, attempt)

        def find_outcome(state: TableState) -> bool | None:
            if state.note(name) is not None:
                return True
            newest = self._newest_attempts(state, lambda key: key == window.key)
            return None if newest == {window.key: attempt} else False

        def remove(state: TableState) -> TableChange:
            return TableChange(window=window, replaces=True, notes={name: state.version + 1})

        done = run_commit_loop(self.store, find_outcome, remove)
        if isinstance(done, Unanswered):
            raise OutcomeUnknownError.of(f"to {self.store.location}", done.reason)
        return not isinstance(done, AlreadyWritten) or done.value

    def is_expired(self, window: Window, attempt: str) -> bool:
        with self.store.reading() as state:
            return state is not None and state.note(note("expired", window, attempt)) is not None

    def _put(
        self, kind: NoteKind, window: Window, attempt: str, committables: tuple[str, ...] = ()
    ) -> None:
        """Puts a note, with files, unless the table has the note.

        The note's value is the table's version, which orders the attempts.

        Raises:
            OutcomeUnknownError: the note was sent, and it is unknown whether it arrived.
        """
        name = note(kind, window, attempt)

        def on(state: TableState) -> TableChange:
            check_staged(self.store, state, committables)
            notes = {name: state.version + 1}
            if not committables:
                return TableChange(notes=notes)
            return TableChange(window=window, staged=committables, notes=notes, columns=COLUMNS)

        done = run_commit_loop(self.store, lambda state: state.note(name), on)
        if isinstance(done, Unanswered):
            raise OutcomeUnknownError.of(f"to {self.store.location}", done.reason)
        if self.store.staged is not None:
            self.store.staged.remove_consumed(committables)

    @staticmethod
    def window_of_note(name: str, kind: NoteKind) -> tuple[str, str] | None:
        """Returns the window's key and the attempt in a note's name.

        None for a note of another kind.
        """
        try:
            note_kind, key, _, attempt = msgspec.json.decode(name, type=tuple[str, str, str, str])
        except msgspec.DecodeError:
            return None
        return (key, attempt) if note_kind == kind else None

    def attempts(self, key_filter: Callable[[str], bool]) -> dict[str, str]:
        with self.store.reading() as state:
            return {} if state is None else self._newest_attempts(state, key_filter)

    def _newest_attempts(
        self, state: TableState, key_filter: Callable[[str], bool]
    ) -> dict[str, str]:
        """Returns the newest attempt that left dead letters of each window, by the window's key."""
        newest: dict[str, str] = {}
        for name, _ in sorted(state.notes().items(), key=lambda named_version: named_version[1]):
            window_note = self.window_of_note(name, "dead")
            if window_note is not None and key_filter(window_note[0]):
                newest[window_note[0]] = window_note[1]
        return newest

    def read(self, window: Window, attempt: str, limit: int | None = None) -> pa.Table:
        parts, rows = [DEAD_LETTERS.empty_table()], 0
        for batch in self.contents(window):
            all_letters = fit_columns(batch, DEAD_LETTERS)
            attempt_letters = all_letters.filter(pc.equal(all_letters["attempt"], attempt))
            parts.append(pa.Table.from_batches([attempt_letters]))
            rows += attempt_letters.num_rows
            if limit is not None and rows >= limit:
                break
        letters = pa.concat_tables(parts)
        return letters if limit is None else letters.slice(0, limit)

    def count(self, window: Window, attempt: str) -> int:
        with self.store.reading() as state:
            if state is None:
                return 0
            scanned = state.scan(window, ["attempt"])
            attempt_columns = (batch["attempt"].cast(pa.string()) for batch in scanned)
            count = sum(
                pc.sum(pc.equal(attempts, attempt)).as_py() or 0 for attempts in attempt_columns
            )
            if count and state.note(note("dead", window, attempt)) is None:
                where = f"dead letters of window {window.key} are in {self.store.location}"
                raise RefusedError(
                    f"{where}, and the note of their commit isn't",
                    "check",
                    "Restore windrow's own files or tables of that table; or run windrow replay,"
                    " which notes them.",
                )
            return count

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        with self.store.reading() as state:
            if state is not None:
                yield from state.scan(window)

    def maintain(self, settings: Maintenance, *, dry_run: bool = False) -> Maintained:
        return maintain(self.store, settings, dry_run=dry_run)


def note(kind: NoteKind, window: Window, attempt: str) -> str:
    """Returns the name of a note about an attempt's dead letters.

    It is JSON, so different notes never have the same name.
    """
    return _name(kind, window.key, window.pipeline, attempt)


def _name(kind: NoteKind, *parts: str) -> str:
    return msgspec.json.encode([kind, *parts]).decode()
