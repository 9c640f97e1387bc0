"""Schema evolution: the way a table accepts rows whose columns differ from its own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from windrow.ingest.errors import SchemaChangedError
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.kit.columns.table_columns import (
    describe_field,
    inner_difference,
    inner_differences,
)

Shape = Callable[[pa.Field], str]
"""Returns a column's type in the words of the table's format, with its nullability."""

_ALLOWED: Mapping[Evolve, str] = {
    "none": "sink.evolve is none: no column of the table changes.",
    "add_columns": "Only new nullable columns, and fields in them, are added.",
    "widen": "Only new nullable columns, and fields in them, are added, and columns made wider.",
}


@dataclass(frozen=True)
class Evolution:
    """The change of a table's columns by which it accepts rows with other columns.

    Attributes:
        table: the table's columns before the change.
        incoming: the columns of the rows.
        columns: the table's columns after the change; the added columns are last.
        changes: the changes in words.
        problems: for each problematic column, the reason why the table can't accept such rows.
        shape: returns a column's type in the words of the table's format.
    """

    table: pa.Schema
    incoming: pa.Schema
    columns: pa.Schema
    changes: tuple[str, ...]
    problems: tuple[str, ...]
    shape: Shape

    @property
    def added(self) -> list[pa.Field]:
        """The columns that the table gets."""
        return [f for f in self.columns if f.name not in self.table.names]

    @property
    def altered(self) -> list[tuple[pa.Field, pa.Field]]:
        """The columns whose type or nullability changes, before and after."""
        pairs = [(f, self.columns.field(f.name)) for f in self.table]
        return [(old, new) for old, new in pairs if not new.equals(old)]

    @property
    def widens_table(self) -> bool:
        """Whether a column gets a type in which readers can't read the table's files."""
        return any(_is_wider(self.columns.field(f.name).type, f.type) for f in self.table)

    @property
    def widens_rows(self) -> bool:
        """Whether the table has a column in a type in which readers can't read the rows' files."""
        return any(_is_wider(self.columns.field(f.name).type, f.type) for f in self.incoming)

    @property
    def differences(self) -> list[str]:
        """The reasons why the table can't get exactly the wanted columns, column by column."""
        missing = [
            _missing_problem(f, self.shape) for f in self.table if f.name not in self.incoming.names
        ]
        narrower = [
            _type_problem(f, self.incoming.field(f.name), self.shape)
            for f in self.table
            if f.name in self.incoming.names
            and self.shape(_sorted_field(self.columns.field(f.name)))
            != self.shape(_sorted_field(self.incoming.field(f.name)))
        ]
        return list(dict.fromkeys([*self.problems, *missing, *narrower]))

    @classmethod
    def compare(
        cls,
        table: pa.Schema,
        incoming: pa.Schema,
        evolve: Evolve,
        shape: Shape,
        refused: Mapping[str, str] | None = None,
        *,
        grow_maps: bool = True,
    ) -> Evolution:
        """Finds the change by which a table accepts rows with the wanted columns.

        A column, or a field inside one, that the rows lack is null in them. A column that is
        wider in the table is widened in the rows. The order of columns and fields doesn't count.

        Args:
            table: the table's columns.
            incoming: the columns of the rows.
            evolve: the allowed changes of the table's columns.
            shape: returns a column's type in the words of the table's format.
            refused: columns that can't be added to this table, with the reason.
            grow_maps: whether the values of maps may get new fields.
        """
        table_fields, incoming_fields, refused = (
            {f.name: f for f in table},
            {f.name: f for f in incoming},
            refused or {},
        )
        shared = {
            name: _common_field(f, incoming_fields[name], evolve, shape, grow_maps=grow_maps)
            for name, f in table_fields.items()
            if name in incoming_fields
        }
        new = [f for f in incoming if f.name not in table_fields]
        merged_fields = [shared.get(f.name) or f for f in table]
        clash_by_folded_name = {
            f.name.casefold(): f"new, and {f.name} is there (case doesn't count)" for f in table
        }
        problems = [
            _refused_problem(
                f, evolve, shape, refused.get(f.name) or clash_by_folded_name.get(f.name.casefold())
            )
            for f in new
        ]
        problems += [
            _missing_problem(f, shape)
            for f in table
            if f.name not in incoming_fields and not f.nullable
        ]
        problems += [
            _type_problem(table_fields[n], incoming_fields[n], shape)
            for n, f in shared.items()
            if f is None
        ]
        added = [f for f in new if f.nullable]
        changes = [f"{f.name} ({shape(f)})" for f in added]
        changes += [
            change
            for f in merged_fields
            if shape(f) != shape(table_fields[f.name])
            for change in _describe_change(table_fields[f.name], f, shape)
        ]
        columns = pa.schema([*merged_fields, *added], table.metadata)
        return cls(table, incoming, columns, tuple(changes), tuple(filter(None, problems)), shape)

    @classmethod
    def compare_added(
        cls, table: pa.Schema, incoming: pa.Schema, where: str, *, by_position: bool = False
    ) -> Evolution:
        """Finds the change of a table that accepts new nullable columns and no other change.

        Rows of an older schema may lack nullable columns of the table.

        Args:
            table: the table's columns.
            incoming: the columns of the rows.
            where: the table's place.
            by_position: whether readers use a column's position, as in CSV. No column may be
                added or missing then.

        Raises:
            SchemaChangedError: there is another difference; the error names all of them.
        """
        reasons = {f.name: f"new ({describe_field(f)}), in a table of CSV files" for f in incoming}
        evolution = cls.compare(
            table, incoming, "add_columns", describe_field, reasons if by_position else None
        )
        problems = evolution.differences if by_position else evolution.problems
        if problems:
            raise SchemaChangedError(
                f"the columns of the table {where} are not the schema's: {'; '.join(problems)}",
                "setup",
                "Nothing was written. Set the schema back, or begin a pipeline with another id and"
                " table.",
            )
        return evolution

    def refuse_files(self, where: str, more_problems: Sequence[str] = ()) -> None:
        """Refuses staged files that don't fit the table as it is at the commit.

        Args:
            where: the table's place.
            more_problems: reasons besides the problems of this change.

        Raises:
            SchemaChangedError: there are problems.
        """
        problems = [*self.problems, *more_problems]
        if problems:
            message = (
                f"the staged files don't fit the table {where} any more: {'; '.join(problems)}"
            )
            advice = "Nothing was committed. The table was changed or made anew meanwhile: run the"
            raise SchemaChangedError(message, "commit", f"{advice} window again.")


def allowed_changes(
    where: str, evolve: Evolve, evolution_by: Callable[[Evolve], Evolution], advice: str = ""
) -> Sequence[str]:
    """Returns the changes that the first rows with the wanted columns make, in words.

    Args:
        where: the table's place.
        evolve: the allowed changes of its columns.
        evolution_by: finds the change of its columns for a setting of `sink.evolve`.
        advice: advice about a difference that the schema didn't cause.

    Raises:
        SchemaChangedError: no commit may resolve some differences; the error names them.
    """
    evolution = evolution_by(evolve)
    if not evolution.differences:
        return evolution.changes
    others: tuple[Evolve, ...] = ("add_columns", "widen")
    fits = next((mode for mode in others if not evolution_by(mode).differences), None)
    more = "" if fits is None else f" With sink.evolve: {fits} the table would take it."
    message = f"the schema and the table {where} differ: {'; '.join(evolution.differences)}"
    next_step = advice or (
        f"{_ALLOWED[evolve]} Set the schema back, or begin a pipeline with another id and table."
    )
    unknown = [f for f in evolution.table if f.nullable and f.name not in evolution.incoming.names]
    if evolution.differences == [_missing_problem(f, evolution.shape) for f in unknown]:
        names = ", ".join(f.name for f in unknown)
        next_step = (
            f"If something else added it to the table, add it to the schema, nullable: {names}."
            " Rows are null there where messages don't have it. If the schema lost it, put it back,"
            " or begin a pipeline with another id and table."
        )
    raise SchemaChangedError(message, "setup", f"{next_step}{more}")


def _refused_problem(field: pa.Field, evolve: Evolve, shape: Shape, reason: str | None) -> str:
    """Returns the reason why a new column can't be added; "" if it can."""
    if reason is not None:
        return f"{field.name}: {reason}"
    if not field.nullable:
        return f"{field.name}: new, but not nullable ({shape(field)})"
    if evolve == "none":
        return f"{field.name}: new ({shape(field)}), and sink.evolve is none"
    return ""


def _describe_change(before: pa.Field, after: pa.Field, shape: Shape) -> list[str]:
    """Returns the change of a column in words, for a nested column that of each field inside."""
    inside = [
        f"{path} ({describe_field(new)})"
        if old is None
        else f"{path} ({describe_field(old)} to {describe_field(new)})"
        for path, old, new in inner_differences(before, after)
    ]
    return inside or [f"{after.name} ({shape(before)} to {shape(after)})"]


def _common_field(
    table_field: pa.Field,
    schema_field: pa.Field,
    evolve: Evolve,
    shape: Shape,
    *,
    grow_maps: bool,
) -> pa.Field | None:
    """Returns the column that holds the values of both, if it exists and is allowed."""
    if shape(table_field) == shape(schema_field):
        kind = _wider_type(table_field.type, schema_field.type)
        return table_field if kind is None else table_field.with_type(kind)
    return _merge_fields(table_field, schema_field, evolve, grow_maps=grow_maps)


def _merge_fields(
    table_field: pa.Field, schema_field: pa.Field, evolve: Evolve, *, grow_maps: bool
) -> pa.Field | None:
    """Returns the field, at any depth, that holds the values of both, if it is allowed."""
    kind = _merge_types(table_field.type, schema_field.type, evolve, grow_maps=grow_maps)
    if kind is None or (schema_field.nullable != table_field.nullable and evolve != "widen"):
        return None
    return pa.field(table_field.name, kind, table_field.nullable or schema_field.nullable)


def _merge_types(
    table_type: pa.DataType, schema_type: pa.DataType, evolve: Evolve, *, grow_maps: bool
) -> pa.DataType | None:
    if not pa.types.is_nested(table_type) or table_type.id != schema_type.id:
        wider = _wider_type(table_type, schema_type)
        return wider if evolve == "widen" or table_type == schema_type else None
    table_fields, schema_fields = _inner_fields(table_type), _inner_fields(schema_type)
    fields = [
        f
        if name not in schema_fields
        else _merge_fields(f, schema_fields[name], evolve, grow_maps=grow_maps)
        for name, f in table_fields.items()
    ]
    lacking = [f for name, f in table_fields.items() if name not in schema_fields]
    new = [f for name, f in schema_fields.items() if name not in table_fields]
    folded_names = {name.casefold() for name in table_fields}
    has_twins = (
        len(table_fields) < table_type.num_fields
        or len(schema_fields) < schema_type.num_fields
        or any(f.name.casefold() in folded_names for f in new)
    )
    # A field inside that only one of the two has may be null.
    fits = not has_twins and all(f.nullable for f in (*lacking, *new))
    if not fits or any(f is None for f in fields) or (new and evolve == "none"):
        return None
    merged = _rebuild_type(table_type, [*fields, *new])
    is_map = pa.types.is_map(table_type)
    return None if is_map and not grow_maps and _is_wider(merged, table_type) else merged


def _inner_fields(kind: pa.DataType) -> dict[str, pa.Field]:
    """Returns the fields inside a nested type. Those of lists and maps have fixed names here."""
    if pa.types.is_struct(kind):
        return {f.name: f for f in kind}
    if pa.types.is_map(kind):
        return {"key": kind.key_field, "value": kind.item_field}
    return {"element": kind.value_field}


def _rebuild_type(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """Returns the nested type with other fields inside."""
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    return pa.map_(*fields) if pa.types.is_map(kind) else pa.list_(*fields)


def _sorted_field(field: pa.Field) -> pa.Field:
    """Returns the column with the fields of each struct inside in the order of their names."""
    if not pa.types.is_nested(field.type):
        return field
    inner = [_sorted_field(f) for f in _inner_fields(field.type).values()]
    by_name = sorted(inner, key=lambda f: f.name) if pa.types.is_struct(field.type) else inner
    return field.with_type(_rebuild_type(field.type, by_name))


def _is_wider(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Returns whether a file of the narrow type has to be rewritten for readers of the wide one.

    Readers know a struct's fields by their names, and one that a file lacks is null to them, also
    in the elements of lists. Not all of them find it so in the values of maps.
    """
    if wide.id != narrow.id or not pa.types.is_nested(wide) or pa.types.is_map(wide):
        return bool(wide != narrow)
    fields = _inner_fields(wide)
    return any(_is_wider(fields[name].type, f.type) for name, f in _inner_fields(narrow).items())


def _wider_type(table_type: pa.DataType, schema_type: pa.DataType) -> pa.DataType | None:
    """Returns the one of two types that holds the values of both; None if neither does.

    Every checksum must stay the same (`ingest.schema.checksum`): the hash of a number doesn't
    depend on its width, and the hash of a decimal is that of its digits.
    """
    if table_type == schema_type:
        return table_type
    for is_kind in (pa.types.is_signed_integer, pa.types.is_floating):
        if is_kind(table_type) and is_kind(schema_type):
            return table_type if table_type.bit_width > schema_type.bit_width else schema_type
    if (
        pa.types.is_decimal(table_type)
        and pa.types.is_decimal(schema_type)
        and table_type.scale == schema_type.scale
    ):
        return table_type if table_type.precision > schema_type.precision else schema_type
    return None


def _missing_problem(field: pa.Field, shape: Shape) -> str:
    return f"{field.name}: in the table ({shape(field)}), not in the schema"


def _type_problem(table_field: pa.Field, schema_field: pa.Field, shape: Shape) -> str:
    inside = inner_difference(table_field, schema_field)
    strict = (
        ", where it must be nullable" if table_field.nullable and not schema_field.nullable else ""
    )
    return (
        f"{table_field.name}: at {inside}"
        if inside
        else f"{table_field.name}: {shape(table_field)} in the table,"
        f" {shape(schema_field)} in the schema{strict}"
    )
