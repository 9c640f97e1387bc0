"""Budget of the messages inside a large Protobuf message: the memory that parsing them takes.

Google's library reserves memory for each field of each inner message. An inner message may be
two bytes long, so a megabyte of them takes hundreds of megabytes. So the inner messages of a
large message are counted before it is parsed.
"""

from __future__ import annotations

from typing import Any

SMALL = 1 << 16
"""Largest size in bytes of a message that has no budget, because its size bounds its memory."""
FREE, SHARE = 64 << 20, 32
"""Bytes that the inner messages of a larger message may cost, and bytes that are added for each
byte of the message.
"""
_MESSAGE, _FIELD = 64, 16
"""Bytes that an inner message takes, and bytes that are added for each field of its type."""
_DEPTH = 100
"""Deepest nesting that is counted; the library refuses deeper messages."""


def message_cost(kind: Any) -> int:
    """Returns the cost of an inner message of a type.

    The library makes the value of a map's entry even if the message doesn't have it.
    """
    cost = _MESSAGE + _FIELD * len(kind.fields)
    if kind.GetOptions().map_entry and kind.fields_by_name["value"].message_type is not None:
        cost += message_cost(kind.fields_by_name["value"].message_type)
    return cost


def inner_budget(size: int) -> int:
    """Returns the bytes that the inner messages of a message of `size` bytes may cost."""
    return FREE + SHARE * size if size > SMALL else 1 << 62


def exceeds_budget(message: bytes, kind: Any) -> bool:
    """Returns whether the inner messages cost more than `inner_budget`.

    Returns False for a malformed message, because the parser refuses it.
    """
    budget, spans = inner_budget(len(message)), [(0, len(message), kind)]
    types: dict[str, dict[int, Any]] = {}
    while spans:
        pos, end, message_type = spans.pop()
        while 0 <= pos < end:
            if message_type.full_name not in types:
                types[message_type.full_name] = {
                    field.number: field.message_type
                    for field in message_type.fields
                    if field.message_type is not None
                }
            tag, pos = _varint(message, pos, end)
            wire, inner_type = tag & 7, types[message_type.full_name].get(tag >> 3)
            size = {1: 8, 5: 4}.get(wire, 0)
            if wire in {0, 2}:
                number, pos = _varint(message, pos, end)
                size = number if wire == 2 else 0
            if pos < 0 or wire in {6, 7}:
                return False
            if inner_type is not None and wire in {2, 3}:
                budget -= message_cost(inner_type)
                if budget < 0:
                    return True
            if inner_type is not None and wire == 2 and len(spans) < _DEPTH and pos + size <= end:
                spans.append((pos + size, end, message_type))  # the rest of the outer message
                end, message_type = pos + size, inner_type
            else:
                pos += size
    return False


def _varint(message: bytes, pos: int, end: int) -> tuple[int, int]:
    """Reads a number; returns the number, and the index after it or -1."""
    number = 0
    for i in range(10):
        if pos + i >= end:
            break
        byte = message[pos + i]
        number |= (byte & 127) << 7 * i
        if byte < 128:
            return number, pos + i + 1
    return 0, -1
