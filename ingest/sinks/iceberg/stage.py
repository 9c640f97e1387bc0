"""Stages one split's rows, or dead letters, as a Parquet file. Runs on executors.

It loads no PyIceberg for a local table: a file needs only the table's columns and field ids.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa

from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.iceberg.column_metrics import Metrics, metrics
from windrow.ingest.sinks.iceberg.storage import IcebergPlace, TaskStorage
from windrow.ingest.sinks.kit import (
    FileStager,
    GrowingFile,
    Layout,
    ParquetRowWriter,
    staged_path,
    window_folder,
)

STAGED = "data/windrow"
"""The folder of staged Parquet files. The files that a snapshot names are the table's data."""


class IcebergFile(msgspec.Struct, frozen=True):
    """A staged file as its committable describes it.

    Attributes:
        path: the path below the table's location.
        size: the size in bytes.
        rows: number of rows.
        ids: the field ids of its columns, by name.
        metrics: counts and bounds of its columns.
    """

    path: str
    size: int
    rows: int
    ids: dict[str, int]
    metrics: Metrics


class IcebergWriter(ParquetRowWriter):
    """Writes rows as Parquet, with the window's column and with field ids."""

    def __init__(self, columns: pa.Schema, metadata: Mapping[str, str], window_key: str) -> None:
        super().__init__(columns, metadata, store_decimal_as_integer=True)  # Iceberg demands it
        self._key = window_key

    def write(self, rows: pa.Table) -> None:
        key = pa.field(self.metadata["window"], pa.string(), nullable=False)
        table = rows.append_column(key, pa.repeat(self._key, rows.num_rows))
        super().write(table.select(self.columns.names))

    def describe(self, path: str, size: int, rows: int) -> IcebergFile:
        ids = {f.name: field_id(f) for f in self.columns}
        of_file = metrics(self.footer, self.columns, list(ids.values()))
        return IcebergFile(path, size, rows, ids, of_file)


class IcebergStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers on executors. Picklable.

    Attributes:
        location: the table's location.
        storage: the properties that open it.
        layout: the columns of the rows, without field ids and without the window's column.
        columns: the columns of a file, with field ids.
        window_key: the window's key.
    """

    location: str
    storage: TaskStorage
    layout: Layout
    columns: pa.Schema
    window_key: str

    def __call__(self, split: Split) -> FileStager[IcebergFile]:
        """Makes a stager whose file name is unique to this call."""
        folder, path = (
            IcebergPlace(self.location, self.storage.properties),
            staged_path(window_folder(self.window_key, STAGED), self.layout.attempt),
        )
        file = GrowingFile(
            folder, path, IcebergWriter(self.columns, self.layout.metadata, self.window_key)
        )
        return FileStager(self.location, self.layout, split, file)


def field_id(field: pa.Field) -> int:
    """Returns the field id of a file's column."""
    return int(field.metadata[b"PARQUET:field_id"])
