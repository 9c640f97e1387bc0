"""Avro messages that are expensive to decode.

Each family takes the size in bytes as its argument.

`python -m tests.formats.avro.hostile BYTES` prints a JSON document. It maps each family to the
strict decoder's reason (null for a row) and whether the compiled pass took the message.

`python -m tests.formats.avro.hostile BYTES FAMILY` decodes one family. It prints the number of
rows and the peak of the memory in MB.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.formats.avro.wire import text, varint
from tests.processes import peak_mib
from windrow.ingest.formats.avro.decoder import AvroPass
from windrow.ingest.formats.avro.schema import parse_schema
from windrow.ingest.formats.avro.strict import StrictAvro
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.columns import Column, Columns

FIELDS: dict[str, tuple[Any, pa.DataType | None]] = {
    "booleans": ({"type": "array", "items": "boolean"}, pa.list_(pa.bool_())),
    "nulls": ({"type": "array", "items": ["null", "string"]}, pa.list_(pa.string())),
    "points": (
        {
            "type": "array",
            "items": {
                "type": "record",
                "name": "Point",
                "fields": [{"name": n, "type": ["null", "long"]} for n in "xy"],
            },
        },
        pa.list_(pa.struct([("x", pa.int64()), ("y", pa.int64())])),
    ),
    "lists": (
        {"type": "array", "items": {"type": "array", "items": "int"}},
        pa.list_(pa.list_(pa.int32())),
    ),
    "texts": ({"type": "array", "items": "string"}, pa.list_(pa.string())),
    "map": ({"type": "map", "values": ["null", "int"]}, pa.map_(pa.string(), pa.int32())),
    "decimals": (
        {
            "type": "array",
            "items": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 0},
        },
        pa.list_(pa.decimal128(30, 0)),
    ),
    "skipped": ({"type": "array", "items": {"type": "map", "values": ["null", "string"]}}, None),
    "trees": (
        {
            "type": "record",
            "name": "Tree",
            "fields": [{"name": "below", "type": {"type": "array", "items": "Tree"}}],
        },
        None,
    ),
    "nothing": ({"type": "array", "items": "null"}, None),
}
"""The fields of the messages and their columns.

By default each field is an empty array, an empty map or an empty record.
"""


def _blocks(field: str, item: bytes, *, size: int = 1000) -> Callable[[int], bytes]:
    """Returns a family whose field repeats `item`, in blocks of `size` items."""

    def family(n: int) -> bytes:
        block = varint(size) + item * size
        return _message(field, block * (n // len(block) + 1) + varint(0))

    return family


def _message(field: str, value: bytes) -> bytes:
    return varint(1) + b"".join(value if name == field else b"\0" for name in FIELDS)


def _map(n: int) -> bytes:
    entries = n // 8
    return _message(
        "map", varint(entries) + b"".join(text(b"%06d" % i) + b"\0" for i in range(entries)) + b"\0"
    )


def _with_byte_more(family: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Returns the family with one more byte at the end of each message."""
    return lambda n: family(n) + b"\0"


_BLOCKS = {
    "booleans": _blocks("booleans", b"\1"),
    "nulls": _blocks("nulls", b"\0"),
    "points without values": _blocks("points", b"\0\0"),
    "points": _blocks("points", b"\0\2\x02"),
    "empty lists": _blocks("lists", b"\0"),
    "lists of a number": _blocks("lists", b"\2\2\0"),
    "empty texts": _blocks("texts", b"\0"),
    "decimals": _blocks("decimals", b"\2\1"),
    "blocks of one": _blocks("booleans", b"\1", size=1),
    "entries": _map,
    "skipped maps": _blocks("skipped", b"\0"),
    "skipped keys": _blocks("skipped", b"\2\0\0\0"),
    "blocks of nothing": lambda n: _message("nothing", varint(1 << 60) * (n // 9) + b"\0"),
    "trees": _blocks("trees", b"\0"),
}
FAMILIES: dict[str, Callable[[int], bytes]] = {
    **_BLOCKS,
    **{f"{name}, and a byte more": _with_byte_more(family) for name, family in _BLOCKS.items()},
    "zeros": lambda n: b"\0" * n,
    "ones": lambda n: b"\xff" * n,
    "deep trees": lambda n: _message("trees", b"\2" * n),
    "one key again and again": lambda n: _message(
        "map", varint(n // 3) + b"\2a\0" * (n // 3) + b"\0"
    ),
    "a decimal of all bytes": lambda n: _message("decimals", varint(1) + text(b"\x7f" * n) + b"\0"),
    "a decimal of leading zeros": lambda n: _message(
        "decimals", varint(1) + text(b"\0" * n) + b"\0"
    ),
    "a text": lambda n: _message("texts", varint(1) + text(b"x" * n) + b"\0"),
    "a text of wide characters": lambda n: _message(
        "texts", varint(1) + text("é" * (n // 2)) + b"\0"
    ),
    "no UTF-8 at the end": lambda n: _message(
        "texts", varint(1) + text(b"x" * n + b"\xff") + b"\0"
    ),
}


def ways() -> tuple[StrictAvro, AvroPass, Columns]:
    fields = [
        {"name": "id", "type": "long"},
        *({"name": name, "type": kind} for name, (kind, _) in FIELDS.items()),
    ]
    schema = parse_schema(
        json.dumps({"type": "record", "name": "Hostile", "fields": fields}), "here"
    )
    kinds = [
        ("id", pa.int64()),
        *((name, kind) for name, (_, kind) in FIELDS.items() if kind is not None),
    ]
    columns = Columns(tuple(Column(name, kind, nullable=True) for name, kind in kinds))
    return StrictAvro(schema, columns), AvroPass(schema, columns), columns


def main(size: int) -> None:
    """Prints each family's reason and whether the compiled pass took the message."""
    strict, fast, _ = ways()
    reason_by_family = {}
    for name, family in FAMILIES.items():
        message, reason = family(size), None
        try:
            strict.decode(message)
        except RefusedValueError as refused:
            reason = refused.reason
        reason_by_family[name] = [
            reason,
            bool(fast.decode(pa.array([message], pa.binary())).mask[0]),
        ]
    print(json.dumps(reason_by_family))


def peak(size: int, family: str) -> None:
    """Prints the number of rows and the process's peak memory in MB."""
    strict, fast, columns = ways()
    message = FAMILIES[family](size)
    decoded = BatchDecoder(columns.arrow_schema, fast, strict).decode(
        pa.array([message, FAMILIES["nulls"](1), message], pa.binary()), "dead"
    )
    print(json.dumps([decoded.rows.num_rows, peak_mib()]))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(int(sys.argv[1]))
    else:
        peak(int(sys.argv[1]), sys.argv[2])
