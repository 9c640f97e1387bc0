"""Delta tables for tests. A location is a folder or a URL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.delta.twins import appends_by_path
from tests.sinks.keyed_logs import LOG_ORDER, Keyed
from tests.sinks.with_dead_letters import DeltaBoth, DeltaKeyedBoth
from tests.sinks.world import BY_ID, SinkWorld
from windrow.ingest.schema.primary_key import PrimaryKey


class DeltaWorld(SinkWorld):
    """Tables without a primary key. A piece is a data file."""

    twins = (appends_by_path,)

    def new_location(self, folder: Path, server: Any) -> str:
        del server
        return str(folder / "orders")

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return DeltaBoth(location, rows, metadata)

    def pieces(self, sink: Any) -> list[pa.Table]:
        return delta_pieces(sink.uri)


class DeltaPartitionedWorld(DeltaWorld):
    """Tables that are partitioned by a column, too."""

    twins = ()

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return DeltaBoth(location, rows, metadata, partition_by=BY_ID)


class DeltaKeyedWorld(DeltaWorld):
    """Tables with a primary key. The order of rows in a bucket's file has no meaning."""

    twins = ()

    def __init__(self, *, marks: bool = False) -> None:
        self.key = PrimaryKey(("id",), marks=marks, buckets=3)

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return DeltaKeyedBoth(location, rows, self.key, metadata)

    def pieces(self, sink: Any) -> list[pa.Table]:
        rows = [piece for piece in delta_pieces(sink.uri) if piece.num_rows]
        return [pa.concat_tables(rows).sort_by(LOG_ORDER)] if rows else []


class DeltaKeyed(Keyed):
    """A Delta table with a primary key, see `Keyed`; `uri` is the table's folder."""

    def make_sink(self) -> DeltaKeyedBoth:
        return DeltaKeyedBoth(self.uri, self.rows, self.key, evolve="widen")

    def read(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(self.uri).to_pyarrow_table().to_pylist()
        return rows
