"""An Iceberg table for the tests: with its dead letters at hand, in a folder with a
catalog of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.things import ROWS
from tests.sinks.with_dead_letters import WithDeadLetters
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.dead_letter_table import DeadLetterTable
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.contents import read_files
from windrow.ingest.sinks.iceberg.stage import STAGED
from windrow.ingest.sinks.iceberg.store import IcebergState, IcebergStore
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.window_table import WindowTable

TABLE = "shop.orders"
LOCKS_BETWEEN = True
"""Whoever is stopped right in the transaction of the catalog's SQLite holds its lock."""


class IcebergBoth(WithDeadLetters, WindowTable):
    """With dead letters in a table beside it."""

    store: IcebergStore

    def __init__(
        self,
        at: CatalogTable,
        schema: pa.Schema,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
    ) -> None:
        super().__init__(IcebergStore(at, metadata, evolve), schema)
        letters = IcebergStore(at.dead(), DEFAULT)
        self.dead_letters = DeadLetterTable(letters)

    @property
    def at(self) -> CatalogTable:
        """Where the table is."""
        return self.store.at


def sink_at(place: str) -> Any:
    """The table in a folder, as another process opens it."""
    return IcebergBoth(CatalogTable.in_folder(place, TABLE), ROWS)


def state_of(sink: Any) -> IcebergState:
    """The newest state of a sink's table, or of its dead letters'."""
    with sink.store.reading() as state:
        assert isinstance(state, IcebergState)
        return state


def pieces(sink: Any) -> list[pa.Table]:
    """All visible rows, one table per data file, in the order in which they lie in it."""
    with sink.store.reading() as state:
        tasks = [] if state is None else state.tasks()
        return [pa.Table.from_batches(list(read_files(state.table, [task]))) for task in tasks]


def folder_of(sink: Any) -> Path:
    """The folder of a table on this disk."""
    return Path(state_of(sink).table.metadata.location.removeprefix("file://"))


def staged_paths(sink: Any) -> set[Path]:
    """All staged files of a table on this disk, committed or not, and those that are
    still drafts.
    """
    return set((folder_of(sink) / STAGED).rglob("*.parquet*"))


def _own_retry(place: str) -> Any:
    """PyIceberg's own commit, with the crash point between look and write."""
    from tests.sinks.iceberg.twins import OwnRetry

    return OwnRetry(place, ROWS, partial(crash_point, "commit.before"))


TWINS: dict[str, Callable[[str], Any]] = {"own-retry": _own_retry}
