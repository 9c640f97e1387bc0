"""Writes Parquet files of a table: those of a split on executors, rewritten files at a commit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.delta.stats import statistics
from windrow.ingest.sinks.kit import (
    DATA_FOLDER,
    ChangesFile,
    FileStager,
    GrowingFile,
    Layout,
    ParquetRowWriter,
    PartitionedFiles,
    PartitionField,
    PartitionValues,
    Place,
    PrimaryKey,
    begin_changes,
    explain_storage_errors,
    fit_columns,
    read_batches,
    staged_path,
    window_folder,
)


class StagedFile(msgspec.Struct, frozen=True):
    """A staged file as its committable describes it.

    Attributes:
        path: the path below the table.
        size: the size in bytes.
        rows: number of rows.
        stats: Delta's statistics of the file, as JSON.
        modified_ms: the time of the last write, in epoch milliseconds.
        partition: the texts of the table's partition fields, by their names.
    """

    path: str
    size: int
    rows: int
    stats: str
    modified_ms: int
    partition: dict[str, str | None] = {}


class DeltaWriter(ParquetRowWriter):
    """Writes rows as Parquet, and describes the file for a commit.

    Args:
        schema: the columns of the file.
        metadata: the names of the metadata columns.
        partition: the texts of the table's partition fields.
    """

    def __init__(
        self,
        schema: pa.Schema,
        metadata: Mapping[str, str],
        partition: Mapping[str, str | None],
    ) -> None:
        super().__init__(schema, metadata)
        self._partition = dict(partition)
        self._nan: set[str] = set()

    def write(self, rows: pa.Table) -> None:
        self._nan.update(_with_nan(rows))
        super().write(rows)

    def describe(self, path: str, size: int, rows: int) -> StagedFile:
        stats = statistics(self.footer, self.columns, self._nan)
        written = int(datetime.now(UTC).timestamp() * 1000)
        return StagedFile(path, size, rows, stats, written, self._partition)


def begin_file(
    folder: Place,
    path: str,
    schema: pa.Schema,
    metadata: Mapping[str, str],
    partition: Mapping[str, str | None] = MappingProxyType({}),
) -> GrowingFile[StagedFile]:
    """Begins a new file of a table.

    Args:
        folder: the table's place.
        path: the file's path, made by `part_path`.
        schema: the columns of the file.
        metadata: the names of the metadata columns.
        partition: the texts of the table's partition fields.
    """
    return GrowingFile(folder, path, DeltaWriter(schema, metadata, partition))


def part_path(
    column: str,
    part: str,
    attempt: str,
    partition: Mapping[str, str | None] = MappingProxyType({}),
) -> str:
    """Makes a new path for a file of the table, in a folder with the name of its partition.

    Other writers use such folders too, and some readers take the partition's value from the
    folder alone.
    """
    folder = f"{DATA_FOLDER}/{column}={quote(part, safe='')}"
    return staged_path("/".join(filter(None, [folder, PartitionField.folder(partition)])), attempt)


class DeltaStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers on executors. Picklable.

    Attributes:
        uri: the table's path or URI.
        layout: the columns of a staged batch.
        window_key: the window's key.
        primary_key: the table's primary key; None if rows are appended.
        partition_by: the table's partition fields.
    """

    uri: str
    layout: Layout
    window_key: str
    primary_key: PrimaryKey | None = None
    partition_by: tuple[PartitionField, ...] = ()

    def __call__(self, split: Split) -> FileStager[StagedFile] | FileStager[ChangesFile]:
        """Makes a stager whose file name is unique to this call."""
        layout, place = self.layout, Place(self.uri)
        if self.primary_key is not None:
            changes = begin_changes(place, window_folder(self.window_key), layout, self.primary_key)
            return FileStager(self.uri, layout, split, changes)

        def begin(values: PartitionValues) -> GrowingFile[StagedFile]:
            partition = PartitionField.texts_by_name(self.partition_by, values)
            column = layout.metadata["window"]
            path = part_path(column, self.window_key, layout.attempt, partition)
            return begin_file(place, path, layout.schema, layout.metadata, partition)

        files = PartitionedFiles(self.partition_by, split, begin, as_texts=True)
        return FileStager(self.uri, layout, split, files)


def _with_nan(rows: pa.Table) -> list[str]:
    return [
        f.name
        for f in rows.schema
        if pa.types.is_floating(f.type) and pc.any(pc.is_nan(rows[f.name])).as_py()
    ]


class WideFiles:
    """The files that one commit has rewritten in wider columns so far, in all of its tries.

    Delta allows a file with narrower columns than its table only with a feature that deltalake
    neither reads nor writes. So a commit that widens a column replaces all files by rewritten
    files, and no reader meets a type that the table doesn't have. If such a commit fails, the
    next try uses the same files, because the originals never change. One row group is in
    memory.

    Args:
        folder: the table's place.
        receipt: the commit's receipt.
        metadata: names of the metadata columns.
    """

    def __init__(self, folder: Place, receipt: Receipt, metadata: Mapping[str, str]) -> None:
        self._folder, self._receipt, self._metadata = folder, receipt, metadata
        self._columns = pa.schema([])
        self._written: dict[str, StagedFile | None] = {}

    @property
    def files(self) -> list[StagedFile]:
        """All files that were written."""
        return [file for file in self._written.values() if file is not None]

    def rewrite(
        self, path: str, part: str, columns: pa.Schema, partition: Mapping[str, str | None]
    ) -> list[StagedFile]:
        """Rewrites a file of a window with exactly these columns; returns none if it has no rows.

        The file stays in its partition.

        Raises:
            RefusedError: the original is missing or damaged.
            UnreachableError: the original can't be read, or the new file can't be written.
        """
        if columns != self._columns:
            self._columns = columns
            self._written.clear()
        if path not in self._written:
            with explain_storage_errors():
                self._written[path] = self._write(path, part, partition)
        return list(filter(None, [self._written[path]]))

    def _write(
        self, path: str, part: str, partition: Mapping[str, str | None]
    ) -> StagedFile | None:
        out = begin_file(
            self._folder,
            part_path(self._metadata["window"], part, self._receipt.attempt, partition),
            self._columns,
            self._metadata,
            partition,
        )
        for batch in read_batches(self._folder, path):
            out.add(fit_columns(batch, self._columns))
        return out.close()
