"""Dead letters in a table of their own, committed before the data (`ports.dead_letters.DeadLetters`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from windrow.ingest.errors import OutcomeUnknownError, RefusedError
from windrow.ingest.model.binding import Binding
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Plan, Split
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.dead_letters import Publication
from windrow.ingest.sinks.columns import DEAD_FILE, DEAD_LETTERS
from windrow.ingest.sinks.postgres import catalog
from windrow.ingest.sinks.postgres.prepare import WantedTable, ensure
from windrow.ingest.sinks.postgres.read import rows
from windrow.ingest.sinks.postgres.server import Connection, Rollback, TablePlace, Unanswered, reading, transact
from windrow.ingest.sinks.postgres.stage import CopyFile, CopyFiles, PostgresStagerFactory, copy_in, staged_files
from windrow.ingest.sinks.postgres.unfit import refuse_unwritable
from windrow.ingest.sinks.rights import refuse_unwritable as refuse_unwritable_folder
from windrow.ingest.sinks.staging import DeadLetterLayout

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WINDOW = DEFAULT["window"]
_COLUMNS = DEAD_FILE.append(pa.field(_WINDOW, pa.string(), nullable=False))
_LETTERS, _PUBLISHING, _PUBLISHED = "letters", "publishing", "published"
_NUL_SHOWN = "\N{SYMBOL FOR NULL}"


class PostgresDeadLetters:
    """A table of dead letters, for any sink.

    Args:
        place: the table's.
        staging: where tasks keep letters until they are committed, as rows are (see `PostgresSink`).
    """

    def __init__(self, place: TablePlace, staging: str) -> None:
        self.place = place
        self._staged = CopyFiles(staging, place)

    def refuse_unwritable(self) -> None:
        """See `ports.dead_letters.DeadLetters.refuse_unwritable`."""
        refuse_unwritable_folder(self._staged.staging, "sink.staging")
        refuse_unwritable(self.place)

    def prepare(self, binding: Binding) -> None:
        """See `ports.dead_letters.DeadLetters.prepare`."""
        ensure(self.place, WantedTable(_COLUMNS, _WINDOW, at_once=True), binding)

    def stager(self, plan: Plan, generation: int, attempt: str) -> PostgresStagerFactory:
        """See `ports.dead_letters.DeadLetters.stager`."""
        return self._staged.stager(_Layout(attempt, generation, plan.window.pipeline), _WINDOW, plan.window.key)

    def commit(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        """See `ports.dead_letters.DeadLetters.commit`."""
        files = staged_files(word for s in staged for word in s.dead)
        if files:
            self._put(_LETTERS, plan.window, attempt, 1, files)
            self._staged.remove(files)

    def publication(self, window: Window, attempt: str) -> Publication | None:
        """See `ports.dead_letters.DeadLetters.publication`."""
        asked = "SELECT mark, value FROM {marks} WHERE target = %s AND window_key = %s AND attempt = %s"
        marks = dict(self._ask(asked, [window.key, attempt]))
        begun = marks.get(_PUBLISHING)
        return None if begun is None else Publication(_EPOCH + timedelta(milliseconds=begun), _PUBLISHED in marks)

    def begin_publication(self, window: Window, attempt: str, now: datetime) -> datetime:
        """See `ports.dead_letters.DeadLetters.begin_publication`."""
        millis = self._put(_PUBLISHING, window, attempt, (now - _EPOCH) // timedelta(milliseconds=1))
        return _EPOCH + timedelta(milliseconds=millis)

    def end_publication(self, window: Window, attempt: str) -> None:
        """See `ports.dead_letters.DeadLetters.end_publication`."""
        self._put(_PUBLISHED, window, attempt, 1)

    def attempts(self, wanted: Callable[[str], bool]) -> dict[str, str]:
        """See `ports.dead_letters.DeadLetters.attempts`."""
        asked = "SELECT window_key, attempt FROM {marks} WHERE target = %s AND mark = 'letters' ORDER BY number"
        return {key: attempt for key, attempt in self._ask(asked, []) if wanted(key)}

    def read(self, window: Window, attempt: str, limit: int | None = None) -> pa.Table:
        """See `ports.dead_letters.DeadLetters.read`; in the order of topic-partitions and offsets."""
        where = sql.SQL('WHERE "_window" = %s AND attempt = %s ORDER BY "_topic", "_partition", "_offset" LIMIT %s')
        return pa.Table.from_batches(self._rows(where, [window.key, attempt, limit]), DEAD_LETTERS)

    def count(self, window: Window, attempt: str) -> int:
        """See `ports.dead_letters.DeadLetters.count`.

        Raises:
            RefusedError: they are there, and their mark isn't.
        """
        with reading(self.place.url, "check") as connection:
            found = catalog.table_at(connection, self.place)
            if found is None:
                return 0
            asked = self.place.query('SELECT count(*) FROM {table} WHERE "_window" = %s AND attempt = %s')
            row = connection.execute(asked, [window.key, attempt]).fetchone()
            count = 0 if row is None else int(row[0])
            marked = found.target is None or catalog.mark(connection, self.place, found.target, window.key, attempt, _LETTERS) is not None
        if count and not marked:
            what = f"the dead letters of window {window.key} are there, and windrow's table of marks doesn't know them any more"
            raise RefusedError(what, "check", "Restore the schema windrow from a backup; or windrow replay writes the window's mark anew.")
        return count

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.dead_letters.DeadLetters.contents`."""
        for batch in self._rows(sql.SQL('WHERE "_window" = %s'), [window.key]):
            yield batch.select(DEAD_FILE.names)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """See `ports.dead_letters.DeadLetters.sweep`."""
        return self._staged.sweep(older_than, dry_run=dry_run)

    def _rows(self, where: sql.Composable, values: Sequence[object]) -> Iterator[pa.RecordBatch]:
        with reading(self.place.url, "check") as connection:
            if catalog.table_at(connection, self.place) is not None:
                yield from rows(connection, self.place, DEAD_LETTERS, where, values)

    def _ask(self, question: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        with reading(self.place.url) as connection:
            found = catalog.table_at(connection, self.place)
            if found is None or found.target is None:
                return []
            return connection.execute(self.place.query(question), [found.target.id, *values]).fetchall()

    def _put(self, mark: str, window: Window, attempt: str, value: int, files: Sequence[CopyFile] = ()) -> int:
        """Put a mark with a value, and staged letters with it, if it isn't there; the value that is there now.

        Raises:
            OutcomeUnknownError: it was sent and can't be told to have arrived.
        """

        def body(connection: Connection) -> int:
            target, _ = catalog.locked(connection, self.place)
            found = catalog.mark(connection, self.place, target, window.key, attempt, mark)
            if found is not None:
                raise Rollback(found)
            copy_in(connection, self.place, _COLUMNS, self._staged, files)
            catalog.put_mark(connection, self.place, target, window.key, attempt, mark, value)
            return value

        done = transact(self.place.url, body)
        if isinstance(done, Unanswered):
            what = f"whether {self.place} took what was sent of window {window.key} isn't known: {done.why}"
            raise OutcomeUnknownError(what, "commit", "Run the window again: it looks first.")
        return done.value


class _Layout(DeadLetterLayout, frozen=True):
    """Dead letters as a text of PostgreSQL can hold them: what is said of a message shows the character NUL as a symbol."""

    def batch(self, rows: pa.RecordBatch, messages: pa.RecordBatch, split: Split) -> pa.RecordBatch:
        """See `DeadLetterLayout.batch`."""
        whole = super().batch(rows, messages, split)
        shown = [pc.replace_substring(c, "\0", _NUL_SHOWN) if pa.types.is_string(c.type) else c for c in whole.columns]
        return pa.RecordBatch.from_arrays(shown, schema=whole.schema)
