"""Protobuf's wire format, written by hand: valid values, and values that no library writes."""

from __future__ import annotations

import struct

VARINT, EIGHT, SIZED, BEGIN, END, FOUR = range(6)
"""The wire types."""


def varint(number: int, longer: int = 0) -> bytes:
    """Returns a varint of 64 bits, with `longer` bytes more than it needs."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127 or longer > 0:
        if number <= 127:
            longer -= 1
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def number(field: int, value: int) -> bytes:
    return tag(field, VARINT) + varint(value)


def text(field: int, value: str | bytes) -> bytes:
    octets = value.encode() if isinstance(value, str) else value
    return tag(field, SIZED) + varint(len(octets)) + octets


def double(field: int, value: float) -> bytes:
    return tag(field, EIGHT) + struct.pack("<d", value)


def four(field: int, octets: bytes) -> bytes:
    return tag(field, FOUR) + octets


def group(field: int, *inner: bytes) -> bytes:
    return tag(field, BEGIN) + b"".join(inner) + tag(field, END)
