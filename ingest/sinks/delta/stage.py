"""Writes Parquet files of a table: those of a split on executors, rewritten files at a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.delta.stats import statistics
from windrow.ingest.sinks.kit import (
    DATA_FOLDER,
    FileStager,
    GrowingFile,
    Layout,
    ParquetRowWriter,
    Place,
    PrimaryKey,
    fit_columns,
    read_batches,
    staged_path,
    window_folder,
)


class StagedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A staged file as its committable describes it.

    Attributes:
        path: the path below the table.
        size: the size in bytes.
        rows: number of rows.
        stats: Delta's statistics of the file, as JSON.
        modified_ms: the time of the last write, in epoch milliseconds.
        buckets: the bucket of each row group, in a table with a primary key.
    """

    path: str
    size: int
    rows: int
    stats: str
    modified_ms: int
    buckets: tuple[int, ...] = ()


Cut = Callable[[pa.Table], Iterator[tuple[int, pa.Table]]]
"""Splits rows by their buckets."""


class DeltaWriter(ParquetRowWriter):
    """Writes rows as Parquet, and describes the file for a commit.

    Args:
        schema: the columns of the file.
        metadata: the names of the metadata columns.
        cut: splits rows by bucket, so that each row group has one bucket.
    """

    def __init__(
        self, schema: pa.Schema, metadata: Mapping[str, str], cut: Cut | None = None
    ) -> None:
        super().__init__(schema, metadata)
        self._cut = cut
        self._buckets: list[int] = []
        self._nan: set[str] = set()

    def write(self, rows: pa.Table) -> None:
        self._nan.update(_with_nan(rows))
        if self._cut is None:
            super().write(rows)
            return
        for bucket, part in self._cut(rows):
            super().write(part)
            self._buckets.append(bucket)

    def describe(self, path: str, size: int, rows: int) -> StagedFile:
        stats = statistics(self.footer, self.columns, self._nan)
        written = int(datetime.now(UTC).timestamp() * 1000)
        return StagedFile(path, size, rows, stats, written, tuple(self._buckets))


@contextmanager
def explain_storage_errors() -> Iterator[None]:
    """Converts the operating system's errors while a commit reads and writes files of the table.

    Raises:
        UnreachableError: a file can't be read or written.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreachableError(
            f"a file of the table can't be read or written: {reason}",
            "commit",
            "Nothing was committed. Make room or repair the storage, then run the window again.",
        ) from error


def begin_file(
    folder: Place, path: str, schema: pa.Schema, metadata: Mapping[str, str], cut: Cut | None = None
) -> GrowingFile[StagedFile]:
    """Begins a new file of a table."""
    return GrowingFile(folder, path, DeltaWriter(schema, metadata, cut))


def part_path(column: str, part: str, attempt: str) -> str:
    """Makes a new path for a file of the table, in a folder with the name of its partition.

    Other writers use such folders too, and some readers take the partition's value from the
    folder alone.
    """
    return staged_path(f"{DATA_FOLDER}/{column}={quote(part, safe='')}", attempt)


class DeltaStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers on executors. Picklable.

    Attributes:
        uri: the table's path or URI.
        layout: the columns of a staged batch.
        window_key: the window's key.
        primary_key: the table's primary key; None if rows are appended.
    """

    uri: str
    layout: Layout
    window_key: str
    primary_key: PrimaryKey | None = None

    def __call__(self, split: Split) -> FileStager[StagedFile]:
        """Makes a stager whose file name is unique to this call."""
        attempt, cut = self.layout.attempt, None
        path = part_path(self.layout.metadata["window"], self.window_key, attempt)
        if (
            self.primary_key is not None
        ):  # a commit reads these changes and writes the table's files
            cut = partial(split_by_bucket, self.primary_key)
            path = staged_path(window_folder(self.window_key), attempt)
        return FileStager(
            self.uri,
            self.layout,
            split,
            begin_file(Place(self.uri), path, self.layout.schema, self.layout.metadata, cut),
        )


def split_by_bucket(primary_key: PrimaryKey, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
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

    def rewrite(self, path: str, part: str, columns: pa.Schema) -> list[StagedFile]:
        """Rewrites a file of a window with exactly these columns; returns none if it has no rows.

        Raises:
            RefusedError: the original is missing or damaged.
            UnreachableError: the original can't be read, or the new file can't be written.
        """
        if columns != self._columns:
            self._columns = columns
            self._written.clear()
        if path not in self._written:
            with explain_storage_errors():
                self._written[path] = self._write(path, part)
        return list(filter(None, [self._written[path]]))

    def _write(self, path: str, part: str) -> StagedFile | None:
        out = begin_file(
            self._folder,
            part_path(self._metadata["window"], part, self._receipt.attempt),
            self._columns,
            self._metadata,
        )
        for batch in read_batches(self._folder, path):
            out.add(fit_columns(batch, self._columns))
        return out.close()
