"""Bytes of messages, as numbers and as characters.

Eight at a time where that is possible. Compiled. Positions are indexes of the batch's
bytes; an index of -1 says: not found, or not valid.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.native.compiling import inlined, part, trailing_zeros, types, word_at

_U = np.uint64
_ONES = _U(0x0101_0101_0101_0101)
_TOPS = _U(0x8080_8080_8080_8080)
_QUOTES, _BACKSLASHES, _SPACES = (_ONES * _U(c) for c in b'"\\ ')

TRUE, FALSE = (np.frombuffer(word, np.uint8) for word in (b"true", b"false"))

EDGES = types.Array(types.int32, 1, "C", readonly=True)
"""Type of the arrays that say where messages begin or end."""


@inlined
def byte(data, at):
    """The byte at an index, as a number for arithmetic.

    An index without a sign saves a check for a negative one.
    """
    return np.int64(data[np.uintp(at)])


@inlined
def literal_end(data, at, end, literal):
    """Index behind a literal, if the bytes at `at` are it; else -1."""
    if at + len(literal) > end:
        return -1
    for i in range(len(literal)):
        if data[np.uintp(at + i)] != literal[i]:
            return -1
    return at + len(literal)


@part
def character_end(data, at, end):
    """Reads a character of several bytes, by the table of RFC 3629.

    Returns the index behind it. -1 for a surrogate, for more bytes than need be, and
    for a number that is too large.
    """
    c = byte(data, at)
    if c < 0xC2 or c > 0xF4:
        return -1
    more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
    if at + more >= end:
        return -1
    second = byte(data, at + 1)
    least = 0xA0 if c == 0xE0 else 0x90 if c == 0xF0 else 0x80
    most = 0x9F if c == 0xED else 0x8F if c == 0xF4 else 0xBF
    if second < least or second > most:
        return -1
    for i in range(2, more + 1):
        if byte(data, at + i) & 0xC0 != 0x80:
            return -1
    return at + more + 1


@part
def is_utf8(data, at, end):
    """Returns whether the bytes from `at` to `end` are UTF-8."""
    while at < end:
        if at + 8 <= end and word_at(data, at) & _TOPS == _U(0):
            at += 8
        elif byte(data, at) < 128:
            at += 1
        else:
            at = character_end(data, at, end)
            if at < 0:
                return False
    return True


@inlined
def single(data, at):
    """Reads a float of four bytes; returns the bits of the same number as a double."""
    bits = np.uint32(0)
    for i in range(4):
        bits |= np.uint32(byte(data, at + i)) << np.uint32(8 * i)
    return np.float64(np.uint32(bits).view(np.float32)).view(np.int64)


@inlined
def first_special(word):
    """Number of bytes of a word before the first special one; 8 without a special one.

    Special are quotes, backslashes, control characters, and bytes of characters beyond
    ASCII. The borrow of a subtraction marks them (H. S. Warren, Hacker's Delight, 6-1).
    It may mark others, too, but only above a special one.
    """
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    found = (
        (quotes - _ONES) & ~quotes
        | (backslashes - _ONES) & ~backslashes
        | (word - _SPACES) & ~word
        | word
    )
    found &= _TOPS
    return 8 if found == _U(0) else np.int64(trailing_zeros(found) >> _U(3))
