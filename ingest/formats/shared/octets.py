"""Functions that read bytes of messages as numbers and as characters.

Compiled. They read eight bytes at a time where possible. Positions are indexes into the
batch's bytes. A returned index of -1 means: not found, or not valid.
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
"""Type of the arrays of the indexes at which messages begin or end."""


@inlined
def byte(data, pos):
    """Returns the byte at an index, as a number for arithmetic.

    The index is converted to unsigned, because numba checks a signed index for being
    negative.
    """
    return np.int64(data[np.uintp(pos)])


@inlined
def literal_end(data, pos, end, literal):
    """Returns the index after a literal if it is at `pos`; else -1."""
    if pos + len(literal) > end:
        return -1
    for i in range(len(literal)):
        if data[np.uintp(pos + i)] != literal[i]:
            return -1
    return pos + len(literal)


@part
def character_end(data, pos, end):
    """Reads a character of several bytes, by the table of RFC 3629.

    Returns:
        The index after the character; -1 for a surrogate, for an overlong form, and for a
        code point that is too large.
    """
    c = byte(data, pos)
    if c < 0xC2 or c > 0xF4:
        return -1
    continuation_bytes = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
    if pos + continuation_bytes >= end:
        return -1
    second = byte(data, pos + 1)
    lowest = 0xA0 if c == 0xE0 else 0x90 if c == 0xF0 else 0x80
    highest = 0x9F if c == 0xED else 0x8F if c == 0xF4 else 0xBF
    if second < lowest or second > highest:
        return -1
    for i in range(2, continuation_bytes + 1):
        if byte(data, pos + i) & 0xC0 != 0x80:
            return -1
    return pos + continuation_bytes + 1


@part
def is_utf8(data, pos, end):
    """Returns whether the bytes from `pos` to `end` are UTF-8."""
    while pos < end:
        if pos + 8 <= end and word_at(data, pos) & _TOPS == _U(0):
            pos += 8
        elif pos + 8 > end >= 8 and _last_of(word_at(data, end - 8), end - pos) & _TOPS == _U(0):
            return True
        elif byte(data, pos) < 128:
            pos += 1
        else:
            pos = character_end(data, pos, end)
            if pos < 0:
                return False
    return True


@inlined
def _last_of(word, size):
    """Returns the last `size` bytes of a word, at least one."""
    return word >> _U(64 - 8 * size)


@inlined
def single(data, pos):
    """Reads a float of four bytes; returns the bits of the same number as a double."""
    bits = np.uint32(0)
    for i in range(4):
        bits |= np.uint32(byte(data, pos + i)) << np.uint32(8 * i)
    return np.float64(np.uint32(bits).view(np.float32)).view(np.int64)


@inlined
def first_special(word):
    """Returns the number of bytes in a word before the first special byte; 8 if none is special.

    Special bytes are quotes, backslashes, control characters, and bytes of characters beyond
    ASCII. The borrow of a subtraction marks them (H. S. Warren, Hacker's Delight, 6-1). It
    may also mark other bytes, but only after a special byte.
    """
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    special_bits = (
        (quotes - _ONES) & ~quotes
        | (backslashes - _ONES) & ~backslashes
        | (word - _SPACES) & ~word
        | word
    )
    special_bits &= _TOPS
    return 8 if special_bits == _U(0) else np.int64(trailing_zeros(special_bits) >> _U(3))
