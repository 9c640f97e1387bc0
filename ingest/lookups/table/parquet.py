"""Parquet files in a folder, as a table that has no versions of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.sinks.files.reader import list_files
from windrow.ingest.sinks.filesystem import FILES_LOG, ListedFile, Place
from windrow.ingest.sinks.parquet_files import batches_of, explained


@dataclass(frozen=True)
class ParquetFiles:
    """All `*.parquet` files of a folder and the folders in it, as they are at a moment.

    Of a windrow table of files these are the committed ones; else names that begin with `_` or
    `.` are left out, as every reader of such folders does. Its version is a digest of paths,
    sizes and times of change.
    """

    place: str

    @property
    def identity(self) -> str:
        return f"parquet:{self.place}"

    def newest(self) -> str:
        return _digest(self._files())

    def schema(self) -> pa.Schema:
        return self._schema_of(self._files()[0])

    def read(self, version: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        files = self._refuse_others(version)
        for file in files:
            names = self._schema_of(file).names
            lost = [name for name in columns if names.count(name) != 1]
            if lost:
                what = f"the file {self.place}/{file.path} has no column {min(lost)}, or several"
                raise RefusedError(what, "setup", "All files of the folder must have it once.")
            yield from batches_of(Place(self.place), file.path, columns)
        self._refuse_others(version)  # a file may have changed while others were read

    def _schema_of(self, file: ListedFile) -> pa.Schema:
        filesystem = Place(self.place).filesystem()
        with explained(file.path), filesystem.open_input_file(file.path) as source:
            return pq.read_schema(source)

    def _refuse_others(self, version: str) -> list[ListedFile]:
        files = self._files()
        if _digest(files) != version:
            what = f"the files in {self.place} are others than those that the window is pinned to"
            do = "Files have no versions: a Delta or Iceberg table keeps its older states."
            raise RefusedError(what, "setup", do)
        return files

    def _files(self) -> list[ListedFile]:
        place = Place(self.place)
        if FILES_LOG.partition("/")[0] in place.folders(""):
            committed = (path[len(self.place) + 1 :] for path in list_files(self.place))
            found = [file for file in place.seen(committed).values() if file is not None]
        else:
            found = [file for file in place.walk("") if not _is_hidden(file.path)]
        found = [file for file in found if file.path.endswith(".parquet")]
        if not found:
            what = f"there is neither a Delta table nor a Parquet file at {self.place}"
            do = "Name the table's folder; an Iceberg table needs warehouse or catalog, too."
            raise SpecError(what, "setup", do)
        return sorted(found, key=lambda file: file.path)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _digest(files: list[ListedFile]) -> str:
    return hashlib.sha256(msgspec.json.encode(files)).hexdigest()[:32]
