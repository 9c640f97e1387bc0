"""Whole columns as bytes: what the encoders of messages have in common.

A row's bytes are those of its fields, one behind the other, so a batch is encoded by
encoding columns and joining them, row by row, in one pass of Arrow's. Nothing here goes
over rows in Python.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.sinks.joining import ends_of

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What Avro and Protobuf take as a field's name."""

_BITS = 7
"""Of a number, in each byte of a varint; the eighth says that another byte follows."""


class NoCounterpartError(ValueError):
    """Columns that a format has no fields for; the text says which, and why."""


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes, of any length."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of any length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def is_int(kind: pa.DataType) -> bool:
    """Whether values are whole numbers of at most 32 bits."""
    return bool(pa.types.is_signed_integer(kind) and kind.bit_width <= 32)


def plain(column: pa.Array) -> pa.Array:
    """A column without a dictionary."""
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def as_lists(column: pa.MapArray) -> pa.ListArray:
    """Maps as lists of structs of key and value."""
    return column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))


def lengths(column: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """How many bytes each value has; none has as many as nothing."""
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


def counts(lists: pa.Array) -> npt.NDArray[np.int64]:
    """How many items each list has; no list has as many as an empty one."""
    lengths: npt.NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(
        zero_copy_only=False
    )
    return lengths.astype(np.int64)


def bodies(of_each: npt.NDArray[np.int64], items: pa.BinaryArray) -> pa.BinaryArray:
    """The items of each list, one behind the other.

    `items`: those of all lists that aren't null, encoded, none of them null.

    The items of a list lie one behind the other already, so their bytes needn't be
    moved: only the ends of items become the ends of lists.
    """
    ends = np.concatenate(([0], np.cumsum(of_each)))
    return binary(items.buffers()[2] or b"", ends_of(items)[ends], None)


def flat(column: pa.Array) -> pa.BinaryArray:
    """Values of a fixed width, the last byte first, as Arrow has them."""
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return binary(
        np.ascontiguousarray(values), np.arange(len(values) + 1) * values.itemsize, validity(column)
    )


def numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Whole numbers, dates and instants, with any number for null."""
    narrow = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    whole = column.cast(narrow).cast(pa.int64())
    return pc.fill_null(whole, 0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def varints(words: npt.NDArray[np.uint64], valid: npt.NDArray[np.uint8] | None) -> pa.BinaryArray:
    """Numbers, seven bits a byte from the lowest on."""
    most = max(1, -(-int(words.max(initial=0)).bit_length() // _BITS))
    sizes = np.ones(len(words), np.int64)
    octets = np.empty((len(words), most), np.uint8)
    for place in range(most):
        above = words >> np.uint64(_BITS * place)
        more = above > np.uint64(0x7F)
        octets[:, place] = (above & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        sizes += more
    ends = np.concatenate(([0], np.cumsum(sizes)))
    data = octets if ends[-1] == octets.size else octets[np.arange(most) < sizes[:, None]]
    return binary(np.ascontiguousarray(data), ends, valid)


def validity(column: pa.Array) -> npt.NDArray[np.uint8] | None:
    """Arrow's bitmap of a column, from its first bit on; None if nothing is null."""
    if not column.null_count:
        return None
    return np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little")


def binary(
    data: Any, ends: npt.NDArray[Any], valid: npt.NDArray[np.uint8] | None
) -> pa.BinaryArray:
    """An array of bytes, from those of all values, and where each begins and the last one ends."""
    buffers = [
        None if valid is None else pa.py_buffer(valid),
        pa.py_buffer(ends.astype(np.int32)),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def constant(octets: bytes) -> pa.BinaryScalar:
    """The same bytes in each row."""
    return pa.scalar(octets, pa.binary())


def joined(parts: Sequence[Any]) -> pa.BinaryArray:
    """The bytes of each row, one part behind the other; null where one of them is."""
    return pc.binary_join_element_wise(*parts, constant(b""))
