"""Compiled passes that encode messages as records, sum them up, and partition by key."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from windrow.ingest.native.making import compiled, part, types
from windrow.ingest.native.pointers import byte_at, copy_bytes, int32_at, int64_at, put_byte_at

Ints = npt.NDArray[np.int64]

DATA, ENDS, PRESENT, FIRST = range(4)
"""Fields of a column of bytes.

They are the addresses of its bytes, its offsets and its bitmap (0: no nulls), and the
column's first place in all three.
"""

ADDRESS, LENGTH = range(2)
"""Fields of bytes that are the same in each record."""

_INT = types.int64
_INTS = types.int64[::1]
_TABLE = types.int64[:, ::1]


@part
def _is_null(columns: Any, column: int, row: int) -> bool:
    bitmap, bit = columns[column, PRESENT], columns[column, FIRST] + row
    return bitmap != 0 and not (byte_at(bitmap + (bit >> 3)) >> (bit & 7)) & 1


@part
def _begin(columns: Any, column: int, row: int) -> Any:
    return np.int64(int32_at(columns[column, ENDS] + 4 * (columns[column, FIRST] + row)))


@part
def _length(columns: Any, column: int, row: int) -> Any:
    """Length of a cell; -1 where it is null."""
    if _is_null(columns, column, row):
        return np.int64(-1)
    return _begin(columns, column, row + 1) - _begin(columns, column, row)


@part
def _varint_length(value: Any) -> Any:
    word = np.uint64((value << 1) ^ (value >> 63))
    length = np.int64(1)
    while word >= np.uint64(128):
        word >>= np.uint64(7)
        length += 1
    return length


@part
def _put_varint(at: Any, value: Any) -> Any:
    word = np.uint64((value << 1) ^ (value >> 63))
    while word >= np.uint64(128):
        put_byte_at(at, np.uint8(word & np.uint64(127) | np.uint64(128)))
        word >>= np.uint64(7)
        at += 1
    put_byte_at(at, np.uint8(word))
    return at + 1


@part
def _room(length: Any) -> Any:
    """Bytes of a cell with its length before it."""
    return _varint_length(length) + max(length, np.int64(0))


@part
def _put_cell(columns: Any, column: int, row: int, at: Any) -> Any:
    length = _length(columns, column, row)
    at = _put_varint(at, length)
    if length > 0:
        copy_bytes(columns[column, DATA] + _begin(columns, column, row), length, at)
        at += length
    return at


@compiled(_INT(_TABLE, _TABLE, _INTS, _INTS, _INT, _INT, _INT))
def put_records(
    columns: Any, names: Any, rows: Ints, times: Ints, base: int, count: int, out: int
) -> int:
    """Encodes the messages of some rows as records of magic 2; returns their bytes' number.

    Args:
        columns: the value, the key and each header whose values differ: see `DATA`.
        names: the names of these headers with their lengths before them, and last all
            other headers as encoded: see `ADDRESS`.
        rows: the rows, in the order of the records.
        times: time of each message, in milliseconds since 1970.
        base: the time from which a batch's times are counted.
        count: number of headers of each record.
        out: address of the room for the records.
    """
    at, headers, others = out, columns.shape[0] - 2, names.shape[0] - 1
    for delta in range(len(rows)):
        row = rows[delta]
        late = times[row] - base
        length = (
            1
            + _varint_length(late)
            + _varint_length(np.int64(delta))
            + _room(_length(columns, 1, row))
            + _room(_length(columns, 0, row))
        )
        length += _varint_length(np.int64(count)) + names[others, LENGTH]
        for header in range(headers):
            length += names[header, LENGTH] + _room(_length(columns, header + 2, row))
        at = _put_varint(at, length)
        put_byte_at(at, np.uint8(0))
        at = _put_varint(at + 1, late)
        at = _put_varint(at, np.int64(delta))
        at = _put_cell(columns, 1, row, at)
        at = _put_cell(columns, 0, row, at)
        at = _put_varint(at, np.int64(count))
        for header in range(headers):
            copy_bytes(names[header, ADDRESS], names[header, LENGTH], at)
            at = _put_cell(columns, header + 2, row, at + names[header, LENGTH])
        copy_bytes(names[others, ADDRESS], names[others, LENGTH], at)
        at += names[others, LENGTH]
    return at - out


@compiled(_INT(_TABLE, _INT, _INT))
def crc32c(tables: Any, start: int, length: int) -> int:
    """Checksum of bytes (CRC-32C), eight bytes a step.

    Args:
        tables: `record_batch._tables`.
        start: address of the bytes.
        length: number of the bytes.
    """
    crc: Any = np.int64(0xFFFFFFFF)
    at, end = start, start + length
    while end - at >= 8:
        word: Any = int64_at(at)
        low, high = (word ^ crc) & 0xFFFFFFFF, (word >> 32) & 0xFFFFFFFF
        crc = (
            tables[7, low & 255]
            ^ tables[6, (low >> 8) & 255]
            ^ tables[5, (low >> 16) & 255]
            ^ tables[4, low >> 24]
            ^ tables[3, high & 255]
            ^ tables[2, (high >> 8) & 255]
            ^ tables[1, (high >> 16) & 255]
            ^ tables[0, high >> 24]
        )
        at += 8
    while at < end:
        crc = tables[0, (crc ^ byte_at(at)) & 255] ^ (crc >> 8)
        at += 1
    return crc ^ 0xFFFFFFFF  # type: ignore[no-any-return]


@compiled(types.void(_TABLE, _INT, _INTS))
def murmur2(columns: Any, count: int, partitions: Ints) -> None:
    """Partition of each row by its key, as Java's clients choose it.

    Rows without a key keep the partition that they have.

    Args:
        columns: the key alone: see `DATA`.
        count: number of partitions.
        partitions: receives the partitions.
    """
    m, mask = np.int64(0x5BD1E995), np.int64(0xFFFFFFFF)
    for row in range(len(partitions)):
        length = _length(columns, 0, row)
        if length < 0:
            continue
        at = columns[0, DATA] + _begin(columns, 0, row)
        end = at + length
        h = np.int64(0x9747B28C) ^ length
        while end - at >= 4:
            k = (np.int64(int32_at(at)) & mask) * m & mask
            k = ((k ^ (k >> 24)) * m) & mask
            h = ((h * m) & mask) ^ k
            at += 4
        left = end - at
        if left == 3:
            h ^= np.int64(byte_at(at + 2)) << 16
        if left >= 2:
            h ^= np.int64(byte_at(at + 1)) << 8
        if left >= 1:
            h = ((h ^ np.int64(byte_at(at))) * m) & mask
        h = ((h ^ (h >> 13)) * m) & mask
        partitions[row] = ((h ^ (h >> 15)) & 0x7FFFFFFF) % count
