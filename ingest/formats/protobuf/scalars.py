"""Reads one value of Protobuf's encoding. Compiled.

Each function may assume that `at` is at the value's first byte, and at most at `end`. It
returns the place after the value, or -1 if the message is left to the strict decoder.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.protobuf.tables import (
    BOOL,
    DOUBLE,
    FIXED32,
    FLOAT,
    INT32,
    SINT32,
    UINT32,
    UINT64,
)
from windrow.ingest.formats.shared.integers import MAX_MICROS, MIN_MICROS
from windrow.ingest.formats.shared.octets import byte, single
from windrow.ingest.native.compiling import inlined, part, word_at

_U = np.uint64
_NUMBER_BYTES, _TAG_BYTES = 10, 5
_LOW_HALF = 0xFFFF_FFFF


@inlined
def varint(data, at, end):
    """Reads a number. Returns the place after it, or -1, and its 64 bits."""
    if at < end and byte(data, at) < 128:
        return at + 1, byte(data, at)
    return long_varint(data, at, end)


@part
def long_varint(data, at, end):
    """Reads a number as `varint` does, also one of several bytes."""
    number = _U(0)
    for i in range(_NUMBER_BYTES):
        if at >= end:
            return -1, 0
        piece = byte(data, at)
        number |= _U(piece & 127) << _U(7 * i)
        at += 1
        if piece < 128:
            return (-1, 0) if i == _NUMBER_BYTES - 1 and piece > 1 else (at, np.int64(number))
    return -1, 0


@inlined
def tag(data, at, end):
    """Reads a tag. Returns the place after it, or -1, and the tag.

    The tag is the field's number, and the wire type in the lowest three bits.
    """
    begin = at
    at, head = varint(data, at, end)
    return (
        (-1, 0) if at < 0 or head < 0 or head > _LOW_HALF or at - begin > _TAG_BYTES else (at, head)
    )


@inlined
def sized(data, at, end):
    """Reads a length. Returns the place after it, or -1, and the length.

    So many bytes are there before `end`.
    """
    at, n = varint(data, at, end)
    return (-1, 0) if at < 0 or n < 0 or n > end - at else (at, n)


@part
def passed_over(data, at, end, wire):
    """Skips a value. Returns the place after it, or -1; groups are left to the strict decoder."""
    if wire == 0:
        at, _ = varint(data, at, end)
        return at
    if wire == 2:
        at, n = sized(data, at, end)
        return -1 if at < 0 else at + n
    n = 8 if wire == 1 else 4 if wire == 5 else end - at + 1
    return -1 if n > end - at else at + n


@inlined
def raw(data, at, end, kind):
    """Reads a number. Returns the place after it, or -1, and the number.

    An unsigned number from 2**63 on is returned as the negative one with the same bits; a
    float as the bits of a double.
    """
    if kind <= BOOL:
        at, number = varint(data, at, end)
        if kind <= UINT64:
            return at, number
        if kind == INT32:
            return at, np.int64(np.int32(number))
        if kind == UINT32:
            return at, number & _LOW_HALF
        if kind == BOOL:
            return at, np.int64(number != 0)
        if kind == SINT32:
            number &= _LOW_HALF
        return at, np.int64(_U(number) >> _U(1)) ^ -(number & 1)
    if kind <= DOUBLE:
        return (-1, 0) if end - at < 8 else (at + 8, np.int64(word_at(data, at)))
    if end - at < 4:
        return -1, 0
    if kind == FLOAT:
        return at + 4, single(data, at)
    bits = (
        byte(data, at)
        | byte(data, at + 1) << 8
        | byte(data, at + 2) << 16
        | byte(data, at + 3) << 24
    )
    return at + 4, bits if kind == FIXED32 else np.int64(np.int32(bits))


@part
def instant(data, at, end, truncates):
    """Reads a google.protobuf.Timestamp from `at` to `end`.

    Returns whether it is certain, its microseconds, and whether nanoseconds were cut off.
    """
    seconds = nanos = 0
    while at < end:
        head = byte(data, at)
        if head not in (8, 16):
            return False, 0, False
        at, number = varint(data, at + 1, end)
        if at < 0:
            return False, 0, False
        if head == 8:
            seconds = number
        else:
            nanos = int(np.int32(number))
    cut = nanos % 1_000 != 0
    if (
        nanos < 0
        or nanos >= 1_000_000_000
        or seconds < MIN_MICROS // 1_000_000
        or seconds > MAX_MICROS // 1_000_000
    ):
        return False, 0, False
    micros = seconds * 1_000_000 + nanos // 1_000
    return micros >= MIN_MICROS and micros <= MAX_MICROS and (truncates or not cut), micros, cut
