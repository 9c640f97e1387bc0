"""Good and hostile Protobuf messages with the expected row or reason."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.formats.protobuf.wire import (
    BEGIN,
    END,
    SIZED,
    double,
    four,
    group,
    number,
    tag,
    text,
    varint,
)

ROW: Mapping[str, Any] = {
    "id": 7,
    "name": None,
    "size": 0,
    "paid": False,
    "kind": "NONE",
    "at": None,
    "tags": [],
    "stock": [],
    "place": None,
    "places": [],
    "road": None,
    "rail": None,
    "boxes": None,
    "large": 0,
    "share": 0.0,
    "code": b"",
    "hash": 0,
}
"""The row of a message that has only the field `id`."""
ID = number(1, 7)
PLACE = {"city": "x", "lat": 1.5}


def deep(levels: int) -> bytes:
    """Returns orders nested this many levels deep."""
    inner = b""
    for _ in range(levels):
        inner = text(18, inner)
    return ID + inner


def stock(key: str, value: int) -> bytes:
    return text(8, text(1, key) + number(2, value))


def at(seconds: int, nanos: int = 0) -> bytes:
    return text(6, number(1, seconds) + number(2, nanos))


GOOD: dict[str, tuple[bytes, Mapping[str, Any]]] = {
    "a number alone": (ID, {}),
    "nothing": (b"", {"id": 0}),
    "the largest number": (number(1, (1 << 63) - 1), {"id": (1 << 63) - 1}),
    "the smallest number": (number(1, -(1 << 63)), {"id": -(1 << 63)}),
    "a number of ten bytes": (number(1, -1), {"id": -1}),
    "a number of more bytes than it needs": (tag(1, 0) + varint(7, 6), {}),
    "a tag of more bytes than it needs": (varint(8, 2) + varint(7), {}),
    "the last one of two numbers": (number(1, 1) + ID, {}),
    "the last one of two texts": (ID + text(2, "a") + text(2, "b"), {"name": "b"}),
    "an empty text that is there": (ID + text(2, ""), {"name": ""}),
    "characters of all lengths": (ID + text(2, "aé€😀\0"), {"name": "aé€😀\0"}),
    "zigzag": (ID + number(3, 5), {"size": -3}),
    "the end of a column": (ID + number(3, 65535), {"size": -(1 << 15)}),
    "true": (ID + number(4, 1), {"paid": True}),
    "another true": (ID + number(4, 2), {"paid": True}),
    "an enum": (ID + number(5, 2), {"kind": "PEN"}),
    "a timestamp": (ID + at(1, 5_000), {"at": datetime(1970, 1, 1, 0, 0, 1, 5, UTC)}),
    "a timestamp finer than microseconds": (
        ID + at(-1, 999_999_999),
        {"at": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)},
    ),
    "a timestamp of nothing": (ID + text(6, b""), {"at": datetime(1970, 1, 1, tzinfo=UTC)}),
    "a timestamp in two parts": (
        ID + text(6, number(1, 1)) + text(6, number(2, 5_000)),
        {"at": datetime(1970, 1, 1, 0, 0, 1, 5, UTC)},
    ),
    "numbers packed": (ID + text(7, varint(1) + varint(2)), {"tags": [1, 2]}),
    "numbers one by one": (ID + number(7, 1) + number(7, 2), {"tags": [1, 2]}),
    "numbers both ways, with others between": (
        ID + number(7, 1) + number(4, 1) + text(7, varint(2) + varint(3)),
        {"tags": [1, 2, 3], "paid": True},
    ),
    "numbers packed, none of them": (ID + text(7, b""), {}),
    "a map": (ID + stock("y", 2) + stock("x", 1), {"stock": [("x", 1), ("y", 2)]}),
    "the last one of two entries": (ID + stock("x", 1) + stock("x", 2), {"stock": [("x", 2)]}),
    "an entry without a key": (ID + text(8, number(2, 1)), {"stock": [("", 1)]}),
    "an entry without a value": (ID + text(8, text(1, "x")), {"stock": [("x", 0)]}),
    "an entry whose value comes first, and twice": (
        ID + text(8, number(2, 5) + text(1, "x") + number(2, 1)),
        {"stock": [("x", 1)]},
    ),
    "an entry of nothing": (ID + text(8, b""), {"stock": [("", 0)]}),
    "entries with something unknown": (
        ID
        + text(8, text(1, "x") + number(2, 1) + number(3, 1))
        + stock("y", 2)
        + text(8, group(9, number(1, 1)) + text(1, "a")),
        {"stock": [("a", 0), ("x", 1), ("y", 2)]},
    ),
    "a message inside": (ID + text(9, text(1, "x") + double(2, 1.5)), {"place": PLACE}),
    "a message of nothing inside": (ID + text(9, b""), {"place": {"city": "", "lat": 0.0}}),
    "a message inside in two parts": (
        ID + text(9, text(1, "x")) + text(9, double(2, 1.5)),
        {"place": PLACE},
    ),
    "messages, again and again": (
        ID + text(10, text(1, "x") + double(2, 1.5)) + text(10, b""),
        {"places": [PLACE, {"city": "", "lat": 0.0}]},
    ),
    "one of several": (ID + text(11, "a"), {"road": "a"}),
    "the last one of several": (ID + text(11, "a") + number(12, 3), {"rail": 3}),
    "one of several that is zero": (ID + number(12, 0), {"rail": 0}),
    "a wrapper": (ID + text(13, number(1, 5)), {"boxes": 5}),
    "a wrapper of nothing": (ID + text(13, b""), {"boxes": 0}),
    "a float": (ID + four(15, struct.pack("<f", 0.5)), {"share": 0.5}),
    "not a number": (ID + four(15, struct.pack("<f", math.nan)), {"share": math.nan}),
    "bytes that are no UTF-8": (ID + text(16, b"\xff"), {"code": b"\xff"}),
    "four bytes": (ID + four(17, b"\xff" * 4), {"hash": (1 << 32) - 1}),
    "unknown fields of all kinds": (
        ID + number(99, 1) + double(98, 1.0) + text(97, b"\xff") + four(96, b"abcd"),
        {},
    ),
    "a group that is unknown": (ID + group(95, number(1, 1), group(2, text(3, "x"))), {}),
    "another wire type, where no column is": (
        ID + number(18, 5) + text(9, text(1, "x") + text(3, "zip") + double(2, 1.5)),
        {"place": PLACE},
    ),
    "the largest field": (ID + number((1 << 29) - 1, 1), {}),
    "as deep as may be": (deep(100), {}),
}

BAD: dict[str, tuple[bytes, str]] = {
    "a tag alone": (ID + b"\x10", "not_protobuf"),
    "half a tag": (ID + b"\x80", "not_protobuf"),
    "half a number": (b"\x08\x80", "not_protobuf"),
    "a number of eleven bytes": (b"\x08" + b"\xff" * 10 + b"\x01", "not_protobuf"),
    "ones without end": (b"\xff" * 100, "not_protobuf"),
    "field zero": (b"\x00\x01", "not_protobuf"),
    "wire type six": (ID + tag(1, 6), "not_protobuf"),
    "wire type seven": (ID + tag(1, 7), "not_protobuf"),
    "a text that is cut": (ID + tag(2, SIZED) + varint(5) + b"abcd", "not_protobuf"),
    "a text of 2**60 bytes": (ID + tag(2, SIZED) + varint(1 << 60), "not_protobuf"),
    "a text of -1 bytes": (ID + tag(2, SIZED) + varint(-1), "not_protobuf"),
    "a text that is no UTF-8": (ID + text(2, b"\xff"), "not_protobuf"),
    "half a surrogate pair": (ID + text(2, b"\xed\xa0\x80"), "not_protobuf"),
    "a key that is no UTF-8": (ID + text(8, text(1, b"\xff")), "not_protobuf"),
    "eight bytes that are cut": (ID + text(9, double(2, 1.0)[:-1]), "not_protobuf"),
    "four bytes that are cut": (ID + four(17, b"abc"), "not_protobuf"),
    "packed numbers that are cut": (ID + text(7, b"\x01\x80"), "not_protobuf"),
    "a message inside that is cut": (ID + text(9, text(1, "x")[:-1]), "not_protobuf"),
    "a message inside that is longer than it": (
        ID + tag(9, SIZED) + varint(9) + text(1, "x"),
        "not_protobuf",
    ),
    "a group that doesn't end": (ID + tag(95, BEGIN) + number(1, 1), "not_protobuf"),
    "a group that ends as another": (ID + tag(95, BEGIN) + tag(94, END), "not_protobuf"),
    "a group's end alone": (ID + tag(95, END), "not_protobuf"),
    "deeper than may be": (deep(101), "not_protobuf"),
    "far deeper": (deep(5_000), "not_protobuf"),
    "groups that begin without end": (ID + tag(95, BEGIN) * 100_000, "not_protobuf"),
    "a number beyond its column": (ID + number(3, 65536), "out_of_range"),
    "a number without a sign that is too large": (ID + number(14, 1 << 63), "out_of_range"),
    "an enum that isn't there": (ID + number(5, 9), "out_of_range"),
    "a negative enum": (ID + number(5, -1), "out_of_range"),
    "a text for a number": (text(1, "x"), "wrong_type"),
    "a number for a text": (ID + number(2, 5), "wrong_type"),
    "four bytes for a number": (ID + four(3, b"abcd"), "wrong_type"),
    "eight bytes for a float": (ID + double(15, 0.5), "wrong_type"),
    "a number for an enum, in four bytes": (ID + four(5, b"\1\0\0\0"), "wrong_type"),
    "a number packed, of which there is one": (text(1, varint(7)), "wrong_type"),
    "a text for a number, and a number": (text(1, "x") + ID, "wrong_type"),
    "four bytes in a list of numbers": (ID + four(7, b"abcd"), "wrong_type"),
    "a number for a timestamp": (ID + number(6, 1_767_603_600), "wrong_type"),
    "a text in a timestamp": (ID + text(6, text(1, "2026")), "wrong_type"),
    "a number for a wrapper": (ID + number(13, 5), "wrong_type"),
    "a text in a wrapper": (ID + text(13, text(1, "5")), "wrong_type"),
    "a number for a map": (ID + number(8, 5), "wrong_type"),
    "a number for a map's key": (ID + text(8, number(1, 1) + number(2, 1)), "wrong_type"),
    "a text for a map's value": (ID + text(8, text(1, "x") + text(2, "1")), "wrong_type"),
    "a text for a map's value, before a number": (
        ID + text(8, text(1, "x") + text(2, "1") + number(2, 1)),
        "wrong_type",
    ),
    "a number for a message inside": (ID + number(9, 5), "wrong_type"),
    "a group for a message inside": (ID + group(9, text(1, "x")), "wrong_type"),
    "a number in a message inside": (ID + text(9, number(1, 5)), "wrong_type"),
    "a number in one of several messages": (
        ID + text(10, b"") + text(10, number(1, 5)),
        "wrong_type",
    ),
    "a number for one of several": (ID + number(11, 5), "wrong_type"),
    "an entry with something unknown, and one without": (
        ID + stock("x", 2) + text(8, text(1, "x") + group(9)),
        "duplicate_key",
    ),
    "a timestamp of negative nanoseconds": (ID + at(1, -1_000), "out_of_range"),
    "a timestamp beyond the calendar": (ID + at(253_402_300_800), "out_of_range"),
    "JSON": (b'{"id": 1}', "not_protobuf"),
    "a Confluent prefix": (b"\0\0\0\0\x01\0" + ID, "not_protobuf"),
}

OLDER: dict[str, tuple[bytes, Mapping[str, Any] | str]] = {
    "defaults": (ID, {}),
    "a required field that is missing": (text(2, "a"), "missing"),
    "one that is missing where no column is": (ID + text(8, text(2, "a")), "missing"),
    "a default that is written": (ID + text(2, "nobody"), {}),
    "a text": (ID + text(2, ""), {"name": ""}),
    "a text that is no UTF-8": (ID + text(2, b"\xff"), "invalid_utf8"),
    "zero that is there": (ID + number(3, 0), {"size": 0}),
    "an enum": (ID + number(4, 2), {"colour": "BLUE"}),
    "closed enums": (ID + text(5, varint(1) + varint(2)), {"colours": ["RED", "BLUE"]}),
    "a closed enum's other number": (ID + number(4, 9), "out_of_range"),
    "a closed enum's other number, before one that it has": (
        ID + number(4, 9) + number(4, 2),
        {"colour": "BLUE"},
    ),
    "closed enums, one another": (
        ID + text(5, varint(1) + varint(9) + varint(2)),
        "out_of_range",
    ),
    "closed enums one by one": (ID + number(5, 1) + number(5, 9), "out_of_range"),
    "a closed enum's other number, where no column is": (
        ID + text(8, ID + number(4, 9)),
        {},
    ),
    "a number for a group": (ID + number(6, 1), "wrong_type"),
    "groups": (ID + group(6, text(1, "a")) + group(6), {"line": [{"sku": "a"}, {"sku": None}]}),
    "a group that doesn't end": (ID + tag(6, BEGIN) + text(1, "a"), "not_protobuf"),
    "numbers packed though they aren't": (ID + text(7, varint(1) + varint(2)), {"numbers": [1, 2]}),
}
OLDER_ROW: Mapping[str, Any] = {
    "id": 7,
    "name": "nobody",
    "size": None,
    "colour": None,
    "colours": [],
    "line": [],
    "numbers": [],
}
