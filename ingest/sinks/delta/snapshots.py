"""Versions of any Delta table, windrow's or another program's, for lookups that read it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.dataset import ParquetFragmentScanOptions

from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.sinks.delta.table import (
    entry_name,
    list_added_files,
    load,
    reason,
    refuse_unreadable_rows,
)
from windrow.ingest.sinks.kit import Place

_STREAMED: dict[str, Any] = {
    "use_threads": False,
    "batch_size": 8192,
    "batch_readahead": 0,
    "fragment_readahead": 0,
    "fragment_scan_options": ParquetFragmentScanOptions(
        use_buffered_stream=True, buffer_size=1 << 20, pre_buffer=False
    ),
}
"""Options with which a worker holds only little of a table in memory."""


@dataclass(frozen=True)
class DeltaSnapshots:
    """A Delta table. Its versions have the form `number@table/files`.

    `table` is the table's own id, and `files` a digest of the names of the version's files. So
    a table that was created again at its place has other versions. A table that was restored
    from a backup and written since has another version with the same number.
    """

    location: str

    @property
    def identity(self) -> str:
        return f"delta:{self.location}"

    def newest(self) -> str:
        return _name(self._readable())

    def schema(self) -> pa.Schema:
        return pa.schema(self._readable().schema())

    def read(self, version: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        table = self._load_version(version)
        missing_columns = [name for name in columns if name not in pa.schema(table.schema()).names]
        if missing_columns:
            raise RefusedError(
                f"version {version} of the Delta table {self.location} has no column"
                f" {missing_columns[0]}",
                "setup",
                "The table got it later, or it has another name.",
            )
        try:
            refuse_unreadable_rows(self.location, table)
        except UnreachableError as error:  # a retry can't help: this version never changes
            raise RefusedError(error.message, "setup", error.advice) from None
        try:
            with Place(self.location).waiting():
                yield from table.to_pyarrow_dataset().to_batches(columns, **_STREAMED)
        except FileNotFoundError as error:
            raise self._missing_version_error(version) from error
        except Exception as error:  # its text may repeat a request  # noqa: BLE001
            raise UnreachableError(
                f"the table {self.location} can't be read: {reason(error)}",
                "setup",
                Place(self.location).advice(reason(error)),
            ) from None

    def replaced_at(self, version: str) -> datetime | None:
        table, newest = self._load_version(version), self._table()
        if table.version() == newest.version():
            return None
        folder, following = Place(self.location), entry_name(table.version() + 1)
        replaced = _relative_paths(table) - _relative_paths(newest)
        if None in folder.stat_files(replaced).values():
            raise self._missing_version_error(version)
        entry = folder.stat_files([following])[following]
        return None if entry is None else entry.modified

    def _table(self) -> DeltaTable:
        table = load(self.location)
        if table is None:
            raise SpecError(
                f"there is no Delta table at {self.location}",
                "setup",
                "Name the folder that has its _delta_log.",
            )
        return table

    def _readable(self) -> DeltaTable:
        table = self._table()
        refuse_unreadable_rows(self.location, table)
        return table

    def _load_version(self, version: str) -> DeltaTable:
        """Loads a version.

        Raises:
            RefusedError: the version is gone, or the place has another table now.
        """
        number, _, _ = version.partition("@")
        table = self._table()
        if table.version() == int(number) and _name(table) == version:
            return table
        try:
            with Place(self.location).waiting():
                table = DeltaTable(self.location, version=int(number))
        except Exception as error:
            raise self._missing_version_error(version) from error
        if _name(table) != version:
            raise self._missing_version_error(version)
        return table

    def _missing_version_error(self, version: str) -> RefusedError:
        number, _, table_id = version.partition("/")[0].partition("@")
        return RefusedError(
            f"version {number} of the Delta table {self.location} (id {table_id}) can't be read any"
            " more",
            "setup",
            "It was vacuumed, its log was cleaned up, or the table was made anew or came back from"
            " a backup.",
        )


def _relative_paths(table: DeltaTable) -> set[str]:
    """Returns the paths of a version's files below the table; clones have others, too."""
    paths = map(unquote, list_added_files(table)["path"].to_pylist())
    return {path for path in paths if "://" not in path}


def _name(table: DeltaTable) -> str:
    """Returns the name of a version: `number@table/files`."""
    names = "\n".join(sorted(list_added_files(table)["path"].to_pylist()))
    files = hashlib.sha256(names.encode()).hexdigest()[:12]
    return f"{table.version()}@{table.metadata().id}/{files}"
