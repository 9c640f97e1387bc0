"""A table is made once, and bound; later it is held against what is wanted of it, before anything is read.

Columns that it lacks are brought by the first commit of rows that have them (`evolved`), in the same transaction: a run that never comes to
its commit leaves the table as it was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from windrow.ingest.errors import SchemaChangedError, SpecError, UnreachableError
from windrow.ingest.model.binding import Binding, refuse_other_binding
from windrow.ingest.sinks.iceberg.catalogs import WAITS, make_namespace, opened, reason
from windrow.ingest.sinks.iceberg.columns import Evolve, LakeEvolution, as_held, difference, evolution, iceberg_schema, taken_away
from windrow.ingest.sinks.iceberg.stage import LakeFile, field_id
from windrow.ingest.sinks.iceberg.table import LakeState, LakeTable, bound_to, properties_of

_PARTITION_FIELD = 1000
"""Iceberg's ids of partition fields begin here."""


@dataclass(frozen=True)
class LakeColumns:
    """What a table is to be like: its columns, the window's among them, and what may become of columns that are there."""

    columns: pa.Schema
    evolve: Evolve = "add_columns"

    @classmethod
    def of(cls, in_file: pa.Schema, window: str, evolve: Evolve = "add_columns") -> LakeColumns:
        """The columns of staged rows, with the window's."""
        return cls(as_held(in_file.append(pa.field(window, pa.string(), nullable=False))), evolve)

    def becomes(self, table: Table) -> LakeEvolution:
        """What becomes of a table's columns, so that rows of these fit it."""
        gone = taken_away(table.schema(), table.metadata.schemas)
        return evolution(table.schema(), table.metadata.last_column_id, self.columns, self.evolve, gone)

    def files(self, table: Table) -> pa.Schema:
        """The columns of files that are staged for a table, with the field ids that it has, or is to get."""
        return self.becomes(table).files(self.columns.names)


def evolved(where: str, table: Table, wanted: LakeColumns, files: Sequence[LakeFile]) -> LakeEvolution:
    """What becomes of the table's columns, as it is at the commit, so that staged files fit it: it may be another one than when they were.

    Raises:
        SchemaChangedError: a staged column can't be one of the table's; or another commit has meanwhile given its field ids to other ones.
    """
    become = wanted.becomes(table)
    problems = list(become.problems)
    if not problems:
        ids = {f.name: field_id(f) for f in become.files(wanted.columns.names)}
        staged = {name: said for file in files for name, said in file.ids.items()}
        problems = [f"{name}: another commit brought other columns first" for name, said in staged.items() if ids.get(name) != said]
    if problems:
        what = f"the staged files don't fit the table {where} any more: {'; '.join(problems)}"
        raise SchemaChangedError(
            what, "commit", "Nothing was committed. The table was changed or made anew meanwhile: run the window again."
        )
    return become


def columns_to_come(where: str, table: Table, wanted: LakeColumns) -> Sequence[str]:
    """What the first rows of the wanted columns would change of the table, column by column.

    Raises:
        SchemaChangedError: as `ensure`.
    """
    _refuse_other_columns(where, table, wanted)
    return wanted.becomes(table).changes


def ensure(lake: LakeTable, wanted: LakeColumns, mine: Binding) -> LakeState:
    """Create the table, or hold it against what is wanted. Idempotent; racing calls agree.

    Raises:
        SchemaChangedError: every difference that no commit may make good, column by column.
        BindingError, GridError, SpecError: see `refuse_strange` and `model.binding.refuse_other_binding`.
        UnreachableError: it can't be set up.
    """
    waits = list(WAITS)
    while True:
        state = lake.look()
        if state is not None:
            refuse_other_binding(lake.at.place, bound_to(lake.at.place, state.table), mine)
            _refuse_other_columns(lake.at.place, state.table, wanted)
            return state
        try:
            _create(lake, wanted, mine)
        except TableAlreadyExistsError:
            continue
        except (SpecError, UnreachableError):
            raise
        except Exception as error:
            if not waits:
                what = f"the table {lake.at.place} can't be set up: {reason(lake.at, error)}"
                raise UnreachableError(what, "setup", "Check the catalog, the table's storage and the rights, then run again.") from error
            time.sleep(waits.pop(0))


def _create(lake: LakeTable, wanted: LakeColumns, mine: Binding) -> None:
    make_namespace(lake.at)
    schema = iceberg_schema(wanted.columns)
    source = schema.find_field(lake.column).field_id
    spec = PartitionSpec(PartitionField(source, _PARTITION_FIELD, IdentityTransform(), lake.column))
    opened(lake.at).create_table(lake.at.table, schema, partition_spec=spec, properties=properties_of(mine))


def _refuse_other_columns(where: str, table: Table, wanted: LakeColumns) -> None:
    gone = taken_away(table.schema(), table.metadata.schemas)

    def problems(evolve: Evolve) -> list[str]:
        return difference(table.schema(), table.metadata.last_column_id, wanted.columns, evolve, gone)

    found = problems(wanted.evolve)
    if found:
        ways: tuple[Evolve, ...] = ("add_columns", "widen")
        way = next((way for way in ways if not problems(way)), None)
        more = "" if way is None else f" With sink.evolve: {way} the table would take it."
        what = f"the schema and the table {where} differ: {'; '.join(found)}"
        do = f"{_ALLOWED[wanted.evolve]} Set the schema back, or begin a pipeline with another id and table.{more}"
        if any(name in gone for name in wanted.columns.names):
            do += " A column that was dropped: add it to the table again, older rows have nulls. One that was renamed: rename it back."
        raise SchemaChangedError(what, "setup", do)


_ALLOWED: Mapping[Evolve, str] = {
    "none": "sink.evolve is none: no column of the table changes.",
    "add_columns": "Only new nullable columns are added.",
    "widen": "Only new nullable columns are added, and columns made wider.",
}
