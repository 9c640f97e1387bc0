"""Concatenates text columns row by row. It is a compiled version of `binary_join_element_wise`."""

from __future__ import annotations

import ctypes
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.native.calling import Compiled

TEXT = pa.large_string()
"""The type of all text columns here. The texts of a batch may be longer than 2 GB together."""

_INSTANT = 26

_PASS = Compiled("windrow.ingest.sinks.kit.columns.text_concat_pass")


def concat_texts(*parts: pa.Array | str) -> pa.Array:
    """Concatenates texts and text columns row by row. A row with a null is null.

    At least one part is a column, and all columns have the same length.
    """
    columns = [part for part in parts if not isinstance(part, str)]
    rows = len(columns[0])
    texts = [part.encode() for part in parts if isinstance(part, str)]
    ends, size = np.empty(rows + 1, np.int64), rows * sum(map(len, texts))
    buffers, table = (
        [ctypes.create_string_buffer(text) for text in texts],
        np.zeros((len(parts), 4), np.int64),
    )
    literals = iter(zip(buffers, texts, strict=True))
    for number, part in enumerate(parts):
        if isinstance(part, str):
            buffer, text = next(literals)
            table[number] = ctypes.addressof(buffer), 0, 0, len(text)
        else:
            table[number, :3], length = _row_of(part)
            size += length
    out = np.empty(size, np.uint8)
    _PASS.join(table, ends, out.ctypes.data)
    del buffers
    return pa.Array.from_buffers(
        TEXT, rows, [_present(columns), pa.py_buffer(ends), pa.py_buffer(out)]
    )


def format_instants(micros: npt.NDArray[np.int64], prefix: str, suffix: str) -> pa.Array:
    """Formats instants in ISO 8601 with six digits of a second.

    Args:
        micros: microseconds since 1970, in the years 1 to 9999; none is null.
        prefix: an ASCII text before each instant.
        suffix: an ASCII text after each instant.
    """
    row = np.frombuffer(f"{prefix}{'0' * _INSTANT}{suffix}".encode(), np.uint8)
    out, rows = np.tile(row, len(micros)), len(micros)
    _PASS.put_instants(np.ascontiguousarray(micros), len(row), out.ctypes.data + len(prefix))
    return pa.Array.from_buffers(
        TEXT, rows, [None, pa.py_buffer(np.arange(rows + 1) * len(row)), pa.py_buffer(out)]
    )


def _value_offsets(column: pa.Array) -> npt.NDArray[Any]:
    """Returns the offsets of a column of text or bytes: 32 or 64 bits each."""
    width = np.dtype(
        np.int64
        if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        else np.int32
    )
    if not len(column):
        return np.zeros(1, width)
    offsets: npt.NDArray[Any] = np.frombuffer(
        column.buffers()[1], width, len(column) + 1, column.offset * width.itemsize
    )
    return offsets


def value_buffers(column: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Returns the offsets of a column of text or bytes, and the bytes of all values.

    Offsets have 32 or 64 bits each. The bytes include those of null values.
    """
    ends, data = _value_offsets(column), column.buffers()[2]
    return ends, (
        np.empty(0, np.uint8)
        if data is None
        else np.frombuffer(data, np.uint8)[int(ends[0]) : int(ends[-1])]
    )


def _row_of(column: pa.Array) -> tuple[tuple[int, int, int], int]:
    """Returns a column's row in the table of parts, and its size in bytes.

    `text_concat_pass.DATA` describes the table.
    """
    ends, data = _value_offsets(column), column.buffers()[2]
    row = 0 if data is None else data.address, ends.ctypes.data, ends.itemsize
    return row, int(ends[-1]) - int(ends[0])


def _present(columns: list[pa.Array]) -> pa.Buffer | None:
    """Returns the bitmap of the rows without a null; None if no column has nulls."""
    with_nulls = [column.is_valid() for column in columns if column.null_count]
    return reduce(pc.and_, with_nulls).buffers()[1] if with_nulls else None
