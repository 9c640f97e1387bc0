"""Functions that read white space, strings and names of JSON.

Compiled. `data` holds the bytes of all messages; `pos` and `end` are indexes into them. A
returned index of -1 means: not certain.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.shared.octets import byte, character_end, first_special
from windrow.ingest.native.compiling import below, inlined, part, word_at

QUOTE = ord('"')
_BACKSLASH = ord("\\")
# The character that an escape of two characters stands for; 0 if there is no such escape.
_SHORT = np.zeros(256, np.uint8)
for _escape, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _SHORT[_escape] = _meaning
_HEX = np.full(256, -1, np.int64)
for _digit in b"0123456789abcdefABCDEF":
    _HEX[_digit] = int(chr(_digit), 16)


@inlined
def blank(data, pos, end):
    """Returns the index after white space, at most `end`."""
    while (
        pos < end
        and byte(data, pos) <= 32
        and (byte(data, pos) == 32 or byte(data, pos) in (9, 10, 13))
    ):
        pos += 1
    return pos


@part
def text_end(data, pos, end):
    """Reads a string, whose first character is at `pos`.

    Returns:
        The index of its closing quote, or -1; and the number of bytes that replacing the
        escapes saves.
    """
    saved_bytes = 0
    while pos < end:
        if pos + 8 <= end:
            plain_bytes = first_special(word_at(data, pos))
            pos += plain_bytes
            if plain_bytes == 8:
                continue
        c = byte(data, pos)
        if c == QUOTE:
            return pos, saved_bytes
        if c == _BACKSLASH:
            pos, saved_by_escape = escape_end(data, pos, end)
            saved_bytes += saved_by_escape
        elif c < 32:
            return -1, 0
        elif c < 128:
            pos += 1
        else:
            pos = character_end(data, pos, end)
        if pos < 0:
            return -1, 0
    return -1, 0


@part
def escape_end(data, pos, end):
    """Reads the escape whose backslash is at `pos`; both escapes of a surrogate pair.

    Half a surrogate pair is no valid escape.

    Returns:
        The index after the escape, or -1; and the number of bytes that replacing it saves.
    """
    if pos + 1 >= end:
        return -1, 0
    if _SHORT[data[np.uintp(pos + 1)]]:
        return pos + 2, 1
    code = escaped_code(data, pos, end)
    if code < 0 or 0xDC00 <= code < 0xE000:
        return -1, 0
    if code < 0xD800 or code >= 0xE000:
        return pos + 6, 6 - utf8_length(code)
    low = escaped_code(data, pos + 6, end)
    return (pos + 12, 8) if 0xDC00 <= low < 0xE000 else (-1, 0)


@part
def escaped_code(data, pos, end):
    r"""Returns the number in \uXXXX, whose backslash is at `pos`; -1 if it is no such escape."""
    if pos + 6 > end or byte(data, pos) != _BACKSLASH or byte(data, pos + 1) != ord("u"):
        return -1
    code = 0
    for i in range(2, 6):
        digit = _HEX[data[np.uintp(pos + i)]]
        if digit < 0:
            return -1
        code = code * 16 + digit
    return code


@part
def utf8_length(code):
    """Returns the number of UTF-8 bytes of a character that needs no surrogate pair."""
    return 1 if code < 0x80 else 2 if code < 0x800 else 3


@part
def unescape(data, pos, out, begin, end):
    """Copies a string, with its escapes replaced.

    `text_end` must have taken the string before.

    Args:
        data: the bytes to copy from.
        pos: the index of the string's first byte.
        out: the bytes to copy to.
        begin: the first index to copy to.
        end: the index after the last one to copy to.
    """
    while begin < end:
        c = byte(data, pos)
        if c != _BACKSLASH:
            out[np.uintp(begin)] = c
            pos, begin = pos + 1, begin + 1
            continue
        short_escape = _SHORT[data[np.uintp(pos + 1)]]
        if short_escape:
            out[np.uintp(begin)] = short_escape
            pos, begin = pos + 2, begin + 1
            continue
        code = escaped_code(data, pos, pos + 6)
        pos += 6
        if 0xD800 <= code < 0xDC00:
            code = 0x10000 + ((code - 0xD800) << 10) + escaped_code(data, pos, pos + 6) - 0xDC00
            pos += 6
        begin = write_utf8(code, out, begin)


@part
def write_utf8(code, out, pos):
    """Writes a character in UTF-8 to `out`, and returns the index after it."""
    if code < 0x80:
        out[np.uintp(pos)] = code
        return pos + 1
    if code < 0x800:
        out[np.uintp(pos)] = 0xC0 | code >> 6
    elif code < 0x10000:
        out[np.uintp(pos)] = 0xE0 | code >> 12
        pos += 1
        out[np.uintp(pos)] = 0x80 | code >> 6 & 63
    else:
        out[np.uintp(pos)] = 0xF0 | code >> 18
        out[np.uintp(pos + 1)] = 0x80 | code >> 12 & 63
        pos += 2
        out[np.uintp(pos)] = 0x80 | code >> 6 & 63
    out[np.uintp(pos + 1)] = 0x80 | code & 63
    return pos + 2


@inlined
def same(data, pos, end, names, begin, n):
    """Returns whether the `n` bytes at `pos` are equal to the name at `begin`.

    The caller makes sure that all `n` bytes are before `end`, and that at least eight bytes
    follow the last name.
    """
    while n > 0 and pos + 8 <= end:
        if (word_at(data, pos) ^ word_at(names, begin)) & below(min(n, 8)) != np.uint64(0):
            return False
        pos, begin, n = pos + 8, begin + 8, n - 8
    equal = True
    for i in range(n):
        equal &= data[pos + i] == names[begin + i]
    return equal
