"""A table is made once, and bound; later it is held against what is wanted of it.

Columns that it lacks are brought by the first commit of rows that have them (`evolved`), in the
same transaction: a run that never comes to its commit leaves the table as it was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import IdentityTransform

from windrow.ingest.errors import SchemaChangedError, SpecError, UnreachableError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.sinks.iceberg.at import TableAt
from windrow.ingest.sinks.iceberg.catalogs import WAITS, load, make_namespace, opened, reason
from windrow.ingest.sinks.iceberg.columns import (
    Evolve,
    LakeEvolution,
    difference,
    evolution,
    iceberg_schema,
    taken_away,
)
from windrow.ingest.sinks.iceberg.stage import LakeFile, field_id

_FORM = "2"
"""The form of what a table says of its windows."""

_FORM_NAME = "windrow.form"
_BINDING = ("windrow.pipeline", "windrow.ledger", "windrow.grid")

_PARTITION_FIELD = 1000
"""Iceberg's ids of partition fields begin here."""


# ---------------------------------------------------------------------------------- whose it is


def bound_to(where: str, table: Table) -> TableOwner:
    """The pipeline, ledger and grid that a table is bound to.

    Raises:
        SpecError: it was made by something else, or by another windrow in another form.
    """
    kept = table.metadata.properties
    missing = next((name for name in _BINDING if name not in kept), None)
    if missing is not None:
        what = f"the table {where} was not made by windrow: its property {missing!r} is missing"
        raise SpecError(what, "setup", "Give the sink a table of its own; windrow makes it.")
    form = kept.get(_FORM_NAME, "1")
    if form != _FORM:
        what = f"the table {where} is of form {form}, and this windrow reads form {_FORM}"
        do = "Use the windrow that made it, or begin a pipeline with another id and table."
        raise SpecError(what, "setup", do)
    return TableOwner(*(kept[name] for name in _BINDING))


def refuse_strange(where: str, table: Table, column: str) -> None:
    """See before any use that the table is windrow's, and that its rows lie by their windows.

    Raises:
        SpecError: it was made by something else.
        SchemaChangedError: its rows lie in another way: a replacement would take other windows'
            rows with it.
    """
    bound_to(where, table)
    names = [table.schema().find_column_name(f.source_id) for f in table.spec().fields]
    if names != [column] or not isinstance(table.spec().fields[0].transform, IdentityTransform):
        what = (
            f"the table {where} is partitioned by {', '.join(map(str, names)) or 'nothing'}, not by"
            f" {column}"
        )
        do = (
            "Set the partitions, or the name of metadata window, back if they were changed; else"
            " give the sink a table of its own."
        )
        raise SchemaChangedError(what, "setup", do)


# -------------------------------------------------------------------------------------- columns


@dataclass(frozen=True)
class LakeColumns:
    """All columns that a table is to have, and what may become of those that are there."""

    columns: pa.Schema
    evolve: Evolve

    def becomes(self, table: Table) -> LakeEvolution:
        """The change of a table's columns by which rows of these fit it."""
        gone = taken_away(table.schema(), table.metadata.schemas)
        return evolution(
            table.schema(), table.metadata.last_column_id, self.columns, self.evolve, gone
        )

    def files(self, table: Table) -> pa.Schema:
        """The columns of files that are staged for a table, with the field ids that it
        has, or is to get.
        """
        return self.becomes(table).files(self.columns.names)


def column_changes(where: str, table: Table, wanted: LakeColumns) -> Sequence[str]:
    """The changes that the first rows of the wanted columns would bring, column by column.

    Raises:
        SchemaChangedError: every difference that no commit may make good.
    """
    gone = taken_away(table.schema(), table.metadata.schemas)

    def problems(evolve: Evolve) -> list[str]:
        return difference(
            table.schema(), table.metadata.last_column_id, wanted.columns, evolve, gone
        )

    found = problems(wanted.evolve)
    if found:
        ways: tuple[Evolve, ...] = ("add_columns", "widen")
        way = next((way for way in ways if not problems(way)), None)
        more = "" if way is None else f" With sink.evolve: {way} the table would take it."
        what = f"the schema and the table {where} differ: {'; '.join(found)}"
        do = (
            f"{_ALLOWED[wanted.evolve]} Set the schema back, or begin a pipeline with another id"
            f" and table.{more}"
        )
        if any(name in gone for name in wanted.columns.names):
            do += (
                " A column that was dropped: add it to the table again, older rows have nulls. One"
                " that was renamed: rename it back."
            )
        raise SchemaChangedError(what, "setup", do)
    return wanted.becomes(table).changes


_ALLOWED: Mapping[Evolve, str] = {
    "none": "sink.evolve is none: no column of the table changes.",
    "add_columns": "Only new nullable columns are added.",
    "widen": "Only new nullable columns are added, and columns made wider.",
}


def evolved(
    where: str, table: Table, wanted: LakeColumns, files: Sequence[LakeFile]
) -> LakeEvolution:
    """The change of the table's columns, as it is at the commit, by which staged files fit it.

    It may be another change than when they were staged.

    Raises:
        SchemaChangedError: a staged column can't be one of the table's; or another commit has
            meanwhile given its field ids to other ones.
    """
    become = wanted.becomes(table)
    problems = list(become.problems)
    if not problems:
        ids = {f.name: field_id(f) for f in become.files(wanted.columns.names)}
        staged = {name: said for file in files for name, said in file.ids.items()}
        problems = [
            f"{name}: another commit brought other columns first"
            for name, said in staged.items()
            if ids.get(name) != said
        ]
    if problems:
        what = f"the staged files don't fit the table {where} any more: {'; '.join(problems)}"
        do = (
            "Nothing was committed. The table was changed or made anew meanwhile: run the window"
            " again."
        )
        raise SchemaChangedError(what, "commit", do)
    return become


# --------------------------------------------------------------------------------------- making


def make(at: TableAt, column: str, columns: pa.Schema, owner: TableOwner) -> None:
    """Make a table unless it is there; racing calls agree.

    Args:
        at: where.
        column: the window's, by which it is partitioned.
        columns: all of them.
        owner: whom it belongs to.

    Raises:
        UnreachableError: it can't be made.
    """
    waits = list(WAITS)
    while load(at) is None:
        try:
            _create(at, column, columns, owner)
        except TableAlreadyExistsError:
            continue
        except (SpecError, UnreachableError):
            raise
        except Exception as error:
            if not waits:
                what = f"the table {at.place} can't be set up: {reason(at, error)}"
                do = "Check the catalog, the table's storage and the rights, then run again."
                raise UnreachableError(what, "setup", do) from error
            time.sleep(waits.pop(0))


def _create(at: TableAt, column: str, columns: pa.Schema, owner: TableOwner) -> None:
    make_namespace(at)
    schema = iceberg_schema(columns)
    source = schema.find_field(column).field_id
    spec = PartitionSpec(PartitionField(source, _PARTITION_FIELD, IdentityTransform(), column))
    properties = {
        **dict(zip(_BINDING, (owner.pipeline, owner.ledger, owner.grid), strict=True)),
        _FORM_NAME: _FORM,
        # Its metadata stays small whoever writes it.
        TableProperties.MANIFEST_MERGE_ENABLED: "true",
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
        TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "50",
    }
    opened(at).create_table(at.table, schema, partition_spec=spec, properties=properties)
