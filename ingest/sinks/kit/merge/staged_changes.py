"""Files of staged changes, with a row group for each bucket. A commit merges them, by bucket."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa

from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.kit.files.file_stager import GrowingFile, Layout
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.parquet_files import ParquetRowWriter
from windrow.ingest.sinks.kit.files.staged_files import staged_path


class ChangesFile(msgspec.Struct, frozen=True):
    """A file of staged changes as its committable describes it.

    Attributes:
        path: the path below the table.
        size: the size in bytes.
        rows: number of rows.
        buckets: the bucket of each row group.
    """

    path: str
    size: int
    rows: int
    buckets: tuple[int, ...]


class _ChangesWriter(ParquetRowWriter):
    """Writes changes as Parquet, so that each row group has one bucket."""

    def __init__(self, layout: Layout, primary_key: PrimaryKey) -> None:
        super().__init__(layout.schema, layout.metadata)
        self._primary_key = primary_key
        self._buckets: list[int] = []

    def write(self, rows: pa.Table) -> None:
        for bucket, part in _split_by_bucket(self._primary_key, rows):
            super().write(part)
            self._buckets.append(bucket)

    def describe(self, path: str, size: int, rows: int) -> ChangesFile:
        return ChangesFile(path, size, rows, tuple(self._buckets))


def begin_changes(
    files: Place, folder: str, layout: Layout, primary_key: PrimaryKey
) -> GrowingFile[ChangesFile]:
    """Begins a file of staged changes.

    Args:
        files: the table's files.
        folder: the folder of the file.
        layout: the columns of a staged batch.
        primary_key: the table's primary key.
    """
    path = staged_path(folder, layout.attempt)
    return GrowingFile(files, path, _ChangesWriter(layout, primary_key))


def _split_by_bucket(primary_key: PrimaryKey, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Splits rows by bucket; the rows of a bucket keep their order."""
    batches = rows.combine_chunks().to_batches()
    if not batches:
        return
    buckets = np.concatenate([primary_key.bucket_of(batch) for batch in batches])
    order = np.argsort(buckets, kind="stable")
    sorted_rows, numbers = rows.take(pa.array(order)), buckets[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield int(numbers[start]), sorted_rows.slice(start, stop - start)
