"""Several tables with one receipt, for tests: in memory; or two Delta tables and one of SQLite,
in a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.memory import MemoryWorld
from tests.sinks.postgres.world import PostgresBoth
from tests.sinks.postgres.world import pieces as postgres_pieces
from tests.sinks.sqlite.world import SqliteBoth, SqliteWorld
from tests.sinks.traced import take_turn_before
from tests.sinks.with_dead_letters import DeltaSink
from tests.sinks.world import POINTS, SinkWorld
from windrow.ingest.crashpoints import CrashPoint, crash_point
from windrow.ingest.model.receipt import Receipt, Staged
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.sink import Done, Outcome
from windrow.ingest.sinks.kind import delta_dead_letters
from windrow.ingest.sinks.kit.commit.table_store import Unanswered
from windrow.ingest.sinks.routes.parts import parts_for, staged_for
from windrow.ingest.sinks.routes.sink import RoutedSink
from windrow.ingest.sinks.routes.stage import By, Router, Rule
from windrow.ingest.testing.contracts.commit_hooks import answer_puts
from windrow.ingest.testing.contracts.with_dead_letters import WithDeadLetters
from windrow.ingest.testing.sink import MemoryDeadLetters, MemorySink

FIRST = Rule(values=tuple(f"{p}-{o}" for p in (0, 1) for o in range(0, 1000, 4)))
SECOND = Rule(pattern=".*[13579]")
"""The second table's rule.

Every fourth message of the suites goes to the first table, odd ones to the second, the rest to
the last.
"""


class RoutedBoth(WithDeadLetters, RoutedSink):
    """A routed sink with its tables and dead letters."""

    def __init__(
        self,
        routes: Sequence[tuple[Rule, Any]],
        last_sink: Any,
        dead: DeadLetters,
        rows: pa.Schema,
        metadata: Mapping[str, str],
    ) -> None:
        routed_by: By = "column" if "id" in rows.names else "topic"
        router = Router(routed_by, "id", tuple(rule for rule, _ in routes))
        super().__init__(router, [*(table for _, table in routes), last_sink], rows, metadata)
        self.tables, self.other, self.dead_letters = [table for _, table in routes], last_sink, dead
        self.schema, self.store = rows, last_sink.store  # its store writes the receipts


def in_memory(folder: Path, rows: pa.Schema, metadata: Mapping[str, str]) -> RoutedBoth:
    """Returns three tables in memory."""
    first, second, last_sink = (
        MemorySink(f"{folder}/{name}", rows, metadata) for name in ("first", "second", "other")
    )
    return RoutedBoth(
        [(FIRST, first), (SECOND, second)], last_sink, MemoryDeadLetters(), rows, metadata
    )


def of_two_kinds(folder: Path, rows: pa.Schema, metadata: Mapping[str, str]) -> RoutedBoth:
    """Returns three tables on disk: Delta, SQLite, Delta."""
    folder.mkdir(parents=True, exist_ok=True)
    first, last_sink = (
        DeltaSink(str(folder / "first"), rows, metadata),
        DeltaSink(str(folder / "orders"), rows, metadata),
    )
    second = SqliteBoth(str(folder / "second.sqlite"), rows, metadata)
    dead = delta_dead_letters(last_sink.uri)
    routes = [(FIRST, first), (SECOND, second)]
    return RoutedBoth(routes, last_sink, dead, rows, metadata)


def pieces(sink: RoutedBoth) -> list[pa.Table]:
    """Returns all visible rows of all tables, in pieces for the checker."""
    return [piece for table in (*sink.tables, sink.other) for piece in _pieces(table)]


def _pieces(table: Any) -> list[pa.Table]:
    if isinstance(table, DeltaSink):
        return delta_pieces(table.uri) if table.owner() is not None else []
    if isinstance(table, PostgresBoth):
        return postgres_pieces(table)
    return SqliteWorld().pieces(table) if isinstance(table, SqliteBoth) else table.pieces()


class WindowFirst(RoutedBoth):
    """A broken twin that writes the window's receipt before the other tables' rows."""

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        committed = self._default_sink.look(receipt.window)
        outcome = self._default_sink.commit(
            receipt, staged_for(parts_for(self._default_sink.identity, staged), staged)
        )
        crash_point("commit.between")
        for table in self._tables if isinstance(outcome, Done) else ():
            self._commit_to(table, receipt, staged, committed)
        return outcome


def window_first(sink: Any) -> None:
    """Makes an opened sink the broken twin."""
    sink.__class__ = WindowFirst


class InMemoryWorld(MemoryWorld):
    """Three tables in memory."""

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return in_memory(Path(location), rows, metadata)

    def pieces(self, sink: Any) -> list[pa.Table]:
        return pieces(sink)

    def let_overtake(self, sink: Any, turn: Callable[[], object]) -> None:
        take_turn_before(sink.tables[0], "commit", turn)

    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        sink.other.store.fault = "unknown"
        return nullcontext()


class RoutesWorld(SinkWorld):
    """A Delta table, a table of SQLite, and another Delta table for the rest."""

    twins = (window_first,)
    points = (*POINTS, "commit.between")
    race_point: CrashPoint = "commit.between"
    arrived = ("report.before",)
    """Points after the whole commit.

    A run that dies at commit.after has committed only to the first table.
    """
    locks_between = True
    """True, because a run that is stopped in a transaction of the SQLite table keeps its lock."""

    def new_location(self, folder: Path, server: Any) -> str:
        del server
        return str(folder / "tables")

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return of_two_kinds(Path(location), rows, metadata)

    def pieces(self, sink: Any) -> list[pa.Table]:
        return pieces(sink)

    def let_overtake(self, sink: Any, turn: Callable[[], object]) -> None:
        take_turn_before(sink.tables[0], "commit", turn)

    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        answer_puts(sink.other, (Unanswered("connection reset"), True))
        return nullcontext()
