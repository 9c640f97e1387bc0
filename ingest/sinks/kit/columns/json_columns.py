"""JSON of whole columns, as Kafka's messages and SQLite's texts have it, and its parser.

    struct                 an object with all its fields, including null fields
    map with text keys     an object; a list, if a key occurs twice or can't be a name
    other map              a list of {"key": ..., "value": ...}
    list                   a list

`JsonEncoder` writes these forms for any sink. The sink chooses the form of numbers, texts and
instants.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.sinks.kit.columns.text_concat import (
    TEXT,
    concat_texts,
    format_instants,
    value_buffers,
)

_ESCAPED = r'["\\\x00-\x1f]'
_BLANK, _QUOTE, _BACKSLASH = b' "\\'
_NULL, _NOTHING = pa.scalar("null", TEXT), pa.scalar(None, TEXT)


def _quoted_texts(column: pa.Array) -> pa.Array:
    """Encodes texts as JSON strings; a null stays null."""
    plain = concat_texts('"', column, '"')
    if not _may_be_odd(column):
        return plain
    odd = pc.match_substring_regex(column, _ESCAPED)
    escaped = [json.dumps(text, ensure_ascii=False) for text in column.filter(odd).to_pylist()]
    return pc.replace_with_mask(plain, pc.fill_null(odd, fill_value=False), pa.array(escaped, TEXT))


def _may_be_odd(column: pa.Array) -> bool:
    """Returns whether any byte must be escaped. It is far cheaper than a look at each text."""
    octets = value_buffers(column)[1]
    return bool((octets < _BLANK).any() or (octets == _QUOTE).any() or (octets == _BACKSLASH).any())


class JsonEncoder(msgspec.Struct, frozen=True):
    """Encodes columns as JSON, with a sink's form of values.

    Attributes:
        leaf: encodes a column without nested values; a null stays null.
        no_name: marks the texts that can't be a name in an object.
    """

    leaf: Callable[[pa.Array], pa.Array]
    no_name: Callable[[pa.Array], pa.Array] | None = None

    @staticmethod
    def map_entries(
        value: Mapping[str, Any] | list[Mapping[str, Any]],
    ) -> Iterable[tuple[Any, Any]]:
        """Returns the keys and values of a map, from its JSON."""
        return (
            value.items()
            if isinstance(value, Mapping)
            else ((entry["key"], entry["value"]) for entry in value)
        )

    def texts(self, array: pa.Array) -> pa.Array:
        """Encodes each value as JSON; a null as `null`."""
        return pc.fill_null(self._with_nulls(array), _NULL)

    def _with_nulls(self, array: pa.Array) -> pa.Array:
        """Encodes each value as JSON; a null stays null."""
        kind = array.type
        if pa.types.is_struct(kind):
            return self._structs(array)
        if pa.types.is_map(kind):
            return self._maps(array)
        if (
            pa.types.is_list(kind)
            or pa.types.is_large_list(kind)
            or pa.types.is_fixed_size_list(kind)
        ):
            return _lists(
                self.texts(array.flatten()), pc.list_value_length(array), array.is_valid()
            )
        return self.leaf(array)

    def _structs(self, array: pa.Array) -> pa.Array:
        """Encodes structs as objects."""
        parts: list[pa.Array | str] = ["{"]
        for i, field in enumerate(array.type):
            parts += [
                f"{',' if i else ''}{json.dumps(field.name, ensure_ascii=False)}:",
                self.texts(array.field(i)),
            ]
        return pc.if_else(array.is_valid(), concat_texts(*parts, "}"), _NOTHING)

    def _maps(self, array: pa.Array) -> pa.Array:
        """Encodes maps as objects, or as lists of entries if an object can't have their keys."""
        kind, valid = array.type, array.is_valid()
        lengths = pa.array(
            np.where(valid.to_numpy(zero_copy_only=False), np.diff(array.offsets.to_numpy()), 0),
            pa.int64(),
        )
        entries = pa.ListArray.from_arrays(
            array.offsets, pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        )
        inner = entries.filter(valid).flatten()
        keys, values = self.texts(inner.field("key")), self.texts(inner.field("value"))
        pairs = _lists(concat_texts('{"key":', keys, ',"value":', values, "}"), lengths, valid)
        if not pa.types.is_string(kind.key_type):
            return pairs
        objects = _lists(concat_texts(keys, ":", values), lengths, valid, "{", "}")
        odd = self._with_odd_keys(inner.field("key"), lengths.to_numpy())
        return pc.if_else(pa.array(odd), pairs, objects) if odd.any() else objects

    def _with_odd_keys(
        self, keys: pa.Array, lengths: np.ndarray[Any, np.dtype[np.int64]]
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Marks the maps with a key that occurs twice or can't be a name.

        An object would lose such a key.
        """
        row = np.repeat(np.arange(len(lengths)), lengths)
        codes = keys.dictionary_encode()
        pairs = row * max(len(codes.dictionary), 1) + codes.indices.to_numpy()
        order = np.sort(pairs)
        twice = order[1:][np.diff(order) == 0] // max(len(codes.dictionary), 1)
        odd = np.zeros(len(lengths), bool)
        odd[twice] = True
        if self.no_name is not None:
            odd[row[self.no_name(keys).to_numpy(zero_copy_only=False)]] = True
        return odd


def _lists(
    elements: pa.Array, lengths: pa.Array, valid: pa.Array, begin: str = "[", end: str = "]"
) -> pa.Array:
    """Joins elements to lists, or to objects with `begin` and `end` as braces.

    Args:
        elements: the encoded elements of all lists.
        lengths: number of elements of each list.
        valid: whether each list isn't null.
        begin: the opening bracket.
        end: the closing bracket.
    """
    ends = np.concatenate([[0], np.cumsum(pc.fill_null(lengths, 0).to_numpy().astype(np.int64))])
    lists = pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), elements)
    inside = pc.binary_join(lists, pa.scalar(",", TEXT))
    return pc.if_else(valid, concat_texts(begin, inside, end), _NOTHING)


# ---------------------------------------------------- the form of messages and SQLite


def json_texts(column: pa.Array) -> pa.Array:
    """Writes each value as JSON; a null is `null`."""
    return pc.fill_null(_texts(_plain(column)), "null")


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
    return pc.if_else(column.is_valid(), _NESTED.texts(column), pa.scalar(None, TEXT))


def _leaf(column: pa.Array) -> pa.Array:
    return next(encode for fits, encode in _WAYS if fits(column.type))(column)


_NESTED = JsonEncoder(lambda column: _leaf(_plain(column)).cast(TEXT))


def _number(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _flag(column: pa.Array) -> pa.Array:
    return pc.if_else(column, "true", "false")


def _real(column: pa.Array) -> pa.Array:
    """Writes floats.

    JSON has no infinity and no NaN, so they are written as texts. Readers take `-0` for an
    integer, which loses the sign, so it is written as `-0.0`.
    """
    texts = column.cast(pa.string())
    texts = pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)
    if pc.all(pc.is_finite(column), skip_nulls=True).as_py() is not False:
        return texts
    odd = pc.if_else(
        pc.is_nan(column), '"NaN"', pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    )
    return pc.if_else(pc.is_finite(column), texts, odd)


def _quoted(column: pa.Array) -> pa.Array:
    return concat_texts('"', column, '"')


def _bytes(column: pa.Array) -> pa.Array:
    return pa.array(
        [None if v is None else f'"{base64.b64encode(v).decode()}"' for v in column.to_pylist()],
        pa.string(),
    )


def _date(column: pa.Array) -> pa.Array:
    return _quoted(column.cast(pa.string()))


def _instant(column: pa.Array) -> pa.Array:
    """Writes ISO 8601 with six digits of a second. An instant with a time zone ends with Z."""
    moments = pc.fill_null(
        column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()), 0
    ).to_numpy()
    texts = format_instants(moments, '"', '"' if column.type.tz is None else 'Z"')
    if not column.null_count:
        return texts
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, TEXT))


_WAYS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = (
    (pa.types.is_string, _quoted_texts),
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


def _from_json(value: Any, kind: pa.DataType) -> Any:
    """Converts a value of JSON to one that Arrow accepts for a type."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [
            (_from_json(k, kind.key_type), _from_json(v, kind.item_type))
            for k, v in JsonEncoder.map_entries(value)
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_from_json(v, kind.value_type) for v in value]
    if pa.types.is_struct(kind):
        # An older value lacks a field that was added since.
        return {
            f.name: _from_json(value.get(f.name) if f.nullable else value[f.name], f.type)
            for f in kind
        }
    return next((convert(value) for fits, convert in _BACK if fits(kind)), value)


def parse_json(text: str | bytes, kind: pa.DataType) -> Any:
    """Reads a value that `json_texts` wrote, as Arrow accepts it for a type.

    A number that isn't an integer keeps all of its digits.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: the text isn't of the type.
    """
    return _from_json(json.loads(text, parse_float=Decimal), kind)


_BACK: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = (
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_timestamp, datetime.fromisoformat),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_time, time.fromisoformat),
    (pa.types.is_binary, base64.b64decode),
    (pa.types.is_fixed_size_binary, base64.b64decode),
)
