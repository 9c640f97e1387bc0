"""Functions that read a value of Protobuf's encoding. Compiled.

`pos` is the index of the value's first byte, and at most `end`. A function returns the index
after the value, or -1 if the message is left to the strict decoder.
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
def varint(data, pos, end):
    """Reads a varint; returns the index after it, or -1, and its 64 bits."""
    if pos < end and byte(data, pos) < 128:
        return pos + 1, byte(data, pos)
    return long_varint(data, pos, end)


@part
def long_varint(data, pos, end):
    """Reads a varint of one or several bytes; returns the same as `varint`."""
    number = _U(0)
    for i in range(_NUMBER_BYTES):
        if pos >= end:
            return -1, 0
        piece = byte(data, pos)
        number |= _U(piece & 127) << _U(7 * i)
        pos += 1
        if piece < 128:
            return (-1, 0) if i == _NUMBER_BYTES - 1 and piece > 1 else (pos, np.int64(number))
    return -1, 0


@inlined
def tag(data, pos, end):
    """Reads a tag: the field's number, and the wire type in the lowest three bits.

    Returns:
        The index after the tag, or -1; and the tag.
    """
    begin = pos
    pos, head = varint(data, pos, end)
    return (
        (-1, 0)
        if pos < 0 or head < 0 or head > _LOW_HALF or pos - begin > _TAG_BYTES
        else (pos, head)
    )


@inlined
def read_length(data, pos, end):
    """Reads a length.

    Returns:
        The index after the length, or -1 if fewer bytes than the length are before `end`;
        and the length.
    """
    pos, n = varint(data, pos, end)
    return (-1, 0) if pos < 0 or n < 0 or n > end - pos else (pos, n)


@part
def passed_over(data, pos, end, wire):
    """Skips a value; returns the index after it, or -1. Groups aren't skipped but give -1."""
    if wire == 0:
        pos, _ = varint(data, pos, end)
        return pos
    if wire == 2:
        pos, n = read_length(data, pos, end)
        return -1 if pos < 0 else pos + n
    n = 8 if wire == 1 else 4 if wire == 5 else end - pos + 1
    return -1 if n > end - pos else pos + n


@inlined
def raw(data, pos, end, kind):
    """Reads a number of any encoding.

    Returns:
        The index after the number, or -1; and the number. An unsigned number from 2**63 on
        is the negative number with the same bits. A float is the bits of a double.
    """
    if kind <= BOOL:
        pos, number = varint(data, pos, end)
        if kind <= UINT64:
            return pos, number
        if kind == INT32:
            return pos, np.int64(np.int32(number))
        if kind == UINT32:
            return pos, number & _LOW_HALF
        if kind == BOOL:
            return pos, np.int64(number != 0)
        if kind == SINT32:
            number &= _LOW_HALF
        return pos, np.int64(_U(number) >> _U(1)) ^ -(number & 1)
    if kind <= DOUBLE:
        return (-1, 0) if end - pos < 8 else (pos + 8, np.int64(word_at(data, pos)))
    if end - pos < 4:
        return -1, 0
    if kind == FLOAT:
        return pos + 4, single(data, pos)
    bits = (
        byte(data, pos)
        | byte(data, pos + 1) << 8
        | byte(data, pos + 2) << 16
        | byte(data, pos + 3) << 24
    )
    return pos + 4, bits if kind == FIXED32 else np.int64(np.int32(bits))


@part
def instant(data, pos, end, truncates):
    """Reads a google.protobuf.Timestamp from `pos` to `end`.

    Returns:
        Whether it is certain; its microseconds; and whether nanoseconds were cut off.
    """
    seconds = nanos = 0
    while pos < end:
        head = byte(data, pos)
        if head not in (8, 16):
            return False, 0, False
        pos, number = varint(data, pos + 1, end)
        if pos < 0:
            return False, 0, False
        if head == 8:
            seconds = number
        else:
            nanos = int(np.int32(number))
    is_cut = nanos % 1_000 != 0
    if (
        nanos < 0
        or nanos >= 1_000_000_000
        or seconds < MIN_MICROS // 1_000_000
        or seconds > MAX_MICROS // 1_000_000
    ):
        return False, 0, False
    micros = seconds * 1_000_000 + nanos // 1_000
    return (
        micros >= MIN_MICROS and micros <= MAX_MICROS and (truncates or not is_cut),
        micros,
        is_cut,
    )
