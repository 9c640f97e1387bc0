"""Rules for which type of the writer's schema can become which column.

They are applied before any message is read. A column takes the values of a type that it can
hold exactly. A message with any other value is a dead letter, whose reason is in brackets
here:

- An int or a long becomes an integer of any size (`out_of_range`: too large for it) or a
  float (`out_of_range`: not exact). A float becomes a Float32 or a Float64, a double a
  Float64.
- A string (a uuid too) becomes a String or a Binary. Bytes become a Binary or a String.
  A fixed becomes a Binary, an enum a String.
- A decimal becomes a Decimal (`out_of_range`: not exact), and so does Debezium's record
  of a scale and a decimal.
- A date becomes a Date. A timestamp-millis, -micros or -nanos becomes a Datetime; the
  column's `epoch` isn't used. An int or a long without a logical type becomes a Datetime if
  the column has an `epoch`. Debezium's strings become a Datetime or a Date: timestamps with an
  offset, and dates. A time and a local timestamp become only numbers.
- An array becomes a List, a map becomes a List of key and value or a map, at any depth. A
  record becomes a Struct of some of its fields, and one that contains itself also a String, a
  JSON text.
- A union becomes a column if each of its types except null can become the column. Null
  becomes null, which a column that isn't nullable refuses (`missing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice

import pyarrow as pa

from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.formats.avro.schema import (
    BIG_DECIMAL,
    AbsentType,
    ArrayType,
    AvroSchema,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedReference,
    PrimitiveType,
    RefusedType,
    UnionType,
)
from windrow.ingest.formats.shared.connect_types import ISO_DATE, VARIABLE_DECIMAL, ZONED
from windrow.ingest.formats.shared.integers import MAX_DAYS, MIN_DAYS, IntegerRule, column_rule
from windrow.ingest.formats.shared.placeless import Placeless, value_of
from windrow.ingest.schema.columns import Columns, epoch_of, zone_of
from windrow.ingest.schema.dtypes import TIMESTAMP, epoch_ratio

INT_BYTES, LONG_BYTES = 5, 10
"""Length in bytes of the longest varint of an int, and of a long."""

PRIMITIVE_COLUMNS = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
"""The narrowest column type that holds all values of a primitive type."""

MOST_TYPES = 20_000
"""Limit of the types of a schema that are compared with columns.

A record is compared once for each union that contains it, and so are the records inside it.
Without this limit, a schema of one page could become millions of instructions.
"""

MOST_IGNORED = 100
"""Limit of the fields of a schema that are reported as ignored."""

_ZONE_OF_NUMBER = "metadata zone is for timestamps that are text"
_TEXT_COLUMNS = {ZONED: TIMESTAMP, ISO_DATE: pa.date32()}
"""Column of strings that are timestamps or dates, by their logical type."""
_UNITS = {"timestamp-millis": (1_000, 1), "timestamp-micros": (1, 1), "timestamp-nanos": (1, 1_000)}
"""The factor and the divisor that convert a timestamp of each logical type to microseconds."""


def is_null(kind: AvroType) -> bool:
    """Returns whether a type is the primitive type null."""
    return isinstance(kind, PrimitiveType) and kind.name == "null"


def member_name(kind: AvroType) -> str:
    """Returns the name of a union's type in a struct of members: `long`, `array`, a record's name.

    A record that was resolved for a struct keeps its own name.
    """
    if isinstance(kind, ArrayType | MapType):
        return words(kind)
    return str(getattr(kind, "name", "")).partition("(")[0].rpartition(".")[2]


def members_of(kind: UnionType, names: Collection[str]) -> dict[str, AvroType]:
    """Returns a union's types by their names, if it can become a struct of its members.

    Such a struct has a field for each type that it takes, and the field of a value's type has
    the value. The result is empty for any other struct.

    Args:
        kind: the union.
        names: the names of the struct's fields; empty if the column isn't a struct.
    """
    branches = [branch for branch in kind.branches if not is_null(branch)]
    members = {member_name(branch): branch for branch in branches}
    is_unique = len(members) == len(branches) > 1
    return members if names and is_unique and members.keys() >= set(names) else {}


def names_in(column: pa.DataType | None) -> list[str]:
    """Returns the names of a struct's fields; none for any other type."""
    if column is None or not pa.types.is_struct(column):
        return []
    return [field.name for field in column]


def misfits(schema: AvroSchema, columns: Columns) -> dict[str, str]:
    """Returns why columns can't be read from the schema, by name."""
    fields, fitting = dict(schema.records[schema.root].fields), _Fitting(schema)
    reason_by_column: dict[str, str] = {}
    for column in columns.columns:
        kind = fields.get(column.name)
        if kind is None or (isinstance(kind, AbsentType) and not column.nullable):
            problems = [f"{column.name}: the Avro schema has no such field"]
        elif column.zone is not None:
            problems = [f"{column.name}: {_ZONE_OF_NUMBER}"]
        else:
            problems = [*fitting.misfits(kind, column.type, column.epoch, column.name)]
        if problems:
            reason_by_column[column.name] = "; ".join(problems)
    return reason_by_column


def check(schema: AvroSchema, columns: Columns) -> None:
    """Refuses columns that can't be read from the schema.

    Raises:
        SpecError: names each such column with the reason.
    """
    reason_by_column = misfits(schema, columns)
    if reason_by_column:
        raise SpecError(
            "The columns can't come from the Avro schema: " + "; ".join(reason_by_column.values()),
            "spec",
            "Fix the schema or the Avro schema; nothing was read.",
        )


def fits(schema: AvroSchema, kind: AvroType, column: pa.DataType, epoch: str | None) -> bool:
    """Returns whether a type can become a column.

    Raises:
        SpecError: the type contains too many types.
    """
    return not any(_Fitting(schema).misfits(kind, column, epoch, ""))


class _Fitting:
    """Compares at most `MOST_TYPES` types with columns."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._type_count = 0

    def misfits(
        self, kind: AvroType, column: pa.DataType, epoch: str | None, path: str
    ) -> Iterator[str]:
        """Yields why a type, or a type inside it, can't become the column; nothing if it can."""
        self._type_count += 1
        if self._type_count > MOST_TYPES:
            raise SpecError(
                f"The Avro schema has more than {MOST_TYPES} types for the columns. A record in"
                " unions counts once for each union.",
                "spec",
                "Read fewer unions of records into columns; nothing was read.",
            )
        if isinstance(kind, UnionType):
            yield from self._of_union(kind, column, epoch, path)
        elif isinstance(kind, ArrayType) and pa.types.is_list(column):
            if self._schema.is_empty(kind.items):
                yield f"{path}: the array's items are always null or empty"
            yield from self.misfits(kind.items, column.value_type, None, f"{path}[...]")
        elif isinstance(kind, MapType) and (value_type := value_of(column)) is not None:
            yield from self.misfits(kind.values, value_type, None, f"{path}[...]")
        elif (
            is_variable_decimal(self._schema, kind)
            if pa.types.is_decimal(column)
            else column == pa.string() and is_recursive(self._schema, kind)
        ):
            pass
        elif isinstance(kind, NamedReference) and pa.types.is_struct(column):
            fields = dict(self._schema.records[kind.name].fields)
            yield from self._of_fields(fields, column, path, kind.name)
        elif not isinstance(kind, AbsentType) and (
            self._schema.is_empty(kind) or not _scalar_fits(kind, column, epoch)
        ):
            yield f"{path}: {words(kind)} can't become {column}{_hint(kind, column)}"

    def _of_fields(
        self, fields: Mapping[str, AvroType], column: pa.StructType, path: str, record: str
    ) -> Iterator[str]:
        for field in column:
            if zone_of(field) is not None:
                yield f"{path}.{field.name}: {_ZONE_OF_NUMBER}"
            elif field.name in fields:
                yield from self.misfits(
                    fields[field.name], field.type, epoch_of(field), f"{path}.{field.name}"
                )
            else:
                yield f"{path}.{field.name}: the record {record} has no such field"

    def _of_union(
        self, kind: UnionType, column: pa.DataType, epoch: str | None, path: str
    ) -> Iterator[str]:
        if members := members_of(kind, names_in(column)):
            yield from self._of_fields(members, column, path, "")
            return
        branches = [
            branch
            for branch in kind.branches
            if not is_null(branch) and not isinstance(branch, RefusedType)
        ]
        if not branches:
            yield f"{path}: the field is always null"
        for branch in branches:
            yield from self.misfits(branch, column, epoch, path)


def _hint(kind: AvroType, column: pa.DataType) -> str:
    logical = getattr(kind, "logical", None)
    if (
        logical is not None
        and logical.name.startswith("local-timestamp")
        and pa.types.is_timestamp(column)
    ):
        return ", since it names no moment in time: take Int64"
    if isinstance(kind, MapType) and pa.types.is_list(column):
        return ': take List(Struct({"key": String, "value": ...}))'
    return ""


def words(kind: AvroType) -> str:
    """Returns a description of the type, for errors."""
    if isinstance(kind, PrimitiveType | FixedType):
        name = (
            kind.name
            if isinstance(kind, PrimitiveType)
            else f"fixed {kind.name} of {format_count(kind.size, 'byte')}"
        )
        if kind.logical is None:
            return name
        digits = (
            f"({kind.logical.precision}, {kind.logical.scale})"
            if kind.logical.name == "decimal"
            else ""
        )
        return f"{name} ({kind.logical.name}{digits})"
    if isinstance(kind, EnumType | NamedReference):
        return f"{'enum' if isinstance(kind, EnumType) else 'record'} {kind.name}"
    if isinstance(kind, RefusedType):
        return kind.words
    return {ArrayType: "array", MapType: "map", UnionType: "union", AbsentType: "nothing"}[
        type(kind)
    ]


def _scalar_fits(kind: AvroType, column: pa.DataType, epoch: str | None) -> bool:
    if isinstance(kind, EnumType):
        return bool(column == pa.string())
    if isinstance(kind, FixedType):
        return (
            decimal_scale(kind) is not None
            if pa.types.is_decimal(column)
            else bool(column == pa.binary())
        )
    if not isinstance(kind, PrimitiveType):
        return False
    if kind.name in {"int", "long"}:
        return integer_rule(kind, column, epoch) is not None
    if kind.name == "bytes" and pa.types.is_decimal(column):
        return decimal_scale(kind) is not None or is_big_decimal(kind)
    if kind.logical is not None and column == _TEXT_COLUMNS.get(kind.logical.name):
        return True
    takes = {
        "boolean": (pa.bool_(),),
        "float": (pa.float32(), pa.float64()),
        "double": (pa.float64(),),
        "bytes": (pa.binary(), pa.string()),
        "string": (pa.string(), pa.binary()),
    }
    return column in takes.get(kind.name, ())


def decimal_scale(kind: PrimitiveType | FixedType) -> int | None:
    """Returns the scale of a decimal; None if the type isn't one.

    The stated precision isn't used: Kafka Connect states 64 for every decimal, and each
    value shows its own digits.
    """
    return (
        kind.logical.scale if kind.logical is not None and kind.logical.name == "decimal" else None
    )


def is_big_decimal(kind: AvroType) -> bool:
    """Returns whether a type is Avro's decimal that has its scale in each value."""
    return (
        isinstance(kind, PrimitiveType)
        and kind.logical is not None
        and kind.logical.name == BIG_DECIMAL
    )


def is_variable_decimal(schema: AvroSchema, kind: AvroType) -> bool:
    """Returns whether a type is Debezium's record of a scale and a decimal."""
    if not isinstance(kind, NamedReference) or kind.name != VARIABLE_DECIMAL:
        return False
    return schema.records[kind.name].fields == (
        ("scale", PrimitiveType("int")),
        ("value", PrimitiveType("bytes")),
    )


def is_recursive(schema: AvroSchema, kind: AvroType) -> bool:
    """Returns whether a type is a record that contains itself, which can become a JSON text."""
    return isinstance(kind, NamedReference) and kind.name in schema.recursive


def integer_rule(kind: PrimitiveType, column: pa.DataType, epoch: str | None) -> IntegerRule | None:
    """Returns how an int or a long becomes a value of a column; None if it can't."""
    logical = None if kind.logical is None else kind.logical.name
    if pa.types.is_date(column):
        return IntegerRule(MIN_DAYS, MAX_DAYS) if logical == "date" else None
    if pa.types.is_decimal(column):
        return None
    # The writer's logical type has precedence over the column's metadata.
    stated = epoch_ratio(epoch) if epoch is not None and logical is None else None
    rule = column_rule(column, _UNITS.get(str(logical), stated))
    half = 1 << (31 if kind.name == "int" else 63)
    return None if rule is None else rule.narrow(-half, half - 1)


def ignored_fields(schema: AvroSchema, columns: Columns) -> tuple[str, ...]:
    """Returns the paths of the fields of a row that no column is for.

    They are the same for all messages of the schema. The caller must have called `check`.
    """

    def inside(kind: AvroType, names: Collection[str]) -> Iterable[tuple[str | None, AvroType]]:
        if isinstance(kind, UnionType):
            members = members_of(kind, names)
            return members.items() or chain.from_iterable(
                inside(branch, names) for branch in kind.branches
            )
        if isinstance(kind, ArrayType):
            return [(None, kind.items)]
        if isinstance(kind, MapType):
            return [("*", kind.values)]
        return schema.records[kind.name].fields if isinstance(kind, NamedReference) else ()

    placeless_paths = Placeless(columns, inside)(NamedReference(schema.root))
    return tuple(dict.fromkeys(islice(placeless_paths, MOST_IGNORED)))
