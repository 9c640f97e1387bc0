"""Stages a split's rows in a Parquet file, of which a commit copies them. Runs on executors."""

from __future__ import annotations

import msgspec

from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.file_stager import GrowingFile, Layout
from windrow.ingest.sinks.filesystem import Place
from windrow.ingest.sinks.iso_times import TextStager
from windrow.ingest.sinks.parquet_files import ParquetRowWriter
from windrow.ingest.sinks.staged_files import staged_path


class SqliteStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers on executors, so it is picklable; `window`: the window's key."""

    uri: str
    layout: Layout
    window: str

    def __call__(self, split: Split) -> TextStager:
        """Makes a stager whose file name is unique to this call."""
        path = staged_path(self.window, self.layout.attempt)
        writer = ParquetRowWriter(self.layout.schema, {}, "snappy")
        file = GrowingFile(Place(self.uri), path, writer)
        return TextStager(self.uri, self.layout, split, file)
