"""Broken stores in PostgreSQL. Each differs from the real one in one step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from windrow.ingest.sinks.kit.commit.table_store import Answer, TableChange
from windrow.ingest.sinks.postgres import catalog, server
from windrow.ingest.sinks.postgres.store import PostgresState, PostgresStore


class _NoLock(PostgresStore):
    STATE: type[PostgresState] = PostgresState

    @contextmanager
    def writing(self) -> Iterator[PostgresState | None]:
        with server.begin_write(self.table) as connection:
            catalog_table = catalog.find_table(connection, self.table)
            assert catalog_table is not None
            assert catalog_table.target is not None
            yield self.STATE(self, connection, catalog_table.target, catalog_table.columns)


class _Forgets(PostgresState):
    def put(self, change: TableChange) -> Answer:
        for table in ("receipts", "ranges"):
            query = self.location.query(f"DELETE FROM {{{table}}} WHERE window_key = %s")
            self.connection.execute(query, [change.window.key if change.window else ""])
        return super().put(change)


class _TakingThePlace(_NoLock):
    STATE = _Forgets


def locks_nothing(sink: Any) -> None:
    """Makes a sink that doesn't lock: the primary key protects one window, but two overlapping
    windows don't see each other.
    """
    sink.store.__class__ = _NoLock


def looks_then_writes(sink: Any) -> None:
    """Makes a sink that doesn't lock, and whose receipt replaces an existing one: both runs of
    a window commit.
    """
    sink.store.__class__ = _TakingThePlace
