"""The columns of an Iceberg table: which types it holds, their field ids, and how two
schemas differ.

Pure.

Everything is compared as Arrow's types, as a table of ours would have them; field ids
are added where a file or a table is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Literal

import pyarrow as pa
from pyiceberg.schema import Schema
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

from windrow.ingest.errors import SpecError
from windrow.ingest.schema.metadata import refuse_wrong
from windrow.ingest.sinks.columns import inner_difference

Evolve = Literal["none", "add_columns", "widen"]
"""What may become of a table's columns (`sink.evolve`)."""

UTC = pa.timestamp("us", tz="UTC")
_FIELD_ID = "PARQUET:field_id"

_PLAIN: Mapping[pa.DataType, IcebergType] = {
    pa.int8(): IntegerType(),  # Iceberg has no shorter one
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
_WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}


def check_rows(rows: pa.Schema, metadata: Mapping[str, str]) -> None:
    """Refuse what an Iceberg table can't hold, and metadata columns that can't stand beside the rows'.

    Raises:
        SpecError: naming every column that can't be stored as it is, and what to use.
    """  # noqa: E501
    refuse_wrong(rows.names, metadata)
    lower = [n.lower() for n in rows.names]
    wrong = [
        f"{n}: the name stands there twice (case doesn't count)"
        for n in sorted({n for n in lower if lower.count(n) > 1})
    ]
    wrong += [f"{f.name}: {f.type}" for f in rows if not _storable(f.type)]
    wrong += [
        f"{n}: a name with a point in it, which Iceberg takes for a field of another column"
        for n in rows.names
        if "." in n
    ]
    if not rows.names:
        wrong.append("there are no columns")
    if wrong:
        what = "the schema can't be stored in an Iceberg table as it is: " + "; ".join(wrong)
        do = (
            "Use signed integers, float32/64, bool, string, binary, date32, decimal128,"
            " timestamp[us], structs, lists or maps of these."
        )
        raise SpecError(what, "spec", do)
    wrong = [c for c in metadata.values() if "." in c]
    if wrong:
        what = (
            "metadata columns of an Iceberg table can't have a point in their names:"
            f" {', '.join(wrong)}"
        )
        raise SpecError(what, "spec", "Give them other names under metadata.")


def _storable(kind: pa.DataType) -> bool:
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


def as_held(columns: pa.Schema) -> pa.Schema:
    """Columns as a table of ours holds them: there are no integers shorter than 32 bits."""
    return arrow_columns(iceberg_schema(columns))


def iceberg_schema(columns: pa.Schema) -> Schema:
    """The schema of a new table, its field ids from 1 on."""
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
    """A table's columns as Arrow has them; with the field ids, a file's.

    Raises:
        KeyError: a column has a type that windrow writes no column of.
    """
    return pa.schema(
        [_arrow_field(f.name, f.field_id, f.field_type, f.required, ids=ids) for f in schema.fields]
    )


def _arrow_field(
    name: str, field_id: int, kind: IcebergType, required: bool, *, ids: bool
) -> pa.Field:
    said = {_FIELD_ID: str(field_id)} if ids else None
    return pa.field(name, _arrow_type(kind, ids=ids), nullable=not required, metadata=said)


def _arrow_type(kind: IcebergType, *, ids: bool) -> pa.DataType:
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


@dataclass(frozen=True)
class LakeEvolution:
    """What becomes of a table's columns so that files with other ones fit it.

    Iceberg reads narrower files in a wider table.

    `schema`: its columns then, with field ids; the same object where they stay. `added`
    and `changes`: those that it hasn't yet; these and the ones that become others, in
    words. `problems`: why it can't be, column by column.
    """

    schema: Schema
    changes: tuple[str, ...]
    problems: tuple[str, ...]

    def files(self, names: list[str]) -> pa.Schema:
        """The columns of new files, which have those of these names: as wide as the
        table's, with its field ids.
        """
        every = arrow_columns(self.schema, ids=True)
        return pa.schema([every.field(name) for name in names])


def taken_away(table: Schema, earlier: Iterable[Schema]) -> dict[str, str]:
    """What became of columns that a table had before and has no more under their names:
    windrow takes none away.

    By name, in words.
    """
    ids = {f.field_id: f.name for f in table.fields}
    gone = {
        f.name: f.field_id
        for schema in earlier
        for f in schema.fields
        if f.name not in ids.values()
    }
    return {
        name: f"is called {ids[number]} now" if number in ids else "was dropped"
        for name, number in gone.items()
    }


def evolution(
    table: Schema, last_id: int, wanted: pa.Schema, evolve: Evolve, gone: Mapping[str, str]
) -> LakeEvolution:
    """How a table takes files with the wanted columns.

    What these don't have is null in their rows; what it has wider, they get as wide.

    The order of columns doesn't count: Iceberg finds them by their ids, and added ones
    always come last.

    Args:
        table: its columns.
        last_id: the last field id that it has ever given away; the next ones go on from
            there.
        wanted: the columns of the rows, as `as_held` has them.
        evolve: what may become of the table's.
        gone: what became of columns that it had before; to add one again would hide
            that older rows have lost theirs.
    """
    there, here = {f.name: f for f in _known(table)}, {f.name: f for f in wanted}
    shared = {name: _common(f, here[name], evolve) for name, f in there.items() if name in here}
    new = [f for name, f in here.items() if name not in there]
    added = [f for f in new if f.nullable]
    after = [shared.get(name) or f for name, f in there.items()]
    problems = [f"{f.name}: new, but not nullable ({_shape(f)})" for f in new if not f.nullable]
    problems += [
        f"{f.name}: new ({_shape(f)}), and sink.evolve is none" for f in added if evolve == "none"
    ]
    problems += [
        f"{f.name}: something else changed the table, where it {gone[f.name]}"
        for f in added
        if f.name in gone
    ]
    problems += [
        f"{f.name}: new, and {other} is there (case doesn't count)"
        for f in new
        for other in there
        if _same(other, f.name)
    ]
    problems += [_missing(f) for name, f in there.items() if name not in here and not f.nullable]
    problems += [_differs(there[name], here[name]) for name, f in shared.items() if f is None]
    become = [f for f in after if _shape(f) != _shape(there[f.name])]
    changes = (
        *(f"{f.name} ({_shape(f)})" for f in added),
        *(_becomes(there[f.name], f) for f in become),
    )
    schema = _become(table, last_id, become, added) if changes and not problems else table
    return LakeEvolution(schema, changes, tuple(problems))


def difference(
    table: Schema, last_id: int, wanted: pa.Schema, evolve: Evolve, gone: Mapping[str, str]
) -> list[str]:
    """What keeps a table from becoming one of exactly the wanted columns, column by column."""
    become, here = evolution(table, last_id, wanted, evolve, gone), {f.name: f for f in wanted}
    there = {f.name: f for f in _known(table)}
    missing = [_missing(f) for name, f in there.items() if name not in here]
    after = {f.name: f for f in _known(become.schema)}
    kept = [(after[name], here[name]) for name in there if name in here]
    narrower = [_differs(f, mine) for f, mine in kept if _shape(f) != _shape(mine)]
    told = set(become.problems)
    return [
        *become.problems,
        *(problem for problem in (*missing, *narrower) if problem not in told),
    ]


def _known(table: Schema) -> list[pa.Field]:
    """A table's columns in Arrow's words; one of another type is what no schema of ours equals."""
    return [
        (
            _arrow_field(f.name, f.field_id, f.field_type, f.required, ids=False)
            if _is_known(f)
            else pa.field(
                f.name, pa.null(), nullable=not f.required, metadata={"type": str(f.field_type)}
            )
        )
        for f in table.fields
    ]


def _is_known(field: NestedField) -> bool:
    try:
        _arrow_type(field.field_type, ids=False)
    except KeyError:
        return False
    return True


def _become(table: Schema, last_id: int, become: list[pa.Field], added: list[pa.Field]) -> Schema:
    wider, ids = {f.name: f for f in become}, count(last_id + 1)
    fields = [_widened(f, wider[f.name]) if f.name in wider else f for f in table.fields]
    more = [_field(f, next(ids), lambda: next(ids)) for f in added]
    return Schema(*fields, *more, identifier_field_ids=table.identifier_field_ids)


def _widened(field: NestedField, after: pa.Field) -> NestedField:
    """Nested types never change, so their field ids stay."""
    kind = field.field_type if pa.types.is_nested(after.type) else _type(after.type, lambda: 0)
    return field.model_copy(update={"field_type": kind, "required": not after.nullable})


def _common(there: pa.Field, here: pa.Field, evolve: Evolve) -> pa.Field | None:
    """The column that holds the values of both; None if there is none, or the table may
    not become it.
    """
    if _shape(there) == _shape(here):
        return there
    kind = _wider(there.type, here.type)
    if evolve != "widen" or kind is None:
        return None
    return pa.field(there.name, kind, nullable=there.nullable or here.nullable)


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type of two that holds the values of both, each with the checksum that it has
    (`ingest.schema.checksum`), if there is one.
    """
    if one == other:
        return one
    if _WIDER.get(one) == other:
        return other
    if _WIDER.get(other) == one:
        return one
    if pa.types.is_decimal(one) and pa.types.is_decimal(other) and one.scale == other.scale:
        return one if one.precision > other.precision else other
    return None


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()


def _missing(field: pa.Field) -> str:
    return f"{field.name}: in the table ({_shape(field)}), not in the schema"


def _differs(there: pa.Field, here: pa.Field) -> str:
    inside = inner_difference(there, here)
    return (
        f"{there.name}: at {inside}"
        if inside
        else f"{there.name}: {_shape(there)} in the table, {_shape(here)} in the schema"
    )


def _becomes(there: pa.Field, after: pa.Field) -> str:
    return f"{there.name} ({_shape(there)} to {_shape(after)})"


def _shape(field: pa.Field) -> str:
    kind = field.metadata[b"type"].decode() if pa.types.is_null(field.type) else str(field.type)
    return kind if field.nullable else f"{kind} not null"
