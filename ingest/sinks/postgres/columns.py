"""The columns of a table: which PostgreSQL type holds a column's values, and what
becomes of a table that has others.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.schema.metadata_fields import refuse_wrong
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.sinks.postgres.names import SYSTEM, name_problems
from windrow.ingest.sinks.schema_evolution import Evolution, evolution

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


def evolution_of(current: pa.Schema, wanted: pa.Schema, evolve: Evolve) -> Evolution:
    """Works out how a table takes rows with the wanted columns."""
    return evolution(current, wanted, evolve, shape)


def shape(field: pa.Field) -> str:
    """A column as it is told to people, and compared: its type in PostgreSQL, and what
    lies in it where that has an inside.
    """
    held = column_type(field.type)
    inside = f" of {field.type}" if held == JSON else ""
    return f"{held}{inside}" if field.nullable else f"{held}{inside} not null"


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
