"""An Iceberg table for the tests: with its dead letters at hand, in a folder with a catalog of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.beside import WithDeadLetters
from tests.sinks.things import ROWS
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.sinks.iceberg.at import TableAt
from windrow.ingest.sinks.iceberg.columns import Evolve
from windrow.ingest.sinks.iceberg.contents import rows_of
from windrow.ingest.sinks.iceberg.dead import IcebergDeadLetters
from windrow.ingest.sinks.iceberg.sink import IcebergSink

TABLE = "shop.orders"
LOCKS_BETWEEN = True
"""Whoever is stopped right in the transaction of the catalog's SQLite holds its lock."""


class IcebergBoth(WithDeadLetters, IcebergSink):
    """With dead letters in a table beside it."""

    def __init__(self, at: TableAt, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT, evolve: Evolve = "add_columns") -> None:
        super().__init__(at, schema, metadata, evolve)
        self.dead_letters = IcebergDeadLetters(at.dead())


def sink_at(place: str) -> Any:
    """The table in a folder, as another process opens it."""
    return IcebergBoth(TableAt.in_folder(place, TABLE), ROWS)


def pieces(sink: Any) -> list[pa.Table]:
    """All visible rows, one table per data file, in the order in which they lie in it."""
    state = sink._lake.look()
    if state is None:
        return []
    return [pa.Table.from_batches(list(rows_of(state, [task]))) for task in state.every_task()]


def staged_paths(sink: Any) -> set[Path]:
    """All staged files of a table on this disk, committed or not, and those that are still drafts."""
    return set(Path(sink._lake.look().place._uri.removeprefix("file://"), "data/windrow").rglob("*.parquet*"))


def _own_retry(place: str) -> Any:
    """PyIceberg's own commit, with the crash point between look and write."""
    from tests.sinks.iceberg.twins import OwnRetry

    return OwnRetry(place, ROWS, partial(crash_point, "commit.before"))


TWINS: dict[str, Callable[[str], Any]] = {"own-retry": _own_retry}
