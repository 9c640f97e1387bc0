"""One split's rows, or dead letters, as a Parquet file whose name no other attempt uses.

Runs on executors; nothing becomes visible.

No PyIceberg is loaded for a local table: what a file needs of the table is its columns,
with their field ids.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.ingest.model.plan import Split
from windrow.ingest.sinks import parquet_files
from windrow.ingest.sinks.iceberg.metrics import Metrics, metrics
from windrow.ingest.sinks.iceberg.place import LakePlace
from windrow.ingest.sinks.iceberg.storage import TaskStorage
from windrow.ingest.sinks.staged_file import FileStager, GrowingFile
from windrow.ingest.sinks.staging import Layout

STAGED = "data/windrow"
"""The folder of staged Parquet files; the ones that a snapshot names are the table's data."""


class LakeFile(msgspec.Struct, frozen=True):
    """A staged file in the sink's own words: small, JSON, safe to lose.

    `ids`: the field ids of its columns, by name.
    """

    path: str
    size: int
    rows: int
    ids: dict[str, int]
    metrics: Metrics


class LakeForm:
    """Rows in Parquet, with the window's column and with field ids; what is gathered
    meanwhile is what a commit says of the file.
    """

    compression = None

    def __init__(self, columns: pa.Schema, metadata: Mapping[str, str], window_key: str) -> None:
        self._columns, self._metadata, self._key = columns, metadata, window_key
        self._done: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter

    def begin(self, out: pa.NativeFile) -> None:
        # Dictionaries of numbers only cost time. Offsets and timestamps nearly rise in
        # steps: as differences they take next to no room.
        steps = {
            self._metadata[name]: "DELTA_BINARY_PACKED"
            for name in ("offset", "timestamp")
            if name in self._metadata
        }
        self._writer = pq.ParquetWriter(
            out,
            self._columns,
            compression="zstd",
            compression_level=1,
            use_dictionary=[f.name for f in self._columns if pa.types.is_string(f.type)],
            column_encoding=steps,
            store_decimal_as_integer=True,  # as Iceberg lays down
            write_page_checksum=True,
            metadata_collector=self._done,
        )

    def write(self, rows: pa.Table) -> None:
        key = pa.field(self._metadata["window"], pa.string(), nullable=False)
        whole = rows.append_column(key, pa.repeat(self._key, rows.num_rows))
        self._writer.write_table(
            whole.select(self._columns.names), row_group_size=max(rows.num_rows, 1)
        )

    def end(self) -> None:
        parquet_files.end(self._writer)

    def word(self, path: str, size: int, rows: int) -> LakeFile:
        ids = {f.name: field_id(f) for f in self._columns}
        return LakeFile(
            path, size, rows, ids, metrics(self._done[0], self._columns, list(ids.values()))
        )


class IcebergStagerFactory(msgspec.Struct, frozen=True):
    """Picklable; all that a stager needs to know.

    `location`: the table's, under which the files go; `storage`: what opens it.
    `columns`: of a file, with field ids; `layout`: of the rows in it, without them and
    without the window's column.
    """

    location: str
    storage: TaskStorage
    layout: Layout
    columns: pa.Schema
    window_key: str

    def __call__(self, split: Split) -> FileStager[LakeFile]:
        """A stager whose file name is unique to this call."""
        place, path = (
            LakePlace(self.location, self.storage.properties),
            _new_path(self.window_key, self.layout.attempt),
        )
        file = GrowingFile(
            place, path, LakeForm(self.columns, self.layout.metadata, self.window_key)
        )
        return FileStager(self.location, self.layout, split, file)


def field_id(field: pa.Field) -> int:
    """The field id that a column of a file has."""
    return int(field.metadata[b"PARQUET:field_id"])


def _new_path(window_key: str, attempt: str) -> str:
    """A new path under the table, unique to this call; needs no escaping in a URL."""
    readable = re.sub(r"[^A-Za-z0-9-]", "_", attempt)[:40]
    folder = window_key.replace(":", "").replace("-", "")
    return f"{STAGED}/{folder}/{readable}-{uuid.uuid4().hex}.parquet"
