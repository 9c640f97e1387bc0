"""Stages one split's rows, or dead letters, as a Parquet file. Runs on executors.

It loads no PyIceberg for a local table: a file needs only the table's columns and field ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa

from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.iceberg.column_metrics import Metrics, metrics
from windrow.ingest.sinks.iceberg.storage import IcebergPlace, TaskStorage
from windrow.ingest.sinks.kit import (
    ChangesFile,
    FileStager,
    GrowingFile,
    Layout,
    ParquetRowWriter,
    PartitionedFiles,
    PartitionField,
    PartitionValues,
    PrimaryKey,
    begin_changes,
    staged_path,
    window_folder,
)

_FIELD_ID = b"PARQUET:field_id"

STAGED = "data/windrow"
"""The folder of staged Parquet files. The files that a snapshot names are the table's data."""


class IcebergFile(msgspec.Struct, frozen=True):
    """A staged file as its committable describes it.

    Attributes:
        path: the path below the table's location.
        size: the size in bytes.
        rows: number of rows.
        ids: the field ids of its columns, and of the fields inside them, by name.
        metrics: counts and bounds of its columns.
        partition: the values of the table's partition fields.
    """

    path: str
    size: int
    rows: int
    ids: dict[str, int]
    metrics: Metrics
    partition: PartitionValues = ()


class IcebergWriter(ParquetRowWriter):
    """Writes rows as Parquet, with the partition column and with field ids.

    Args:
        columns: the columns of the file, with field ids.
        metadata: the names of the metadata columns.
        part: the first partition column, and its value in all rows; None if the rows have it.
        partition: the values of the table's partition fields.
    """

    def __init__(
        self,
        columns: pa.Schema,
        metadata: Mapping[str, str],
        part: tuple[str, str | int] | None,
        partition: PartitionValues = (),
    ) -> None:
        super().__init__(columns, metadata, store_decimal_as_integer=True)  # Iceberg demands it
        self._part, self._partition = part, partition

    def write(self, rows: pa.Table) -> None:
        table = rows
        if self._part is not None:
            name, part = self._part
            column = self.columns.field(name)
            table = rows.append_column(column, pa.repeat(pa.scalar(part, column.type), len(rows)))
        super().write(table.select(self.columns.names))

    def describe(self, path: str, size: int, rows: int) -> IcebergFile:
        of_file = metrics(self.footer, self.columns, list(map(field_id, self.columns)))
        ids = dict(field_ids(self.columns))
        return IcebergFile(path, size, rows, ids, of_file, self._partition)


class IcebergStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers on executors. Picklable.

    Attributes:
        location: the table's location.
        storage: the properties that open it.
        layout: the columns of the rows, without field ids and without the window's column.
        columns: the columns of a file, with field ids.
        window_key: the window's key.
        primary_key: the table's primary key; None if rows are appended.
        partition_by: the table's partition fields.
    """

    location: str
    storage: TaskStorage
    layout: Layout
    columns: pa.Schema
    window_key: str
    primary_key: PrimaryKey | None = None
    partition_by: tuple[PartitionField, ...] = ()

    def __call__(self, split: Split) -> FileStager[IcebergFile] | FileStager[ChangesFile]:
        """Makes a stager whose file name is unique to this call."""
        layout, folder = self.layout, window_folder(self.window_key, STAGED)
        place = IcebergPlace(self.location, self.storage.properties)
        if self.primary_key is not None:
            changes = begin_changes(place, folder, layout, self.primary_key)
            return FileStager(self.location, layout, split, changes)

        def begin(partition: PartitionValues) -> GrowingFile[IcebergFile]:
            part = (layout.metadata["window"], self.window_key)
            writer = IcebergWriter(self.columns, layout.metadata, part, partition)
            return GrowingFile(place, staged_path(folder, layout.attempt), writer)

        files = PartitionedFiles(self.partition_by, split, begin)
        return FileStager(self.location, layout, split, files)


def field_id(field: pa.Field) -> int:
    """Returns the field id of a file's column."""
    return int(field.metadata[_FIELD_ID])


def field_ids(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yields names and ids of the columns and nested fields of a file that have a field id."""
    for field in fields:
        number = (field.metadata or {}).get(_FIELD_ID)
        if number is not None:
            yield prefix + field.name, int(number)
        if pa.types.is_nested(field.type):
            yield from field_ids(
                (field.type.field(i) for i in range(field.type.num_fields)),
                f"{prefix}{field.name}.",
            )
