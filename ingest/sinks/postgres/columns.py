"""The columns of a table: their types in PostgreSQL, and how they evolve. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.sinks.kit import (
    DELETED,
    UNAVAILABLE,
    Evolution,
    Evolve,
    MergeColumns,
    hash_rows,
    refuse_unstorable,
)
from windrow.ingest.sinks.postgres.names import name_problems

HASH = pa.field("_hash", pa.int64(), nullable=False)
"""A column of tables with a primary key: the hash of the row's other columns
(`ingest.schema.checksum`). Receipts have the sum of these hashes.
"""

JSON = "jsonb"

_SCALARS = {
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.bool_(): "boolean",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp with time zone",
    pa.timestamp("us"): "timestamp without time zone",
}


def column_type(kind: pa.DataType) -> str | None:
    """Returns the PostgreSQL type of an Arrow type, by its name in `format_type`, or None.

    Nested types are `jsonb`; a list of scalars is an array. A list of timestamps is `jsonb`, too,
    because pgpq would write the timestamps without their zone.
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
    if element is None:
        return None
    inside = kind.value_type
    return JSON if pa.types.is_nested(inside) or pa.types.is_timestamp(inside) else f"{element}[]"


def check_rows(rows: pa.Schema, metadata: Mapping[str, str]) -> None:
    """Refuses columns that PostgreSQL can't store, and names that it would cut.

    Args:
        rows: the rows' columns.
        metadata: the names of the metadata columns.

    Raises:
        SpecError: names every such column, and the types that can be used.
    """
    names = (*rows.names, *metadata.values())
    problems = [problem for name in names for problem in name_problems(name)]
    advice = "Give fields of the schema an alias where PostgreSQL can't have their names;"
    refuse_unstorable(
        rows,
        metadata,
        lambda kind: column_type(kind) is not None,
        "in PostgreSQL",
        advice,
        problems,
    )


# --------------------------------------------------------------------------------------------------


def evolution_of(current: pa.Schema, incoming: pa.Schema, evolve: Evolve) -> Evolution:
    """Compares a table's columns with the rows' columns; see `schema_evolution`."""
    return Evolution.compare(current, incoming, evolve, shape)


def shape(field: pa.Field) -> str:
    """Describes a column by its type in PostgreSQL, for comparisons and messages.

    The description of a `jsonb` column includes its Arrow type.
    """
    sql_type = column_type(field.type)
    inside = f" of {field.type}" if sql_type == JSON else ""
    return f"{sql_type}{inside}" if field.nullable else f"{sql_type}{inside} not null"


_KEY_PROPERTY = b"windrow.primary-key"


class KeyedColumns(MergeColumns, frozen=True):
    """The columns by which changes are merged into a table, and the columns of its tombstones."""

    @property
    def has_tombstones(self) -> bool:
        """True if deletes remove rows, so that only a tombstone keeps the place of the delete."""
        return not self.key.marks and self.key.version is None

    @property
    def tombstone(self) -> list[str]:
        """The columns of a tombstone."""
        return [*self.key.columns, self.window, *self.position]

    def hashes(self, changes: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        """Computes each change's hash: the hash of its row, or of its tombstone.

        Rows and tombstones are stored with their hash. A later change of the key subtracts that
        hash from the table's checksum.
        """
        hashes = hash_rows(
            changes, (UNAVAILABLE.name,) if self.key.marks else (UNAVAILABLE.name, DELETED)
        )
        if self.has_tombstones:
            deletes = changes.column(DELETED)
            hashes[deletes.to_numpy(zero_copy_only=False)] = hash_rows(
                changes.select(self.tombstone).filter(deletes)
            )
        return hashes

    @property
    def key_properties(self) -> dict[bytes, bytes]:
        """The primary key, as metadata of the table's schema. It never changes."""
        key = {"columns": self.key.columns, "marks": self.key.marks, "version": self.key.version}
        return {_KEY_PROPERTY: json.dumps(key).encode()}


def key_difference(current: pa.Schema, incoming: pa.Schema) -> list[str]:
    """Describes the difference between the primary keys of two schemas; empty if there is none."""
    table_key, spec_key = (
        (schema.metadata or {}).get(_KEY_PROPERTY) for schema in (current, incoming)
    )
    return (
        []
        if table_key == spec_key
        else [f"{_describe_key(table_key)} in the table, {_describe_key(spec_key)} in the spec"]
    )


def _describe_key(key_property: bytes | None) -> str:
    if key_property is None:
        return "no primary key"
    key = json.loads(key_property)
    more = [
        *(["mode delete-aware"] if key["marks"] else []),
        *([f"version {key['version']}"] if key["version"] else []),
    ]
    return ", ".join([f"the primary key {', '.join(key['columns'])}", *more])


# --------------------------------------------------------------------------------------------------


class CatalogColumn(msgspec.Struct, frozen=True):
    """A column in PostgreSQL's catalog.

    Attributes:
        name: the column's name.
        type: the column's type, by its name in `format_type`.
        nullable: False if the column is NOT NULL.
        needs_value: True if each INSERT must give a value, because the column is NOT NULL without
            any default.
    """

    name: str
    type: str
    nullable: bool
    needs_value: bool = False


def column_problems(columns: Sequence[CatalogColumn], schema: pa.Schema) -> list[str]:
    """Describes the columns of a table to which rows of a schema can't be written.

    A table that windrow didn't make, or that somebody changed, may have such columns.
    """
    by_name = {c.name: c for c in columns}
    problems = [
        f"{c.name}: not null, and rows have no such column: give it a default, or drop NOT NULL"
        for c in columns
        if c.needs_value and c.name not in schema.names
    ]
    for field in schema:
        column, sql_type = by_name.get(field.name), column_type(field.type)
        if column is None:
            problems.append(f"{field.name} ({shape(field)}): not in the table")
        elif column.type != sql_type:
            problems.append(f"{field.name}: {column.type} in the table, not {sql_type}")
        elif field.nullable and not column.nullable:
            problems.append(f"{field.name}: not null in the table, and rows may have nulls")
    return problems
