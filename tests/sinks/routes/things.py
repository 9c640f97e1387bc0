"""Several tables as one sink, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.sqlite.world import SqliteBoth
from tests.sinks.sqlite.world import pieces as sqlite_pieces
from tests.sinks.with_dead_letters import DeltaSink, WithDeadLetters
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.sinks.kinds import delta_dead_letters
from windrow.ingest.sinks.routes.sink import RoutedSink
from windrow.ingest.sinks.routes.stage import By, Rule
from windrow.ingest.testing.sink import MemoryDeadLetters, MemorySink

FIRST = Rule(values=tuple(f"{p}-{o}" for p in (0, 1) for o in range(0, 1000, 4)))
SECOND = Rule(pattern=".*[13579]")
"""Of the messages of `tests.sinks.things` every fourth goes into the first table, what
is odd into the second, the rest into the last.
"""


class RoutedBoth(WithDeadLetters, RoutedSink):
    """With the dead letters beside them, and the tables themselves at hand."""

    def __init__(
        self,
        routes: Sequence[tuple[Rule, Any]],
        other: Any,
        dead: DeadLetters,
        rows: pa.Schema,
        metadata: Mapping[str, str],
        again: Callable[[], RoutedBoth] | None = None,
    ) -> None:
        by: By = "column" if "id" in rows.names else "topic"
        super().__init__(by, "id", routes, other, rows, metadata)
        self.tables, self.other, self.dead_letters = [table for _, table in routes], other, dead
        self.schema = rows
        self._again = again

    def again(self) -> RoutedBoth:
        assert self._again is not None
        return self._again()


def in_memory(place: Path, rows: pa.Schema, metadata: Mapping[str, str]) -> RoutedBoth:
    """Three tables in this process."""
    first, second, other = (
        MemorySink(f"{place}/{name}", rows, metadata) for name in ("first", "second", "other")
    )
    return RoutedBoth(
        [(FIRST, first), (SECOND, second)], other, MemoryDeadLetters(), rows, metadata
    )


def of_two_kinds(
    place: Path, rows: pa.Schema, metadata: Mapping[str, str], kind: type[RoutedBoth] = RoutedBoth
) -> RoutedBoth:
    """On disk: one of them of another kind. `kind`: of the sink over all of them."""
    place.mkdir(exist_ok=True)
    first, other = (
        DeltaSink(str(place / "first"), rows, metadata),
        DeltaSink(str(place / "orders"), rows, metadata),
    )
    second = SqliteBoth(str(place / "second.sqlite"), rows, metadata)
    dead = delta_dead_letters(other.uri)
    routes = [(FIRST, first), (SECOND, second)]
    return kind(
        routes, other, dead, rows, metadata, lambda: of_two_kinds(place, rows, metadata, kind)
    )


def pieces(sink: RoutedBoth) -> list[pa.Table]:
    """All visible rows of all tables, as the checker wants them."""
    return [piece for table in (*sink.tables, sink.other) for piece in _pieces(table)]


def _pieces(table: Any) -> list[pa.Table]:
    if isinstance(table, DeltaSink):
        return delta_pieces(table.uri) if table.owner() is not None else []
    return sqlite_pieces(table) if isinstance(table, SqliteBoth) else table.pieces()
