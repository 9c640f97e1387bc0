"""The loops that put columns into rows of PostgreSQL's binary COPY, and values into the forms that it wants. Compiled.

A row is the number of its fields, and each field its length in bytes and its value, all big-endian; the length of a null is -1. A column is
put into all rows of a batch at once: `at` says where the next field of each row begins, and is moved on.
"""

from __future__ import annotations

import numpy as np
from numba import int64, types, uint8, uint64, void

from windrow.ingest.compiled.making import OCTETS, compiled, inlined, memory

_U = np.uint64
_ENDS = types.Array(int64, 1, "C", readonly=True)
_HALVES = types.Array(uint64, 2, "C", readonly=True)
_BASE = _U(10_000)
_LOW = _U(0xFFFFFFFF)
_HALF = _U(32)
_SMALL = _U(1 << 50)
"""Below it a number can be made a thousand times as large in 64 bits."""


@inlined
def _put_length(out, at, length):
    out[at] = uint8((length >> 24) & 255)
    out[at + 1] = uint8((length >> 16) & 255)
    out[at + 2] = uint8((length >> 8) & 255)
    out[at + 3] = uint8(length & 255)


@inlined
def _put_pair(out, at, number):
    out[at] = uint8((number >> 8) & 255)
    out[at + 1] = uint8(number & 255)


@compiled(void(uint8[::1], int64[::1], int64))
def put_heads(out, at, fields):
    """The number of fields of each row."""
    octets = memory(out)
    for i in range(len(at)):
        _put_pair(octets, at[i], fields)
        at[i] += 2


@compiled(void(uint8[::1], int64[::1], OCTETS, int64, OCTETS))
def put_numbers(out, at, values, width, present):
    """A column of values that are `width` bytes each, big-endian already. `present`: 0 where there is a null; empty, if there is none."""
    octets, source = memory(out), memory(values)
    for i in range(len(at)):
        place = at[i]
        if len(present) and not present[i]:
            _put_length(octets, place, int64(-1))
            at[i] = place + 4
        else:
            _put_length(octets, place, width)
            for j in range(width):
                octets[place + 4 + j] = source[i * width + j]
            at[i] = place + 4 + width


@compiled(void(uint8[::1], int64[::1], OCTETS, _ENDS, int64, OCTETS))
def put_texts(out, at, data, ends, first, present):
    """A column of bytes: value `i` is what lies from `ends[i]` to `ends[i + 1]`. `first`: a byte before each of them; -1: none."""
    octets, source = memory(out), memory(data)
    for i in range(len(at)):
        place = at[i]
        if len(present) and not present[i]:
            _put_length(octets, place, int64(-1))
            at[i] = place + 4
            continue
        begin, end = ends[i], ends[i + 1]
        lead = int64(1) if first >= 0 else int64(0)
        _put_length(octets, place, end - begin + lead)
        place += 4
        if lead:
            octets[place] = uint8(first)
            place += 1
        for j in range(begin, end):
            octets[place + j - begin] = source[j]
        at[i] = place + end - begin


@compiled(void(uint8[::1], int64[::1], OCTETS, _ENDS, _ENDS, int64, OCTETS))
def put_arrays(out, at, fields, starts, ends, element, present):
    """A column of arrays: array `i` has the elements from `ends[i]` to `ends[i + 1]`, and element `k` is the field at `starts[k]`.

    `element`: the type of its elements, by PostgreSQL's number for it.
    """
    octets, source = memory(out), memory(fields)
    for i in range(len(at)):
        place = at[i]
        if len(present) and not present[i]:
            _put_length(octets, place, int64(-1))
            at[i] = place + 4
            continue
        count = ends[i + 1] - ends[i]
        begin, end = starts[ends[i]], starts[ends[i + 1]]
        head = int64(20) if count else int64(12)
        _put_length(octets, place, head + end - begin)
        _put_length(octets, place + 4, int64(1) if count else int64(0))
        _put_length(octets, place + 8, int64(0))
        _put_length(octets, place + 12, element)
        if count:
            _put_length(octets, place + 16, count)
            _put_length(octets, place + 20, int64(1))
        place += 4 + head
        for j in range(begin, end):
            octets[place + j - begin] = source[j]
        at[i] = place + end - begin


@inlined
def _divided(limbs):
    """Divide five parts of 32 bits by 10000, in place; the remainder."""
    rest = _U(0)
    for k in range(4, -1, -1):
        whole = (rest << _HALF) | limbs[k]
        limbs[k] = whole // _BASE
        rest = whole % _BASE
    return rest


@compiled(int64(_HALVES, OCTETS, int64, uint64[::1], uint8[::1], int64[::1]))
def numerics(halves, present, scale, limbs, out, ends):
    """Decimals of 128 bits as PostgreSQL's numeric: groups of four digits, aligned at the point; how many bytes that are.

    `limbs`: room for five numbers. `out`: room for 32 bytes a value.
    """
    octets, at = memory(out), int64(0)
    groups = (scale + 3) // 4
    pad = _U(1)
    for _ in range(groups * 4 - scale):
        pad *= _U(10)
    ends[0] = 0
    for i in range(len(halves)):
        if len(present) == 0 or present[i]:
            low, high = halves[i, 0], halves[i, 1]
            negative = (high >> _U(63)) != _U(0)
            if negative:
                low = ~low + _U(1)
                high = ~high + (_U(1) if low == _U(0) else _U(0))
            digits, begin = int64(0), at + 8
            if high == _U(0) and low < _SMALL:
                low *= pad
                while low:
                    _put_pair(octets, begin + 2 * digits, int64(low % _BASE))
                    low //= _BASE
                    digits += 1
            else:
                carry = _U(0)
                for k in range(5):
                    part = (low if k < 2 else high) >> (_HALF * _U(k & 1)) & _LOW if k < 4 else _U(0)
                    carry += part * pad
                    limbs[k] = carry & _LOW
                    carry >>= _HALF
                while limbs[0] | limbs[1] | limbs[2] | limbs[3] | limbs[4]:
                    _put_pair(octets, begin + 2 * digits, int64(_divided(limbs)))
                    digits += 1
            for k in range(digits // 2):  # the highest comes first
                one, other = begin + 2 * k, begin + 2 * (digits - 1 - k)
                for j in range(2):
                    octet = octets[one + j]
                    octets[one + j] = octets[other + j]
                    octets[other + j] = octet
            _put_pair(octets, at, digits)
            _put_pair(octets, at + 2, digits - groups - 1 if digits else int64(0))
            _put_pair(octets, at + 4, int64(0x4000) if negative else int64(0))
            _put_pair(octets, at + 6, scale)
            at = begin + 2 * digits
        ends[i + 1] = at
    return at


@inlined
def _digit(number):
    return uint8(number + (48 if number < 10 else 87))


@compiled(int64(OCTETS, _ENDS, uint8[::1], int64[::1]))
def quoted(data, ends, out, places):
    """Texts as JSON has them, in quotes; how many bytes that are. `out`: room for six times the bytes, and two a text."""
    octets, source, at = memory(out), memory(data), int64(0)
    places[0] = 0
    for i in range(len(ends) - 1):
        octets[at] = uint8(34)
        at += 1
        for j in range(ends[i], ends[i + 1]):
            octet = source[j]
            if octet in (34, 92):
                octets[at] = uint8(92)
                octets[at + 1] = octet
                at += 2
            elif octet < 32:
                octets[at] = uint8(92)
                octets[at + 1] = uint8(117)
                octets[at + 2] = octets[at + 3] = uint8(48)
                octets[at + 4] = uint8(48 + (octet >> 4))
                octets[at + 5] = _digit(int64(octet & 15))
                at += 6
            else:
                octets[at] = octet
                at += 1
        octets[at] = uint8(34)
        at += 1
        places[i + 1] = at
    return at


@compiled(int64(OCTETS, _ENDS, uint8[::1], int64[::1]))
def hexadecimal(data, ends, out, places):
    r"""Bytes as a JSON text that PostgreSQL reads as bytes, `"\\x..."`; how many bytes that are. `out`: twice as many, and five a value."""
    octets, source, at = memory(out), memory(data), int64(0)
    places[0] = 0
    for i in range(len(ends) - 1):
        octets[at] = uint8(34)
        octets[at + 1] = octets[at + 2] = uint8(92)
        octets[at + 3] = uint8(120)
        at += 4
        for j in range(ends[i], ends[i + 1]):
            octets[at] = _digit(int64(source[j] >> 4))
            octets[at + 1] = _digit(int64(source[j] & 15))
            at += 2
        octets[at] = uint8(34)
        at += 1
        places[i + 1] = at
    return at
