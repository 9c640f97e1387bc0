"""Avro's binary encoding, written by hand: valid values, and values that no library writes."""

from __future__ import annotations


def varint(number: int, longer: int = 0) -> bytes:
    """Returns an int or a long, with `longer` bytes more than it needs."""
    word = (number << 1) ^ (number >> 63)
    out = bytearray()
    while word > 127 or longer > 0:
        if word <= 127:
            longer -= 1
        out.append(word & 127 | 128)
        word >>= 7
    return bytes([*out, word])


def text(value: str | bytes) -> bytes:
    """Returns a string, or bytes."""
    octets = value.encode() if isinstance(value, str) else value
    return varint(len(octets)) + octets


def items(*values: bytes) -> bytes:
    """Returns an array or a map in one block. A map's entries are already encoded."""
    return (varint(len(values)) + b"".join(values) if values else b"") + varint(0)


def sized(*values: bytes) -> bytes:
    """Returns an array or a map in one block with its size in bytes."""
    inner = b"".join(values)
    return varint(-len(values)) + varint(len(inner)) + inner + varint(0)
