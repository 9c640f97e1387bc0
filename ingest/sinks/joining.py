"""Columns of texts behind each other, row by row: what Arrow's
`binary_join_element_wise` does, in one compiled pass.
"""

from __future__ import annotations

import ctypes
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.native.calling import Compiled

KIND = pa.large_string()
"""Of all texts here: those of a batch together may be longer than 2 GB."""

_INSTANT = 26

_PASS = Compiled("windrow.ingest.sinks.joining_pass")


def joined(*parts: pa.Array | str) -> pa.Array:
    """Texts, and columns of texts of one length, one behind the other; null where one of them is.

    One part at least is a column.
    """
    columns = [part for part in parts if not isinstance(part, str)]
    rows = len(columns[0])
    texts = [part.encode() for part in parts if isinstance(part, str)]
    ends, size = np.empty(rows + 1, np.int64), rows * sum(map(len, texts))
    kept, table = (
        [ctypes.create_string_buffer(text) for text in texts],
        np.zeros((len(parts), 4), np.int64),
    )
    literals = iter(zip(kept, texts, strict=True))
    for number, part in enumerate(parts):
        if isinstance(part, str):
            held, text = next(literals)
            table[number] = ctypes.addressof(held), 0, 0, len(text)
        else:
            table[number, :3], length = _told(part)
            size += length
    out = np.empty(size, np.uint8)
    _PASS.join(table, ends, out.ctypes.data)
    del kept
    return pa.Array.from_buffers(
        KIND, rows, [_present(columns), pa.py_buffer(ends), pa.py_buffer(out)]
    )


def instants(moments: npt.NDArray[np.int64], before: str, behind: str) -> pa.Array:
    """Instants as ISO 8601 has them, with six digits of a second, each between two texts; none is null.

    Args:
        moments: microseconds since 1970, of the years 1 to 9999.
        before: in ASCII, as is what comes behind.
        behind: the same.
    """  # noqa: E501
    row = np.frombuffer(f"{before}{'0' * _INSTANT}{behind}".encode(), np.uint8)
    out, rows = np.tile(row, len(moments)), len(moments)
    _PASS.put_instants(np.ascontiguousarray(moments), len(row), out.ctypes.data + len(before))
    return pa.Array.from_buffers(
        KIND, rows, [None, pa.py_buffer(np.arange(rows + 1) * len(row)), pa.py_buffer(out)]
    )


def ends_of(column: pa.Array) -> npt.NDArray[Any]:
    """Where each value begins in the bytes of a column of texts, or of bytes, and the
    last one ends; of 32 or of 64 bits.
    """
    width = np.dtype(
        np.int64
        if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        else np.int32
    )
    if not len(column):
        return np.zeros(1, width)
    found: npt.NDArray[Any] = np.frombuffer(
        column.buffers()[1], width, len(column) + 1, column.offset * width.itemsize
    )
    return found


def octets_of(column: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all values of a column of texts, or of bytes, be they under a null."""
    ends, data = ends_of(column), column.buffers()[2]
    return (
        np.empty(0, np.uint8)
        if data is None
        else np.frombuffer(data, np.uint8)[int(ends[0]) : int(ends[-1])]
    )


def _told(column: pa.Array) -> tuple[tuple[int, int, int], int]:
    """What the pass is told of a column, but for its length; and how many bytes it has."""
    ends, data = ends_of(column), column.buffers()[2]
    told = 0 if data is None else data.address, ends.ctypes.data, ends.itemsize
    return told, int(ends[-1]) - int(ends[0])


def _present(columns: list[pa.Array]) -> pa.Buffer | None:
    """The bitmap of the rows in which none is null; None if there is none."""
    with_nulls = [column.is_valid() for column in columns if column.null_count]
    return reduce(pc.and_, with_nulls).buffers()[1] if with_nulls else None
