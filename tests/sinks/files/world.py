"""Tables of files for tests. A location is a folder or a URL.

The tests read rows with a reader that uses the list of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.twins import retries_blindly
from tests.sinks.world import BY_ID, SinkWorld, sort_if_joined
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.partition_fields import PartitionField
from windrow.ingest.sinks.files.stage import FileFormat, read_file
from windrow.ingest.sinks.files.store import FilesStore
from windrow.ingest.sinks.kind import delta_dead_letters
from windrow.ingest.sinks.kit.commit.window_table import WindowTable
from windrow.ingest.testing.contracts.with_dead_letters import WithDeadLetters

PARQUET = FileFormat("parquet", "zstd")
FORMATS = {
    "parquet": PARQUET,
    "jsonl": FileFormat("jsonl", "gzip"),
    "csv": FileFormat("csv", "none"),
}


class FilesBoth(WithDeadLetters, WindowTable):
    """A table of files, with dead letters in a Delta table beside it."""

    store: FilesStore

    def __init__(
        self,
        uri: str,
        rows: pa.Schema,
        metadata: Mapping[str, str] = DEFAULT,
        written: FileFormat = PARQUET,
        partition_by: tuple[PartitionField, ...] = (),
    ) -> None:
        super().__init__(FilesStore(uri, written, metadata, partition_by), rows)
        self.uri, self.written = self.store.location, written
        self.dead_letters = delta_dead_letters(self.uri)


class FilesWorld(SinkWorld):
    """Tables of files. A piece is a file, with its rows in the file's order."""

    twins = (retries_blindly,)

    def __init__(self, written: str = "parquet") -> None:
        self.written = FORMATS[written]

    def new_location(self, folder: Path, server: Any) -> str:
        del server
        return str(folder / "orders")

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return FilesBoth(location, rows, metadata, self.written)

    def pieces(self, sink: Any) -> list[pa.Table]:
        with FilesStore(sink.uri).reading() as state:
            files = [] if state is None else state.row_files()
        return [
            sort_if_joined(
                file.path,
                pa.Table.from_batches(read_file(sink.store.files, file.path, sink.columns)),
            )
            for file in files
        ]


class FilesPartitionedWorld(FilesWorld):
    """Tables that are partitioned by a column, too."""

    twins = ()

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return FilesBoth(location, rows, metadata, self.written, BY_ID)


report = FilesWorld().report
