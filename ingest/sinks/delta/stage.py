"""One split's rows, or dead letters, as a Parquet file whose name no other attempt uses. Runs on executors; nothing becomes visible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest.model.plan import Split
from ingest.model.staged import Staging
from ingest.schema.checksum import checksum, text
from ingest.schema.primary_key import PrimaryKey
from ingest.sinks.delta.names import staged_path
from ingest.sinks.delta.stats import statistics
from ingest.sinks.place import Place
from ingest.sinks.staging import Layout, writable

GROUP_ROWS = 131_072
GROUP_BYTES = 32 << 20
"""A row group is written as soon as either is reached: that bounds what a file holds in memory."""


class StagedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A staged file in the sink's own words: small, JSON, safe to lose. `buckets`: that of each of its row groups, where keys have any."""

    path: str
    size: int
    rows: int
    stats: str
    modified_ms: int
    buckets: tuple[int, ...] = ()


Cut = Callable[[pa.Table], Iterator[tuple[int, pa.Table]]]
"""Divides rows by their buckets."""


class ParquetFile:
    """A Parquet file that grows by row groups; made with its first batch, so that a split without rows leaves no file.

    `cut`: what divides rows further, so that each row group is of one bucket.
    """

    def __init__(self, place: Place, path: str, schema: pa.Schema, metadata: Mapping[str, str], cut: Cut | None = None) -> None:
        self.rows = self.checksum = 0
        self._cut = cut
        self._buckets: list[int] = []
        self._place, self._path, self._schema, self._metadata = place, path, schema, metadata
        self._batches: list[pa.RecordBatch] = []
        self._batch_rows = self._batch_bytes = 0
        self._nan: set[str] = set()
        self._done: list[pq.FileMetaData] = []
        self._out: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows of exactly its columns."""
        if self._writer is None:
            self._open()
        self.rows += batch.num_rows
        self.checksum += checksum(batch)
        self._nan.update(_with_nan(batch))
        self._batches.append(batch)
        self._batch_rows += batch.num_rows
        self._batch_bytes += batch.nbytes
        if self._batch_rows >= GROUP_ROWS or self._batch_bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> StagedFile | None:
        """What to commit; None if there were no rows."""
        if self._writer is None or self._out is None:
            return None
        self._flush()
        self._writer.close()
        self._out.close()
        size = self._place.finish(self._path)
        stats = statistics(self._done[0], self._schema, self._nan)
        return StagedFile(self._path, size, self.rows, stats, int(datetime.now(UTC).timestamp() * 1000), tuple(self._buckets))

    def abandon(self) -> None:
        """Close without a result. The file is rubbish already: on a full disk, closing it fails for the same reason as writing did."""
        self._batches.clear()
        with suppress(OSError, RuntimeError):
            if self._writer is not None and self._out is not None:
                self._writer.close()
                self._out.close()

    def _open(self) -> None:
        self._out = self._place.create(self._path)
        texts = [f.name for f in self._schema if pa.types.is_string(f.type)]
        # Dictionaries of numbers only cost time. Offsets and timestamps nearly rise in steps: as differences they take next to no room.
        steps = {self._metadata[name]: "DELTA_BINARY_PACKED" for name in ("offset", "timestamp") if name in self._metadata}
        self._writer = pq.ParquetWriter(
            self._out,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=texts,
            column_encoding=steps,
            write_page_checksum=True,
            metadata_collector=self._done,
        )

    def _flush(self) -> None:
        if self._batches and self._writer is not None:
            table = pa.Table.from_batches(self._batches)
            if self._cut is None:
                self._writer.write_table(table, row_group_size=self._batch_rows)
            else:
                self._write_cut(self._writer, self._cut(table))
        self._batches, self._batch_rows, self._batch_bytes = [], 0, 0

    def _write_cut(self, writer: pq.ParquetWriter, parts: Iterable[tuple[int, pa.Table]]) -> None:
        for bucket, part in parts:
            writer.write_table(part, row_group_size=part.num_rows)
            self._buckets.append(bucket)


class DeltaStager:
    """Stages one split into one file. Memory: one row group, whatever the split."""

    def __init__(self, made_by: DeltaStagerFactory, split: Split) -> None:
        self._made_by, self._split = made_by, split
        path = staged_path(made_by.window_key, made_by.layout.attempt)
        cut = None if made_by.primary_key is None else partial(by_bucket, made_by.primary_key)
        self._file = ParquetFile(Place(made_by.uri), path, made_by.layout.schema, made_by.layout.metadata, cut)

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """See `ports.sink.Stager.add`."""
        if not rows.num_rows and not messages.num_rows:
            return
        batch = self._made_by.layout.batch(rows, messages, self._split)
        with writable(self._made_by.uri, self._split):
            self._file.add(batch)

    def finish(self) -> Staging:
        """See `ports.sink.Stager.finish`."""
        with writable(self._made_by.uri, self._split):
            staged = self._file.close()
        return Staging(self._file.rows, text(self._file.checksum), () if staged is None else (msgspec.json.encode(staged).decode(),))

    def discard(self) -> None:
        """Close without a result. The file stays: whether another attempt committed something is not this one's to know."""
        self._file.abandon()


class DeltaStagerFactory(msgspec.Struct, frozen=True):
    """Picklable; all that a stager needs to know. `uri`: the table under which the files go; `primary_key`: the table's, if it has one."""

    uri: str
    layout: Layout
    window_key: str
    primary_key: PrimaryKey | None = None

    def __call__(self, split: Split) -> DeltaStager:
        """A stager whose file name is unique to this call."""
        return DeltaStager(self, split)


def staged_files(committables: Iterable[str]) -> list[StagedFile]:
    """The files that committables name."""
    return [msgspec.json.decode(word, type=StagedFile) for word in committables]


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


def _with_nan(batch: pa.RecordBatch) -> list[str]:
    return [f.name for f in batch.schema if pa.types.is_floating(f.type) and pc.any(pc.is_nan(batch[f.name])).as_py()]
