"""How a type of the writer's becomes a column: what is decided before any message is read.

A column takes from an Avro type what it can hold of it exactly; the few values that it
can't hold are dead letters:

- an int or a long becomes any integer (`out_of_range` beyond its bits) or a float
  (`out_of_range` where it isn't exact); a float a Float32 or a Float64, a double a
  Float64;
- a string, a uuid in one, and an enum become a String; bytes and a fixed become a
  Binary, or strings a Binary, and bytes a String;
- a decimal, and Debezium's record of a scale and a decimal, becomes a Decimal
  (`out_of_range` where it isn't exact); a date a Date; a timestamp-millis, -micros or
  -nanos a Datetime, whatever `epoch` the column says, and so does an int or a long
  whose column says one, and Debezium's string with an offset; of a time and a local
  timestamp there is the number only;
- an array becomes a List, a map a List of key and value, at any depth, a record a
  Struct of some of its fields;
- a union becomes what each of its types but null can become; null is a null, which a
  column that isn't nullable refuses (`missing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.schema import (
    VARIABLE_DECIMAL,
    ZONED,
    AbsentType,
    ArrayType,
    AvroSchema,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedReference,
    PrimitiveType,
    UnfitType,
    UnionType,
)
from windrow.ingest.formats.shared.calendar import MAX_DAYS, MAX_MICROS, MIN_DAYS, MIN_MICROS
from windrow.ingest.schema.columns import Columns, epoch_of, zone_of
from windrow.ingest.schema.dtypes import TIMESTAMP, epoch_ratio, map_type

INT_BYTES, LONG_BYTES = 5, 10
"""The longest varint of an int and of a long."""
_NO_TEXT = "metadata zone is for timestamps that are text"
_UNITS = {"timestamp-millis": (1_000, 1), "timestamp-micros": (1, 1), "timestamp-nanos": (1, 1_000)}
"""What a timestamp is multiplied with and divided by, to be microseconds."""
_PLACE_BYTES = 9
"""What one place of a column takes in a pass: 64 bits, and whether it is there."""
FREE, SHARE = 1 << 20, 32
"""What the items of any message may cost, and how much more for each of its bytes."""
MOST_TYPES = 20_000
"""So many types are held against columns.

A record is looked at once for each union that it is in, and so are the records in it:
what is a page of text would else be millions of instructions.
"""


@dataclass(frozen=True)
class IntegerRule:
    """Which integers a column takes: those from `low` to `high` that `divisor` divides;
    they become `value * factor // divisor`.
    """

    low: int
    high: int
    factor: int = 1
    divisor: int = 1

    def within(self, low: int, high: int) -> IntegerRule:
        """The same for what the type itself can hold."""
        return IntegerRule(max(low, self.low), min(high, self.high), self.factor, self.divisor)


def budget(size: int) -> int:
    """How many bytes of places the items of a message may take, by its size: null
    structs of many fields are a byte each, and cost many.
    """
    return FREE + SHARE * size


def item_cost(kind: pa.DataType) -> int:
    """What an item of a list costs of the budget; what lies in lists and maps of it
    pays for itself.
    """
    return _PLACE_BYTES * _places(kind)


def entry_cost(kind: pa.DataType) -> int:
    """The same for an entry of a map: a key, and a value of this type."""
    return _PLACE_BYTES * (1 + _places(kind))


def _places(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return 1 + sum(_places(field.type) for field in kind)
    return 2 if pa.types.is_decimal(kind) else 1


def value_of(column: pa.DataType) -> pa.DataType | None:
    """The type of a map's values in a column: it is a map, or a List of Struct of a
    key, a text, and a value.
    """
    # whose fields are found by their names, in any order
    if pa.types.is_list(column) and pa.types.is_struct(column.value_type):
        column = pa.list_(pa.struct(sorted(column.value_type, key=lambda field: field.name)))
    entries = column if pa.types.is_map(column) else map_type(column)
    return None if entries is None else entries.item_type


def is_null(kind: AvroType) -> bool:
    """Whether a type is null itself."""
    return isinstance(kind, PrimitiveType) and kind.name == "null"


def check(schema: AvroSchema, columns: Columns) -> None:
    """That every column can come from the schema.

    Raises:
        SpecError: with each column that can't, and why.
    """
    fields, fitting = dict(schema.records[schema.root].fields), _Fitting(schema)
    wrong: list[str] = []
    for column in columns.columns:
        kind = fields.get(column.name)
        if kind is None or (isinstance(kind, AbsentType) and not column.nullable):
            wrong.append(f"{column.name}: the Avro schema has no such field")
        elif column.zone is not None:
            wrong.append(f"{column.name}: {_NO_TEXT}")
        else:
            wrong += fitting.misfits(kind, column.type, column.epoch, column.name)
    if wrong:
        what = "The columns can't come from the Avro schema: " + "; ".join(wrong)
        raise SpecError(what, "spec", "Fix the schema or the Avro schema; nothing was read.")


def fits(schema: AvroSchema, kind: AvroType, column: pa.DataType, epoch: str | None) -> bool:
    """Whether a type can become a column's.

    Raises:
        SpecError: there are too many types in it.
    """
    return not any(_Fitting(schema).misfits(kind, column, epoch, ""))


class _Fitting:
    """Holds types against columns, not more than `MOST_TYPES` of them."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._seen = 0

    def misfits(
        self, kind: AvroType, column: pa.DataType, epoch: str | None, path: str
    ) -> Iterator[str]:
        """Why a type can't become a column's, nowhere or somewhere in it."""
        self._seen += 1
        if self._seen > MOST_TYPES:
            what = (
                f"The Avro schema has more than {MOST_TYPES} types for the columns, records in"
                " unions counted wherever they are used"
            )
            raise SpecError(
                what, "spec", "Take fewer types of unions into columns; nothing was read."
            )
        if isinstance(kind, UnionType):
            yield from self._of_union(kind, column, epoch, path)
        elif isinstance(kind, ArrayType) and pa.types.is_list(column):
            if self._schema.is_empty(kind.items):
                yield f"{path}: the items of the array have no bytes"
            yield from self.misfits(kind.items, column.value_type, None, f"{path}[...]")
        elif isinstance(kind, MapType) and (of := value_of(column)) is not None:
            yield from self.misfits(kind.values, of, None, f"{path}[...]")
        elif pa.types.is_decimal(column) and is_variable_decimal(self._schema, kind):
            pass
        elif isinstance(kind, NamedReference) and pa.types.is_struct(column):
            fields = dict(self._schema.records[kind.name].fields)
            for field in column:
                if zone_of(field) is not None:
                    yield f"{path}.{field.name}: {_NO_TEXT}"
                elif field.name in fields:
                    yield from self.misfits(
                        fields[field.name], field.type, epoch_of(field), f"{path}.{field.name}"
                    )
                else:
                    yield f"{path}.{field.name}: the record {kind.name} has no such field"
        elif not isinstance(kind, AbsentType) and (
            self._schema.is_empty(kind) or not _scalar_fits(kind, column, epoch)
        ):
            yield f"{path}: {words(kind)} can't become {column}{_hint(kind, column)}"

    def _of_union(
        self, kind: UnionType, column: pa.DataType, epoch: str | None, path: str
    ) -> Iterator[str]:
        branches = [
            branch
            for branch in kind.branches
            if not is_null(branch) and not isinstance(branch, UnfitType)
        ]
        if not branches:
            yield f"{path}: is always null"
        for branch in branches:
            yield from self.misfits(branch, column, epoch, path)


def _hint(kind: AvroType, column: pa.DataType) -> str:
    logical = getattr(kind, "logical", None)
    if (
        logical is not None
        and logical.name.startswith("local-timestamp")
        and pa.types.is_timestamp(column)
    ):
        return ", for it is no instant: take Int64"
    if isinstance(kind, MapType) and pa.types.is_list(column):
        return ': take List(Struct({"key": String, "value": ...}))'
    return ""


def words(kind: AvroType) -> str:
    """A type, for people."""
    if isinstance(kind, PrimitiveType | FixedType):
        name = (
            kind.name
            if isinstance(kind, PrimitiveType)
            else f"fixed {kind.name} of {kind.size} bytes"
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
    if isinstance(kind, UnfitType):
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
        return decimal_scale(kind) is not None
    if is_zoned(kind) and column == TIMESTAMP:
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
    """The scale of a decimal; None if it is none.

    Its precision says nothing that its values don't: Connect states 64 of any.
    """
    return (
        kind.logical.scale if kind.logical is not None and kind.logical.name == "decimal" else None
    )


def is_zoned(kind: AvroType) -> bool:
    """Whether a type is a string with a timestamp in it."""
    return (
        isinstance(kind, PrimitiveType) and kind.logical is not None and kind.logical.name == ZONED
    )


def is_variable_decimal(schema: AvroSchema, kind: AvroType) -> bool:
    """Whether a type is Debezium's record of a scale and a decimal."""
    if not isinstance(kind, NamedReference) or kind.name != VARIABLE_DECIMAL:
        return False
    return schema.records[kind.name].fields == (
        ("scale", PrimitiveType("int")),
        ("value", PrimitiveType("bytes")),
    )


def integer_rule(kind: PrimitiveType, column: pa.DataType, epoch: str | None) -> IntegerRule | None:
    """How an int or a long becomes a column's value; None if it can't."""
    bits = 32 if kind.name == "int" else 64
    own = (-(1 << bits - 1), (1 << bits - 1) - 1)
    logical = None if kind.logical is None else kind.logical.name
    if pa.types.is_integer(column):
        half = 1 << column.bit_width - 1
        return IntegerRule(-half, half - 1).within(*own)
    if pa.types.is_floating(column):
        most = 1 << (53 if column.bit_width == 64 else 24)
        return IntegerRule(-most, most).within(*own)
    if pa.types.is_date(column):
        return IntegerRule(MIN_DAYS, MAX_DAYS) if logical == "date" else None
    if not pa.types.is_timestamp(column):
        return None
    stated = epoch_ratio(epoch) if epoch is not None and logical is None else None
    unit = _UNITS.get(str(logical), stated)  # what the schema says counts
    if unit is None:
        return None
    factor, divisor = unit
    return IntegerRule(
        -(-MIN_MICROS * divisor // factor), MAX_MICROS * divisor // factor, factor, divisor
    ).within(*own)
