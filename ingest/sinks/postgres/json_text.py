r"""Nested values as JSON in a `jsonb` column: encoded by whole columns, and read.

    struct, map, list  see `ingest.sinks.json_columns`; a key with NUL can't be a name
    number             a number; where JSON has none, a string: "NaN", "Infinity", "-Infinity",
                       "-0.0"
    bytes              a string that PostgreSQL reads as bytes: "\\x6869"
    date, time         a string that PostgreSQL reads as one
    text               a string; with NUL in it, which jsonb can't hold, {"bytea": "\\x..."}

So nothing is lost: the values that are read have the checksum of the ones that were staged.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.sinks.json_columns import JsonEncoder, entries_of, quoted
from windrow.ingest.sinks.text_concat import KIND, ends_of, joined, octets_of

_ODD = {
    "nan": '"NaN"',
    "inf": '"Infinity"',
    "-inf": '"-Infinity"',
    "-0": '"-0.0"',
    "-0.0": '"-0.0"',
}
_BYTES = "bytea"


def _leaf(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_string(kind):
        return _strings(array)
    if pa.types.is_binary(kind):
        return _hexadecimal(array)
    plain = array.cast(KIND)
    if pa.types.is_floating(kind):
        return _floats(plain)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return joined('"', plain, '"')
    return plain  # numbers, true and false


def _floats(plain: pa.Array) -> pa.Array:
    odd = pc.is_in(plain, pa.array(list(_ODD), KIND))
    if not pc.any(odd).as_py():
        return plain
    index = pc.index_in(plain, pa.array(list(_ODD), KIND))
    return pc.if_else(odd, pa.array(list(_ODD.values()), KIND).take(index), plain)


def _strings(array: pa.Array) -> pa.Array:
    nul, texts = _with_nul(array), quoted(array)
    if not pc.any(nul).as_py():
        return texts
    return pc.if_else(nul, joined(f'{{"{_BYTES}":', _hexadecimal(array), "}"), texts)


def _with_nul(array: pa.Array) -> pa.Array:
    return pc.match_substring(array, "\0").fill_null(False)


_ENCODER = JsonEncoder(_leaf, _with_nul)


def json_texts(array: pa.Array) -> pa.Array:
    """Encodes each value as JSON; a null as `null`."""
    return _ENCODER.texts(array)


def _hexadecimal(array: pa.Array) -> pa.Array:
    """Encodes bytes as strings that PostgreSQL reads as bytes, a whole column at once."""
    ends, digits = ends_of(array).astype(np.int64), octets_of(array).data.hex().encode()
    valid = array.is_valid().buffers()[1] if array.null_count else None
    places = [valid, pa.py_buffer((ends - ends[0]) * 2), pa.py_buffer(digits)]
    return joined(r'"\\x', pa.Array.from_buffers(KIND, len(array), places), '"')


# --------------------------------------------------------------------------------------------------


def from_json(value: Any, kind: pa.DataType) -> Any:
    """Reads a value that `json_columns.LOADS` gives, as pyarrow takes it for the type."""
    return None if value is None else _reader(kind)(value)


@lru_cache(maxsize=1024)
def _reader(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_struct(kind):
        fields = [(f.name, f.type) for f in kind]
        return lambda value: {name: from_json(value.get(name), inner) for name, inner in fields}
    if pa.types.is_map(kind):
        return lambda value: [
            (from_json(k, kind.key_type), from_json(v, kind.item_type))
            for k, v in entries_of(value)
        ]
    if pa.types.is_list(kind):
        return lambda value: [from_json(each, kind.value_type) for each in value]
    if pa.types.is_binary(kind):
        return _bytes
    if pa.types.is_string(kind):
        return lambda value: _bytes(value[_BYTES]).decode() if isinstance(value, dict) else value
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return lambda value: (
            pa.scalar(value)
            .cast(kind)
            .cast(pa.int32() if pa.types.is_date(kind) else pa.int64())
            .as_py()
        )
    return lambda value: value


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))
