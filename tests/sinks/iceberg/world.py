"""Iceberg tables for tests. A location is the folder of a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.iceberg.twins import lets_pyiceberg_retry
from tests.sinks.world import SinkWorld
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.commit import Prepared
from windrow.ingest.sinks.iceberg.contents import read_files
from windrow.ingest.sinks.iceberg.store import IcebergState, IcebergStore
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.kit.commit.dead_letter_table import DeadLetterTable
from windrow.ingest.sinks.kit.commit.window_table import WindowTable
from windrow.ingest.testing.contracts.with_dead_letters import WithDeadLetters

TABLE = "shop.orders"


class IcebergBoth(WithDeadLetters, WindowTable):
    """An Iceberg table, with dead letters in a table beside it."""

    store: IcebergStore

    def __init__(
        self,
        table: CatalogTable,
        schema: pa.Schema,
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
    ) -> None:
        super().__init__(IcebergStore(table, metadata, evolve), schema)
        letters = IcebergStore(table.dead(), DEFAULT)
        self.dead_letters = DeadLetterTable(letters)

    @property
    def catalog_table(self) -> CatalogTable:
        """The table's name and catalog."""
        return self.store.catalog_table


class IcebergWorld(SinkWorld):
    """Tables in a folder with a new catalog.

    A piece is a data file, with its rows in the file's order.
    """

    twins = (lets_pyiceberg_retry,)
    locks_between = True
    """True, because a process that is stopped in a transaction of the catalog's SQLite file
    keeps its lock.
    """

    def new_location(self, folder: Path, server: Any) -> str:
        del server
        return str(folder)

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return IcebergBoth(CatalogTable.in_folder(location, TABLE), rows, metadata)

    def pieces(self, sink: Any) -> list[pa.Table]:
        return pieces(sink)

    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        store = sink.store

        def send_unanswered(ready: Prepared) -> None:
            del store.send
            ready.send()
            raise OSError("connection reset")

        store.send = send_unanswered
        return nullcontext()


sink_at = IcebergWorld().sink_at


def state_of(sink: Any) -> IcebergState:
    """Returns the newest state of a sink's table, or of its dead letters' table."""
    with sink.store.reading() as state:
        assert isinstance(state, IcebergState)
        return state


def pieces(sink: Any) -> list[pa.Table]:
    """Returns all visible rows, one Arrow table per data file, in the file's order."""
    with sink.store.reading() as state:
        tasks = [] if state is None else state.tasks()
        return [pa.Table.from_batches(list(read_files(state.table, [task]))) for task in tasks]


def folder_of(sink: Any) -> Path:
    """Returns the folder of a table on this disk."""
    return Path(state_of(sink).table.metadata.location.removeprefix("file://"))
