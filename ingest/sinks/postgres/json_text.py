r"""Values with an inside as JSON for a `jsonb` column, whole columns at a time, and back.

    a struct                 an object with all its fields, null ones too
    a map with text keys     an object; where a key is there twice, or holds NUL: a list of {"key": ..., "value": ...}, as of any other map
    a list                   a list
    a number                 a number; what JSON has none for is a text: "NaN", "Infinity", "-Infinity", "-0.0"
    bytes                    a text that PostgreSQL reads as bytes: "\\x6869"
    a date, a time           a text that PostgreSQL reads as one
    a text                   a text; with NUL in it, which jsonb can't hold, {"bytea": "\\x..."}

So nothing is lost: what is read back has the checksum of what was staged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.compiled.calling import Compiled

_PASSES = Compiled("ingest.sinks.postgres.passes")
_NULL = pa.scalar("null", pa.large_string())
_ODD = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"', "-0": '"-0.0"', "-0.0": '"-0.0"'}
_BYTES = "bytea"


def json_texts(array: pa.Array) -> pa.Array:
    """Each value's JSON; `null` where there is none."""
    return pc.fill_null(_texts(array), _NULL)


def _texts(array: pa.Array) -> pa.Array:
    """The same, but null where there is none, or anything."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        return _maps(array)
    if pa.types.is_list(kind):
        return _lists(json_texts(array.flatten()), pc.list_value_length(array), array.is_valid())
    if pa.types.is_string(kind):
        return _strings(array)
    if pa.types.is_binary(kind):
        return _written(array, _PASSES.hexadecimal, 2, 5)
    plain = array.cast(pa.large_string())
    if pa.types.is_floating(kind):
        return _floats(plain)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _joined('"', plain, '"')
    return plain  # numbers, true and false


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*(pa.scalar(p, pa.large_string()) if isinstance(p, str) else p for p in parts), _EMPTY)


_EMPTY = pa.scalar("", pa.large_string())


def _structs(array: pa.Array) -> pa.Array:
    parts: list[pa.Array | str] = []
    for i, field in enumerate(array.type):
        parts += [f"{'{' if i == 0 else ','}{json.dumps(field.name)}:", json_texts(array.field(i))]
    return pc.if_else(array.is_valid(), _joined(*parts, "}"), pa.scalar(None, pa.large_string()))


def _maps(array: pa.Array) -> pa.Array:
    kind, valid = array.type, array.is_valid()
    lengths = pa.array(np.where(valid.to_numpy(zero_copy_only=False), np.diff(array.offsets.to_numpy()), 0), pa.int64())
    entries = pa.ListArray.from_arrays(array.offsets, pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"]))
    inner = entries.filter(valid).flatten()
    keys, values = json_texts(inner.field("key")), json_texts(inner.field("value"))
    pairs = _lists(_joined('{"key":', keys, ',"value":', values, "}"), lengths, valid)
    if not pa.types.is_string(kind.key_type):
        return pairs
    objects = _lists(_joined(keys, ":", values), lengths, valid, "{", "}")
    odd = _with_odd_keys(inner.field("key"), lengths.to_numpy())
    return pc.if_else(pa.array(odd), pairs, objects) if odd.any() else objects


def _with_odd_keys(keys: pa.Array, lengths: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which maps have a key twice, or one with NUL: an object of `jsonb` would lose it."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    codes = keys.dictionary_encode()
    pairs = row * max(len(codes.dictionary), 1) + codes.indices.to_numpy()
    order = np.sort(pairs)
    twice = order[1:][np.diff(order) == 0] // max(len(codes.dictionary), 1)
    odd = np.zeros(len(lengths), bool)
    odd[twice] = True
    odd[row[_with_nul(keys).to_numpy(zero_copy_only=False)]] = True
    return odd


def _lists(elements: pa.Array, lengths: pa.Array, valid: pa.Array, begin: str = "[", end: str = "]") -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(lengths.fill_null(0).to_numpy().astype(np.int64))])
    lists = pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), elements)
    inside = pc.binary_join(lists, pa.scalar(",", pa.large_string()))
    return pc.if_else(valid, _joined(begin, inside, end), pa.scalar(None, pa.large_string()))


def _floats(plain: pa.Array) -> pa.Array:
    odd = pc.is_in(plain, pa.array(list(_ODD), pa.large_string()))
    if not pc.any(odd).as_py():
        return plain
    index = pc.index_in(plain, pa.array(list(_ODD), pa.large_string()))
    return pc.if_else(odd, pa.array(list(_ODD.values()), pa.large_string()).take(index), plain)


def _strings(array: pa.Array) -> pa.Array:
    quoted = _written(array, _PASSES.quoted, 6, 2)
    nul = _with_nul(array)
    if not pc.any(nul).as_py():
        return quoted
    return pc.if_else(nul, _joined(f'{{"{_BYTES}":', _written(array, _PASSES.hexadecimal, 2, 5), "}"), quoted)


def _with_nul(array: pa.Array) -> pa.Array:
    return pc.match_substring(array, "\0").fill_null(False)


def _written(array: pa.Array, write: Callable[..., int], each: int, more: int) -> pa.Array:
    """A column of texts, written anew. Room for so many times its bytes, and so many more for each."""
    _, places, data = array.buffers()
    n = len(array)
    ends = np.zeros(1, np.int64) if not n else np.frombuffer(places, np.int32, n + 1, array.offset * 4).astype(np.int64)
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    out, starts = np.empty(int(ends[-1] - ends[0]) * each + more * n, np.uint8), np.empty(n + 1, np.int64)
    size = write(octets, ends, out, starts)
    valid = None if not array.null_count else array.is_valid().buffers()[1]
    return pa.LargeStringArray.from_buffers(n, pa.py_buffer(starts), pa.py_buffer(out[:size]), valid, array.null_count)


# ------------------------------------------------------------------------------------------------------------------------------- back


def loads(text: str | bytes) -> Any:
    """A JSON document, with numbers as exact as they stand there."""
    return json.loads(text, parse_float=Decimal)


def from_json(value: Any, kind: pa.DataType) -> Any:
    """The value of a column, from a document of `loads`, as pyarrow takes it for the type."""
    return None if value is None else _reader(kind)(value)


@lru_cache(maxsize=1024)
def _reader(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_struct(kind):
        fields = [(f.name, f.type) for f in kind]
        return lambda value: {name: from_json(value.get(name), inner) for name, inner in fields}
    if pa.types.is_map(kind):
        return lambda value: [(from_json(k, kind.key_type), from_json(v, kind.item_type)) for k, v in _entries(value)]
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
        return lambda value: pa.scalar(value).cast(kind).cast(pa.int32() if pa.types.is_date(kind) else pa.int64()).as_py()
    return lambda value: value


def _entries(value: Mapping[str, Any] | list[Mapping[str, Any]]) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, Mapping) else ((entry["key"], entry["value"]) for entry in value)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))
