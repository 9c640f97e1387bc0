"""Snapshots of any Iceberg table, windrow's or another program's, for lookups that read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.catalogs import load, reason


@dataclass(frozen=True)
class IcebergSnapshots:
    """An Iceberg table. Its versions are the ids of snapshots; `0` is the empty table."""

    catalog_table: CatalogTable

    @property
    def identity(self) -> str:
        return f"iceberg:{self.catalog_table.location}"

    def newest(self) -> str:
        now = self._readable().current_snapshot()
        return "0" if now is None else str(now.snapshot_id)

    def schema(self) -> pa.Schema:
        return self._readable().schema().as_arrow()

    def read(self, version: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        table = self._table()
        if version == "0":
            return
        pinned = self._snapshot(table, version)
        schema = table.schemas().get(pinned.schema_id or 0, table.schema())
        missing_columns = [name for name in columns if name not in schema.column_names]
        if missing_columns:
            raise RefusedError(
                f"snapshot {version} of {self.catalog_table.location} has no column"
                f" {missing_columns[0]}",
                "setup",
                "The table got it later, or it has another name.",
            )
        try:
            scan = table.scan(selected_fields=tuple(columns), snapshot_id=int(version))
            yield from scan.to_arrow_batch_reader()
        except FileNotFoundError as error:
            raise RefusedError(
                f"a file of snapshot {version} of the Iceberg table {self.catalog_table.location}"
                " is gone",
                "setup",
                "Restore it from a backup.",
            ) from error
        except Exception as error:
            raise self._unreachable(error) from error

    def replaced_at(self, version: str) -> datetime | None:
        table = self._table()
        if version == "0":
            return None
        number = self._snapshot(table, version).sequence_number or 0
        later = [s.timestamp_ms for s in table.snapshots() if (s.sequence_number or 0) > number]
        return datetime.fromtimestamp(min(later) / 1000, UTC) if later else None

    def _snapshot(self, table: Table, version: str) -> Snapshot:
        """Returns a snapshot.

        Raises:
            RefusedError: it is gone.
        """
        snapshot = table.snapshot_by_id(int(version))
        if snapshot is None:
            raise RefusedError(
                f"snapshot {version} of the Iceberg table {self.catalog_table.location} isn't"
                " there any more",
                "setup",
                "It was expired, or the table was made anew.",
            )
        return snapshot

    def _table(self) -> Table:
        table = load(self.catalog_table)
        if table is None:
            raise SpecError(
                f"there is no Iceberg table {self.catalog_table.location}",
                "setup",
                "Name a table that is there.",
            )
        return table

    def _readable(self) -> Table:
        """Loads the table as it is now.

        Raises:
            SpecError: it doesn't exist.
            UnreachableError: its rows can't be read, or some are deleted by equality, which
                PyIceberg can't apply.
        """
        table = self._table()
        now = table.current_snapshot()
        try:
            manifests = [] if now is None else now.manifests(table.io)
            rows = [m.min_sequence_number for m in manifests if m.content == ManifestContent.DATA]
            deleting = any(
                entry.data_file.content == DataFileContent.EQUALITY_DELETES
                for manifest in manifests
                if manifest.content == ManifestContent.DELETES
                and manifest.sequence_number >= min(rows, default=0)  # else all rows are newer
                for entry in manifest.fetch_manifest_entry(table.io)
            )
        except Exception as error:
            raise self._unreachable(error) from error
        if deleting:
            message = (
                f"the rows of the Iceberg table {self.catalog_table.location} can't be read: some"
                " are deleted by equality deletes"
            )
            raise UnreachableError(
                message,
                "setup",
                "Have the engine that deleted them rewrite the table's data files, then run again.",
            )
        return table

    def _unreachable(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"the table {self.catalog_table.location} can't be read:"
            f" {reason(self.catalog_table, error)}",
            "setup",
            "Check the catalog, the table's storage and the rights, then run again.",
        )
