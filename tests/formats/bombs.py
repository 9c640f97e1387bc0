"""Messages of each format that are made to be expensive.

`python -m tests.formats.bombs FORMAT [SEED COUNT]` decodes each of them, or COUNT of them that the
seed draws, in a process of its own, whose CPU time and address space are limited: by the compiled
pass, and without it. It prints what `measure` returns, a line of JSON each.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from tests.formats.avro.wire import text as avro_text
from tests.formats.avro.wire import varint as avro_int
from tests.formats.cdc.formats import decoder_of
from tests.formats.confluent.registries import FixedRegistry, framed
from tests.formats.json.hostile import FAMILIES as JSON_FAMILIES
from tests.formats.protobuf.wire import BEGIN, SIZED, group, number, tag, text, varint
from tests.processes import peak_mib
from windrow.ingest.formats.avro.decoder import PASS as AVRO_PASS
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder
from windrow.ingest.formats.csv.decoder import PASS as CSV_PASS
from windrow.ingest.formats.json.layout import PASS as JSON_PASS
from windrow.ingest.formats.protobuf.decoder import PASS as PROTOBUF_PASS
from windrow.ingest.formats.shared.arrow_arrays import ENTRIES_CODE
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.native.calling import Compiled
from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.testing.contracts.values import messages_with

HERE = Path(__file__).parent
MEGABYTE = 1 << 20
CPU_SECONDS, ADDRESS_SPACE = 20, 4 << 30
"""Limits of a process that decodes a message; it is killed, or runs out of memory."""
PASSES = (AVRO_PASS, CSV_PASS, JSON_PASS, PROTOBUF_PASS, ENTRIES_CODE)

Make = Callable[[int], bytes]
"""Makes a message of about so many bytes."""


@dataclass(frozen=True)
class Bombs:
    """A decoder, a message that is a row, and messages that are expensive for it."""

    decoder: Decoder
    good: bytes
    families: Mapping[str, Make]


def _repeat(head: bytes, repeated: bytes, tail: bytes = b"") -> Make:
    return lambda size: head + repeated * (size // len(repeated)) + tail


# --------------------------------------------------------------------------------------------------


def _field(name: str, head: bytes, repeated: bytes, tail: bytes = b"") -> Make:
    return _repeat(b'{"id":1,"' + name.encode() + b'":' + head, repeated, tail + b"}")


ROWS: dict[str, Make] = {
    **JSON_FAMILIES,
    "wide structs": _field("items", b"[{}", b",{}", b"]"),
    "wide structs within the budget": _field("items", b"[{}", b',{"f00":10000000}', b"]"),
    "wide structs of nulls": _field("items", b"[null", b",null", b"]"),
    "wide structs with a value": _field("items", b'[{"f00":1}', b',{"f59":1}', b"]"),
    "wide entries": lambda size: (
        b'{"entries":{' + b",".join(b'"%06d":{}' % i for i in range(size // 12)) + b"}}"
    ),
    "wide entries as pairs": _field("entries", b"[{}", b",{}", b"]"),
    "lists of lists": _field("lists", b"[[]", b",[]", b"]"),
    "lists of nulls": _field("lists", b"[[null]", b",[null]", b"]"),
    "empty texts": _field("texts", b'[""', b',""', b"]"),
    "numbers of the list": _field("numbers", b"[1", b",1", b"]"),
    "nulls of the list": _field("numbers", b"[null", b",null", b"]"),
    "decimals of the list": _field("prices", b"[1", b",1e-9", b"]"),
    "decimals with giant exponents": _field("prices", b"[1", b",1e999999999", b"]"),
    "decimals with giant negative exponents": _field("prices", b"[1", b",1e-999999999", b"]"),
    "zeros with giant exponents": _field("prices", b"[1", b",0e999999999", b"]"),
    "instants of the list": _field("instants", b"[null", b',"2026-01-05T09:00:00Z"', b"]"),
    "instants at the ends": _field("instants", b"[null", b',"9999-12-31T23:59:60-23:59"', b"]"),
    "instants far away": _field("instants", b"[null", b",99999999999999999999", b"]"),
    "doubles that are hard to round": _field("numbers", b"[1", b",9007199254740993e-291", b"]"),
    "a double that is hard to round": _field("share", b"2.2250738585072011", b"1", b"e-308"),
    "a decimal of a giant exponent": lambda _: b'{"price":1e999999999}',
    "a decimal of a giant exponent as text": lambda _: b'{"price":"1e-999999999"}',
    "columns' keys twice": _repeat(b'{"id":1', b',"id":1', b"}"),
    "keys with escapes": _repeat(b'{"id":1', rb',"\u0069d":1', b"}"),
    "keys of one hash's length": lambda size: (
        b"{" + b",".join(b'"%06x":1' % (i * 4096 % (1 << 24)) for i in range(size // 11)) + b"}"
    ),
    "depth at the limit, again and again": _field(
        "more", b"[1", b"," + b"[" * 90 + b"]" * 90, b"]"
    ),
    "objects at the limit": _field("more", b"[1", b"," + b'{"a":' * 90 + b"1" + b"}" * 90, b"]"),
}


def _members(count: int) -> bytes:
    return b",".join(b'"%07d":1' % i for i in range(count))


KEPT: dict[str, Make] = {
    "many fields": lambda size: b"{" + _members(size // 12) + b"}",
    "a large field": _repeat(b'{"id":1,"more":"', b"x", b'"}'),
    "a field of each item": _field("items", b'[{"a":1}', b',{"a":1}', b"]"),
    "a field of each entry": lambda size: (
        b'{"entries":{' + b",".join(b'"%07d":{"a":1}' % i for i in range(size // 18)) + b"}}"
    ),
    "fields below a long key": lambda size: (
        b'{"entries":{"' + b"k" * (size // 2) + b'":{' + _members(size // 24) + b"}}}"
    ),
    "fields below a short key": lambda size: (
        b'{"entries":{"' + b"/" * 15 + b'":{' + _members(size // 12) + b"}}}"
    ),
    "small objects": _repeat(b'{"id":1,"more":[1', b',{"a":1}', b"]}"),
}
"""Messages with fields that a row keeps."""


def _stated(schema: bytes, payload: bytes = b'{"op":"c","after":{"price":"MDk="}}') -> bytes:
    return b'{"schema":' + schema + b',"payload":' + payload + b"}"


def _stated_field(kind: bytes, value: bytes) -> bytes:
    """Returns an event whose own schema says how its one column is written."""
    row = b'{"field":"after","type":"struct","fields":[%s]}' % kind
    return _stated(b'{"type":"struct","fields":[%s]}' % row, b'{"op":"c","after":{%s}}' % value)


_DECIMAL = (
    b'{"field":"price","type":"bytes","name":"org.apache.kafka.connect.data.Decimal",'
    b'"parameters":{"scale":"%s"}}'
)
STATED: dict[str, Make] = {
    **{
        f"a decimal of scale {scale}": lambda _, scale=scale: _stated_field(
            _DECIMAL % str(scale).encode(), b'"price":"MDk="'
        )
        for scale in (999999999, -999999999, -100000000, 100000000)
    },
    "decimals of a giant scale": lambda size: _stated_field(
        b'{"field":"prices","type":"array","items":' + _DECIMAL % b"-999999999" + b"}",
        b'"prices":["MDk="' + b',"MDk="' * (size // 7) + b"]",
    ),
    "a variable scale": lambda _: _stated_field(
        b'{"field":"price","type":"struct","name":"io.debezium.data.VariableScaleDecimal"}',
        b'"price":{"scale":-2147483648,"value":"MDk="}',
    ),
    "a schema of many fields": lambda size: _stated(
        b'{"type":"struct","fields":['
        + b",".join(
            b'{"field":"%06d","name":"io.debezium.time.Date"}' % i for i in range(size // 52)
        )
        + b"]}"
    ),
    "a schema of one field again and again": lambda size: _stated(
        b'{"type":"struct","fields":['
        + b",".join([b'{"field":"a","name":"io.debezium.time.Date"}'] * (size // 47))
        + b"]}"
    ),
    "schemas in schemas": lambda size: _stated(
        b'{"type":"struct","fields":['
        + b",".join(
            [b'{"field":"a","items":' * 90 + b'{"name":"io.debezium.time.Date"}' + b"}" * 90]
            * (size // 2200)
        )
        + b"]}"
    ),
    "a schema as text": lambda size: _stated(
        json.dumps('{"items":' * (size // 10) + "1" + "}" * (size // 10)).encode()
    ),
}


def _in(head: bytes, tail: bytes) -> Callable[[Make], Make]:
    """Returns what puts an envelope around the message of a family."""
    return lambda family: lambda size: head + family(size) + tail


def _each(wrap: Callable[[Make], Make], families: Mapping[str, Make]) -> dict[str, Make]:
    return {name: wrap(family) for name, family in families.items()}


def _json_bombs(
    name: str, head: bytes, tail: bytes, more: Mapping[str, Make], **decode: Any
) -> Bombs:
    decoder = decoder_of(name, "", folder=HERE, **_MODEL, **decode)
    return Bombs(decoder, head + b'{"id":1}' + tail, {**_each(_in(head, tail), ROWS), **more})


_MODEL = {"schema": "bomb_models.py:Wide"}
NARROW = "bomb_models.py:Narrow"


# --------------------------------------------------------------------------------------------------

_ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": f"f{i:02}", "type": ["null", "long"]} for i in range(60)],
}
AVRO_FIELDS: dict[str, Any] = {
    "items": {"type": "array", "items": ["null", _ITEM]},
    "entries": {"type": "map", "values": ["null", "Item"]},
    "lists": {"type": "array", "items": {"type": "array", "items": "long"}},
    "texts": {"type": "array", "items": ["null", "string"]},
    "numbers": {"type": "array", "items": ["null", "long"]},
    "prices": {
        "type": "array",
        "items": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    },
    "instants": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}},
    "tree": {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "below", "type": {"type": "array", "items": "Tree"}}],
    },
    "chain": {
        "type": "array",
        "items": {
            "type": "record",
            "name": "Chain",
            "fields": [{"name": "next", "type": ["null", "Chain"]}],
        },
    },
    "nothing": {"type": "array", "items": "null"},
    "empties": {
        "type": "array",
        "items": {"type": "record", "name": "Empty", "fields": []},
    },
    "fixed": {"type": "array", "items": {"type": "fixed", "name": "Zero", "size": 0}},
    "skipped": {"type": "map", "values": {"type": "map", "values": "null"}},
    "unions": {
        "type": "array",
        "items": ["null", "boolean", "int", "long", "float", "double", "bytes", "string"],
    },
    "enums": {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["A"]}},
    **{
        name: ["null", kind]
        for name, kind in (("id", "long"), ("text", "string"), ("share", "double"))
    },
    "price": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}],
    "instant": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
}
"""The fields of a record of Avro; each may be empty, which is a byte 0."""
AVRO_SCHEMA = {
    "type": "record",
    "name": "Wide",
    "fields": [{"name": name, "type": kind} for name, kind in AVRO_FIELDS.items()],
}


def _avro(field: str, value: Make) -> Make:
    position = list(AVRO_FIELDS).index(field)
    zeros = len(AVRO_FIELDS) - position - 1
    return lambda size: b"\0" * position + value(size) + b"\0" * zeros


def _blocks(item: bytes, block: int = 1000) -> Make:
    """Returns an array or a map of one item, again and again, in blocks."""
    octets = avro_int(block) + item * block
    return lambda size: octets * max(1, size // len(octets)) + b"\0"


def _one_block(item: bytes) -> Make:
    return lambda size: avro_int(size // len(item)) + item * (size // len(item)) + b"\0"


AVRO: dict[str, Make] = {
    "null items": _avro("items", _one_block(b"\0")),
    "items of nulls": _avro("items", _one_block(b"\2" + b"\0" * 60)),
    "null values of a map": _avro(
        "entries",
        lambda size: (
            avro_int(size // 8)
            + b"".join(avro_text(b"%06d" % i) + b"\0" for i in range(size // 8))
            + b"\0"
        ),
    ),
    "empty lists": _avro("lists", _one_block(b"\0")),
    "lists of blocks of one": _avro("lists", _blocks(b"\2\2\0", 1)),
    "null texts": _avro("texts", _one_block(b"\0")),
    "empty texts": _avro("texts", _one_block(b"\2\0")),
    "null numbers": _avro("numbers", _one_block(b"\0")),
    "numbers of ten bytes": _avro("numbers", _one_block(b"\2" + b"\xff" * 9 + b"\1")),
    "numbers longer than they need": _avro("numbers", _one_block(b"\2" + b"\x80" * 9 + b"\0")),
    "numbers without an end": _avro("numbers", _one_block(b"\2" + b"\xff" * 64)),
    "decimals": _avro("prices", _one_block(b"\2\1")),
    "decimals of no byte": _avro("prices", _one_block(b"\0")),
    "decimals of 16 bytes": _avro("prices", _one_block(avro_text(b"\x0f" * 16))),
    "a decimal of all bytes": _avro(
        "prices", lambda size: b"\2" + avro_text(b"\x7f" * size) + b"\0"
    ),
    "instants at the ends": _avro("instants", _one_block(avro_int(-(1 << 63)))),
    "a million nulls, billions of times": _avro(
        "nothing", lambda size: avro_int(1 << 62) * (size // 10) + b"\0"
    ),
    "empty records, billions of them": _avro(
        "empties", lambda size: avro_int(1 << 62) * (size // 10) + b"\0"
    ),
    "fixed of no byte, billions of them": _avro(
        "fixed", lambda size: avro_int(1 << 62) * (size // 10) + b"\0"
    ),
    "negative counts": _avro(
        "numbers", lambda size: (avro_int(-(1 << 62)) + avro_int(0)) * (size // 11) + b"\0"
    ),
    "the most negative count": _avro(
        "nothing", lambda size: (avro_int(-(1 << 63)) + avro_int(0)) * (size // 11) + b"\0"
    ),
    "sizes beyond the message": _avro(
        "numbers", lambda _: avro_int(-1) + avro_int((1 << 63) - 1) + b"\0\0"
    ),
    "negative sizes": _avro("skipped", lambda _: avro_int(-1) + avro_int(-5) + b"\0\0"),
    "a text of a negative length": _avro("texts", lambda _: b"\2\2" + avro_int(-5) + b"\0"),
    "a text of a giant length": _avro("texts", lambda _: b"\2\2" + avro_int((1 << 63) - 1) + b"\0"),
    "skipped maps": _avro("skipped", _one_block(b"\0\0")),
    "skipped maps of nulls": _avro("skipped", _one_block(b"\0\2\0\0")),
    "deep trees": _avro("tree", lambda size: b"\2" * size),
    "broad trees": _avro("tree", _blocks(b"\0")),
    "trees of blocks of one": _avro("tree", _blocks(b"\0", 1)),
    "a chain": _avro("chain", lambda size: b"\2" + b"\2" * size + b"\0\0"),
    "chains at the limit": _avro("chain", _one_block(b"\2" * 90 + b"\0")),
    "unions": _avro("unions", _one_block(b"\x0e\0")),
    "unions beyond their types": _avro("unions", _one_block(avro_int(1 << 62))),
    "enums": _avro("enums", _one_block(b"\0")),
    "zeros": lambda size: b"\0" * size,
    "ones": lambda size: b"\xff" * size,
}


def _avro_bombs(decoder: Decoder, wrap: Callable[[Make], Make], more: Mapping[str, Make]) -> Bombs:
    good = wrap(lambda _: b"\0" * len(AVRO_FIELDS))(0)
    return Bombs(decoder, good, {**_each(wrap, AVRO), **more})


# --------------------------------------------------------------------------------------------------


def _sized(field: int, octets: bytes) -> Make:
    item = text(field, octets)
    return _repeat(b"", item)


def _deep(size: int) -> bytes:
    """Returns messages in one another, as many as the bytes allow."""
    octets = bytearray()
    length = 0
    levels = []
    while length < size:
        head = tag(1, SIZED) + varint(length)
        levels.append(head)
        length += len(head)
    for head in reversed(levels):
        octets += head
    return bytes(octets)


PROTOBUF: dict[str, Make] = {
    "empty items": _sized(2, b""),
    "items of a value": _sized(2, number(60, 1)),
    "items within the budget": _sized(2, text(99, b"x" * 7)),
    "entries within the budget": lambda size: b"".join(
        text(5, text(1, b"%022d" % i)) for i in range(size // 26)
    ),
    "items of unknown fields": _sized(2, number(99, 1)),
    "empty texts": _sized(3, b""),
    "packed zeros": lambda size: text(4, b"\0" * size),
    "packed ones without an end": lambda size: text(4, b"\xff" * size),
    "packed numbers of ten bytes": lambda size: text(4, (b"\xff" * 9 + b"\1") * (size // 10)),
    "numbers one by one": _repeat(b"", number(4, 0)),
    "packed numbers of one": _sized(4, b"\0"),
    "a packed field of a billion bytes": lambda _: tag(4, SIZED) + varint(10**9) + b"\0",
    "a packed field of all bytes there are": lambda _: tag(4, SIZED) + varint(-1) + b"\0",
    "empty entries": _sized(5, b""),
    "entries": lambda size: b"".join(
        text(5, text(1, b"%06d" % i) + text(2, b"")) for i in range(size // 12)
    ),
    "one entry again and again": _sized(5, text(1, b"a") + text(2, number(1, 1))),
    "skipped entries": _sized(13, b""),
    "deep trees": lambda size: text(6, _deep(size)),
    "trees at the limit": _sized(6, _deep(150)),
    "broad trees": lambda size: text(6, text(2, b"") * (size // 2)),
    "the same tree in parts": _sized(6, text(1, b"")),
    "empty instants": _sized(7, b""),
    "instants far away": _sized(7, number(1, 1 << 62) + number(2, -1)),
    "one instant in parts": _sized(8, number(1, 1)),
    "a oneof again and again": _repeat(b"", text(11, "a") + text(12, number(1, 1))),
    "unknown fields": _repeat(b"", number(99, 1)),
    "unknown fields of all numbers": lambda size: b"".join(
        number(1000 + i, 1) for i in range(size // 4)
    ),
    "unknown groups": _repeat(b"", group(99)),
    "groups in one another": _repeat(b"", tag(99, BEGIN)),
    "groups in one another, all closed": lambda size: (
        tag(99, BEGIN) * (size // 4) + tag(99, BEGIN + 1) * (size // 4)
    ),
    "unknown texts": _sized(99, b""),
    "a text": lambda size: text(9, b"x" * size),
    "no UTF-8 at the end": lambda size: text(9, b"x" * size + b"\xff"),
    "one text again and again": _sized(9, b"x"),
    "tags longer than they need": _repeat(b"", b"\x88\x80\x80\x80\0\1"),
    "field number zero": _repeat(b"", b"\0\0"),
    "zeros": lambda size: b"\0" * size,
    "ones": lambda size: b"\xff" * size,
}

CSV: dict[str, Make] = {
    "delimiters": lambda size: b"," * size,
    "an open quote": lambda size: b'"' + b"x" * size,
    "open quotes": lambda size: b'"' * (size | 1),
    "fields of quotes": _repeat(b"1", b',""'),
    "a text of doubled quotes": _repeat(b'1,"', b'""', b'",,,,'),
    "quotes in a bare field": _repeat(b"1,x", b'"', b",,,,"),
    "a quote behind a field": _repeat(b'1,"x"', b"x", b",,,,"),
    "lines": _repeat(b"1,a,1,1,,\n", b"1,a,1,1,,\n"),
    "line breaks": lambda size: b"\n" * size,
    "carriage returns": lambda size: b"\r" * size,
    "a long number": _repeat(b"", b"9", b",,,,,"),
    "a long decimal": _repeat(b",,", b"9", b",,,"),
    "a long fraction": _repeat(b",,0.", b"1", b",,,"),
    "a decimal of zeros": _repeat(b",,1.", b"0", b",,,"),
    "a giant exponent": lambda _: b",,1e999999999,,,",
    "a giant negative exponent": lambda _: b",,1e-999999999,,,",
    "a giant exponent of zero": lambda _: b",,0e-999999999,,,",
    "an exponent of digits": _repeat(b",,1e", b"9", b",,,"),
    "a long double": _repeat(b",,,0.", b"1", b",,"),
    "a double that is hard to round": _repeat(b",,,2.2250738585072011", b"1", b"e-308,,"),
    "a long instant": _repeat(b",,,,2026-01-05T09:00:00.", b"1", b"Z,"),
    "an instant of zeros": _repeat(b",,,,2026-01-05T09:00:00.", b"0", b"Z,"),
    "a long date": _repeat(b",,,,,", b"2026-01-05"),
    "spaces": lambda size: b" " * size,
    "zeros": lambda size: b"\0" * size,
    "no UTF-8 at the end": _repeat(b"1,", b"x", b"\xff,,,,"),
}
PLAIN: dict[str, Make] = {
    "a text": lambda size: b"x" * size,
    "wide characters": lambda size: "\U00010348".encode() * (size // 4),
    "zeros": lambda size: b"\0" * size,
    "no UTF-8 at the end": lambda size: b"x" * size + b"\xff",
    "no UTF-8 anywhere": lambda size: b"\xff" * size,
    "halves of pairs": lambda size: b"\xed\xa0\x80" * (size // 3),
}

_PROTO = (HERE / "bombs.proto").read_text(encoding="utf-8")
FRAMES: dict[str, Make] = {
    "a schema that isn't there": lambda size: framed((1 << 32) - 1, b"\0" * size),
    "a GUID of nothing": lambda size: b"\1" + b"\0" * size,
    "an id without its end": lambda _: b"\0\0\0",
    "an unknown first byte": lambda size: b"\7" * size,
    "a compressed payload behind Glue's frame": lambda size: (
        b"\3\5" + bytes(16) + zlib.compress(bytes(size * 50))
    ),
    "a compressed payload of Glue that ends early": lambda size: (
        b"\3\5" + bytes(16) + zlib.compress(os.urandom(size))[:-1]
    ),
    "a path of a million steps": lambda size: framed(1, b"\x80\x89\x7a" + b"\2" * size),
    "a path of negative steps": lambda size: framed(1, b"\1" * size),
    "a path without an end": lambda size: framed(1, b"\xff" * size),
}


def _asking(name: str, kind: str, schema: str, model: str) -> Decoder:
    decoder = cast("ConfluentDecoder", decoder_of(name, "", folder=HERE, schema=model))
    return replace(decoder, registry=FixedRegistry((WriterSchema("1", kind, schema),)))


def _asking_for_events(kind: str, schema: str, name: str) -> Decoder:
    decoder: Any = decoder_of(name, "", folder=HERE, **_MODEL)
    asking: Decoder = decoder.asking(FixedRegistry((WriterSchema("1", kind, schema),)))
    return asking


def _envelope_of_avro() -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", AVRO_SCHEMA]},
            {"name": "after", "type": ["null", "Wide"]},
            {"name": "op", "type": "string"},
        ],
    }


def _framed(family: Make) -> Make:
    return lambda size: framed(1, family(size))


def _framed_with_path(family: Make) -> Make:
    """Returns the family's messages as the third message of a schema."""
    return lambda size: framed(1, b"\2\4" + family(size))


BOMBS: dict[str, Callable[[], list[Bombs]]] = {
    "json": lambda: [
        _json_bombs("json", b"", b"", {}),
        Bombs(decoder_of("json", "", folder=HERE, unknown="keep", **_MODEL), b'{"id":1}', KEPT),
    ],
    "json-schema-confluent": lambda: [
        _json_bombs("json-schema-confluent", framed(1, b""), b"", FRAMES)
    ],
    "debezium-json": lambda: [
        _json_bombs("debezium-json", b'{"op":"c","after":', b"}", {}),
        Bombs(
            decoder_of("debezium-json", "", folder=HERE, **_MODEL, schema_include=True),
            _stated_field(_DECIMAL % b"2", b'"price":"MDk="'),
            STATED,
        ),
    ],
    "canal-json": lambda: [
        _json_bombs(
            "canal-json",
            b'{"type":"INSERT","data":[',
            b"]}",
            {
                "rows without values": _repeat(b'{"type":"INSERT","data":[{}', b",{}", b"]}"),
                "rows of null": _repeat(b'{"type":"INSERT","data":[null', b",null", b"]}"),
                "rows of a value": _repeat(b'{"type":"INSERT","data":[{}', b',{"id":1}', b"]}"),
                "old rows": _repeat(b'{"type":"UPDATE","data":[{}],"old":[{}', b",{}", b"]}"),
            },
        )
    ],
    "maxwell-json": lambda: [_json_bombs("maxwell-json", b'{"type":"insert","data":', b"}", {})],
    "dms-json": lambda: [
        _json_bombs("dms-json", b'{"metadata":{"operation":"load"},"data":', b"}", {})
    ],
    "avro": lambda: [
        _avro_bombs(
            decoder_of(
                "avro",
                "",
                folder=HERE,
                schema="bomb_models.py:Trees",
                writer_schema=json.dumps(AVRO_SCHEMA),
            ),
            lambda family: family,
            {},
        ),
        _avro_bombs(
            decoder_of(
                "avro",
                "",
                folder=HERE,
                schema="bomb_models.py:Few",
                writer_schema=json.dumps(AVRO_SCHEMA),
                unknown="keep",
            ),
            lambda family: family,
            {},
        ),
    ],
    "avro-confluent": lambda: [
        _avro_bombs(
            _asking("avro-confluent", "AVRO", json.dumps(AVRO_SCHEMA), "bomb_models.py:Wide"),
            _framed,
            FRAMES,
        )
    ],
    "debezium-avro": lambda: [
        _avro_bombs(
            decoder_of(
                "debezium-avro",
                "",
                folder=HERE,
                **_MODEL,
                writer_schema=json.dumps(_envelope_of_avro()),
            ),
            _in(b"\0\2", avro_text("c")),
            {},
        )
    ],
    "debezium-avro-confluent": lambda: [
        _avro_bombs(
            _asking_for_events("AVRO", json.dumps(_envelope_of_avro()), "debezium-avro-confluent"),
            _in(framed(1, b"\0\2"), avro_text("c")),
            FRAMES,
        )
    ],
    "debezium-json-schema-confluent": lambda: [
        Bombs(
            _asking_for_events("JSON", "{}", "debezium-json-schema-confluent"),
            framed(1, b'{"op":"c","after":{"id":1}}'),
            {**_each(_in(framed(1, b'{"op":"c","after":'), b"}"), ROWS), **FRAMES},
        )
    ],
    "protobuf": lambda: [
        Bombs(
            decoder_of(
                "protobuf",
                "",
                folder=HERE,
                schema=NARROW,
                descriptor="bombs.proto",
                message="bombs.Wide",
            ),
            number(1, 1),
            PROTOBUF,
        )
    ],
    "protobuf-confluent": lambda: [
        Bombs(
            _asking("protobuf-confluent", "PROTOBUF", _PROTO, NARROW),
            framed(1, b"\2\4" + number(1, 1)),
            {**_each(_framed_with_path, PROTOBUF), **FRAMES},
        )
    ],
    "csv": lambda: [
        Bombs(
            decoder_of("csv", "", folder=HERE, schema="bomb_models.py:Line", null_literal=""),
            b"1,a,1.5,1.5,2026-01-05T09:00:00Z,2026-01-05",
            CSV,
        ),
        Bombs(
            decoder_of("csv", "", folder=HERE, schema="bomb_models.py:Text", unknown="keep"),
            b"a",
            CSV,
        ),
    ],
    "string": lambda: [
        Bombs(decoder_of("string", "", folder=HERE, schema="bomb_models.py:Text"), b"a", PLAIN)
    ],
    "raw": lambda: [
        Bombs(decoder_of("raw", "", folder=HERE, schema="bomb_models.py:Octets"), b"a", PLAIN)
    ],
}
"""The bombs of each format of `FORMATS`."""


def measure(bombs: Bombs, message: bytes, *, by_pass: bool) -> dict[str, Any]:
    """Decodes a message between two rows in a fork of this process, whose CPU time is limited.

    Returns:
        The seconds of CPU, the peak of memory in MiB above that before, and the verdict: `row`,
        `filtered`, the reason of the dead letter, or `died`.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
            if not by_pass:
                Compiled.ready = lambda _: False  # type: ignore[method-assign]
            messages = messages_with([bombs.good, message, bombs.good])
            memory, cpu = peak_mib(), time.process_time()
            decoded = bombs.decoder.open()(messages)
            seconds, mebibytes = time.process_time() - cpu, peak_mib() - memory
            rows, reasons = decoded.row_index.to_pylist(), decoded.dead_reason.to_pylist()
            assert {0, 2} <= set(rows), "a row beside the message is lost"
            verdict = "row" if 1 in rows else (reasons or ["filtered"])[0]
            told = {"seconds": seconds, "mebibytes": mebibytes, "verdict": verdict}
            os.write(writing, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = answer.read()
    os.waitpid(pid, 0)
    return json.loads(told) if told else {"seconds": 0, "mebibytes": 0, "verdict": "died"}  # type: ignore[no-any-return]


def main(name: str, seed: str = "0", count: str = "") -> None:
    for code in PASSES:
        code.keep()
    families = [(bombs, family) for bombs in BOMBS[name]() for family in bombs.families]
    for bombs, family in random.Random(seed).sample(families, int(count or len(families))):
        # a thread keeps its decoder, so the forks find it and the passes loaded
        bombs.decoder.open()(messages_with([bombs.good]))
        message = bombs.families[family](MEGABYTE)
        for by_pass in (True, False):
            measured = measure(bombs, message, by_pass=by_pass)
            print(json.dumps({"family": family, "by_pass": by_pass, **measured}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
