"""Broken twins of the PostgreSQL sink, each one step from the real one.

A suite that can't tell them apart proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tests.sinks.hooks import before_look
from tests.sinks.postgres.world import PostgresBoth
from tests.sinks.things import ROWS
from windrow.ingest.sinks.postgres import catalog, server
from windrow.ingest.sinks.postgres.server import TablePlace
from windrow.ingest.sinks.postgres.store import PostgresState, PostgresStore
from windrow.ingest.sinks.table_store import Answer, TableChange


def real(place: TablePlace, meanwhile: Callable[[], object] = lambda: None) -> Any:
    """The sink itself; another run gets its turn before its first look: behind that it
    waits for the lock.
    """
    sink = PostgresBoth(place, ROWS)
    before_look(sink, meanwhile)
    return sink


class _State(PostgresState):
    """Lets the other run in between the look and the put."""

    _store: _Store

    def put(self, change: TableChange) -> Answer:
        self._store.meanwhile()
        self.forget(change)
        return super().put(change)

    def forget(self, change: TableChange) -> None:
        """Take out what would refuse the put."""


class _Store(PostgresStore):
    """Takes no lock."""

    STATE: type[_State] = _State
    meanwhile: Callable[[], object] = staticmethod(lambda: None)
    crash: Callable[[], object] = staticmethod(lambda: None)

    @contextmanager
    def writing(self) -> Iterator[PostgresState | None]:
        with server.writing(self.table.url) as connection:
            found = catalog.table_at(connection, self.table)
            assert found is not None
            assert found.target is not None
            yield self.STATE(self, connection, found.target, found.columns)


class NoLock(PostgresBoth):
    """The primary key alone: of one window only one run is committed, but two windows
    that overlap don't see each other.
    """

    STORE = _Store
    store: _Store

    def __init__(self, place: TablePlace, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(place, ROWS)
        self.store.meanwhile = meanwhile


class _Forgets(_State):
    def forget(self, change: TableChange) -> None:
        for table in ("receipts", "ranges"):
            asked = self.place.query(f"DELETE FROM {{{table}}} WHERE window_key = %s")
            self.connection.execute(asked, [change.window.key if change.window else ""])


class _TakingThePlace(_Store):
    STATE = _Forgets


class LookThenWrite(NoLock):
    """No lock, and a receipt that takes the place of one that is there: both runs of a
    window are committed.
    """

    STORE = _TakingThePlace


class _SeesNothing(_Forgets):
    """Takes every window for one that isn't there."""

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[Any]:
        return iter(()) if keys is not None else super().receipts()

    def overlapping(self, ranges: object) -> set[str]:
        return set()

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        return set()


class _Blind(_Store):
    STATE = _SeesNothing


class BlindRetry(NoLock):
    """A commit without an answer is sent again as it was, without a look: into a window
    that it takes for empty.
    """

    STORE = _Blind


class _RowsFirst(_State):
    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        return set()

    def put(self, change: TableChange) -> Answer:
        super().put(msgspec.structs.replace(change, receipt=None))
        self._store.crash()
        server.begin(self.connection)
        return super().put(TableChange(change.window, receipt=change.receipt))


class _Behind(_Store):
    STATE = _RowsFirst


class ReceiptBehindTheRows(NoLock):
    """Rows are committed first, their receipt by a second transaction: who dies in
    between leaves rows that nobody knows of.
    """

    STORE = _Behind
