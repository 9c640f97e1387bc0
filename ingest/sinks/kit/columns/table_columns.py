"""The columns of tables of rows and of dead letters, for every kind of table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.messages import HEADERS
from windrow.ingest.schema.metadata_types import metadata_fields, refuse_wrong
from windrow.ingest.schema.primary_key import BUCKET, PrimaryKey

FieldPair: TypeAlias = "tuple[str, pa.Field | None, pa.Field | None]"
"""A path, and the fields that a table and a schema have there; None if it has none."""

DEAD_FILE = pa.schema(
    [
        *metadata_fields(DEFAULT)[:-1],
        pa.field("timestamp_type", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS, nullable=False),
        pa.field("leader_epoch", pa.int32()),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("schema_id", pa.string()),
        pa.field("attempt", pa.string(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("pipeline", pa.string(), nullable=False),
    ]
)
"""The columns of a dead letter: the message, the reason, its schema's id, and the attempt.

The names don't depend on the names of the metadata columns in the table of rows.
"""

DEAD_LETTERS = DEAD_FILE.append(pa.field(DEFAULT["window"], pa.string()))
"""The columns of dead letters when they are read: those of the file, and the window's key."""


_SCALARS = (
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_decimal128,
)


def file_schema(rows: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """Returns the columns of a staged file: the rows' columns, then the metadata columns.

    The window's column is left out.
    """
    return pa.schema(
        [*(pa.field(f.name, f.type, f.nullable) for f in rows), *metadata_fields(metadata)[:-1]]
    )


def table_schema(
    rows: pa.Schema, metadata: Mapping[str, str], primary_key: PrimaryKey | None = None
) -> pa.Schema:
    """Returns the columns of a table.

    They are the rows' columns, then all metadata columns. With a primary key, whose rows are in
    files, the column of the bucket is last.
    """
    window = pa.field(metadata["window"], pa.string(), nullable=False)
    bucket = pa.field(BUCKET, pa.int32(), nullable=False)
    columns = file_schema(rows, metadata).append(window)
    return columns if primary_key is None else columns.append(bucket)


def refuse_unstorable(
    rows: pa.Schema,
    metadata: Mapping[str, str],
    holds: Callable[[pa.DataType], bool],
    where: str,
    advice: str = "",
    more: Iterable[str] = (),
) -> None:
    """Refuses columns whose values a kind of table can't store exactly, and duplicate names.

    Args:
        rows: the rows' columns.
        metadata: the names of the metadata columns.
        holds: returns whether the kind stores the values of a type exactly.
        where: the kind of table, which follows "can't be written" in the error.
        advice: more advice for the user.
        more: further problems of the columns.

    Raises:
        SpecError: there are such columns. The error names all of them, and says what to do.
    """
    refuse_wrong(rows.names, metadata)
    lower = [name.lower() for name in rows.names]
    problems = [
        f"{name}: the name is used twice (case doesn't count)"
        for name in sorted({n for n in lower if lower.count(n) > 1})
    ]
    problems += [
        f"{field.name}: {field.type}"
        for field in file_schema(rows, metadata)
        if not holds(field.type)
    ]
    problems += [*more] if rows.names else ["there are no columns"]
    if problems:
        message = f"the columns can't be written {where}: " + "; ".join(problems)
        take = (
            "take signed integers, floats, bool, string, binary, date32, decimal128 or"
            " timestamp[us]."
        )
        raise SpecError(message, "spec", f"{advice} {take}" if advice else take.capitalize())


def is_scalar(kind: pa.DataType) -> bool:
    """Returns whether every kind of table can store a type without parts, except for timestamps."""
    return any(test(kind) for test in _SCALARS)


def fit_columns(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Converts rows to exactly these columns. A column that an older file lacks becomes null."""
    names = rows.schema.names
    arrays = [
        rows.column(f.name).cast(f.type) if f.name in names else pa.nulls(rows.num_rows, f.type)
        for f in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def inner_difference(table_field: pa.Field, schema_field: pa.Field) -> str:
    """Returns the paths at which two nested columns differ, with both types; "" if none."""
    return "; ".join(
        f"{path}: {describe_field(old)} in the table, {describe_field(new)} in the schema"
        for path, old, new in inner_differences(table_field, schema_field)
    )


def inner_differences(table_field: pa.Field, schema_field: pa.Field) -> list[FieldPair]:
    """Returns the fields in which two nested columns of one type differ, with their paths.

    In a path, `[]` means the elements of a list, and `{key}` and `{value}` those of a map.
    """
    alike = table_field.type.id == schema_field.type.id
    inner = _inner(table_field.name, table_field, schema_field) if alike else ()
    return [difference for fields in inner for difference in _differences(*fields)]


def _differences(
    path: str, table_field: pa.Field | None, schema_field: pa.Field | None
) -> Iterator[FieldPair]:
    if table_field is not None and schema_field is not None:
        if (table_field.type, table_field.nullable) == (schema_field.type, schema_field.nullable):
            return
        if (
            table_field.nullable == schema_field.nullable
            and table_field.type.id == schema_field.type.id
        ):
            deeper = [
                difference
                for inner in _inner(path, table_field, schema_field)
                for difference in _differences(*inner)
            ]
            if deeper:
                yield from deeper
                return
    yield path, table_field, schema_field


def _inner(path: str, table_field: pa.Field, schema_field: pa.Field) -> Iterator[FieldPair]:
    """Yields the fields inside two columns of one nested type, with their paths."""
    table_type, schema_type = table_field.type, schema_field.type
    if pa.types.is_struct(table_type):
        table_fields, schema_fields = (
            {field.name: field for field in kind} for kind in (table_type, schema_type)
        )
        for name in dict.fromkeys([*table_fields, *schema_fields]):
            yield f"{path}.{name}", table_fields.get(name), schema_fields.get(name)
    elif pa.types.is_map(table_type):
        yield f"{path}{{key}}", table_type.key_field, schema_type.key_field
        yield f"{path}{{value}}", table_type.item_field, schema_type.item_field
    elif pa.types.is_nested(table_type):
        yield f"{path}[]", table_type.value_field, schema_type.value_field


def describe_field(field: pa.Field | None) -> str:
    """Returns a column's Arrow type, with its nullability."""
    if field is None:
        return "nothing"
    return str(field.type) if field.nullable else f"{field.type} not null"
