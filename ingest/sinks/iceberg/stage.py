"""One split's rows, or dead letters, as a Parquet file whose name no other attempt uses. Runs on executors; nothing becomes visible.

No PyIceberg is loaded for a local table: what a file needs of the table is its columns, with their field ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.model.plan import Split
from ingest.model.staged import Staging
from ingest.schema.checksum import checksum, text
from ingest.sinks.iceberg.metrics import Metrics, metrics
from ingest.sinks.iceberg.names import staged_path
from ingest.sinks.iceberg.place import LakePlace
from ingest.sinks.iceberg.storage import TaskStorage
from ingest.sinks.staging import Layout, writable

GROUP_ROWS = 131_072
GROUP_BYTES = 32 << 20
"""A row group is written as soon as either is reached: that bounds what a file holds in memory."""


class LakeFile(msgspec.Struct, frozen=True):
    """A staged file in the sink's own words: small, JSON, safe to lose. `ids`: the field ids of its columns, by name."""

    path: str
    size: int
    rows: int
    ids: dict[str, int]
    metrics: Metrics


class LakeParquet:
    """A Parquet file that grows by row groups; made with its first batch, so that a split without rows leaves no file.

    Args:
        made_by: what the file is to be like.
    """

    def __init__(self, made_by: IcebergStagerFactory) -> None:
        self.rows = self.checksum = 0
        self._made_by = made_by
        self._place = LakePlace(made_by.location, made_by.storage.properties)
        self._path = staged_path(made_by.window_key, made_by.layout.attempt)
        self._batches: list[pa.RecordBatch] = []
        self._batch_rows = self._batch_bytes = 0
        self._done: list[pq.FileMetaData] = []
        self._out: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows of exactly its columns, but for the window's."""
        if self._writer is None:
            self._open()
        self.rows += batch.num_rows
        self.checksum += checksum(batch)
        self._batches.append(batch)
        self._batch_rows += batch.num_rows
        self._batch_bytes += batch.nbytes
        if self._batch_rows >= GROUP_ROWS or self._batch_bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> LakeFile | None:
        """What to commit; None if there were no rows."""
        if self._writer is None or self._out is None:
            return None
        self._flush()
        self._writer.close()
        self._out.close()
        ids = {f.name: field_id(f) for f in self._made_by.columns}
        found = metrics(self._done[0], self._made_by.columns, list(ids.values()))
        return LakeFile(self._path, self._place.finish(self._path), self.rows, ids, found)

    def abandon(self) -> None:
        """Close without a result. The file is rubbish already: on a full disk, closing it fails for the same reason as writing did."""
        self._batches.clear()
        with suppress(OSError, RuntimeError):
            if self._writer is not None and self._out is not None:
                self._writer.close()
                self._out.close()

    def _open(self) -> None:
        columns, metadata = self._made_by.columns, self._made_by.layout.metadata
        self._out = self._place.create(self._path)
        # Dictionaries of numbers only cost time. Offsets and timestamps nearly rise in steps: as differences they take next to no room.
        steps = {metadata[name]: "DELTA_BINARY_PACKED" for name in ("offset", "timestamp") if name in metadata}
        self._writer = pq.ParquetWriter(
            self._out,
            columns,
            compression="zstd",
            compression_level=1,
            use_dictionary=[f.name for f in columns if pa.types.is_string(f.type)],
            column_encoding=steps,
            store_decimal_as_integer=True,  # as Iceberg lays down
            write_page_checksum=True,
            metadata_collector=self._done,
        )

    def _flush(self) -> None:
        if self._batches and self._writer is not None:
            rows = pa.Table.from_batches(self._batches)
            key = self._made_by.layout.metadata["window"]
            whole = rows.append_column(pa.field(key, pa.string(), nullable=False), pa.repeat(self._made_by.window_key, rows.num_rows))
            self._writer.write_table(whole.select(self._made_by.columns.names), row_group_size=max(rows.num_rows, 1))
        self._batches.clear()
        self._batch_rows = self._batch_bytes = 0


class IcebergStager:
    """See `ports.sink.Stager`."""

    def __init__(self, made_by: IcebergStagerFactory, split: Split) -> None:
        self._made_by, self._split = made_by, split
        self._file = LakeParquet(made_by)

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """See `ports.sink.Stager.add`."""
        if not rows.num_rows and not messages.num_rows:
            return
        batch = self._made_by.layout.batch(rows, messages, self._split)
        with writable(self._made_by.location, self._split):
            self._file.add(batch)

    def finish(self) -> Staging:
        """See `ports.sink.Stager.finish`."""
        with writable(self._made_by.location, self._split):
            staged = self._file.close()
        return Staging(self._file.rows, text(self._file.checksum), () if staged is None else (msgspec.json.encode(staged).decode(),))

    def discard(self) -> None:
        """Close without a result. The file stays: whether another attempt committed something is not this one's to know."""
        self._file.abandon()


class IcebergStagerFactory(msgspec.Struct, frozen=True):
    """Picklable; all that a stager needs to know.

    `location`: the table's, under which the files go; `storage`: what opens it. `columns`: of a file, with field ids; `layout`: of the rows
    in it, without them and without the window's column.
    """

    location: str
    storage: TaskStorage
    layout: Layout
    columns: pa.Schema
    window_key: str

    def __call__(self, split: Split) -> IcebergStager:
        """A stager whose file name is unique to this call."""
        return IcebergStager(self, split)


def field_id(field: pa.Field) -> int:
    """The field id that a column of a file has."""
    return int(field.metadata[b"PARQUET:field_id"])


def staged_files(committables: Iterable[str]) -> list[LakeFile]:
    """The files that committables name."""
    return [msgspec.json.decode(word, type=LakeFile) for word in committables]
