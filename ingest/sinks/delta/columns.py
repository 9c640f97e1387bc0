"""The columns of a Delta table: their types and their changes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from deltalake import Field, Schema

from windrow.ingest.errors import SpecError
from windrow.ingest.sinks.kit import (
    Evolution,
    Evolve,
    is_scalar,
    names_beyond_spark,
    refuse_unstorable,
)


def check_rows(rows: pa.Schema, metadata: Mapping[str, str]) -> None:
    """Refuses columns that a Delta table would store as another type, or not at all.

    Delta stores unsigned integers as signed integers and reports no error. So this module lists
    the types that Delta holds.

    Raises:
        SpecError: there are such columns. The error names all of them, and says what to use.
    """
    all_fields = (*rows, *(pa.field(name, pa.string()) for name in metadata.values()))
    unreadable = list(names_beyond_spark(all_fields))
    if unreadable:
        raise SpecError(
            "the schema has names that Spark can't read in a Delta table:"
            f" {', '.join(map(repr, unreadable))}",
            "spec",
            "Take names without blanks, tabs, line breaks and ,;{}()=: a metadata column is renamed"
            " under metadata, a field of messages by a function (a spark step). A table of"
            " Iceberg holds any name.",
        )
    advice = "In maps a timestamp needs a zone;"
    refuse_unstorable(rows, metadata, _storable, "to a Delta table", advice)


def _storable(kind: pa.DataType, *, in_map: bool = False) -> bool:
    """Returns whether a Delta table can hold the type.

    Timestamps without a zone need a feature of the protocol. deltalake 1.6 doesn't set it for a
    new table with such timestamps in a map.
    """
    if pa.types.is_timestamp(kind):
        return kind.unit == "us" and (kind.tz == "UTC" or (kind.tz is None and not in_map))
    if pa.types.is_nested(kind):
        in_map = in_map or pa.types.is_map(kind)
        parts = [kind.field(i).type for i in range(kind.num_fields)]
        is_known = any(test(kind) for test in _NESTED)
        return is_known and bool(parts) and all(_storable(part, in_map=in_map) for part in parts)
    return is_scalar(kind)


_NESTED = (pa.types.is_struct, pa.types.is_map, pa.types.is_list)


def evolution_of(table: Schema, incoming: pa.Schema, evolve: Evolve) -> Evolution:
    """Returns the change of the table's columns by which files with the wanted columns fit it.

    A new field in the values of a map rewrites the table's files, as a wider column does:
    deltalake's own queries and `optimize` fail at a file whose map lacks a field.
    """
    wanted = pa.schema(Schema.from_arrow(incoming))
    grow_maps = evolve == "widen"
    return Evolution.compare(pa.schema(table), wanted, evolve, _shape, grow_maps=grow_maps)


def schema_after(table: Schema, evolution: Evolution) -> Schema:
    """Returns the table's columns after the change. Unchanged columns keep their metadata."""
    table_fields = {field.name: field for field in table.fields}
    fields = []
    for column in evolution.columns:
        field, old = Field.from_arrow(column), table_fields.get(column.name)
        if old is None:
            fields.append(field)
        elif column.equals(evolution.table.field(column.name)):
            fields.append(old)
        else:
            args = {"nullable": column.nullable, "metadata": old.metadata}
            fields.append(Field(column.name, field.type, **args))
    return Schema(fields)


def in_files(columns: pa.Schema, partitions: Collection[str]) -> pa.Schema:
    """Returns the columns of a table's files: all except the partition columns.

    The values of the partition columns are in the log alone.
    """
    return pa.schema([field for field in columns if field.name not in partitions])


def _shape(field: pa.Field) -> str:
    name = Field.from_arrow(field).type.to_json().strip('"')
    return name if field.nullable else f"{name} not null"
