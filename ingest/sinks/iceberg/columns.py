"""The columns of an Iceberg table: their types, their field ids, and their changes.

Pure. Columns are compared as Arrow types. Field ids are added when a file or a table is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count

import pyarrow as pa
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from windrow.ingest.sinks.kit import Evolution, Evolve, refuse_unstorable

UTC = pa.timestamp("us", tz="UTC")
_FIELD_ID = "PARQUET:field_id"

_PLAIN: Mapping[pa.DataType, IcebergType] = {
    pa.int8(): IntegerType(),  # Iceberg has no shorter integer
    pa.int16(): IntegerType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.bool_(): BooleanType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us"): TimestampType(),
    UTC: TimestamptzType(),
}
_ARROW = {
    **{kind: arrow for arrow, kind in _PLAIN.items() if not pa.types.is_integer(arrow)},
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
}


def check_rows(rows: pa.Schema, metadata: Mapping[str, str]) -> None:
    """Refuses columns that an Iceberg table can't hold.

    Raises:
        SpecError: there are such columns. The error names all of them, and says what to use.
    """
    points = [
        f"{name}: a name with a point in it, which Iceberg takes for a field of another column"
        for name in (*rows.names, *metadata.values())
        if "." in name
    ]
    advice = "Metadata columns are renamed under metadata, a field of the schema there;"
    refuse_unstorable(
        rows, metadata, _storable, "to an Iceberg table", advice if points else "", points
    )


def _storable(kind: pa.DataType) -> bool:
    """Returns whether an Iceberg table can hold the type."""
    if pa.types.is_decimal128(kind):
        return bool(0 <= kind.scale <= kind.precision)
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        return (
            bool(names)
            and all("." not in n for n in names)
            and all(_storable(kind.field(i).type) for i in range(kind.num_fields))
        )
    if pa.types.is_map(kind):
        return _storable(kind.key_type) and _storable(kind.item_type)
    if pa.types.is_list(kind):
        return _storable(kind.value_type)
    return bool(kind in _PLAIN)


# --------------------------------------------------------------------------------------------------


def iceberg_schema(columns: pa.Schema) -> Schema:
    """Returns the schema of a new table, with field ids from 1 on."""
    ids = count(1)
    tops = [next(ids) for _ in columns]
    return Schema(
        *(_field(f, field_id, lambda: next(ids)) for f, field_id in zip(columns, tops, strict=True))
    )


def _field(field: pa.Field, field_id: int, new_id: Callable[[], int]) -> NestedField:
    return NestedField(
        field_id=field_id,
        name=field.name,
        field_type=_type(field.type, new_id),
        required=not field.nullable,
    )


def _type(kind: pa.DataType, new_id: Callable[[], int]) -> IcebergType:
    """Converts an Arrow type to Iceberg's type, with a new field id for each nested field."""
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_struct(kind):
        return StructType(
            *(_field(kind.field(i), new_id(), new_id) for i in range(kind.num_fields))
        )
    if pa.types.is_map(kind):
        key, value = new_id(), new_id()
        return MapType(
            key,
            _type(kind.key_type, new_id),
            value,
            _type(kind.item_type, new_id),
            value_required=not kind.item_field.nullable,
        )
    if pa.types.is_list(kind):
        element = new_id()
        return ListType(
            element, _type(kind.value_type, new_id), element_required=not kind.value_field.nullable
        )
    return _PLAIN[kind]


def arrow_columns(schema: Schema, *, ids: bool = False) -> pa.Schema:
    """Returns a table's columns as an Arrow schema; with field ids, the columns of a file.

    Raises:
        KeyError: a column has a type that windrow doesn't write.
    """
    return pa.schema(
        [_arrow_field(f.name, f.field_id, f.field_type, f.required, ids=ids) for f in schema.fields]
    )


def _arrow_field(
    name: str, field_id: int, kind: IcebergType, required: bool, *, ids: bool
) -> pa.Field:
    metadata = {_FIELD_ID: str(field_id)} if ids else None
    return pa.field(name, _arrow_type(kind, ids=ids), nullable=not required, metadata=metadata)


def _arrow_type(kind: IcebergType, *, ids: bool) -> pa.DataType:
    """Converts an Iceberg type to Arrow's type.

    Raises:
        KeyError: windrow doesn't write this type.
    """
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, StructType):
        return pa.struct(
            [
                _arrow_field(f.name, f.field_id, f.field_type, f.required, ids=ids)
                for f in kind.fields
            ]
        )
    if isinstance(kind, MapType):
        key = _arrow_field("key", kind.key_id, kind.key_type, required=True, ids=ids)
        return pa.map_(
            key, _arrow_field("value", kind.value_id, kind.value_type, kind.value_required, ids=ids)
        )
    if isinstance(kind, ListType):
        return pa.list_(
            _arrow_field(
                "element", kind.element_id, kind.element_type, kind.element_required, ids=ids
            )
        )
    return _ARROW[kind]


# --------------------------------------------------------------------------------------------------


def find_lost_columns(table: Schema, earlier: Iterable[Schema]) -> dict[str, str]:
    """Returns the names of columns that a table had before and lost, each with the cause.

    Fields inside columns count, too. windrow itself removes no column.
    """
    names = index_by_name(table)
    ids = {number: name for name, number in names.items()}
    deleted_ids = {
        name: number
        for schema in earlier
        for name, number in index_by_name(schema).items()
        if name not in names
    }
    return {
        name: f"renamed this column to {ids[number]}" if number in ids else "dropped this column"
        for name, number in deleted_ids.items()
    }


def evolution_of(
    table: Schema, earlier: Iterable[Schema], incoming: pa.Schema, evolve: Evolve
) -> Evolution:
    """Returns the change of the table's columns by which files with the wanted columns fit it.

    Args:
        table: the table's columns.
        earlier: all schemas that the table ever had. A column that another program removed
            isn't added again, because that would hide that older rows have lost its values.
        incoming: the columns of the rows, as a table holds them: no integer is shorter than 32
            bits.
        evolve: the changes that are allowed.
    """
    refused = {
        name: f"another program {change}"
        for name, change in find_lost_columns(table, earlier).items()
    }
    evolution = Evolution.compare(_to_arrow(table), incoming, evolve, _shape, refused)
    inside = index_by_name(iceberg_schema(incoming)).keys() & refused.keys() - {*incoming.names}
    problems = [f"{name}: {refused[name]}" for name in sorted(inside)]
    return replace(evolution, problems=(*evolution.problems, *problems))


def schema_after(table: Schema, last_id: int, evolution: Evolution) -> Schema:
    """Returns the table's columns after the change.

    Args:
        table: the table's columns; the same object is returned if they don't change.
        last_id: the highest field id that the table has ever used. New ids follow it.
        evolution: the change.
    """
    if not evolution.changes or evolution.problems:
        return table
    ids = count(last_id + 1)
    columns = pa.struct(list(evolution.columns))
    fields = _merge_fields(table.fields, columns, lambda: next(ids))
    return Schema(*fields, identifier_field_ids=table.identifier_field_ids)


def _to_arrow(table: Schema) -> pa.Schema:
    """Returns a table's columns as Arrow types. Types that windrow doesn't write become null."""
    return pa.schema(
        _arrow_field(f.name, f.field_id, f.field_type, f.required, ids=False)
        if _is_known(f)
        else pa.field(
            f.name, pa.null(), nullable=not f.required, metadata={"type": str(f.field_type)}
        )
        for f in table.fields
    )


def _is_known(field: NestedField) -> bool:
    try:
        _arrow_type(field.field_type, ids=False)
    except KeyError:
        return False
    return True


def _merge_fields(
    fields: Iterable[NestedField], struct: pa.DataType, new_id: Callable[[], int]
) -> list[NestedField]:
    """Returns the fields as the table has them after a change, with an id for each new field."""
    known = {f.name: f for f in fields}
    return [
        _field(field, new_id(), new_id)
        if (old := known.get(field.name)) is None
        else old.model_copy(
            update={
                "field_type": _merge_types(old.field_type, field.type, new_id),
                "required": not field.nullable,
            }
        )
        for field in struct
    ]


def _merge_types(old: IcebergType, kind: pa.DataType, new_id: Callable[[], int]) -> IcebergType:
    if pa.types.is_null(kind):  # windrow doesn't write this type
        return old
    if isinstance(old, StructType):
        return StructType(*_merge_fields(old.fields, kind, new_id))
    if isinstance(old, ListType):
        element = kind.value_field
        return ListType(
            old.element_id,
            _merge_types(old.element_type, element.type, new_id),
            element_required=not element.nullable,
        )
    if isinstance(old, MapType):
        return MapType(
            old.key_id,
            _merge_types(old.key_type, kind.key_type, new_id),
            old.value_id,
            _merge_types(old.value_type, kind.item_type, new_id),
            value_required=not kind.item_field.nullable,
        )
    return _type(kind, new_id)


def _shape(field: pa.Field) -> str:
    kind = field.metadata[b"type"].decode() if pa.types.is_null(field.type) else str(field.type)
    return kind if field.nullable else f"{kind} not null"
