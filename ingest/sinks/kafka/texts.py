"""Columns as texts, whole columns at a time: JSON values, and the contents of headers.

The way back is here, too: verification reads the messages.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.sinks.joining import KIND, instants, joined
from windrow.ingest.sinks.json_columns import JsonEncoder, entries_of, quoted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def objects(columns: Mapping[str, pa.Array]) -> pa.Array:
    """Writes each row as a JSON object, with all columns as members in their order."""
    if not columns:
        return pa.array([], pa.string())
    pieces: list[Any] = []
    for number, (name, column) in enumerate(columns.items()):
        pieces += [
            f"{',' if number else '{'}{json.dumps(name, ensure_ascii=False)}:",
            json_texts(column),
        ]
    return joined(*pieces, "}")


def json_texts(column: pa.Array) -> pa.Array:
    """Writes each value as JSON; a null is `null`.

    `ingest.sinks.json_columns` writes lists, maps and structs.
    """
    return pc.fill_null(_texts(_plain(column)), "null")


def header_texts(column: pa.Array) -> pa.Array:
    """Writes each value as the bytes of a header.

    Text and bytes are written as they are, an instant in epoch milliseconds, and all
    else as in JSON.
    """
    column, kind = _plain(column), _plain(column).type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
    return _texts(column).cast(pa.binary())


def _plain(column: pa.Array) -> pa.Array:
    """Returns a column without its dictionary, and with 32-bit offsets."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_large_binary(column.type) else column


def _texts(column: pa.Array) -> pa.Array:
    """Writes each value as JSON; a null stays null."""
    if not pa.types.is_nested(column.type):
        return _leaf(column)
    return pc.if_else(column.is_valid(), _NESTED.texts(column), pa.scalar(None, KIND))


def _leaf(column: pa.Array) -> pa.Array:
    return next(way for fits, way in _WAYS if fits(column.type))(column)


_NESTED = JsonEncoder(lambda column: _leaf(_plain(column)).cast(KIND))


def _number(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _flag(column: pa.Array) -> pa.Array:
    return pc.if_else(column, "true", "false")


def _real(column: pa.Array) -> pa.Array:
    """Writes floats.

    JSON has no number that isn't finite, so that is written as a text. `-0` would be
    read as an integer, which loses the sign, so it is written `-0.0`.
    """
    found = column.cast(pa.string())
    found = pc.if_else(pc.equal(found, "-0"), "-0.0", found)
    if pc.all(pc.is_finite(column), skip_nulls=True).as_py() is not False:
        return found
    odd = pc.if_else(
        pc.is_nan(column), '"NaN"', pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    )
    return pc.if_else(pc.is_finite(column), found, odd)


def _quoted(column: pa.Array) -> pa.Array:
    return joined('"', column, '"')


def _bytes(column: pa.Array) -> pa.Array:
    return pa.array(
        [None if v is None else f'"{base64.b64encode(v).decode()}"' for v in column.to_pylist()],
        pa.string(),
    )


def _date(column: pa.Array) -> pa.Array:
    return _quoted(column.cast(pa.string()))


def _instant(column: pa.Array) -> pa.Array:
    """Writes ISO 8601 with six digits of a second; an instant ends with Z."""
    moments = pc.fill_null(
        column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()), 0
    ).to_numpy()
    found = instants(moments, '"', '"' if column.type.tz is None else 'Z"')
    if not column.null_count:
        return found
    return pc.if_else(column.is_valid(), found, pa.scalar(None, KIND))


_WAYS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = (
    (pa.types.is_string, quoted),
    (pa.types.is_integer, _number),
    (pa.types.is_floating, _real),
    (pa.types.is_boolean, _flag),
    (pa.types.is_decimal, _number),
    (pa.types.is_timestamp, _instant),
    (pa.types.is_date, _date),
    (pa.types.is_time, _date),
    (pa.types.is_binary, _bytes),
    (pa.types.is_fixed_size_binary, _bytes),
    (pa.types.is_null, _number),
)


def back(value: Any, kind: pa.DataType) -> Any:
    """Turns a value that `LOADS` read into one that Arrow takes for a type.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: the value isn't of the type.
    """
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(back(k, kind.key_type), back(v, kind.item_type)) for k, v in entries_of(value)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [back(v, kind.value_type) for v in value]
    if pa.types.is_struct(kind):
        return {field.name: back(value[field.name], field.type) for field in kind}
    return next((way(value) for fits, way in _BACK if fits(kind)), value)


def back_from_header(content: bytes | None, kind: pa.DataType) -> Any:
    """Turns the content of a header into a value that Arrow takes for a type.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: the content isn't of the type.
    """
    if content is None or pa.types.is_binary(kind):
        return content
    text = content.decode()
    if pa.types.is_string(kind):
        return text
    if pa.types.is_timestamp(kind):
        return _EPOCH + timedelta(milliseconds=int(text))
    return back(LOADS(text), kind)


LOADS: Callable[[str | bytes], Any] = partial(json.loads, parse_float=Decimal)
"""Reads JSON; a number that isn't an integer keeps all of its digits."""

_BACK: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = (
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_timestamp, datetime.fromisoformat),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_time, time.fromisoformat),
    (pa.types.is_binary, base64.b64decode),
    (pa.types.is_fixed_size_binary, base64.b64decode),
)
