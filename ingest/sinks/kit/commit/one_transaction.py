"""Commits a window to several tables of one database in one transaction.

1. Open a transaction, and lock all tables in it.
2. Write the rows and the receipt of each table.
3. COMMIT.

All tables together are one table for the commit loop (`commit_loop.run_commit_loop`). So a COMMIT
without an answer is followed by a look, which shows whether it arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.model.receipt import Committed, Receipt, Staged
from windrow.ingest.ports.sink import AlreadyDone, Done, Outcome, Sink
from windrow.ingest.sinks.kit.commit.commit_loop import run_commit_loop, table_gone_error
from windrow.ingest.sinks.kit.commit.table_store import (
    Answer,
    DatabaseState,
    DatabaseStore,
)
from windrow.ingest.sinks.kit.commit.window_table import ReceiptTable, WindowTable


class OpenTable(ReceiptTable):
    """A table in an open transaction. Its commits become visible with the transaction."""

    def __init__(self, table: WindowTable, state: DatabaseState) -> None:
        self.table, self.state, self.identity = table, state, table.identity

    @contextmanager
    def reading(self) -> Iterator[DatabaseState]:
        yield self.state

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        committed = self.table.committed_in(self.state, receipt)
        if committed is not None:
            return AlreadyDone(committed, 0)
        written = self.state.write(self.table.change_for(self.state, receipt, staged))
        return Done(Committed(written or receipt, self.state.version + 1), 1)


Commit = Callable[[Sequence[Sink]], Outcome]
"""Writes a window to the tables of an open transaction; returns the outcome for the last one.

The tables are of the class `OpenTable`, which has the methods that a commit needs.
"""


class OneTransaction:
    """The tables of one database, as one table of the commit loop (`commit_loop.Writable`).

    Args:
        tables: the tables. The last one has the window's own receipt.
    """

    def __init__(self, tables: Sequence[WindowTable]) -> None:
        self._tables, last_store = tables, tables[-1].store
        self.location, self.waits = last_store.location, last_store.waits

    def commit(self, receipt: Receipt, commit: Commit) -> Outcome:
        """Commits a window to all tables, or to none.

        Raises:
            RefusedError: a table refuses the window.
        """
        done = run_commit_loop(
            self, lambda opened: opened.committed_in_last(receipt), lambda _opened: commit
        )
        return done.outcome_for(receipt)

    @contextmanager
    def writing(self) -> Iterator[OpenTables]:
        stores = [table.store for table in self._tables]
        with cast("DatabaseStore", stores[0]).writing_all(stores) as states:
            opened = []
            for table, state in zip(self._tables, states, strict=True):
                if state is None:
                    raise table_gone_error(table.store)
                opened.append(OpenTable(table, state))
            yield OpenTables(opened)


class OpenTables:
    """Tables in an open transaction (`commit_loop.Puttable`)."""

    def __init__(self, tables: Sequence[OpenTable]) -> None:
        self._tables = tables
        self.version = sum(table.state.version for table in tables)

    def committed_in_last(self, receipt: Receipt) -> Committed | None:
        last_table = self._tables[-1]
        return last_table.table.committed_in(last_table.state, receipt)

    def put(self, commit: Commit) -> Answer:
        outcome = commit(cast("Sequence[Sink]", self._tables))
        crash_point("commit.before")
        answer = self._tables[-1].state.commit(cast("Done", outcome).committed.receipt)
        crash_point("commit.after")
        return answer


def find_transaction(sinks: Sequence[Sink]) -> OneTransaction | None:
    """Returns the transaction of sinks that are tables of one database; None if they aren't."""
    tables = [
        sink
        for sink in sinks
        if isinstance(sink, WindowTable) and isinstance(sink.store, DatabaseStore)
    ]
    databases = [cast("DatabaseStore", table.store).database for table in tables]
    is_one = len(tables) == len(sinks) and databases.count(databases[0]) == len(databases)
    return OneTransaction(tables) if is_one else None
