"""PostgreSQL sinks with a recorder of each statement that a commit sends; see
`tests.protocols.traces`.

The statements of a run, and the steps of the model:

    UPDATE of the targets     lock, once no other run has it
    newest receipts           look
    COPY, INSERT of receipts  insert: one step, because no reader sees them before the commit. A
                              COPY is recorded only if it fails
    COMMIT, ROLLBACK          send_commit, end
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus

from tests.protocols.traces import Recorder
from tests.sinks.traced import Recorded
from windrow.ingest.errors import WindrowError
from windrow.ingest.model.codec import from_json
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Receipt, Staged
from windrow.ingest.ports.sink import Outcome
from windrow.ingest.sinks.postgres import server


class Run:
    """A run.

    Attributes:
        recorder: the recorder.
        who: the model's name of the run.
        window: key of the window that it commits.
        looked: True after the look.
    """

    def __init__(self, recorder: Recorder, who: str, window: str) -> None:
        self.recorder, self.who, self.window = recorder, who, window
        self.looked = False


HELD_UP = threading.Event()
"""Set when a run of this process finds the lock taken."""

_RUN: ContextVar[Run | None] = ContextVar("run")

_STEPS = {
    "SET commits = commits + 1": "lock",
    "SELECT coalesce(k.window_key": "look",
    '."receipts" (target, window_key, generation': "insert",
}


class RecordedCursor(psycopg.Cursor[Any]):
    """A cursor that records each statement that is a step."""

    def execute(self, query: Any, *args: Any, **more: Any) -> Any:
        run, text = (
            _RUN.get(None),
            (query.as_string(self.connection) if isinstance(query, sql.Composable) else str(query)),
        )
        name = (
            "send_commit"
            if text == "COMMIT"
            else next((name for words, name in _STEPS.items() if words in text), None)
        )
        if run is not None and name == "look" and (run.looked or run.window not in str(args)):
            # the look is at other windows, after the lock, or it is a second look
            name = None
        if run is not None and name in {"lock", "look"}:
            run.looked = name == "look"
        if run is None or name is None:
            return super().execute(query, *args, **more)
        if name == "lock":
            # the other runs go on meanwhile, so the lock is tried until no other run has it
            with run.recorder.step(run.who, name, once=lambda: self._locks(query, *args)) as reply:
                reply("ok")
            return self
        with run.recorder.step(run.who, name) as reply:
            try:
                done = super().execute(query, *args, **more)
            except psycopg.OperationalError:
                reply("unknown" if name == "send_commit" else "gone")
                raise
            reply(
                {"look": self._newest_attempt(run.window), "insert": "all", "send_commit": "ok"}[
                    name
                ]
            )
        return done

    @contextmanager
    def copy(self, *args: Any, **more: Any) -> Iterator[Any]:
        run = _RUN.get(None)
        try:
            with super().copy(*args, **more) as copy:
                yield copy
        except (WindrowError, psycopg.OperationalError) as error:
            if run is not None:
                with run.recorder.step(run.who, "insert") as reply:
                    reply("cut" if isinstance(error, WindrowError) else "gone")
            raise

    def _locks(self, query: Any, *args: Any) -> bool:
        try:
            with self.connection.transaction():
                super().execute("SET LOCAL lock_timeout = '20ms'")
                super().execute(query, *args)
        except psycopg.errors.LockNotAvailable:
            HELD_UP.set()
            return False
        return True

    def _newest_attempt(self, window: str) -> str | None:
        """Returns the attempt of the window's newest receipt, from the answer that was just
        received.
        """
        pg_result = self.pgresult
        if pg_result is None:
            return None
        rows = [
            (pg_result.get_value(n, 0), pg_result.get_value(n, 1)) for n in range(pg_result.ntuples)
        ]
        return next(
            (
                from_json(text.decode(), Receipt).attempt
                for key, text in rows
                if key and text and key.decode() == window
            ),
            None,
        )


class RecordedConnection(server.Connection):
    """A connection that records its rollback, if a transaction is open."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.cursor_factory = RecordedCursor

    def rollback(self) -> None:
        run = _RUN.get(None)
        if run is None or self.info.transaction_status not in {
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
        }:
            super().rollback()
            return
        with run.recorder.step(run.who, "end") as reply:
            super().rollback()
            reply(None)


def record_the_wire(patch: pytest.MonkeyPatch) -> None:
    """Records all later connections in this process."""
    patch.setattr(server, "Connection", RecordedConnection)


class RecordedPostgres(Recorded):
    """A mix-in before a sink, with or without a primary key."""

    def commit_dead(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        token = _RUN.set(None)  # a run that calls this one at its turn may be within its own commit
        try:
            super().commit_dead(plan, attempt, staged)
        finally:
            _RUN.reset(token)

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        token = _RUN.set(Run(self.recorder, self.who, receipt.window.key))
        try:
            return super().commit(receipt, staged)
        finally:
            _RUN.reset(token)
