"""Encodes lists, structs and maps as JSON, whole columns at a time.

    struct                 an object with all its fields, null ones too
    map with text keys     an object; but a list, if a key occurs twice or can't be a name
    other map              a list of {"key": ..., "value": ...}
    list                   a list

Each sink chooses how it writes numbers, texts and instants (`JsonEncoder`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.sinks.joining import KIND, joined, octets_of

_ESCAPED = r'["\\\x00-\x1f]'
_BLANK, _QUOTE, _BACKSLASH = b' "\\'
_NULL, _NOTHING = pa.scalar("null", KIND), pa.scalar(None, KIND)


def quoted(column: pa.Array) -> pa.Array:
    """Encodes texts as JSON strings; a null stays null."""
    plain = joined('"', column, '"')
    if not _may_be_odd(column):
        return plain
    odd = pc.match_substring_regex(column, _ESCAPED)
    escaped = [json.dumps(text, ensure_ascii=False) for text in column.filter(odd).to_pylist()]
    return pc.replace_with_mask(plain, pc.fill_null(odd, fill_value=False), pa.array(escaped, KIND))


def _may_be_odd(column: pa.Array) -> bool:
    """Returns whether any byte has to be escaped: far cheaper than a look at each text."""
    octets = octets_of(column)
    return bool((octets < _BLANK).any() or (octets == _QUOTE).any() or (octets == _BACKSLASH).any())


class JsonEncoder(msgspec.Struct, frozen=True):
    """Encodes columns as JSON, in a sink's own way.

    `leaf`: encodes a column without nested values; a null stays null. `no_name`: marks the texts
    that can't be a name in an object.
    """

    leaf: Callable[[pa.Array], pa.Array]
    no_name: Callable[[pa.Array], pa.Array] | None = None

    def texts(self, array: pa.Array) -> pa.Array:
        """Encodes each value as JSON; a null as `null`."""
        return pc.fill_null(self._texts(array), _NULL)

    def _texts(self, array: pa.Array) -> pa.Array:
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
        parts: list[pa.Array | str] = ["{"]
        for i, field in enumerate(array.type):
            parts += [
                f"{',' if i else ''}{json.dumps(field.name, ensure_ascii=False)}:",
                self.texts(array.field(i)),
            ]
        return pc.if_else(array.is_valid(), joined(*parts, "}"), _NOTHING)

    def _maps(self, array: pa.Array) -> pa.Array:
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
        pairs = _lists(joined('{"key":', keys, ',"value":', values, "}"), lengths, valid)
        if not pa.types.is_string(kind.key_type):
            return pairs
        objects = _lists(joined(keys, ":", values), lengths, valid, "{", "}")
        odd = self._with_odd_keys(inner.field("key"), lengths.to_numpy())
        return pc.if_else(pa.array(odd), pairs, objects) if odd.any() else objects

    def _with_odd_keys(
        self, keys: pa.Array, lengths: np.ndarray[Any, np.dtype[np.int64]]
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Marks the maps with a key twice or one that can't be a name: an object would lose it."""
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
    ends = np.concatenate([[0], np.cumsum(pc.fill_null(lengths, 0).to_numpy().astype(np.int64))])
    lists = pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), elements)
    inside = pc.binary_join(lists, pa.scalar(",", KIND))
    return pc.if_else(valid, joined(begin, inside, end), _NOTHING)


def entries_of(value: Mapping[str, Any] | list[Mapping[str, Any]]) -> Iterable[tuple[Any, Any]]:
    """The keys and values of a map, from its JSON."""
    return (
        value.items()
        if isinstance(value, Mapping)
        else ((entry["key"], entry["value"]) for entry in value)
    )
