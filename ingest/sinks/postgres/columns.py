"""The columns of a table: which PostgreSQL type holds a column's values, and what
becomes of a table that has others.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.schema.metadata import refuse_wrong
from windrow.ingest.sinks.columns import inner_difference
from windrow.ingest.sinks.postgres.names import SYSTEM, name_problems

Evolve = Literal["none", "add_columns", "widen"]
"""What may become of a table's columns (`sink.evolve`)."""

MOST = 1600
"""So many columns a table of PostgreSQL can have, dropped ones included."""

HASH = pa.field("_hash", pa.int64(), nullable=False)
"""A column of tables with a primary key: the hash of the row's others
(`ingest.schema.checksum`), whose sum is in receipts.
"""

JSON = "jsonb"
BIGINT, DOUBLE = "bigint", "double precision"
ZONED, LOCAL = "timestamp with time zone", "timestamp without time zone"

_SCALARS = {
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): BIGINT,
    pa.float32(): "real",
    pa.float64(): DOUBLE,
    pa.bool_(): "boolean",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): ZONED,
    pa.timestamp("us"): LOCAL,
}
_WIDER = ("smallint", "integer", BIGINT), ("real", DOUBLE)
_DO = (
    "Use signed integers, float32/64, bool, string, binary, date32, decimal128, timestamp[us],"
    " structs, lists or maps of these; give fields of the schema an alias where PostgreSQL can't"
    " have their names."
)


def column_type(kind: pa.DataType) -> str | None:
    """The PostgreSQL type that holds the values of an Arrow type, as `format_type`
    writes it; None if none does.

    What has an inside is a `jsonb`, but for lists of scalars, which are arrays.
    """
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar
    if pa.types.is_decimal128(kind):
        return (
            f"numeric({kind.precision},{kind.scale})" if 0 <= kind.scale <= kind.precision else None
        )
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        return JSON if inner and all(map(column_type, inner)) else None
    if pa.types.is_map(kind):
        return JSON if column_type(kind.key_type) and column_type(kind.item_type) else None
    if not pa.types.is_list(kind):
        return None
    element = column_type(kind.value_type)
    return None if element is None else JSON if _has_inside(kind.value_type) else f"{element}[]"


def _has_inside(kind: pa.DataType) -> bool:
    return int(kind.num_fields) > 0


def check_rows(rows: pa.Schema, metadata: Mapping[str, str]) -> None:
    """Refuse columns that no table of PostgreSQL can hold as they are, and metadata
    columns that can't stand beside the rows'.

    Raises:
        SpecError: naming every such column, and what to use.
    """
    refuse_wrong(rows.names, metadata)
    lower = [n.lower() for n in rows.names]
    wrong = [
        f"{n}: the name is used twice (case doesn't count)"
        for n in sorted({n for n in lower if lower.count(n) > 1})
    ]
    wrong += [f"{f.name}: {f.type}" for f in rows if column_type(f.type) is None]
    for name in (*rows.names, *metadata.values()):
        wrong += (
            [f"{name!r} is a column that every table of PostgreSQL has"] if name in SYSTEM else []
        )
        wrong += name_problems(name)
    if not rows.names:
        wrong.append("there are no columns")
    if len(rows.names) + len(metadata) > MOST:
        wrong.append(
            f"{len(rows.names) + len(metadata)} columns, and a table of PostgreSQL has at most"
            f" {MOST}"
        )
    if wrong:
        raise SpecError(
            "the schema can't be stored in PostgreSQL as it is: " + "; ".join(wrong), "spec", _DO
        )


# --------------------------------------------------------------------------------------------------


class ColumnChanges(msgspec.Struct, frozen=True):
    """What becomes of a table that is to take other columns than it has.

    `schema`: all columns afterwards. `added` ones come last; of `altered` ones the type
    or the null changes, in the form they get. `problems`: what keeps it from taking
    them.
    """

    schema: pa.Schema
    added: tuple[pa.Field, ...]
    altered: tuple[tuple[pa.Field, pa.Field], ...]
    problems: tuple[str, ...]

    @classmethod
    def none(cls, schema: pa.Schema) -> ColumnChanges:
        """Of a table that stays as it is."""
        return cls(schema, (), (), ())

    @property
    def changes(self) -> list[str]:
        """In words."""
        altered = [
            f"{new.name} ({shape(old)} to {shape(new)})"
            for old, new in self.altered
            if shape(old) != shape(new)
        ]
        return [*(f"{f.name} ({shape(f)})" for f in self.added), *altered]


def evolution(current: pa.Schema, wanted: pa.Schema, evolve: Evolve) -> ColumnChanges:
    """How a table takes rows with the wanted columns; those that they don't have are
    null in them.
    """
    added, after, altered = [], [], []
    problems = []
    for field in current:
        if field.name not in wanted.names:
            after.append(field)
            problems += (
                []
                if field.nullable
                else [f"{field.name}: in the table ({shape(field)}), not in the schema"]
            )
            continue
        here = wanted.field(field.name)
        common = _common(field, here, evolve)
        after.append(common or field)
        if common is None:
            problems.append(_differs(field, here))
        elif not common.equals(field):
            altered.append((field, common))
    for field in wanted:
        if field.name in current.names:
            continue
        if not field.nullable:
            problems.append(f"{field.name}: new, but not nullable ({shape(field)})")
        elif evolve == "none":
            problems.append(f"{field.name}: new ({shape(field)}), and sink.evolve is none")
        else:
            added.append(field)
    return ColumnChanges(
        pa.schema([*after, *added], current.metadata), tuple(added), tuple(altered), tuple(problems)
    )


def difference(current: pa.Schema, wanted: pa.Schema, evolve: Evolve) -> list[str]:
    """What keeps a table from becoming one of exactly the wanted columns, column by column."""
    become = evolution(current, wanted, evolve)
    gone = [
        f"{f.name}: in the table ({shape(f)}), not in the schema"
        for f in current
        if f.name not in wanted.names and f.nullable
    ]
    narrower = [
        _differs(f, wanted.field(f.name))
        for f in current
        if f.name in wanted.names and not any(p.startswith(f"{f.name}: ") for p in become.problems)
        if shape(become.schema.field(f.name)) != shape(wanted.field(f.name))
    ]
    return [*become.problems, *gone, *narrower]


def _differs(there: pa.Field, here: pa.Field) -> str:
    inside = inner_difference(there, here)
    return (
        f"{there.name}: at {inside}"
        if inside
        else f"{there.name}: {shape(there)} in the table, {shape(here)} in the schema"
    )


def shape(field: pa.Field) -> str:
    """A column as it is told to people, and compared: its type in PostgreSQL, and what
    lies in it where that has an inside.
    """
    held = column_type(field.type)
    inside = f" of {field.type}" if held == JSON else ""
    return f"{held}{inside}" if field.nullable else f"{held}{inside} not null"


def _common(there: pa.Field, here: pa.Field, evolve: Evolve) -> pa.Field | None:
    """The column that holds the values of both; None if there is none, or the table may
    not become it.
    """
    if shape(there) == shape(here):
        return there if there.equals(here) or _width(there.type) >= _width(here.type) else here
    kind = _wider(there.type, here.type)
    if evolve != "widen" or kind is None:
        return None
    return pa.field(there.name, kind, there.nullable or here.nullable)


def _width(kind: pa.DataType) -> int:
    return (
        0
        if _has_inside(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)
        else int(kind.bit_width)
    )


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type of two that holds the values of both, each with the checksum that it has
    (`ingest.schema.checksum`), if there is one.
    """
    if one == other:
        return one
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other) and one.scale == other.scale:
        return one if one.precision > other.precision else other
    held = column_type(one), column_type(other)
    for family in _WIDER:
        if held[0] in family and held[1] in family:
            return one if family.index(held[0]) > family.index(held[1]) else other
    return None


# --------------------------------------------------------------------------------------------------


class CatalogColumn(msgspec.Struct, frozen=True):
    """A column as the catalog has it.

    `filled`: it has a default, or is generated, so that rows may leave it out; `generated`: must.
    """

    name: str
    type: str
    nullable: bool
    filled: bool
    generated: bool


def strange(columns: Sequence[CatalogColumn], schema: pa.Schema) -> list[str]:
    """In what the catalog's columns are not those that the schema stands for: somebody
    else made or changed them.

    Columns of the owner's own, which the database fills, may stand beside them.
    """
    by_name = {c.name: c for c in columns}
    found = []
    for field in schema:
        column, held = by_name.get(field.name), column_type(field.type)
        if column is None:
            found.append(f"{field.name} ({shape(field)}): not in the table")
        elif column.type != held:
            found.append(f"{field.name}: {column.type} in the table, not {held}")
        elif column.generated:
            found.append(f"{field.name}: GENERATED ALWAYS in the table, and rows bring its values")
        elif field.nullable and not column.nullable:
            found.append(f"{field.name}: not null in the table, and rows may have nulls")
    others = [c for c in columns if c.name not in schema.names and not c.filled]
    return [
        *found,
        *(
            f"{c.name} ({c.type}): only in the table, and nothing fills it: give it a default"
            for c in others
        ),
    ]
