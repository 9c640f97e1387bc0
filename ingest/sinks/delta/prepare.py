"""A table is made once, and bound; later it is held against what is wanted of it, before anything is read.

Columns that it lacks are brought by the first commit of rows that have them (`evolved`), on the snapshot that this commit looks at: a run
that never comes to its commit leaves the table as it was, and of two that bring the same column the second one finds it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema, TableFeatures
from deltalake.transaction import CommitProperties

from windrow.ingest.errors import SchemaChangedError, SpecError, UnreachableError
from windrow.ingest.model.binding import Binding, refuse_other_binding
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.columns import Evolution, Evolve, difference, evolution, has_local_times, table_schema
from windrow.ingest.sinks.delta.demands import refuse_demands
from windrow.ingest.sinks.delta.logged import Table, handle_of
from windrow.ingest.sinks.place import FILES_LOG, Place, normal
from windrow.ingest.sinks.rights import refuse_unwritable


@dataclass(frozen=True)
class Wanted:
    """What a table is to be like: the columns of its files, how its rows lie, and what may become of columns that are there.

    `at_once`: columns are added before there are rows with them; else the first commit of such rows does.
    """

    in_file: pa.Schema
    laid: tables.Laid
    evolve: Evolve = "add_columns"
    at_once: bool = False

    @property
    def schema(self) -> Schema:
        """The table's columns."""
        return table_schema(self.in_file, self.laid.column, self.laid.type)


def evolved(uri: str, table: Table, wanted: Wanted | None) -> Evolution:
    """What becomes of the table's columns, as it is at the commit, so that staged files fit it: it may be another one than when they were.

    A table that has gained columns meanwhile takes files without them. `wanted`: None, if there are no files.

    Raises:
        SchemaChangedError: a staged column can't be one of the table's.
    """
    there = table.schema()
    become = evolution(there, there, "none") if wanted is None else evolution(there, wanted.schema, wanted.evolve)
    if become.problems:
        what = f"the staged files don't fit the table {uri} any more: " + "; ".join(become.problems)
        raise SchemaChangedError(
            what, "commit", "Nothing was committed. The table was changed or made anew meanwhile: run the window again."
        )
    return become


def columns_to_come(uri: str, table: Table, wanted: Wanted) -> Sequence[str]:
    """What the first rows of the wanted columns would change of the table, column by column.

    Raises:
        SchemaChangedError: as `ensure`.
    """
    _refuse_other_columns(uri, table, wanted)
    return evolution(table.schema(), wanted.schema, wanted.evolve).changes


def ensure(uri: str, wanted: Wanted, mine: Binding) -> None:
    """Create the table, or hold it against what is wanted. Idempotent; racing calls agree.

    Args:
        uri: where it lies.
        wanted: what it is to be like.
        mine: what it is to be bound to.

    Raises:
        SchemaChangedError: every difference that no commit may make good, column by column.
        BindingError, GridError, SpecError: see `binding` and `model.binding.refuse_other_binding`; or this user may not write there.
    """
    waits = list(tables.WAITS)
    while True:
        table = tables.load(uri)
        seen = -1 if table is None else table.version()
        change = _missing(uri, table, wanted, mine)
        if change is None:
            return
        why = tables.attempt(change)
        if why is None:
            tables.sync_entry(uri, seen + 1)
            continue
        refuse_unwritable(uri)
        if not tables.again(uri, seen, waits):
            what = f"the table {uri} can't be set up: {why}"
            raise UnreachableError(what, "setup", "Check the table's storage and rights, then run again.")


def is_as_wanted(uri: str, table: Table, wanted: Wanted, mine: Binding) -> bool:
    """Whether `ensure` has nothing to do. Raises as it does."""
    return _missing(uri, table, wanted, mine) is None


def _missing(uri: str, table: Table | None, wanted: Wanted, mine: Binding) -> Callable[[], None] | None:
    """What is still to be done; None if the table is as wanted, or a commit may make it so."""
    if table is None:
        _refuse_files(uri)
        return lambda: _create(uri, wanted, mine)
    refuse_other_binding(uri, tables.binding(uri, table, wanted.laid), mine)
    refuse_demands(uri, table)
    _refuse_other_columns(uri, table, wanted)
    added = evolution(table.schema(), wanted.schema, wanted.evolve).added
    if wanted.at_once and added:
        return lambda: _extend(handle_of(table), added)
    if has_local_times(wanted.schema) and "timestampNtz" not in (table.protocol().writer_features or ()):
        return lambda: _allow_local_times(handle_of(table))
    return None


def _refuse_files(uri: str) -> None:
    """A table of files, whose data and receipts lie where this one's would, loses them to sweeps, which take what Delta doesn't name.

    Raises:
        SpecError: there is one.
    """
    if any(Place(normal(uri)).walk(FILES_LOG)):
        what = f"at {uri} lies a table of another kind"
        raise SpecError(what, "setup", "Set sink.path to a place where nothing is, or sink.kind to the table's.")


def _refuse_other_columns(uri: str, table: Table, wanted: Wanted) -> None:
    there = table.schema()
    problems = difference(there, wanted.schema, wanted.evolve)
    if problems:
        ways: tuple[Evolve, ...] = ("add_columns", "widen")
        way = next((way for way in ways if not difference(there, wanted.schema, way)), None)
        more = "" if way is None else f" With sink.evolve: {way} the table would take it."
        what = f"the schema and the table {uri} differ: " + "; ".join(problems)
        do = f"{_ALLOWED[wanted.evolve]} Set the schema back, or begin a pipeline with another id and table.{more}"
        raise SchemaChangedError(what, "setup", do)
    become = evolution(there, wanted.schema, wanted.evolve)
    if become.widened and not tables.may_lose_files(table) and tables.data_files(table):
        what = f"the table {uri} is append-only (delta.appendOnly), and is to be written anew in wider columns: {', '.join(become.changes)}"
        raise SchemaChangedError(what, "setup", "Unset delta.appendOnly in the table, or set the schema back.")


_ALLOWED: Mapping[Evolve, str] = {
    "none": "sink.evolve is none: no column of the table changes.",
    "add_columns": "Only new nullable columns are added.",
    "widen": "Only new nullable columns are added, and columns made wider.",
}


def _create(uri: str, wanted: Wanted, mine: Binding) -> None:
    DeltaTable.create(
        uri,
        wanted.schema,
        mode="error",
        partition_by=[wanted.laid.column],
        configuration={**_properties(mine), **wanted.laid.properties},
        raise_if_key_not_exists=False,
        commit_properties=CommitProperties(max_commit_retries=0),
    )


def _extend(table: DeltaTable, new: Sequence[Field]) -> None:
    table.alter.add_columns(list(new), commit_properties=CommitProperties(max_commit_retries=0))


def _allow_local_times(table: DeltaTable) -> None:
    """The feature that times without a zone need; the commit that brings such a column can't bring it, too."""
    table.alter.add_feature(
        TableFeatures.TimestampWithoutTimezone,
        allow_protocol_versions_increase=True,
        commit_properties=CommitProperties(max_commit_retries=0),
    )


def _properties(binding: Binding) -> dict[str, str]:
    return {"windrow.pipeline": binding.pipeline, "windrow.ledger": binding.ledger, "windrow.grid": binding.grid}
