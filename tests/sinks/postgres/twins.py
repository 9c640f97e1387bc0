"""Broken twins of the PostgreSQL sink, each one step from the real one. A suite that can't tell them apart proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.sinks.postgres.world import PostgresBoth
from tests.sinks.things import ROWS
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import AlreadyDone, Done, Outcome
from windrow.ingest.sinks.decision import decide
from windrow.ingest.sinks.postgres import catalog
from windrow.ingest.sinks.postgres.server import Connection, TablePlace, begin, commit, connected
from windrow.ingest.sinks.postgres.stage import CopyFile, copy_in, staged_files


class RealSink(PostgresBoth):
    """The sink itself; another run gets its turn before its first look, and again after it as far as it gets there."""

    def __init__(self, place: TablePlace, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(place, ROWS)
        self.meanwhile = meanwhile

    def _commit(self, connection: Connection, receipt: Receipt, files: Sequence[CopyFile]) -> Outcome:
        turn, self.meanwhile = self.meanwhile, lambda: None
        turn()
        return super()._commit(connection, receipt, files)


class _Twin(PostgresBoth):
    """Looks, lets the other run in, writes."""

    def __init__(self, place: TablePlace, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(place, ROWS)
        self.meanwhile = meanwhile

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        files = staged_files(word for s in staged for word in s.rows)
        with connected(self.place.url) as connection:
            begin(connection)
            target = self._target(connection)
            found = decide(receipt, catalog.seen(connection, self.place, target, receipt))
            if found is not None:
                return AlreadyDone(found)
            self.meanwhile()
            copy_in(connection, self.place, target.columns, self._staged, files)
            self._put(connection, target, receipt)
            commit(connection)
        return Done(None)  # type: ignore[arg-type]

    def _target(self, connection: Connection) -> catalog.Target:
        """Without the lock."""
        seen = catalog.table_at(connection, self.place)
        assert seen is not None
        assert seen.target is not None
        return seen.target

    def _put(self, connection: Connection, target: catalog.Target, receipt: Receipt) -> None:
        raise NotImplementedError


class NoLock(_Twin):
    """The primary key alone: of one window only one run is committed, but two windows that overlap don't see each other."""

    def _put(self, connection: Connection, target: catalog.Target, receipt: Receipt) -> None:
        catalog.put_receipt(connection, self.place, target, receipt)


class LookThenWrite(_Twin):
    """No lock, and a receipt that takes the place of one that is there: both runs of a window are committed."""

    def _put(self, connection: Connection, target: catalog.Target, receipt: Receipt) -> None:
        connection.execute(self.place.query("DELETE FROM {receipts}"))
        connection.execute(self.place.query("DELETE FROM {ranges}"))
        catalog.put_receipt(connection, self.place, target, receipt)


class ReceiptBehindTheRows(_Twin):
    """Rows are committed first, their receipt by a second transaction: who dies in between leaves rows that nobody knows of."""

    crash: Callable[[], object] = staticmethod(lambda: None)

    def _put(self, connection: Connection, target: catalog.Target, receipt: Receipt) -> None:
        commit(connection)
        self.crash()
        begin(connection)
        catalog.put_receipt(connection, self.place, target, receipt)


class BlindRetry(PostgresBoth):
    """A commit without an answer is sent again as it was, without a look: into a window that it takes for empty."""

    def __init__(self, place: TablePlace, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(place, ROWS)
        del meanwhile

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Any:
        files = staged_files(word for s in staged for word in s.rows)
        with connected(self.place.url) as connection:
            begin(connection)
            target, _ = catalog.locked(connection, self.place)
            copy_in(connection, self.place, target.columns, self._staged, files)
            connection.execute(self.place.query("DELETE FROM {receipts}"))
            connection.execute(self.place.query("DELETE FROM {ranges}"))
            catalog.put_receipt(connection, self.place, target, receipt)
            commit(connection)
        return Done(None)  # type: ignore[arg-type]
