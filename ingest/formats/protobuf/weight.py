"""What a large message would take of memory, before it is parsed.

Protobuf's library has a place for each field of each message inside a message, and such
a message may be two bytes: a megabyte of them would become hundreds. So a message of
more than some bytes is looked over first.
"""

from __future__ import annotations

from typing import Any

SMALL = 1 << 16
"""Bytes of a message that is parsed without a look: what it may become is bounded by them."""
FREE, SHARE = 64 << 20, 32
"""What the messages inside any larger message may take, and how much more for each of its bytes."""
_MESSAGE, _FIELD = 64, 16
"""What a message inside a message takes by itself, and for each of its type's fields, in bytes."""
_DEPTH = 100


def weight_of(kind: Any) -> int:
    """What a message of a type takes inside another one, in bytes."""
    return _MESSAGE + _FIELD * len(kind.fields)


def is_too_heavy(message: bytes, kind: Any) -> bool:
    """Whether the messages inside would take more than 32 bytes a byte, beyond 64 MB.
    What is malformed is judged by who parses it.
    """
    left, spans = FREE + SHARE * len(message), [(0, len(message), kind)]
    types: dict[str, dict[int, Any]] = {}
    while spans:
        at, end, of = spans.pop()
        while 0 <= at < end:
            if of.full_name not in types:
                types[of.full_name] = {
                    field.number: field.message_type
                    for field in of.fields
                    if field.message_type is not None
                }
            tag, at = _varint(message, at, end)
            wire, below = tag & 7, types[of.full_name].get(tag >> 3)
            size = {1: 8, 5: 4}.get(wire, 0)
            if wire in {0, 2}:
                number, at = _varint(message, at, end)
                size = number if wire == 2 else 0
            if at < 0 or wire in {6, 7}:
                return False
            if below is not None and wire in {2, 3}:
                left -= weight_of(below)
                if left < 0:
                    return True
            if below is not None and wire == 2 and len(spans) < _DEPTH and at + size <= end:
                spans.append((at + size, end, of))  # on with it behind what is inside
                end, of = at + size, below
            else:
                at += size
    return False


def _varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends, or -1."""
    number = 0
    for i in range(10):
        if at + i >= end:
            break
        byte = message[at + i]
        number |= (byte & 127) << 7 * i
        if byte < 128:
            return number, at + i + 1
    return 0, -1
