"""Iceberg tables as tests have them; a place is the folder of a catalog."""

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
    """With dead letters in a table beside it."""

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
        """Where the table is."""
        return self.store.at


class IcebergWorld(SinkWorld):
    """In a folder, with a catalog of its own: a piece is a data file, whose rows are in the order
    in which they lie in it.
    """

    twins = (lets_pyiceberg_retry,)
    locks_between = True
    """Whoever is stopped right in the transaction of the catalog's SQLite holds its lock."""

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
