"""Iceberg tables for tests. A location is the folder of a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.iceberg.twins import lets_pyiceberg_retry
from tests.sinks.keyed_logs import LOG_ORDER, Keyed
from tests.sinks.world import BY_ID, SinkWorld, sort_if_joined
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.partition_fields import PartitionField
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.catalogs import load
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
        primary_key: PrimaryKey | None = None,
        partition_by: tuple[PartitionField, ...] = (),
    ) -> None:
        store = IcebergStore(table, metadata, primary_key, evolve, partition_by)
        super().__init__(store, schema)
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


class IcebergPartitionedWorld(IcebergWorld):
    """Tables that are partitioned by a column, too."""

    twins = ()

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        table = CatalogTable.in_folder(location, TABLE)
        return IcebergBoth(table, rows, metadata, partition_by=BY_ID)


class IcebergKeyedWorld(IcebergWorld):
    """Tables with a primary key. The order of rows in a bucket's file has no meaning."""

    twins = ()

    def __init__(self, *, marks: bool = False) -> None:
        self.key = PrimaryKey(("id",), marks=marks, buckets=3)

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        table = CatalogTable.in_folder(location, TABLE)
        return IcebergBoth(table, rows, metadata, primary_key=self.key)

    def pieces(self, sink: Any) -> list[pa.Table]:
        with sink.store.reading() as state:
            batches = [] if state is None else list(state.scan(None))
        return [pa.Table.from_batches(batches).sort_by(LOG_ORDER)] if batches else []


class IcebergKeyed(Keyed):
    """An Iceberg table with a primary key, see `Keyed`; `uri` is the folder of its catalog."""

    def make_sink(self) -> IcebergBoth:
        table = CatalogTable.in_folder(self.uri, TABLE)
        return IcebergBoth(table, self.rows, evolve="widen", primary_key=self.key)

    def read(self) -> list[dict[str, Any]]:
        table = load(CatalogTable.in_folder(self.uri, TABLE))
        assert table is not None
        rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return rows


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
        return [
            sort_if_joined(
                task.file.file_path, pa.Table.from_batches(list(read_files(state.table, [task])))
            )
            for task in tasks
        ]


def folder_of(sink: Any) -> Path:
    """Returns the folder of a table on this disk."""
    return Path(state_of(sink).table.metadata.location.removeprefix("file://"))
