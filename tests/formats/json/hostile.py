"""JSON messages that are expensive to decode.

Each family takes the size in bytes as its argument.

`python -m tests.formats.json.hostile BYTES` prints a JSON document. It has each family's reason
by the strict decoder, and by the whole decoder for a fifth of the size.

`python -m tests.formats.json.hostile BYTES COUNT FAMILY` decodes a batch of COUNT messages of
one family. It prints the number of rows and the peak of the memory in MB.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pyarrow as pa

from tests.formats.json.models import Nested, Scalars
from tests.processes import peak_mib
from windrow.ingest.formats.json.decoder import json_batch_decoder
from windrow.ingest.formats.json.strict import StrictJson
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.columns import Columns


def _id(field: str, head: bytes, repeated: bytes, tail: bytes = b"") -> Callable[[int], bytes]:
    """Returns a family of documents with one field: `head`, the repeated bytes, then `tail`."""
    return lambda n: (
        b'{"id":1,"' + field.encode() + b'":' + head + repeated * (n // len(repeated)) + tail + b"}"
    )


def _raw(head: bytes, repeated: bytes, tail: bytes = b"") -> Callable[[int], bytes]:
    return lambda n: head + repeated * (n // len(repeated)) + tail


OPEN = b"[" * 60 + b'"' + b"[" * 60
"""More brackets than the depth limit allows if brackets in strings counted, and an open string."""

FAMILIES: dict[str, Callable[[int], bytes]] = {
    "unterminated string with escaped quotes": _raw(OPEN, rb"\""),
    "unterminated string, the last quote escaped": _raw(OPEN, rb"\"", b"\\"),
    "unterminated string of backslashes": _raw(OPEN, b"\\", b"x"),
    "strings that open and close": _raw(b"[" * 101, b'"'),
    "string with escaped quotes": _id("more", b"[" * 50 + b'"', rb"\"", b'"' + b"]" * 50),
    "string of brackets": _id("name", b'"', b"[{", b'"'),
    "deep arrays": _raw(b"", b"["),
    "deep objects": _raw(b"", b'{"a":'),
    "brackets that only close": _raw(b"{" * 101, b"]"),
    "long integer": _id("id2", b"", b"9"),
    "long integer in a column": _id("quantity", b"", b"9"),
    "long integer for a float": _id("amount", b"", b"9"),
    "long integer for a decimal": _id("price", b"", b"9"),
    "long fraction": _id("amount", b"0.", b"1"),
    "long decimal": _id("price", b"0.", b"1"),
    "decimal of zeros": _id("price", b"1.", b"0"),
    "decimal as text": _id("price", b'"', b"9", b'"'),
    "giant exponent": _id("amount", b"1e", b"9"),
    "giant exponent of a decimal": _id("price", b"1e", b"9"),
    "giant negative exponent": _id("units", b"1e-", b"9"),
    "zeros with a giant exponent": _id("price", b"0e", b"9"),
    "epoch of digits": _id("ms", b"", b"1"),
    "timestamp with digits": _id("at", b'"2024-01-01T00:00:00.', b"1", b'Z"'),
    "timestamp with zeros": _id("at", b'"2024-01-01T00:00:00.', b"0", b'Z"'),
    "date of digits": _id("day", b'"', b"2024-01-01", b'"'),
    "one key again and again": _id("id", b'1,"id":1', b',"id":1'),
    "an unknown key again and again": _id("more", b'{"a":1', b',"a":1', b"}"),
    "objects with a key twice": _id("more", b"[1", b',{"a":1,"a":1}', b"]"),
    "objects in objects with a key twice": _id("more", b"[1", b',{"a":{"b":1,"b":1}}', b"]"),
    "many keys": (
        lambda n: b'{"id":1,"more":{' + b",".join(b'"%07d":1' % i for i in range(n // 12)) + b"}}"
    ),
    "many keys, some twice": lambda n: (
        b'{"id":1,"more":{'
        + b",".join(b'"%07d":1' % (i % (n // 13)) for i in range(n // 12))
        + b"}}"
    ),
    "many columns' keys": (
        lambda n: b"{" + b",".join(b'"%07d":1' % i for i in range(n // 12)) + b',"id":1}'
    ),
    "small integers": _id("more", b"[1", b",1", b"]"),
    "small fractions": _id("more", b"[1", b",0.5", b"]"),
    "small floats": _id("more", b"[1", b",1e1", b"]"),
    "empty objects": _id("more", b"[1", b",{}", b"]"),
    "empty arrays": _id("more", b"[1", b",[]", b"]"),
    "small objects": _id("more", b"[1", b',{"a":1}', b"]"),
    "objects of the schema": _id("place", b'{"geo":{}', b',"geo":{"lat":1}', b"}"),
    "escapes": _id("name", b'"', rb"\u00e9", b'"'),
    "escapes in a key": lambda n: b'{"id":1,"' + rb"\u0061" * (n // 6) + b'":1}',
    "surrogate pairs": _id("name", b'"', rb"\ud83d\ude00", b'"'),
    "half a surrogate pair behind escapes": _id("name", b'"', rb"\n", rb'\ud800"'),
    "backslashes before half a pair": _id("name", b'"', rb"\\", rb'\ud800"'),
    "high halves": _id("name", b'"', rb"\ud800", b'"'),
    "whitespace": _raw(b"{", b" ", b'"id":1}'),
    "lines, then no JSON": _raw(b"{", b"\n", b"x"),
    "whitespace after": _raw(b'{"id":1}', b"\n"),
    "commas and spaces": _id("more", b"[1,", b" ", b"]"),
    "commas": _raw(b"{", b","),
    "colons": _raw(b'{"id"', b":"),
    "colons in a string": _id("name", b'"', b": :", b'"'),
    "not finite": _id("more", b"[1", b",NaN", b"]"),
    "not UTF-8 at the end": _raw(b'{"id":1,"name":"', b"x", b'\xff"}'),
    "wide at the end": _id("name", b'"', b"x", '😀"'.encode()),
    "tags": _id("tags", b'["a"', b',"a"', b"]"),
    "tags of a wrong type": _id("tags", b'["a"', b',"a"', b",1]"),
    "lines": _id("lines", b"[{}", b",{}", b"]"),
    "lines with unknown fields": _id("lines", b"[{}", b',{"price":1,"more":{}}', b"]"),
    "prices": _id("lines", b"[{}", b',{"price":1.5}', b"]"),
    "stock": (
        lambda n: b'{"id":1,"stock":{' + b",".join(b'"%07d":1' % i for i in range(n // 12)) + b"}}"
    ),
}

LISTS = ("tags", "lines", "prices", "stock")
"""Families with large rows, because a column of theirs is a list or a map."""


def _refusal(strict: StrictJson, message: bytes) -> str | None:
    try:
        strict.decode(message)
    except RefusedValueError as refused:
        return refused.reason
    return None


def main(size: int) -> None:
    """Prints two reasons of each family, each null for a row.

    The first is the strict decoder's for a message of `size` bytes. The second is the whole
    decoder's for a message of a fifth of that.
    """
    reasons_by_family = {}
    for model, unknown in ((Scalars, "ignore"), (Nested, "dead")):
        strict, machine = (
            StrictJson(Columns.of(model), Reading(unknown=unknown)),
            json_batch_decoder(Columns.of(model), Reading(unknown=unknown)),
        )
        for name, family in FAMILIES.items():
            decoded = machine.decode(pa.array([family(size // 5)], pa.binary()), "dead")
            reasons_by_family[f"{name}: {model.__name__}"] = [
                _refusal(strict, family(size)),
                next(iter(decoded.dead_reason.to_pylist()), None),
            ]
    print(json.dumps(reasons_by_family))


def peak(size: int, count: int, family: str) -> None:
    """Prints the number of rows and the process's peak memory in MB.

    `ru_maxrss` isn't used, because a process inherits it from its parent.
    """
    model = Nested if family in LISTS else Scalars
    decoded = json_batch_decoder(Columns.of(model)).decode(
        pa.array([FAMILIES[family](size)] * count, pa.binary()), "dead"
    )
    print(json.dumps([decoded.rows.num_rows, peak_mib()]))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(int(sys.argv[1]))
    else:
        peak(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
