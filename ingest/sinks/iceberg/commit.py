"""One commit to an Iceberg table on exactly the state that was looked at, sent once.

PyIceberg's own commit tries again on a state that windrow hasn't looked at. It also removes the
manifests of a commit that it believes has failed, though perhaps only the answer was lost. So
`Prepared.send` sends the commit that PyIceberg prepares, once, and nothing is removed. The
catalog accepts the commit only on these conditions:
    the branch main is unchanged          `AssertRefSnapshotId`: no other commit in between
    columns and partitions are unchanged  `AssertCurrentSchemaId`, `AssertDefaultSpecId`
    it is the same table                  `AssertTableUUID`: the table may have been created again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.typedef import Record

from windrow.ingest.sinks.iceberg.pyiceberg_internals import SingleCommit
from windrow.ingest.sinks.iceberg.stage import IcebergFile

NEWEST_PAGE = "windrow.page"
"""The key of a commit's page in its summary and in the table's properties.

`sinks.kit.commit.pages` has the pages.
"""


class Prepared(SingleCommit):
    """A commit that is ready to be sent, once. Its manifests are written but not visible."""

    snapshot: int

    def set_schema(self, schema: Schema | None) -> None:
        """Sets the table's columns, if they are still those that were looked at."""
        about = self.table_metadata
        requirements: tuple[TableRequirement, ...] = (
            AssertCurrentSchemaId(current_schema_id=about.current_schema_id),  # type: ignore[call-arg]
            AssertDefaultSpecId(default_spec_id=about.default_spec_id),  # type: ignore[call-arg]
        )
        new: tuple[TableUpdate, ...] = ()
        if schema is not None:
            numbered = schema.model_copy(
                update={"schema_id": 1 + max(s.schema_id for s in about.schemas)}
            )
            new = (AddSchemaUpdate(schema=numbered), SetCurrentSchemaUpdate(schema_id=-1))  # type: ignore[call-arg]
        self.add(new, requirements)

    def change(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        summary: Mapping[str, str],
        page: Callable[[int], str],
        *,
        same_rows: bool = False,
    ) -> None:
        """Changes the table's files by one snapshot. The snapshot is made also without files.

        Args:
            added: files with new rows.
            removed: files whose rows are removed.
            summary: the snapshot's entries for people.
            page: writes the page of the snapshot with this id; returns the page's name.
            same_rows: whether the added files have the rows of the removed files. Readers of
                the table's changes pass over such a snapshot.
        """
        producer: Any = self.merging_overwrite() if removed else self.merging_append()
        for file in added:
            producer.append_data_file(file)
        for file in removed:
            producer.delete_data_file(file)
        self.snapshot = producer.snapshot_id
        named = {NEWEST_PAGE: page(self.snapshot)}
        producer.snapshot_properties = {**named, **summary}
        producer.commit()
        if same_rows:
            self.say_replaced()
        self.set_properties(named)

    def expire(self, snapshot_ids: Sequence[int]) -> None:
        """Removes snapshots from the table's history. Their files stay."""
        self.add((RemoveSnapshotsUpdate(snapshot_ids=list(snapshot_ids)),), ())  # type: ignore[call-arg]


def data_file(table: Table, file: IcebergFile, partition: Record) -> DataFile:
    """Describes a staged file for a commit.

    Args:
        table: the table.
        file: the staged file.
        partition: the values of its partition, by the table's partition spec.
    """
    about = file.metrics
    return DataFile.from_args(
        file_path=f"{table.metadata.location.rstrip('/')}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=file.rows,
        file_size_in_bytes=file.size,
        value_counts=about.values,
        null_value_counts=about.nulls,
        lower_bounds=about.lower,
        upper_bounds=about.upper,
        split_offsets=list(about.splits),
        spec_id=table.metadata.default_spec_id,
    )
