"""Good and hostile Avro messages with the expected row or reason.

Each message differs in one field from a whole message.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.formats.avro.wire import items, sized, text, varint

WHOLE: Mapping[str, bytes] = {
    "id": varint(7),
    "name": varint(0),
    "old": varint(0),
    "size": varint(3),
    "paid": b"\x01",
    "kind": varint(1),
    "amount": text(b"\x04\xd2"),
    "at": varint(0),
    "tags": items(),
    "stock": items(),
    "nothing": items(),
    "place": varint(0),
    "number": varint(1) + varint(5),
    "code": b"code",
}
"""The fields of a whole message."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROW: Mapping[str, Any] = {
    "id": 7,
    "name": None,
    "size": 3,
    "paid": True,
    "kind": "BB",
    "amount": Decimal("12.34"),
    "at": EPOCH,
    "tags": [],
    "stock": [],
    "place": None,
    "number": 5,
}
"""The row of the whole message."""


def message(**fields: bytes) -> bytes:
    """Returns the whole message with the given fields replaced."""
    return b"".join((WHOLE | fields).values())


def place(city: bytes, lat: float = 1.5) -> bytes:
    return varint(1) + text(city) + struct.pack("<d", lat) + struct.pack("<f", 0.5)


def cut(**fields: bytes) -> bytes:
    """Returns a message that ends with the last byte of the given field."""
    (name,) = fields
    names = list(WHOLE)
    return message(**fields)[
        : sum(len((WHOLE | fields)[n]) for n in names[: names.index(name) + 1])
    ]


DEEP = varint(1) * 99 + varint(0)
"""The field `old`, nested as deep as allowed."""

GOOD: dict[str, tuple[bytes, Mapping[str, Any]]] = {
    "a whole message": (message(), {}),
    "the largest long": (message(id=varint((1 << 63) - 1)), {"id": (1 << 63) - 1}),
    "the smallest long": (message(id=varint(-(1 << 63))), {"id": -(1 << 63)}),
    "a long of more bytes than it needs": (message(id=varint(7, 5)), {}),
    "a long of ten bytes": (message(id=varint(7, 9)), {}),
    "an int of five bytes": (message(size=varint(3, 4)), {}),
    "the ends of a column's integers": (message(size=varint(-(1 << 15))), {"size": -(1 << 15)}),
    "an empty string": (message(name=varint(1) + text("")), {"name": ""}),
    "a string of many bytes": (message(name=varint(1) + text("é" * 5000)), {"name": "é" * 5000}),
    "characters of all lengths": (message(name=varint(1) + text("aé€😀")), {"name": "aé€😀"}),
    "a zero character": (message(name=varint(1) + text("a\0b")), {"name": "a\0b"}),
    "a branch's number of more bytes": (message(name=varint(0, 3)), {}),
    "a record in itself, in what no column is for": (message(old=varint(1) * 5 + varint(0)), {}),
    "as deep as may be": (message(old=DEEP), {}),
    "false": (message(paid=b"\x00"), {"paid": False}),
    "the first symbol": (message(kind=varint(0)), {"kind": "A"}),
    "the last symbol": (message(kind=varint(2)), {"kind": "CCC"}),
    "a negative decimal": (message(amount=text(b"\xff")), {"amount": Decimal("-0.01")}),
    "a decimal of all digits": (
        message(amount=text((10**10 - 1).to_bytes(5, "big"))),
        {"amount": Decimal("99999999.99")},
    ),
    "a decimal of more bytes than it needs": (
        message(amount=text(b"\x00" * 30 + b"\x01")),
        {"amount": Decimal("0.01")},
    ),
    "a negative one of more bytes": (
        message(amount=text(b"\xff" * 30)),
        {"amount": Decimal("-0.01")},
    ),
    "a time before 1970": (message(at=varint(-1)), {"at": EPOCH - timedelta(milliseconds=1)}),
    "the first timestamp": (
        message(at=varint(-62_135_596_800_000)),
        {"at": datetime(1, 1, 1, tzinfo=UTC)},
    ),
    "the last timestamp": (
        message(at=varint(253_402_300_799_999)),
        {"at": datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)},
    ),
    "an array": (message(tags=items(text("a"), text(""))), {"tags": ["a", ""]}),
    "an array in two blocks": (
        message(tags=items(text("a"))[:-1] + items(text("b"), text("c"))),
        {"tags": ["a", "b", "c"]},
    ),
    "an array in a block with its size": (
        message(tags=sized(text("a"), text("b"))),
        {"tags": ["a", "b"]},
    ),
    "blocks of both kinds": (
        message(tags=sized(text("a"))[:-1] + items(text("b"))),
        {"tags": ["a", "b"]},
    ),
    "a map": (
        message(stock=items(text("x") + varint(1), text("y") + varint(-2))),
        {"stock": [("x", 1), ("y", -2)]},
    ),
    "a map with an empty key": (message(stock=sized(text("") + varint(1))), {"stock": [("", 1)]}),
    "a billion nulls that no column is for": (message(nothing=varint(1 << 30) + varint(0)), {}),
    "2**60 nulls that no column is for": (
        message(nothing=varint(1 << 60) + varint(1 << 60) + varint(0)),
        {},
    ),
    "nulls in blocks with their sizes": (message(nothing=varint(-5) + varint(0) + varint(0)), {}),
    "a record in a struct": (message(place=place(b"x")), {"place": {"lat": 1.5, "city": "x"}}),
    "negative zero": (message(place=place(b"", -0.0)), {"place": {"lat": -0.0, "city": ""}}),
    "infinity": (message(place=place(b"", math.inf)), {"place": {"lat": math.inf, "city": ""}}),
    "not a number": (message(place=place(b"", math.nan)), {"place": {"lat": math.nan, "city": ""}}),
    "the other branch of a union": (
        message(number=varint(2) + varint(1 << 40)),
        {"number": 1 << 40},
    ),
}

HUGE = varint(1 << 60)
BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not_avro"),
    "a byte behind the record": (message() + b"\0", "not_avro"),
    "two records": (message() * 2, "not_avro"),
    "cut within a long": (b"\x80", "not_avro"),
    "cut within a string": (cut(name=varint(1) + text("abc"))[:-1], "not_avro"),
    "cut behind a branch's number": (cut(name=varint(1)), "not_avro"),
    "cut within an array": (cut(tags=varint(2) + text("a")), "not_avro"),
    "cut before an array's end": (cut(tags=varint(1) + text("a")), "not_avro"),
    "cut within a double": (cut(place=varint(1) + text("x") + b"\0" * 7), "not_avro"),
    "cut within a fixed": (message()[:-1], "not_avro"),
    "a long of eleven bytes": (message(id=b"\x80" * 10 + b"\x00"), "not_avro"),
    "a long beyond 64 bits": (message(id=b"\xff" * 9 + b"\x02"), "not_avro"),
    "ones without end": (b"\xff" * 100, "not_avro"),
    "an int of six bytes": (message(size=varint(3, 5)), "not_avro"),
    "an int beyond 32 bits": (message(size=varint(1 << 32)), "not_avro"),
    "an int beyond its column": (message(size=varint(1 << 15)), "out_of_range"),
    "an int below its column": (message(size=varint(-(1 << 15) - 1)), "out_of_range"),
    "a branch that isn't there": (message(name=varint(2)), "not_avro"),
    "a negative branch": (message(name=varint(-1)), "not_avro"),
    "a huge branch": (message(name=varint((1 << 31) - 1)), "not_avro"),
    "null where there must be a value": (message(number=varint(0)), "missing"),
    "a string of negative length": (message(name=varint(1) + varint(-1)), "not_avro"),
    "a string of 2**60 bytes": (message(name=varint(1) + HUGE), "not_avro"),
    "a string of 2**63 - 1 bytes": (message(name=varint(1) + varint((1 << 63) - 1)), "not_avro"),
    "a string of more bytes than there are": (
        cut(name=varint(1) + varint(200) + b"x" * 199),
        "not_avro",
    ),
    "no UTF-8": (message(name=varint(1) + text(b"a\xff")), "invalid_utf8"),
    "half a character": (message(name=varint(1) + text("é".encode()[:1])), "invalid_utf8"),
    "an overlong character": (message(name=varint(1) + text(b"\xc0\x80")), "invalid_utf8"),
    "half a surrogate pair": (message(name=varint(1) + text(b"\xed\xa0\x80")), "invalid_utf8"),
    "a character beyond the last": (
        message(name=varint(1) + text(b"\xf4\x90\x80\x80")),
        "invalid_utf8",
    ),
    "no UTF-8 at the end of eight": (
        message(name=varint(1) + text(b"seven77\xc3")),
        "invalid_utf8",
    ),
    "no UTF-8 in a key": (message(stock=items(text(b"\xff") + varint(1))), "invalid_utf8"),
    "no UTF-8 in a struct": (message(place=place(b"\x80")), "invalid_utf8"),
    "deeper than may be": (message(old=varint(1) + DEEP), "too_deep"),
    "deep without end": (b"".join(list(WHOLE.values())[:2]) + varint(1) * 100_000, "too_deep"),
    "a boolean of 2": (message(paid=b"\x02"), "not_avro"),
    "a boolean of 255": (message(paid=b"\xff"), "not_avro"),
    "a symbol that isn't there": (message(kind=varint(3)), "not_avro"),
    "a negative symbol": (message(kind=varint(-1)), "not_avro"),
    "a decimal without bytes": (message(amount=text(b"")), "not_avro"),
    "a decimal of too many digits": (
        message(amount=text((10**10).to_bytes(5, "big"))),
        "out_of_range",
    ),
    "a negative decimal of too many digits": (
        message(amount=text((-(10**10)).to_bytes(5, "big", signed=True))),
        "out_of_range",
    ),
    "a decimal of 16 bytes": (message(amount=text(b"\x7f" + b"\xff" * 15)), "out_of_range"),
    "a decimal of a thousand bytes": (message(amount=text(b"\x7f" * 1000)), "out_of_range"),
    "a timestamp beyond the calendar": (message(at=varint(253_402_300_800_000)), "out_of_range"),
    "a timestamp before the calendar": (message(at=varint(-62_135_596_800_001)), "out_of_range"),
    "a timestamp that would overflow": (message(at=varint((1 << 63) - 1)), "out_of_range"),
    "an array of 2**60 items": (message(tags=HUGE), "not_avro"),
    "an array of 2**63 - 1 items": (message(tags=varint((1 << 63) - 1)), "not_avro"),
    "a block of -2**63 items": (message(tags=varint(-(1 << 63)) + varint(2)), "not_avro"),
    "a block of negative size": (
        message(tags=varint(-1) + varint(-2) + text("a") + varint(0)),
        "not_avro",
    ),
    "a block of another size": (
        message(tags=varint(-1) + varint(3) + text("a") + varint(0)),
        "not_avro",
    ),
    "a block of 2**60 bytes": (message(tags=varint(-1) + HUGE + text("a") + varint(0)), "not_avro"),
    "a map of 2**60 entries": (message(stock=HUGE), "not_avro"),
    "a key twice": (
        message(stock=items(text("x") + varint(1), text("x") + varint(2))),
        "duplicate_key",
    ),
    "a key twice, in two blocks": (
        message(stock=items(text("x") + varint(1))[:-1] + items(text("x") + varint(1))),
        "duplicate_key",
    ),
    "a value of a map beyond 32 bits": (
        message(stock=items(text("x") + varint(1 << 32))),
        "not_avro",
    ),
    "nulls with a size": (message(nothing=varint(-5) + varint(1) + b"\0" + varint(0)), "not_avro"),
    "-2**63 nulls": (message(nothing=varint(-(1 << 63)) + varint(0) + varint(0)), "not_avro"),
    "JSON": (b'{"id": 1, "name": "hunter2"}', "not_avro"),
    "a Confluent prefix": (b"\0\0\0\0\x01" + message(), "not_avro"),
    "a file of Avro": (b"Obj\x01\x04\x16avro.schema", "not_avro"),
}
