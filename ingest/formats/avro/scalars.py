"""Functions that read a value that is neither array nor map, and write its entry. Compiled.

The functions that scan a value share their arguments:

- `pos`: the index of the value's first byte, at most `end`.
- `row`: the place of the value's instruction.
- `node`: the node of the value. It is negative if no column is for the value; then the value is
  only checked.

They return the index after the value, or -1 if the message isn't taken; and the index of the
next entry.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.avro.fit import INT_BYTES, LONG_BYTES
from windrow.ingest.formats.avro.program import (
    BOOLEAN,
    COUNT,
    DIVISOR,
    DOUBLE,
    FACTOR,
    FIRST,
    FLOAT,
    HIGH,
    ITEMS,
    KEYED,
    LOW,
    NULL_FIRST,
    NULL_SECOND,
    SKIP_BOOLEAN,
    SKIP_BYTES,
    SKIP_FLOAT,
    SKIP_INT,
    SKIP_LONG,
    SKIP_TEXT,
    VARINT_FLOAT,
)
from windrow.ingest.formats.shared.entries import put
from windrow.ingest.formats.shared.instants import day, instant
from windrow.ingest.formats.shared.octets import byte, is_utf8, single
from windrow.ingest.native.compiling import inlined, part, trailing_zeros, word_at

_U = np.uint64
_TOPS = _U(0x8080_8080_8080_8080)
_EVEN_1, _EVEN_2, _EVEN_4 = (
    _U(bits) for bits in (0x00FF_00FF_00FF_00FF, 0x0000_FFFF_0000_FFFF, 0x0000_0000_FFFF_FFFF)
)
"""Every second byte, pair of bytes, and four bytes of a word."""
_WIDEST = 16
"""Number of bytes of the widest decimal column."""


@inlined
def varint(data, pos, end, max_bytes):
    """Reads a number of at most `max_bytes` bytes.

    Returns:
        The index after the number, or -1; and the number.
    """
    if pos < end and byte(data, pos) < 128:
        first = byte(data, pos)
        return pos + 1, (first >> 1) ^ -(first & 1)
    return long_varint(data, pos, end, max_bytes)


@part
def long_varint(data, pos, end, max_bytes):
    """Reads a number of one or several bytes; returns the same as `varint`."""
    number = _U(0)
    if pos + 8 <= end:
        word = word_at(data, pos)
        stops = ~word & _TOPS
        if stops != _U(0):
            # All bytes of the number are in the word. Its groups of seven bits are moved
            # together in pairs, first of single groups, then of two, then of four.
            size = np.int64(trailing_zeros(stops) >> _U(3)) + 1
            number = word & (stops ^ (stops - _U(1))) & ~_TOPS
            number = number & _EVEN_1 | (number & ~_EVEN_1) >> _U(1)
            number = number & _EVEN_2 | (number & ~_EVEN_2) >> _U(2)
            number = number & _EVEN_4 | (number & ~_EVEN_4) >> _U(4)
            if size > max_bytes or (max_bytes == INT_BYTES and number >> _U(32)):
                return -1, 0
            return pos + size, np.int64(number >> _U(1)) ^ -np.int64(number & _U(1))
    for i in range(max_bytes):
        if pos >= end:
            return -1, 0
        piece = byte(data, pos)
        number |= _U(piece & 127) << _U(7 * i)
        pos += 1
        if piece < 128:
            if i == LONG_BYTES - 1 and piece > 1:
                return -1, 0
            if max_bytes == INT_BYTES and number >> _U(32):
                return -1, 0
            return pos, np.int64(number >> _U(1)) ^ -np.int64(number & _U(1))
    return -1, 0


@inlined
def end_of_long(data, pos, end):
    """Returns the index after a long that no column is for, or -1."""
    if pos + 9 > end:
        return varint(data, pos, end, LONG_BYTES)[0]
    stops = ~word_at(data, pos) & _TOPS
    if stops != _U(0):
        return pos + np.int64(trailing_zeros(stops) >> _U(3)) + 1
    if byte(data, pos + 8) < 128:
        return pos + 9
    return pos + LONG_BYTES if pos + LONG_BYTES <= end and byte(data, pos + 9) <= 1 else -1


@inlined
def octets(data, pos, end):
    """Reads a length.

    Returns:
        The index after the length, or -1 if fewer bytes than the length are before `end`;
        and the length.
    """
    pos, n = varint(data, pos, end, LONG_BYTES)
    return (-1, 0) if pos < 0 or n < 0 or n > end - pos else (pos, n)


@part
def fits_bits(value, bits):
    """Returns whether the binary digits of a number other than 0 fit in `bits` bits.

    Zeros at the end need no bits. If the digits fit, a float with a mantissa of `bits` bits
    is exact.
    """
    size = _U(value) if value > 0 else _U(0) - _U(value)
    return size >> _U(bits) < size & (_U(0) - size)


@inlined
def integer(data, pos, end, row, op, node, index, numbers, state, entries, entry):
    """Scans an int or a long.

    A negative divisor means that the remainder may be truncated. Then an entry of node 0,
    the document, marks the row as truncated.
    """
    pos, value = varint(data, pos, end, numbers[np.uintp(row + COUNT)])
    if pos < 0:
        return -1, entry
    if (value < numbers[np.uintp(row + LOW)] or value > numbers[np.uintp(row + HIGH)]) and (
        op != VARINT_FLOAT or not fits_bits(value, numbers[np.uintp(row + FACTOR)])
    ):
        return -1, entry
    if node < 0:
        return pos, entry
    if op == VARINT_FLOAT:
        return pos, put(entries, entry, node, index, np.float64(value).view(np.int64))
    divisor = numbers[np.uintp(row + DIVISOR)]
    if divisor != 1:
        if value % divisor:
            if divisor > 0:
                return -1, entry
            entry = put(entries, entry, 0, state[ITEMS], 1)
        value //= abs(divisor)
    return pos, put(entries, entry, node, index, value * numbers[np.uintp(row + FACTOR)])


@inlined
def scan_fixed(data, pos, end, row, op, node, index, numbers, entries, entry):
    """Scans a value with a fixed number of bytes."""
    n = (
        8
        if op == DOUBLE
        else 1
        if op == BOOLEAN
        else 4
        if op == FLOAT
        else numbers[np.uintp(row + COUNT)]
    )
    if end - pos < n or (op == BOOLEAN and byte(data, pos) > 1):
        return -1, entry
    if node >= 0:
        if op == DOUBLE:
            value = np.int64(word_at(data, pos))
        elif op == BOOLEAN:
            value = byte(data, pos)
        elif op == FLOAT:
            value = single(data, pos)
        else:
            value = pos << 32 | n << 1
        entry = put(entries, entry, node, index, value)
    return pos + n, entry


@part
def decimal(data, pos, n, low, high):
    """Reads a number from `n` bytes in two's complement, the highest byte first.

    Returns:
        Whether its absolute value is at most the 128 bits (`high`, `low`); its upper 64
        bits; and its lower 64 bits.
    """
    if n < 1:
        return False, _U(0), _U(0)
    sign = _U(0) - _U(byte(data, pos) >> 7)
    upper = lower = sign
    # No column has more than 128 bits: all bytes before the last 16 must repeat the sign,
    # and so must the first bit of these 16.
    for i in range(n - _WIDEST + 1):
        piece = byte(data, pos + i) ^ np.int64(sign & _U(255))
        if piece >= 128 or (piece and i < n - _WIDEST):
            return False, _U(0), _U(0)
    for i in range(max(n - _WIDEST, 0), n):
        upper = upper << _U(8) | lower >> _U(56)
        lower = lower << _U(8) | _U(byte(data, pos + i))
    size_low = (lower ^ sign) - sign
    size_high = (upper ^ sign) + _U(sign != 0 and size_low == 0)
    return size_high < _U(high) or (size_high == _U(high) and size_low <= _U(low)), upper, lower


@part
def wide(data, pos, end, row, node, index, numbers, entries, entry):
    """Scans a decimal that is written as bytes or as a fixed."""
    n = numbers[np.uintp(row + COUNT)]
    if n == 0:
        pos, n = octets(data, pos, end)
    if pos < 0 or n > end - pos:
        return -1, entry
    is_exact, upper, lower = decimal(
        data, pos, n, numbers[np.uintp(row + LOW)], numbers[np.uintp(row + HIGH)]
    )
    if not is_exact:
        return -1, entry
    for _ in range(numbers[np.uintp(row + FACTOR)]):
        # Ten times the number is eight times the number plus twice the number.
        doubled_low = lower << _U(1)
        upper = (upper << _U(3) | lower >> _U(61)) + (upper << _U(1) | lower >> _U(63))
        lower = (lower << _U(3)) + doubled_low
        upper += _U(lower < doubled_low)
    entry = put(entries, entry, node, index, np.int64(lower))
    if numbers[np.uintp(row + KEYED)]:
        entry = put(entries, entry, node, index, np.int64(upper))
    return pos + n, entry


@part
def scan_time_text(data, pos, end, row, node, index, numbers, state, entries, entry):
    """Scans a text that is a timestamp with an offset, or a date."""
    pos, n = octets(data, pos, end)
    if pos < 0:
        return -1, entry
    if numbers[np.uintp(row + COUNT)]:
        text_end, days = day(data, pos, pos + n)
        return (
            (-1, entry)
            if text_end != pos + n
            else (text_end, put(entries, entry, node, index, days))
        )
    text_end, micros, is_cut = instant(data, pos, pos + n, False, numbers[np.uintp(row + LOW)] == 1)
    if text_end != pos + n:
        return -1, entry
    entry = put(entries, entry, node, index, micros)
    return text_end, put(entries, entry, 0, state[ITEMS], 1) if is_cut else entry


@part
def skip_run(data, pos, end, first, count, numbers):
    """Skips values that no column is for; returns the index after them, or -1.

    Args:
        data: the bytes of all messages.
        pos: the index of the first byte.
        end: the end of the message.
        first: the place of the first value's code.
        count: the number of values.
        numbers: the program's numbers.
    """
    for place in range(first, first + count):
        code = numbers[np.uintp(place)]
        if code >= NULL_FIRST:
            pos, branch = varint(data, pos, end, INT_BYTES)
            if pos < 0 or branch < 0 or branch > 1:
                return -1
            if (branch == 0) == (code < NULL_SECOND):
                continue
        kind = code % NULL_FIRST
        if kind <= SKIP_BYTES:
            pos, n = octets(data, pos, end)
            if pos < 0 or (kind == SKIP_TEXT and not is_utf8(data, pos, pos + n)):
                return -1
            pos += n
        elif kind == SKIP_INT:
            pos, _ = varint(data, pos, end, INT_BYTES)
            if pos < 0:
                return -1
        elif kind == SKIP_LONG:
            pos = end_of_long(data, pos, end)
            if pos < 0:
                return -1
        else:
            n = 1 if kind == SKIP_BOOLEAN else 4 if kind == SKIP_FLOAT else 8
            if end - pos < n or (kind == SKIP_BOOLEAN and byte(data, pos) > 1):
                return -1
            pos += n
    return pos


@inlined
def enum(data, pos, end, row, node, index, numbers, entries, entry):
    """Scans an enum."""
    pos, symbol = varint(data, pos, end, INT_BYTES)
    if pos < 0 or symbol < 0 or symbol >= numbers[np.uintp(row + COUNT)]:
        return -1, entry
    if node >= 0:
        entry = put(
            entries, entry, node, index, numbers[np.uintp(numbers[np.uintp(row + FIRST)] + symbol)]
        )
    return pos, entry
