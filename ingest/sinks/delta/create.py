"""Makes a table once; later compares its columns with those of the rows to come.

Columns that it lacks are brought by the first commit of rows that have them (`evolved`), on the
snapshot that this commit looked at: a run that never comes to its commit leaves the table as it
was, and of two that bring the same column the second one finds it there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pyarrow as pa
from deltalake import DeltaTable, Schema, TableFeatures
from deltalake.transaction import CommitProperties

from windrow.ingest.errors import SchemaChangedError, SpecError, UnreachableError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.columns import evolution_of, has_local_times
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.owner_properties import owner_properties
from windrow.ingest.sinks.place import FILES_LOG, Place
from windrow.ingest.sinks.schema_evolution import Evolution, allowed_changes, refuse_unfit_files
from windrow.ingest.sinks.write_check import refuse_unwritable


def evolved(uri: str, table: DeltaTable, columns: pa.Schema | None, evolve: Evolve) -> Evolution:
    """Works out what becomes of the table's columns so that staged files fit it at the commit.

    It may be another table than when they were staged; one that has gained columns meanwhile takes
    files without them.

    Args:
        uri: the table's place.
        table: it, as it was looked at.
        columns: the table's as the files need them; None if there are no files.
        evolve: what may become of them.

    Raises:
        SchemaChangedError: a staged column can't be one of the table's.
    """
    there = table.schema()
    become = evolution_of(there, pa.schema(there) if columns is None else columns, evolve)
    refuse_unfit_files(uri, become.problems)
    return become


def column_changes(
    uri: str, table: DeltaTable, columns: pa.Schema, evolve: Evolve
) -> Sequence[str]:
    """Gives the changes that the first rows of these columns would bring, in words.

    Raises:
        SchemaChangedError: every difference that no commit may resolve, column by column.
    """

    def by(setting: Evolve) -> Evolution:
        return evolution_of(table.schema(), columns, setting)

    changes = allowed_changes(uri, evolve, by)
    if by(evolve).widens_table and not tables.may_lose_files(table) and tables.data_files(table):
        what = (
            f"the table {uri} is append-only (delta.appendOnly), and is to be written anew in wider"
            f" columns: {', '.join(changes)}"
        )
        raise SchemaChangedError(
            what, "setup", "Unset delta.appendOnly in the table, or set the schema back."
        )
    return changes


def ensure(
    place: Place,
    uri: str,
    columns: pa.Schema,
    owner: TableOwner,
    shape: tables.Shape,
    waits: Sequence[float],
) -> None:
    """Creates the table, or gives an existing one the feature that its columns need.

    Raises:
        SpecError: a table of files lies there, or this user may not write there.
        UnreachableError: it can't be made.
    """
    left = list(waits)
    while True:
        table = tables.load(uri)
        change = _missing(place, uri, table, columns, owner, shape)
        if change is None:
            return
        failed = tables.failed(change, local=place.is_local)
        if failed is None:
            tables.synced(place, 0 if table is None else table.version() + 1)
            continue
        refuse_unwritable(uri)
        if not left:
            what = f"the table {uri} can't be set up: {failed.why}"
            raise UnreachableError(
                what, "setup", "Check the table's storage and rights, then run again."
            )
        time.sleep(left.pop(0))


def _missing(
    place: Place,
    uri: str,
    table: DeltaTable | None,
    columns: pa.Schema,
    owner: TableOwner,
    shape: tables.Shape,
) -> Callable[[], None] | None:
    """The next step; None if a commit may do the rest, or another pipeline owns the table."""
    if table is None:
        _refuse_files(place, uri)
        return lambda: _create(uri, columns, owner, shape)
    needs = has_local_times(Schema.from_arrow(columns))
    if needs and "timestampNtz" not in (table.protocol().writer_features or ()):
        return (
            (lambda: _allow_local_times(table))
            if tables.owner_of(uri, table, shape) == owner
            else None
        )
    return None


def _refuse_files(place: Place, uri: str) -> None:
    """Refuses a place with a table of kind files, whose data a sweep would take.

    Raises:
        SpecError: there is one.
    """
    if any(place.walk(FILES_LOG)):
        what = f"at {uri} lies a table of another kind"
        raise SpecError(
            what, "setup", "Set sink.path to a place where nothing is, or sink.kind to the table's."
        )


def _create(uri: str, columns: pa.Schema, owner: TableOwner, shape: tables.Shape) -> None:
    DeltaTable.create(
        uri,
        Schema.from_arrow(columns),
        mode="error",
        partition_by=[shape.column],
        configuration={**owner_properties(owner), **shape.properties},
        raise_if_key_not_exists=False,
        commit_properties=CommitProperties(max_commit_retries=0),
    )


def _allow_local_times(table: DeltaTable) -> None:
    """Adds the feature that timestamps without a zone need; a commit of rows can't add it."""
    table.alter.add_feature(
        TableFeatures.TimestampWithoutTimezone,
        allow_protocol_versions_increase=True,
        commit_properties=CommitProperties(max_commit_retries=0),
    )
