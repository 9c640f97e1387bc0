"""Parquet files in a folder, as a table without versions of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.sinks.files.manifest import FILES_LOG
from windrow.ingest.sinks.files.reader import list_table
from windrow.ingest.sinks.kit.files.filesystem import ListedFile, Place
from windrow.ingest.sinks.kit.files.parquet_files import explain_file_errors, read_batches


@dataclass(frozen=True)
class ParquetFiles:
    """All `*.parquet` files of a folder and its subfolders.

    In a windrow table of files, only committed files count. In other folders, names that
    begin with `_` or `.` are left out, as other readers do.

    The version has two digests: one of paths, sizes and times of the last write, and one of the
    files' ETags, or of their footers if there are no ETags.
    """

    uri: str

    @property
    def identity(self) -> str:
        return f"parquet:{self.uri}"

    def newest(self) -> str:
        return self._version(self._files()[1])

    def schema(self) -> pa.Schema:
        table, files = self._files()
        return table or self._schema_of(files[0])

    def read(self, version: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        table, files = self._refuse_others(version)
        for file in files:
            names = self._schema_of(file).names
            missing_columns = [name for name in columns if names.count(name) != 1]
            if missing_columns and table is None:
                raise RefusedError(
                    f"the file {self.uri}/{file.path} has no column"
                    f" {min(missing_columns)}, or several",
                    "setup",
                    "All files of the folder must have it once.",
                )
            present_columns = [name for name in columns if name not in missing_columns]
            for batch in read_batches(Place(self.uri), file.path, present_columns):
                # the windrow table got these columns after this file was written
                nulls = [pa.nulls(batch.num_rows) for _ in missing_columns]
                yield pa.RecordBatch.from_arrays(
                    [*batch.columns, *nulls], [*present_columns, *missing_columns]
                )
        self._refuse_others(version)  # a file may have changed while others were read

    def replaced_at(self, version: str) -> None:
        """Refuses a version that isn't the newest: files have no older ones."""
        self._refuse_others(version)

    def _schema_of(self, file: ListedFile) -> pa.Schema:
        with self._open_file(file) as source:
            return pq.read_schema(source)

    def _version(self, files: list[ListedFile]) -> str:
        contents = hashlib.sha256()
        with ThreadPoolExecutor(16) as pool:  # each request to an object store is slow
            for part in pool.map(self._contents, files):
                contents.update(part)
        return f"{_digest(files)}/{contents.hexdigest()[:32]}"

    def _contents(self, file: ListedFile) -> bytes:
        """Returns bytes that identify a file's contents: its ETag, or else its footer."""
        with self._open_file(file) as source:
            return bytes(source.metadata().get("ETag") or read_footer(source))

    @contextmanager
    def _open_file(self, file: ListedFile) -> Iterator[pa.NativeFile]:
        filesystem = Place(self.uri).filesystem()
        with explain_file_errors(file.path), filesystem.open_input_file(file.path) as source:
            yield source

    def _refuse_others(self, version: str) -> tuple[pa.Schema | None, list[ListedFile]]:
        table, files = self._files()
        if not self._version(files).startswith(version):  # older releases pinned the first digest
            raise RefusedError(
                f"the files in {self.uri} are others than those that the window is pinned to",
                "setup",
                "Files have no versions: a Delta or Iceberg table keeps its older states.",
            )
        return table, files

    def _files(self) -> tuple[pa.Schema | None, list[ListedFile]]:
        """Returns the columns of a windrow table, None for other folders; and the files by path.

        Raises:
            SpecError: there are no Parquet files.
        """
        folder, table = Place(self.uri), None
        if FILES_LOG.partition("/")[0] in folder.folders(""):
            table, committed = list_table(self.uri)
            files = [file for file in folder.stat_files(committed).values() if file is not None]
        else:
            files = [file for file in folder.walk("") if not _is_hidden(file.path)]
        files = [file for file in files if file.path.endswith(".parquet")]
        if not files:
            raise SpecError(
                f"there is neither a Delta table nor a Parquet file at {self.uri}",
                "setup",
                "Name the table's folder; an Iceberg table needs warehouse or catalog, too.",
            )
        return table, sorted(files, key=lambda file: file.path)


def read_footer(source: pa.NativeFile) -> bytes:
    """Returns the end of a Parquet file: its metadata, their length and the magic bytes."""
    end = source.size() - 8
    source.seek(max(end, 0))
    length = int.from_bytes(source.read(4), "little")
    source.seek(max(end - length, 0))
    return bytes(source.read())


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _digest(files: list[ListedFile]) -> str:
    return hashlib.sha256(msgspec.json.encode(files)).hexdigest()[:32]
