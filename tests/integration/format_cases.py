"""Cases for each format, from real Kafka to a real table.

A case has messages and the expected rows and dead letters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from deltalake import DeltaTable

from tests.formats.avro import wire as avro
from tests.formats.confluent.registries import framed
from tests.formats.protobuf import wire as protobuf
from tests.integration.harness import HERE, millis
from tests.integration.user import User
from tests.kafka.produce import Headers, Put, create_topic, produce
from tests.registry.server import RegistryServer

HOUR = "2026-01-05T01:00:00Z"


@dataclass(frozen=True)
class Case:
    """A case of a format.

    Attributes:
        decode: the `decode` section.
        messages: the messages as (key, value, headers).
        rows: the expected rows.
        dead: the expected dead letters as (stage, reason).
        files: the files next to the spec, by name.
        schemas: the registered schemas as (part, text), with the ids 1, 2, ...
        kind: the type of all schemas.
    """

    decode: dict[str, Any]
    messages: Sequence[tuple[bytes | None, bytes | None, Headers]]
    rows: Sequence[dict[str, Any]]
    dead: Sequence[tuple[str, str]]
    files: Mapping[str, str] = field(default_factory=dict)
    schemas: Sequence[tuple[Literal["key", "value"], str]] = ()
    kind: Literal["AVRO", "PROTOBUF"] = "AVRO"


NINE = datetime(2026, 1, 5, 9, tzinfo=UTC)
TRACED = [("x-trace", b"old"), ("x-trace", b"t1")]
SHOP = {
    "type": "record",
    "name": "Shop",
    "fields": [{"name": "shop", "type": "string"}, {"name": "number", "type": "long"}],
}
SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "note", "type": ["null", "string"]},
    ],
}
LATER = {
    "type": "record",
    "name": "Sale",
    "fields": [{"name": "note", "type": "string"}, SALE["fields"][0]],
}
TEXTUAL = {"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "string"}]}
PROTO = """\
syntax = "proto3";
package shop;
message Key { string shop = 1; int32 number = 2; }
message Sale { int64 pieces = 3; }
"""
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {
            "name": "before",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [
                        {"name": "id", "type": "int"},
                        {"name": "name", "type": ["null", "string"]},
                    ],
                },
            ],
        },
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}
HEARTBEAT = {
    "type": "record",
    "name": "Heartbeat",
    "fields": [{"name": "ts_ms", "type": "long"}],
}
CASES = {
    "json": Case(
        {
            "schema": "formats.py:Sale",
            "key": {"fields": ["shop", "number"]},
            "fields_include": "except_key",
            "headers": {"trace": "x-trace"},
        },
        [
            (b'{"shop":"a","number":1}', b'{"amount":"1.50","note":"x"}', TRACED),
            (b'{"shop":"a"}', b'{"amount":1}', ()),
            (None, b'{"amount":1}', ()),
            (b'{"shop":"b","number":2}', b'{"amount":-1}', ()),
            (b'{"shop":"b","number":3}', b"{", ()),
            (b'{"shop":"b","number":4}', b'{"amount":2}', [("x-trace", b"\xff")]),
        ],
        [{"shop": "a", "number": 1, "amount": "1.50", "note": "x", "trace": "t1"}],
        [
            ("header", "header:invalid_utf8"),
            ("key", "key:missing"),
            ("key", "key:null"),
            ("rules", "check:amount:greater_than_or_equal_to"),
            ("value", "not_json"),
        ],
    ),
    "csv": Case(
        {
            "format": "csv",
            "delimiter": ";",
            "null_literal": "",
            "schema": "formats.py:Sale",
            "key": {"format": "csv", "fields": ["number", "shop"]},
            "fields_include": "except_key",
            "headers": {"trace": "x-trace"},
        },
        [
            (b'1,"a,b"', b"1.50;x", TRACED),
            (b"2,c", b'"0";"y""z"', ()),
            (b"3,c", b"1;", ()),
            (b"4", b"1;x", ()),
            (b"5,c", b'1;"x', ()),
            (b"6,c", b"1,5;x", ()),
            (b"7,c", b"-1;x", ()),
        ],
        [
            {"shop": "a,b", "number": 1, "amount": "1.50", "note": "x", "trace": "t1"},
            {"shop": "c", "number": 2, "amount": "0.00", "note": 'y"z', "trace": None},
            {"shop": "c", "number": 3, "amount": "1.00", "note": None, "trace": None},
        ],
        [
            ("key", "key:field_count"),
            ("rules", "check:amount:greater_than_or_equal_to"),
            ("schema", "wrong_format"),
            ("value", "not_csv"),
        ],
    ),
    "avro": Case(
        {
            "format": "avro",
            "writer_schema": "sale.avsc",
            "schema": "formats.py:Sale",
            "headers": {"trace": "x-trace"},
            "key": {"format": "avro", "writer_schema": SHOP, "fields": ["shop", "number"]},
            "fields_include": "except_key",
        },
        [
            (
                avro.text("a") + avro.varint(1),
                avro.text(b"\x00\x96") + avro.varint(1) + avro.text("x"),
                TRACED,
            ),
            (avro.text("a") + avro.varint(2), avro.text(b"\x00") + avro.varint(0), ()),
            (avro.text("a"), avro.text(b"\x01") + avro.varint(0), ()),
            (None, avro.text(b"\x01") + avro.varint(0), ()),
            (avro.text("b") + avro.varint(3), avro.text(b"\xff") + avro.varint(0), ()),
            (avro.text("b") + avro.varint(4), avro.text(b"\x01") + avro.varint(0) + b"x", ()),
            (avro.text("b") + avro.varint(1 << 31), avro.text(b"\x01") + avro.varint(0), ()),
        ],
        [
            {"shop": "a", "number": 1, "amount": "1.50", "note": "x", "trace": "t1"},
            {"shop": "a", "number": 2, "amount": "0.00", "note": None, "trace": None},
        ],
        [
            ("key", "key:not_avro"),
            ("key", "key:null"),
            ("key", "key:out_of_range"),
            ("rules", "check:amount:greater_than_or_equal_to"),
            ("value", "not_avro"),
        ],
        {"sale.avsc": json.dumps(SALE)},
    ),
    "avro-confluent": Case(
        {
            "format": "avro-confluent",
            "schema": "formats.py:Sale",
            "headers": {"trace": "x-trace"},
            "key": {"format": "avro-confluent", "fields": ["shop", "number"]},
            "fields_include": "except_key",
        },
        [
            (
                framed(1, avro.text("a") + avro.varint(1)),
                framed(2, avro.text(b"\x00\x96") + avro.varint(1) + avro.text("x")),
                TRACED,
            ),
            (
                framed(1, avro.text("a") + avro.varint(2)),
                framed(3, avro.text("later") + avro.text(b"\x01")),
                (),
            ),
            (
                framed(1, avro.text("a") + avro.varint(3)),
                avro.text("l") + avro.text(b"\x02"),
                [("__value_schema_id", framed(3, b""))],
            ),
            (framed(1, avro.text("a")), framed(2, avro.text(b"\x01") + avro.varint(0)), ()),
            (avro.text("a") + avro.varint(2), framed(2, avro.text(b"\x01") + avro.varint(0)), ()),
            (
                framed(1, avro.text("b") + avro.varint(3)),
                framed(2, avro.text(b"\xff") + avro.varint(0)),
                (),
            ),
            (framed(1, avro.text("b") + avro.varint(4)), framed(9, avro.text(b"\x01")), ()),
            (framed(1, avro.text("b") + avro.varint(5)), framed(4, avro.text("1.50")), ()),
            (framed(1, avro.text("b") + avro.varint(6)), framed(2, b"\x09"), ()),
            (framed(1, avro.text("b") + avro.varint(7)), b"", ()),
        ],
        [
            {"shop": "a", "number": 1, "amount": "1.50", "note": "x", "trace": "t1"},
            {"shop": "a", "number": 2, "amount": "0.01", "note": "later", "trace": None},
            {"shop": "a", "number": 3, "amount": "0.02", "note": "l", "trace": None},
        ],
        [
            ("key", "key:no_schema_id"),
            ("key", "key:not_avro"),
            ("rules", "check:amount:greater_than_or_equal_to"),
            ("schema", "incompatible_schema"),
            ("value", "no_schema_id"),
            ("value", "not_avro"),
            ("value", "unknown_schema"),
        ],
        schemas=[
            ("key", json.dumps(SHOP)),
            ("value", json.dumps(SALE)),
            ("value", json.dumps(LATER)),
            ("value", json.dumps(TEXTUAL)),
        ],
    ),
    "protobuf-confluent": Case(
        {
            "format": "protobuf-confluent",
            "schema": "formats.py:Count",
            "fields_include": "except_key",
            "records": ["Sale"],
            "key": {
                "format": "protobuf-confluent",
                "fields": ["shop", "number"],
                "records": ["shop.Key"],
            },
        },
        [
            (
                framed(1, b"\x00" + protobuf.text(1, "a") + protobuf.number(2, 1)),
                framed(1, b"\x02\x02" + protobuf.number(3, 5)),
                (),
            ),
            (
                framed(1, b"\x00" + protobuf.text(1, "a")),
                framed(1, b"\x02\x02" + protobuf.number(3, -5)),
                (),
            ),
            (framed(1, b"\x00" + protobuf.text(1, "a")), framed(1, b"\x02\x02\xff"), ()),
            (framed(1, b"\x00\xff"), b"", ()),
            (framed(1, b"\x00" + protobuf.text(1, "a")), framed(1, b"\x02\x08"), ()),
        ],
        [{"shop": "a", "number": 1, "pieces": 5}],
        [
            ("key", "key:not_protobuf"),
            ("rules", "check:pieces:greater_than_or_equal_to"),
            ("schema", "incompatible_schema"),
            ("value", "not_protobuf"),
        ],
        schemas=[("value", PROTO)],
        kind="PROTOBUF",
    ),
    "json-schema-confluent": Case(
        {"format": "json-schema-confluent", "schema": "formats.py:Reading", "coerce": "lenient"},
        [
            (None, framed(1, b'{"id":"1","at":"2026-01-05T09:00:00Z"}'), ()),
            (None, framed(2, b"{"), ()),
            (None, b'{"id":1,"at":"2026-01-05T09:00:00Z"}', ()),
            (None, framed(3, b'{"id":1.5,"at":"2026-01-05T09:00:00Z"}'), ()),
        ],
        [{"id": 1, "at": NINE, "name": None}],
        [("schema", "out_of_range"), ("value", "no_schema_id"), ("value", "not_json")],
    ),
    "protobuf": Case(
        {
            "format": "protobuf",
            "descriptor": "sale.proto",
            "message": "shop.Sale",
            "schema": "formats.py:Count",
            "key": {
                "format": "protobuf",
                "descriptor": "sale.proto",
                "message": "shop.Key",
                "fields": ["shop", "number"],
            },
            "fields_include": "except_key",
        },
        [
            (protobuf.text(1, "a") + protobuf.number(2, 1), protobuf.number(3, 5), ()),
            (b"\xff", protobuf.number(3, 5), ()),
            (protobuf.text(1, "a") + protobuf.number(2, 1), protobuf.number(3, -1), ()),
            (protobuf.text(1, "a"), b"\xff", ()),
            (b"", b"", ()),
        ],
        [{"shop": "a", "number": 1, "pieces": 5}, {"shop": "", "number": 0, "pieces": 0}],
        [
            ("key", "key:not_protobuf"),
            ("rules", "check:pieces:greater_than_or_equal_to"),
            ("value", "not_protobuf"),
        ],
        {"sale.proto": PROTO},
    ),
    "json by choice": Case(
        {"schema": "formats.py:Reading", "coerce": "lenient", "timestamps": "sql"},
        [
            (None, b'{"id":"1","at":"2026-01-05 09:00:00","name":1.50}', ()),
            (None, b'{"id":2,"at":"2026-01-05 10:00:00+01:00"}', ()),
            (None, b'{"id":"1.5","at":"2026-01-05 09:00:00"}', ()),
            (None, b'{"id":1,"at":"05.01.2026 09:00"}', ()),
        ],
        [{"id": 1, "at": NINE, "name": "1.50"}, {"id": 2, "at": NINE, "name": None}],
        [("schema", "out_of_range"), ("schema", "wrong_format")],
    ),
    "string": Case(
        {
            "format": "string",
            "schema": "formats.py:Line",
            "key": {"format": "string", "fields": ["host"]},
            "fields_include": "except_key",
        },
        [(b"h1", "grün".encode(), ()), (b"\xff", b"a", ()), (b"h2", b"\xff", ())],
        [{"host": "h1", "line": "grün"}],
        [("key", "key:invalid_utf8"), ("value", "invalid_utf8")],
    ),
    "raw": Case(
        {
            "format": "raw",
            "on_null": "keep",
            "schema": "formats.py:Kept",
            "key": {"format": "raw", "fields": ["id"]},
            "fields_include": "except_key",
        },
        [(b"\xff", b"\x00", ()), (b"k", None, ()), (None, b"a", ())],
        [{"id": b"\xff", "body": b"\x00"}, {"id": b"k", "body": None}],
        [("key", "key:null")],
    ),
    "debezium-json": Case(
        {
            "format": "debezium-json",
            "schema": "formats.py:Customer",
            "envelope": {"op": "op"},
            "schema_include": True,
        },
        [
            (
                b"{}",
                b'{"schema":{},"payload":{"op":"c","before":null,"after":{"id":1,"name":"Ann"}}}',
                (),
            ),
            (
                b"{}",
                b'{"schema":{},"payload":{"op":"u","before":{"id":1,"name":"Ann"},"after":{"id":1,"name":"Eve"}}}',
                (),
            ),
            (
                b"{}",
                b'{"schema":{},"payload":{"op":"d","before":{"id":1,"name":"Eve"},"after":null}}',
                (),
            ),
            (b"{}", None, ()),
            (b"{}", b'{"schema":{},"payload":{"op":"m"}}', ()),
            (b"{}", b'{"schema":{},"payload":{"op":"t"}}', ()),
            (b"{}", b'{"op":"c","after":{"id":1,"name":"Ann"}}', ()),
        ],
        [
            {"id": 1, "name": "Ann", "op": "c"},
            {"id": 1, "name": "Eve", "op": "u"},
            {"id": 1, "name": "Eve", "op": "d"},
        ],
        [("schema", "missing"), ("schema", "truncate")],
    ),
    "debezium-avro": Case(
        {
            "format": "debezium-avro",
            "schema": "formats.py:Customer",
            "envelope": {"op": "op"},
            "writer_schema": ENVELOPE,
        },
        [
            (None, b"\x00\x02\x02\x02\x06Ann\x02c", ()),
            (None, b"\x02\x02\x02\x06Ann\x00\x02d", ()),
            (None, None, ()),
            (None, b"\x02\x02\x00\x00\x02d", ()),
            (None, b"\x00\x02\x02\x02\x06Ann\x02", ()),
        ],
        [{"id": 1, "name": "Ann", "op": "c"}, {"id": 1, "name": "Ann", "op": "d"}],
        [("schema", "missing"), ("value", "not_avro")],
    ),
    "debezium-avro-confluent": Case(
        {
            "format": "debezium-avro-confluent",
            "schema": "formats.py:Customer",
            "envelope": {"op": "op"},
        },
        [
            (None, framed(1, b"\x00\x02\x02\x02\x06Ann\x02c"), ()),
            (None, b"\x02\x02\x02\x06Ann\x00\x02d", [("__value_schema_id", framed(1, b""))]),
            (None, None, ()),
            (None, framed(2, b"\x02"), ()),
            (None, framed(1, b"\x00\x00\x02t"), ()),
            (None, framed(9, b"\x00\x00\x02c"), ()),
        ],
        [{"id": 1, "name": "Ann", "op": "c"}, {"id": 1, "name": "Ann", "op": "d"}],
        [("schema", "truncate"), ("value", "unknown_schema")],
        schemas=[("value", json.dumps(ENVELOPE)), ("value", json.dumps(HEARTBEAT))],
    ),
    "debezium-json-schema-confluent": Case(
        {
            "format": "debezium-json-schema-confluent",
            "schema": "formats.py:Customer",
            "envelope": {"op": "op"},
        },
        [
            (None, framed(1, b'{"op":"c","after":{"id":1,"name":"Ann"}}'), ()),
            (None, framed(1, b'{"ts_ms":1}'), ()),
            (None, b'{"op":"c","after":{"id":1,"name":"Ann"}}', ()),
        ],
        [{"id": 1, "name": "Ann", "op": "c"}],
        [("value", "no_schema_id")],
    ),
    "canal-json": Case(
        {
            "format": "canal-json",
            "schema": "formats.py:Customer",
            "envelope": {"op": "type"},
            "table_include": "c.*",
        },
        [
            (
                None,
                b'{"type":"INSERT","table":"customers","data":[{"id":"1","name":"Ann"},{"id":"2","name":"Eve"}]}',
                (),
            ),
            (None, b'{"type":"INSERT","table":"orders","data":[{"number":"1"}]}', ()),
            (None, b'{"type":"ALTER","table":"customers","isDdl":true,"data":null}', ()),
            (None, b'{"type":"DELETE","table":"customers","data":[{"id":"1","name":"Ann"}]}', ()),
            (
                None,
                b'{"type":"INSERT","table":"customers","data":[{"id":"3","name":"Bob"},{"id":"x","name":"Bob"}]}',
                (),
            ),
        ],
        [
            {"id": 1, "name": "Ann", "op": "INSERT"},
            {"id": 2, "name": "Eve", "op": "INSERT"},
            {"id": 1, "name": "Ann", "op": "DELETE"},
        ],
        [("schema", "wrong_format")],
    ),
    "maxwell-json": Case(
        {"format": "maxwell-json", "schema": "formats.py:Customer", "envelope": {"op": "type"}},
        [
            (None, b'{"type":"bootstrap-start","data":{}}', ()),
            (None, b'{"type":"bootstrap-insert","data":{"id":1,"name":"Ann"}}', ()),
            (None, b'{"type":"delete","data":{"id":1,"name":"Ann"}}', ()),
            (None, b'{"type":"insert","data":{"id":"1"}}', ()),
        ],
        [
            {"id": 1, "name": "Ann", "op": "bootstrap-insert"},
            {"id": 1, "name": "Ann", "op": "delete"},
        ],
        [("schema", "wrong_type")],
    ),
    "dms-json": Case(
        {
            "format": "dms-json",
            "schema": "formats.py:Customer",
            "envelope": {"op": "metadata.operation"},
        },
        [
            (None, b'{"control":{},"metadata":{"operation":"create-table"}}', ()),
            (None, b'{"data":{"id":1,"name":"Ann"},"metadata":{"operation":"load"}}', ()),
            (None, b'{"data":{"id":1,"name":"Ann"},"metadata":{"operation":"delete"}}', ()),
            (None, b'{"data":{"id":"1"},"metadata":{"operation":"insert"}}', ()),
        ],
        [
            {"id": 1, "name": "Ann", "op": "load"},
            {"id": 1, "name": "Ann", "op": "delete"},
        ],
        [("schema", "wrong_type")],
    ),
    "messages kept as they are": Case(
        {"format": "raw"}, [(None, b"\xff", ())], [{"value": b"\xff"}], []
    ),
}


def make_user(case: Case, kafka: str, folder: Path, registry: RegistryServer) -> User:
    """Makes a user whose topic has the case's messages, with the case's spec."""
    topic = create_topic(kafka)
    for part, schema in case.schemas:
        registry.register(f"{topic}-{part}", schema, case.kind)
    produce(
        kafka,
        topic,
        [
            Put(value, millis(1, i), 0, key, headers)
            for i, (key, value, headers) in enumerate(case.messages)
        ],
    )
    user = User(
        kafka, topic, folder, f"registry: {{url: '{registry.url}'}}" if case.schemas else ""
    )
    (folder / "formats.py").write_text((HERE / "formats.py").read_text())
    for name, content in case.files.items():
        (folder / name).write_text(content)
    spec = folder / "things.yaml"
    decoded = spec.read_text().replace("{schema: 'things.py:Thing'}", json.dumps(case.decode))
    spec.write_text(decoded.replace("max_dead_ratio: 0.1", "max_dead_ratio: null"))
    return user


def rows(folder: Path) -> list[dict[str, Any]]:
    """Returns the table's own columns, in the order of the messages. An amount is a string."""
    table = DeltaTable(str(folder / "things")).to_pyarrow_table().sort_by("_offset")
    own_columns = table.select([name for name in table.column_names if not name.startswith("_")])
    return [
        {name: str(v) if name == "amount" else v for name, v in row.items()}
        for row in own_columns.to_pylist()
    ]
