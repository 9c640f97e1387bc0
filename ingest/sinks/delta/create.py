"""Creates a table once, and finds the change of its columns at a commit.

The first commit of rows with a new column adds the column (`evolve_columns`), on the snapshot
that the commit looked at. So a run that never commits leaves the table unchanged. If two runs
add the same column, the second run finds it in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from deltalake import DeltaTable, Schema, TableFeatures
from deltalake.transaction import CommitProperties

from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.columns import evolution_of
from windrow.ingest.sinks.kit import (
    Evolution,
    Evolve,
    PartitionField,
    Place,
    key_properties,
    refuse_unwritable,
    retry,
)


def evolve_columns(
    uri: str, table: DeltaTable, columns: pa.Schema | None, evolve: Evolve
) -> Evolution:
    """Returns the change of the table's columns by which staged files fit it at the commit.

    The table may have changed since the files were staged. A table with more columns accepts
    files without them.

    Args:
        uri: the table's path or URI.
        table: the snapshot that was looked at.
        columns: the table's columns as the files need them; None if there are no files.
        evolve: the changes that are allowed.

    Raises:
        SchemaChangedError: a staged column can't be a column of the table.
    """
    table_schema = table.schema()
    evolution = evolution_of(
        table_schema, pa.schema(table_schema) if columns is None else columns, evolve
    )
    evolution.refuse_files(uri)
    return evolution


class _FailedChangeError(Exception):
    """A change of the table failed, and may be tried again. Its text is the reason."""


def ensure(
    folder: Place,
    uri: str,
    columns: pa.Schema,
    owner: TableOwner,
    shape: tables.Shape,
    waits: Sequence[float],
) -> None:
    """Creates the table, or adds to an existing table the feature that its columns need.

    Raises:
        SpecError: this user may not write there.
        UnreachableError: the table can't be created.
    """

    def make_missing() -> None:
        table = tables.load(uri)
        while (change := _missing(uri, table, columns, owner, shape)) is not None:
            with folder.waiting():
                failed = tables.try_change(change, local=folder.is_local)
            if failed is not None:
                refuse_unwritable(uri)
                raise _FailedChangeError(failed.reason)
            tables.sync_version(folder, 0 if table is None else table.version() + 1)
            table = tables.load(uri)

    try:
        retry(make_missing, lambda error: isinstance(error, _FailedChangeError), waits)
    except _FailedChangeError as error:
        raise UnreachableError(
            f"the table {uri} can't be set up: {error}",
            "setup",
            "Check the table's storage and rights, then run again.",
        ) from None


def _missing(
    uri: str,
    table: DeltaTable | None,
    columns: pa.Schema,
    owner: TableOwner,
    shape: tables.Shape,
) -> Callable[[], None] | None:
    """Returns the next change to make.

    None if no change is missing, or if another pipeline owns the table.
    """
    if table is None:
        return lambda: _create(uri, columns, owner, shape)
    needs = '"timestamp_ntz"' in Schema.from_arrow(columns).to_json()  # also in nested fields
    if needs and "timestampNtz" not in (table.protocol().writer_features or ()):
        return (
            (lambda: _allow_local_times(table))
            if tables.owner_of(uri, table, shape) == owner
            else None
        )
    return None


def _create(uri: str, columns: pa.Schema, owner: TableOwner, shape: tables.Shape) -> None:
    DeltaTable.create(
        uri,
        Schema.from_arrow(columns),
        mode="error",
        partition_by=shape.columns,
        configuration={
            **owner.properties,
            **key_properties(shape.primary_key),
            **PartitionField.properties(shape.partition_by),
        },
        raise_if_key_not_exists=False,
        commit_properties=CommitProperties(max_commit_retries=0),
    )


def _allow_local_times(table: DeltaTable) -> None:
    """Adds the feature for timestamps without a zone. A commit of rows can't add it."""
    table.alter.add_feature(
        TableFeatures.TimestampWithoutTimezone,
        allow_protocol_versions_increase=True,
        commit_properties=CommitProperties(max_commit_retries=0),
    )
