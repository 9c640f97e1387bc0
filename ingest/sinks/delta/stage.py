"""One split's rows, or dead letters, as a Parquet file whose name no other attempt uses.

Runs on executors; nothing becomes visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from windrow.ingest.model.plan import Split
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks import parquet_files
from windrow.ingest.sinks.delta.names import staged_path
from windrow.ingest.sinks.delta.stats import statistics
from windrow.ingest.sinks.place import Place
from windrow.ingest.sinks.staged_file import FileStager, GrowingFile
from windrow.ingest.sinks.staging import Layout


class StagedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A staged file in the sink's own words: small, JSON, safe to lose.

    `buckets`: that of each of its row groups, where keys have any.
    """

    path: str
    size: int
    rows: int
    stats: str
    modified_ms: int
    buckets: tuple[int, ...] = ()


Cut = Callable[[pa.Table], Iterator[tuple[int, pa.Table]]]
"""Divides rows by their buckets."""


class DeltaForm:
    """Rows as Delta's readers want them, in Parquet; what is gathered meanwhile is what
    a commit says of the file.

    `cut`: what divides rows further, so that each row group is of one bucket.
    """

    compression = None

    def __init__(
        self, schema: pa.Schema, metadata: Mapping[str, str], cut: Cut | None = None
    ) -> None:
        self._schema, self._metadata, self._cut = schema, metadata, cut
        self._buckets: list[int] = []
        self._nan: set[str] = set()
        self._done: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter

    def begin(self, out: pa.NativeFile) -> None:
        texts = [f.name for f in self._schema if pa.types.is_string(f.type)]
        # Dictionaries of numbers only cost time. Offsets and timestamps nearly rise in
        # steps: as differences they take next to no room.
        steps = {
            self._metadata[name]: "DELTA_BINARY_PACKED"
            for name in ("offset", "timestamp")
            if name in self._metadata
        }
        self._writer = pq.ParquetWriter(
            out,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=texts,
            column_encoding=steps,
            write_page_checksum=True,
            metadata_collector=self._done,
        )

    def write(self, rows: pa.Table) -> None:
        self._nan.update(_with_nan(rows))
        if self._cut is None:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            return
        for bucket, part in self._cut(rows):
            self._writer.write_table(part, row_group_size=part.num_rows)
            self._buckets.append(bucket)

    def end(self) -> None:
        parquet_files.end(self._writer)

    def word(self, path: str, size: int, rows: int) -> StagedFile:
        stats = statistics(self._done[0], self._schema, self._nan)
        return StagedFile(
            path, size, rows, stats, int(datetime.now(UTC).timestamp() * 1000), tuple(self._buckets)
        )


def growing(
    place: Place, path: str, schema: pa.Schema, metadata: Mapping[str, str], cut: Cut | None = None
) -> GrowingFile[StagedFile]:
    """A new file of a table."""
    return GrowingFile(place, path, DeltaForm(schema, metadata, cut))


class DeltaStagerFactory(msgspec.Struct, frozen=True):
    """Picklable; all that a stager needs to know.

    `uri`: the table under which the files go; `primary_key`: the table's, if it has one.
    """

    uri: str
    layout: Layout
    window_key: str
    primary_key: PrimaryKey | None = None

    def __call__(self, split: Split) -> FileStager[StagedFile]:
        """A stager whose file name is unique to this call."""
        path = staged_path(self.window_key, self.layout.attempt)
        cut = None if self.primary_key is None else partial(by_bucket, self.primary_key)
        return FileStager(
            self.uri,
            self.layout,
            split,
            growing(Place(self.uri), path, self.layout.schema, self.layout.metadata, cut),
        )


def by_bucket(primary_key: PrimaryKey, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket, in the order in which they stand."""
    whole = rows.combine_chunks().to_batches()
    if not whole:
        return
    buckets = np.concatenate([primary_key.bucket_of(batch) for batch in whole])
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
