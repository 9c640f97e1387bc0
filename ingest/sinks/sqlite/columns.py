"""Converts column values to SQLite's integers, reals, texts and blobs, and back.

integers, true and false    INTEGER
floats                      REAL; NaN as the text NaN, and -0.0 as the blob -0.0, because
                            SQLite converts them to NULL and 0.0
text, bytes                 TEXT, BLOB
dates and times             TEXT that SQLite's own functions can read and order
decimals                    TEXT with all digits
lists, structs, maps        TEXT, JSON as in a Kafka topic (`sinks.kit.columns.json_columns`)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import RefusedError
from windrow.ingest.sinks.kit import concat_texts, json_texts, parse_json

_TEXT = pa.large_string()

_NATIVE = (
    (pa.types.is_signed_integer, "INTEGER"),
    (pa.types.is_boolean, "INTEGER"),
    (pa.types.is_float32, "REAL"),
    (pa.types.is_float64, "REAL"),
    (pa.types.is_string, "TEXT"),
    (pa.types.is_binary, "BLOB"),
)


def declared(kind: pa.DataType) -> str | None:
    """Returns the type in SQLite for an Arrow type; None if no column can hold its values."""
    if pa.types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind):
        inner = [kind.field(i).type for i in range(kind.num_fields)]
        return "TEXT" if inner and all(map(declared, inner)) else None
    if pa.types.is_timestamp(kind):
        return "TEXT" if kind.unit == "us" and kind.tz in {"UTC", None} else None
    if pa.types.is_date32(kind) or pa.types.is_decimal128(kind):
        return "TEXT"
    return next((name for fits, name in _NATIVE if fits(kind)), None)


def driver_rows(batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
    """Converts a batch to rows for SQLite's driver. Its dates and times are in years 1 to 9999."""
    return zip(*map(_values, batch.columns), strict=True)


def _values(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return _numbers(array.cast(pa.int8()) if pa.types.is_boolean(kind) else array)
    texts = array if pa.types.is_string(kind) or pa.types.is_binary(kind) else _texts(array)
    return texts.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def _numbers(array: pa.Array) -> list[Any]:
    """Converts numbers to Python's; NaN and -0.0 get the forms of this module's table."""
    numbers = pc.fill_null(array, 0).to_numpy()
    values: list[Any] = numbers.tolist()
    if pa.types.is_floating(array.type):
        for i in np.flatnonzero(np.isnan(numbers)):
            values[i] = "NaN"
        for i in np.flatnonzero((numbers == 0) & np.signbit(numbers)):
            values[i] = b"-0.0"
    if array.null_count:
        for i in np.flatnonzero(array.is_null()):
            values[i] = None
    return values


def _texts(array: pa.Array) -> pa.Array:
    """Converts dates, times, decimals and nested values to texts."""
    if pa.types.is_nested(array.type):
        return pc.if_else(array.is_valid(), json_texts(array).cast(_TEXT), pa.scalar(None, _TEXT))
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        # Arrow itself writes the Z slowly.
        return concat_texts(array.view(pa.timestamp("us")).cast(_TEXT), "Z")
    texts = array.cast(_TEXT)
    if not pa.types.is_decimal(array.type):
        return texts
    odd = pc.fill_null(pc.match_substring(texts, "E"), fill_value=False)  # for example 1E-9
    plain = [f"{Decimal(text):f}" for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(plain, _TEXT))


def batch_of(rows: Sequence[tuple[Any, ...]], schema: pa.Schema, location: str) -> pa.RecordBatch:
    """Converts rows of SQLite's driver to a batch.

    Args:
        rows: the rows that the driver returned.
        schema: the columns of the rows.
        location: the table's name, for errors.

    Raises:
        RefusedError: windrow can't have written a value; the error names its column.
    """
    columns = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            columns.append(_array(values, field.type))
        except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise RefusedError(
                f"column {field.name} of {location} holds a value that is no {field.type}",
                "commit",
                "Something else wrote into the table: windrow replay writes the window again.",
            ) from error
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Converts a column of the driver's values to Arrow."""
    if pa.types.is_nested(kind):
        return pa.array([None if v is None else parse_json(v, kind) for v in values], kind)
    if pa.types.is_floating(kind):
        return pa.array([None if v is None else float(v) for v in values], pa.float64()).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array(values, pa.int8()).cast(kind)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)
