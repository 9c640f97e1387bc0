"""Byte columns, which the encoders of Avro and Protobuf share.

The bytes of a row are the bytes of its fields, one after the other. So a batch is encoded in
two steps: its columns are encoded, and one pass of Arrow joins them row by row. No function
here loops over rows in Python.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.sinks.kit import value_buffers

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names of fields that Avro and Protobuf allow."""

_BITS = 7
"""Bits of a number in each byte of a varint. The eighth bit means that a byte follows."""


class NoCounterpartError(ValueError):
    """Error about columns that have no type in a format; its text names them."""


def free_name(base: str, taken_names: set[str], separator: str = "") -> str:
    """Returns the base, with a number after it if it is taken, and adds it to the taken names."""
    number, name = 1, base
    while name in taken_names:
        number += 1
        name = f"{base}{separator}{number}"
    taken_names.add(name)
    return name


def is_text(kind: pa.DataType) -> bool:
    """Returns whether values are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Returns whether values are bytes of any length."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    """Returns whether values are lists of any length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def is_int(kind: pa.DataType) -> bool:
    """Returns whether values are signed integers of at most 32 bits."""
    return bool(pa.types.is_signed_integer(kind) and kind.bit_width <= 32)


def plain(column: pa.Array) -> pa.Array:
    """Returns a column without its dictionary, if it has one."""
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def as_lists(column: pa.MapArray) -> pa.ListArray:
    """Turns maps into lists of structs of key and value."""
    return column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))


def lengths(column: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Returns the number of bytes of each value; null has 0."""
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


def counts(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the number of items of each list; null has 0."""
    lengths: npt.NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(
        zero_copy_only=False
    )
    return lengths.astype(np.int64)


def bodies(of_each: npt.NDArray[np.int64], items: pa.BinaryArray) -> pa.BinaryArray:
    """Joins the encoded items of each list.

    The items of a list are next to each other already, so no bytes are moved. The ends of
    lists are selected from the ends of items.

    Args:
        of_each: number of items of each list.
        items: the encoded items of all lists, none of them null.
    """
    ends = np.concatenate(([0], np.cumsum(of_each)))
    return binary(items.buffers()[2] or b"", value_buffers(items)[0][ends], None)


def flat(column: pa.Array) -> pa.BinaryArray:
    """Returns the bytes of values of a fixed width, in Arrow's little-endian order."""
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return binary(
        np.ascontiguousarray(values), np.arange(len(values) + 1) * values.itemsize, validity(column)
    )


def numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Returns integers, dates and instants as numbers. A null has any number."""
    narrow = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    integers = column.cast(narrow).cast(pa.int64())
    return pc.fill_null(integers, 0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def varints(words: npt.NDArray[np.uint64], valid: npt.NDArray[np.uint8] | None) -> pa.BinaryArray:
    """Encodes numbers as varints: seven bits a byte, the lowest first."""
    max_bytes = max(1, -(-int(words.max(initial=0)).bit_length() // _BITS))
    sizes = np.ones(len(words), np.int64)
    octets = np.empty((len(words), max_bytes), np.uint8)
    for byte_index in range(max_bytes):
        above = words >> np.uint64(_BITS * byte_index)
        more = above > np.uint64(0x7F)
        octets[:, byte_index] = (above & np.uint64(0x7F)).astype(np.uint8) | (
            more.astype(np.uint8) << 7
        )
        sizes += more
    ends = np.concatenate(([0], np.cumsum(sizes)))
    data = octets if ends[-1] == octets.size else octets[np.arange(max_bytes) < sizes[:, None]]
    return binary(np.ascontiguousarray(data), ends, valid)


def validity(column: pa.Array) -> npt.NDArray[np.uint8] | None:
    """Returns the validity bitmap of a column; None if no value is null."""
    if not column.null_count:
        return None
    return np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little")


def binary(
    data: Any, ends: npt.NDArray[Any], valid: npt.NDArray[np.uint8] | None
) -> pa.BinaryArray:
    """Makes an array of bytes.

    Args:
        data: the bytes of all values, one after the other.
        ends: the offset of each value's first byte, and the end of the last value.
        valid: the validity bitmap; None: no value is null.
    """
    buffers = [
        None if valid is None else pa.py_buffer(valid),
        pa.py_buffer(ends.astype(np.int32)),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def constant(octets: bytes) -> pa.BinaryScalar:
    """Makes a byte column with the same bytes in each row."""
    return pa.scalar(octets, pa.binary())


def join_columns(pieces: Sequence[Any]) -> pa.BinaryArray:
    """Joins byte columns row by row; a row with a null is null."""
    return pc.binary_join_element_wise(*pieces, constant(b""))
