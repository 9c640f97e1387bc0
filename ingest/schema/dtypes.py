"""Types of columns: the supported polars types, and their Arrow types.

Any other type is refused, with advice which type to take instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
EPOCH_UNITS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""Units of a schema's `epoch`, as in `Field(metadata={"epoch": "ms"})`.

The value is the power of ten that converts the unit to microseconds.
"""


def epoch_ratio(unit: str) -> tuple[int, int]:
    """Returns the factor and the divisor that convert whole numbers of a unit to microseconds."""
    power = EPOCH_UNITS[unit]
    return 10 ** max(power, 0), 10 ** max(-power, 0)


_SCALARS = {
    pl.Int8: pa.int8(),
    pl.Int16: pa.int16(),
    pl.Int32: pa.int32(),
    pl.Int64: pa.int64(),
    pl.Float32: pa.float32(),
    pl.Float64: pa.float64(),
    pl.Boolean: pa.bool_(),
    pl.String: pa.string(),
    pl.Date: pa.date32(),
    pl.Binary: pa.binary(),
}
SUPPORTED = (
    "Int8, Int16, Int32, Int64, Float32, Float64, Boolean, String, Binary, Date, Datetime('us',"
    " 'UTC'), Decimal(p, s), List and Struct"
)
_WAYS_OUT = (
    (pl.Datetime, "timestamps are UTC microseconds: Datetime('us', 'UTC')"),
    (pl.Categorical, "take String, with Field(isin=[...]) for a fixed set"),
    (pl.Enum, "take String with Field(isin=[...])"),
    (pl.Array, "take List, with a check for the length"),
    (pl.Duration, "take Int64 and say the unit in the column's name"),
    (pl.Time, "take String, or a whole Datetime('us', 'UTC')"),
    (
        pl.Decimal,
        (
            "it needs a precision and a scale, as in Decimal(18, 2): a precision of at most 38, and"
            " a scale of at most the precision"
        ),
    ),
    (pl.List, "say of what, as in List(String)"),
    (pl.Struct, "say its fields, as in Struct({'city': String, 'zip': Int32})"),
)
_MOST_DIGITS = 38


class UnsupportedTypeError(ValueError):
    """Type that a column can't have; the text says which type to take instead."""


def arrow_type(dtype: object) -> pa.DataType:
    """Returns the Arrow type of a polars type.

    Every value inside lists and structs is nullable, because polars types have no
    nullability.

    Raises:
        UnsupportedTypeError: names the type, and the type to take instead.
    """
    # A type without the parameters that it needs.
    if isinstance(dtype, type) and issubclass(
        dtype, (pl.Decimal, pl.List, pl.Struct, pl.Array, pl.Enum)
    ):
        raise UnsupportedTypeError(f"{dtype.__name__} alone is not supported: {_way_out(dtype)}")
    kind = dtype() if isinstance(dtype, type) and issubclass(dtype, pl.DataType) else dtype
    scalar = _SCALARS.get(type(kind))  # type: ignore[arg-type]
    if scalar is not None:
        return scalar
    if isinstance(kind, pl.Datetime) and (kind.time_unit, kind.time_zone) == ("us", "UTC"):
        return TIMESTAMP
    if (
        isinstance(kind, pl.Decimal)
        and 1 <= kind.precision <= _MOST_DIGITS
        and 0 <= kind.scale <= kind.precision
    ):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, pl.List):
        return pa.list_(arrow_type(kind.inner))
    if isinstance(kind, pl.Struct):
        return _struct(kind)
    raise UnsupportedTypeError(f"{kind} is not supported: {_way_out(kind)}")


def _way_out(kind: object) -> str:
    if kind == pl.UInt64:
        return (
            "no table has unsigned integers; take Decimal(20, 0) with Field(ge=0), which holds all"
            " of them"
        )
    if isinstance(kind, pl.DataType) and kind.is_unsigned_integer():
        return "Spark has no unsigned integers; take the next wider signed one with Field(ge=0)"
    dtype_class = kind if isinstance(kind, type) else type(kind)
    return next(
        (advice for refused, advice in _WAYS_OUT if issubclass(dtype_class, refused)),
        f"supported are {SUPPORTED}",
    )


def _struct(kind: pl.Struct) -> pa.DataType:
    names = [f.name for f in kind.fields]
    problems = [*name_problems(names)]
    if not names:
        problems = ["a Struct needs fields"]
    if problems:
        raise UnsupportedTypeError("; ".join(problems))
    return pa.struct([pa.field(f.name, arrow_type(f.dtype)) for f in kind.fields])


ROW_NUMBER = "\x01"
"""Name of a temporary column with the number of each row, which steps and lookups add.

No column of a table has this name, because `name_problems` refuses control characters.
"""


def name_problems(names: list[str]) -> Iterator[str]:
    """Finds problems of names: of the columns, or of the fields of one struct."""
    name_by_casefold: dict[str, str] = {}
    for name in names:
        if not name or not name.isprintable():
            yield f"{name!r} is not a name: it is empty or holds control characters"
        previous_name = name_by_casefold.get(name.casefold())
        if previous_name is not None:
            yield (
                f"{name!r} comes twice"
                if previous_name == name
                else f"{previous_name!r} and {name!r} differ by case only, and tables don't"
                " tell them apart"
            )
        name_by_casefold[name.casefold()] = name


def column_name_problems(columns: pa.Schema | pa.StructType) -> Iterator[str]:
    """Finds problems of the names of columns, and of the fields of structs inside them."""
    yield from name_problems([field.name for field in columns])
    kinds = [field.type for field in columns]
    for kind in kinds:
        if pa.types.is_struct(kind):
            yield from column_name_problems(kind)
        elif pa.types.is_nested(kind):  # a list's values, or a map's keys and values
            kinds += [kind.field(number).type for number in range(kind.num_fields)]


def map_type(kind: pa.DataType) -> pa.DataType | None:
    """Returns the map type of a list of structs with a string `key` and a `value`.

    Returns None for any other type.
    """
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return None
    entry = kind.value_type
    if [f.name for f in entry] != ["key", "value"] or entry.field(0).type != pa.string():
        return None
    return pa.map_(pa.string(), entry.field(1).type)


def holds_bytes(kind: pa.DataType) -> bool:
    """Returns whether values of a type are bytes, or have bytes inside."""
    return bool(pa.types.is_binary(kind)) or any(
        holds_bytes(kind.field(i).type) for i in range(kind.num_fields)
    )
