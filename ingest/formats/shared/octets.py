"""The bytes of messages, as numbers and as characters, eight at a time where that is possible.

Compiled; positions are indexes of the batch's bytes, and -1 says: none.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.native.making import inlined, part, trailing_zeros, types, word_at

_U = np.uint64
_ONES = _U(0x0101_0101_0101_0101)
_TOPS = _U(0x8080_8080_8080_8080)
_QUOTES, _BACKSLASHES, _SPACES = (_ONES * _U(c) for c in b'"\\ ')

EDGES = types.Array(types.int32, 1, "C", readonly=True)
"""Where messages begin or end."""


@inlined
def byte(data, at):
    """One byte, as a number to reckon with.

    An index without a sign saves a look for a negative one.
    """
    return np.int64(data[np.uintp(at)])


@part
def character_end(data, at, end):
    """Behind a character of several bytes, by the table of RFC 3629: no surrogates,
    nothing longer than need be, nothing too large.
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
    """Whether these bytes are."""
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
    """A float of four bytes as a double, whose bits are a number."""
    bits = np.uint32(0)
    for i in range(4):
        bits |= np.uint32(byte(data, at + i)) << np.uint32(8 * i)
    return np.float64(np.uint32(bits).view(np.float32)).view(np.int64)


@inlined
def first_special(word):
    """At which of the bytes stands the first quote, backslash, control character or
    part of a wide character; 8 if there is none.

    A byte is found by the borrow that subtracting makes of it (H. S. Warren, Hacker's
    Delight, 6-1); false finds lie above a true one only.
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
