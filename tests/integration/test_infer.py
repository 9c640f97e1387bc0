"""From a topic on real Kafka to a first table, by the unedited files of `windrow infer`.

`windrow infer --check` compares the files with the topic later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from deltalake import DeltaTable

from tests.command import CommandResult, run_command
from tests.formats.avro import wire as avro
from tests.formats.confluent.registries import framed
from tests.formats.protobuf import wire as protobuf
from tests.integration.harness import millis
from tests.integration.user import ELSEWHERE
from tests.kafka.produce import Put, create_topic, produce
from tests.registry.server import RegistryServer
from windrow.ingest import assemble as assembly
from windrow.ingest.assemble import assemble
from windrow.ingest.errors import format_count
from windrow.ingest.testing.engine import LocalEngine

pytestmark = pytest.mark.broker

NINE = datetime(2026, 1, 5, 9, tzinfo=UTC)
SHOP = {"type": "record", "name": "Shop", "fields": [{"name": "shop", "type": "string"}]}
SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "id", "type": "long", "doc": "Of the sale"},
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}
EARLIER = {**SALE, "fields": SALE["fields"][:3]}
LATER = (
    avro.varint(2)
    + avro.text(b"\x01")
    + avro.varint(0)
    + avro.varint(1)
    + avro.text("x")
    + avro.items(avro.text("k") + avro.varint(7))
)
PROTO = """\
syntax = "proto3";
message Other {}
message Sale { int64 id = 1; optional string note = 2; repeated string tags = 3; }
"""
PAPER = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "day": {"type": "string", "format": "date"}},
}
SOURCE = {"db": "shop", "table": "customers", "ts_ms": 1}


def json_of(value: object) -> bytes:
    """Returns the value as JSON."""
    return json.dumps(value).encode()


def connect_schema(*fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of Connect's JsonConverter for an event whose row has these fields."""
    return {
        "type": "struct",
        "fields": [
            {"field": image, "type": "struct", "fields": list(fields)}
            for image in ("before", "after")
        ],
    }


CUSTOMER = connect_schema(
    {"field": "id", "type": "int32", "optional": False},
    {"field": "born", "type": "int32", "name": "io.debezium.time.Date", "optional": True},
    {"field": "seen", "type": "int64", "name": "io.debezium.time.MicroTimestamp", "optional": True},
    {
        "field": "due",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "optional": True,
        "parameters": {"scale": "2", "connect.decimal.precision": "9"},
    },
)


def debezium_event_of(op: str, old_row: Any, new_row: Any, schema: Any = None) -> bytes:
    """Returns an event of Debezium."""
    event = {"op": op, "before": old_row, "after": new_row, "source": SOURCE, "ts_ms": 1}
    return json_of(event if schema is None else {"schema": schema, "payload": event})


ROW = {"id": 1, "born": 10957, "seen": 1767603600000000, "due": "AJY="}
CANAL = {
    "database": "shop",
    "table": "parts",
    "isDdl": False,
    "pkNames": ["id"],
    "mysqlType": {"id": "int unsigned", "price": "decimal(9,2)", "code": "varchar(9)"},
}
PARTS = [{"id": "1", "price": "2.5", "code": "12"}, {"id": "2", "price": None, "code": "3"}]
MAXWELL = {"database": "shop", "table": "parts", "ts": 1}


@dataclass(frozen=True)
class Case:
    """A case of a format.

    Attributes:
        messages: the messages as (key, value).
        format: the format that is inferred.
        rows: the rows that the messages become.
        schemas: the registered schemas, oldest first.
        kind: the type of all schemas.
        arguments: further arguments of the command.
        refused: the number of dead letters.
    """

    messages: Sequence[tuple[bytes | None, bytes | None]]
    format: str
    rows: Sequence[Mapping[str, Any]]
    schemas: Sequence[tuple[str, str]] = ()
    kind: str = "AVRO"
    arguments: Sequence[str] = field(default_factory=tuple)


CASES = {
    "avro with a registry": Case(
        [
            (
                framed(1, avro.text("a")),
                framed(2, avro.varint(1) + avro.text(b"\x00\x96") + avro.varint(1767603600000)),
            ),
            (framed(1, avro.text("b")), framed(3, LATER)),
        ],
        "avro-confluent",
        [
            {
                "shop": "a",
                "id": 1,
                "amount": Decimal("1.50"),
                "at": NINE,
                "note": None,
                "counts": None,
            },
            {
                "shop": "b",
                "id": 2,
                "amount": Decimal("0.01"),
                "at": datetime(1970, 1, 1, tzinfo=UTC),
                "note": "x",
                "counts": [("k", 7)],
            },
        ],
        [("key", json.dumps(SHOP)), ("value", json.dumps(EARLIER)), ("value", json.dumps(SALE))],
    ),
    "protobuf with a registry": Case(
        [
            (b"k", framed(1, b"\x02\x02" + protobuf.number(1, 5) + protobuf.text(3, "x"))),
            (None, framed(1, b"\x02\x02" + protobuf.text(2, "n"))),
        ],
        "protobuf-confluent",
        [{"id": 5, "note": None, "tags": ["x"]}, {"id": 0, "note": "n", "tags": []}],
        [("value", PROTO)],
        "PROTOBUF",
    ),
    "json schema with a registry": Case(
        [(None, framed(1, b'{"id": 1, "day": "2026-01-05"}')), (None, framed(1, b'{"id": 2}'))],
        "json-schema-confluent",
        [{"id": 1, "day": date(2026, 1, 5)}, {"id": 2, "day": None}],
        [("value", json.dumps(PAPER))],
        "JSON",
    ),
    "json behind ids, without the registry": Case(
        [(None, framed(7, b'{"id": 1}')), (None, framed(8, b'{"id": 2}'))],
        "json-schema-confluent",
        [{"id": 1}, {"id": 2}],
    ),
    "json with a key of its own": Case(
        [(b'{"shop": "a", "id": 7}', b'{"id": 1}'), (b'{"shop": "b", "id": 8}', b'{"id": 2}')],
        "json",
        [{"key_shop": "a", "key_id": 7, "id": 1}, {"key_shop": "b", "key_id": 8, "id": 2}],
    ),
    "json with a key that the value repeats": Case(
        [(b'{"id": 1}', b'{"id": 1, "n": 1.5}')], "json", [{"id": 1, "n": 1.5}]
    ),
    "debezium": Case(
        [
            (
                b'{"id": 1}',
                debezium_event_of("c", None, {"id": 1, "name": "Ann", "born": "2000-01-01"}),
            ),
            (b'{"id": 2}', debezium_event_of("c", None, {"id": 2, "name": "Bob", "born": None})),
            (
                b'{"id": 1}',
                debezium_event_of("u", None, {"id": 1, "name": "Eve", "born": "2000-01-01"}),
            ),
            (b'{"id": 2}', debezium_event_of("d", {"id": 2}, None)),
            (b'{"id": 2}', None),
        ],
        "debezium-json",
        [{"id": 1, "name": "Eve", "born": date(2000, 1, 1)}],
    ),
    "debezium with its schema": Case(
        [
            (
                json_of({"schema": {}, "payload": {"id": 1}}),
                debezium_event_of("c", None, ROW, CUSTOMER),
            ),
            (
                json_of({"schema": {}, "payload": {"id": 2}}),
                debezium_event_of(
                    "r", None, {"id": 2, "born": None, "seen": None, "due": None}, CUSTOMER
                ),
            ),
        ],
        "debezium-json",
        [
            {"id": 1, "born": date(2000, 1, 1), "seen": NINE, "due": Decimal("1.50")},
            {"id": 2, "born": None, "seen": None, "due": None},
        ],
    ),
    "debezium without keys": Case(
        [
            (None, debezium_event_of("c", None, {"id": 1})),
            (None, debezium_event_of("d", {"id": 1}, None)),
        ],
        "debezium-json",
        [{"id": 1, "op": "c"}, {"id": 1, "op": "d"}],
    ),
    "canal": Case(
        [
            (None, json_of({**CANAL, "type": "INSERT", "data": PARTS})),
            (None, json_of({**CANAL, "type": "DELETE", "data": PARTS[1:]})),
            (None, json_of({**CANAL, "type": "ALTER", "isDdl": True, "data": None})),
        ],
        "canal-json",
        [{"id": 1, "price": Decimal("2.50"), "code": "12"}],
    ),
    "one of maxwell's tables": Case(
        [
            (
                b'{"pk.id":1}',
                json_of(
                    {**MAXWELL, "type": "insert", "data": {"id": 1, "at": "2026-01-05 09:00:00"}}
                ),
            ),
            (
                b'{"pk.id":1}',
                json_of({**MAXWELL, "type": "insert", "table": "other", "data": {"x": "y"}}),
            ),
        ],
        "maxwell-json",
        [{"id": 1, "at": NINE}],
        arguments=["--table", "shop.parts"],
    ),
    "csv": Case(
        [(None, b"1;tea;2.5\n"), (None, b'2;"a;b";')],
        "csv",
        [{"id": 1, "name": "tea", "price": 2.5}, {"id": 2, "name": "a;b", "price": None}],
        arguments=["--format", "csv", "--columns", "id, name, price"],
    ),
    "bytes": Case(
        [(None, b"\x00\xff\x00\xff\x00"), (None, b"")],
        "raw",
        [{"value": b"\x00\xff\x00\xff\x00"}, {"value": b""}],
        arguments=["--format", "raw"],
    ),
}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The command and its tasks in this process."""
    monkeypatch.setattr(
        assembly, "assemble_to_look", lambda spec, _=None: assemble(spec, LocalEngine())
    )

    def types(*words: str, code: int = 0) -> CommandResult:
        with chdir(tmp_path), patch.dict(os.environ):
            for name in ELSEWHERE:
                os.environ.pop(name, None)
            result = run_command(*words)
        assert result.exit_code == code, result.output
        return result

    return types


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of the only table in message order, without windrow's columns."""
    (table,) = [path for path in (folder / "data").iterdir() if not path.name.endswith("_dead")]
    table_rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    ordered = sorted(
        table_rows, key=lambda row: (row["_partition"], row["_offset"], str(row.get("id")))
    )
    return [
        {name: value for name, value in row.items() if not name.startswith("_")} for row in ordered
    ]


@pytest.mark.some(3)
@pytest.mark.parametrize("name", CASES)
def test_what_is_inferred_runs_as_it_is(
    name: str, kafka: str, tmp_path: Path, schema_registry: RegistryServer, typed: Any
) -> None:
    """The two commands that `infer` prints make the table with the expected rows.

    A check of the same topic finds nothing.
    """
    case = CASES[name]
    topic = create_topic(kafka)
    for part, schema in case.schemas:
        schema_registry.register(f"{topic}-{part}", schema, case.kind)
    produce(
        kafka,
        topic,
        [Put(value, millis(1, i), 0, key) for i, (key, value) in enumerate(case.messages)],
    )
    registry = ["--registry", schema_registry.url] if case.schemas else []
    inferred = typed("infer", topic, "new", "--bootstrap", kafka, *registry, *case.arguments)
    assert f"of format {case.format}," in inferred.stdout
    assert (
        f"Of {format_count(len(case.messages), 'sampled message')} of {topic}"
        f" {len(case.messages)} would fit." in inferred.stdout
    )
    commands = [
        line.split()[1:] for line in inferred.stdout.splitlines() if line.startswith("  windrow ")
    ]
    assert [words[0] for words in commands] == ["plan", "run"]
    for words in commands:
        typed(*words)
    assert rows_of(tmp_path / "new") == case.rows
    checked = json.loads(typed("infer", "--check", "new/defs.yaml", "--json").stdout)
    assert (
        checked["fitting"],
        {finding["level"] for finding in checked["findings"]} <= {"info"},
    ) == (len(case.messages), True)


@pytest.mark.some(1)
@pytest.mark.parametrize("stamped", [True, False], ids=["hours", "batches"])
def test_a_topic_becomes_a_table_without_an_edit(
    kafka: str, tmp_path: Path, typed: Any, stamped: bool
) -> None:
    """The inferred files are planned and run without an edit.

    The windows are hours if one hour is over, else micro-batches.
    """
    topic = create_topic(kafka, partitions=2)
    values = [
        {"id": i, "class": "x", "at": "2026-01-05T01:00:00Z", "to": {"zip": None if i % 2 else i}}
        for i in range(40)
    ]
    produce(
        kafka,
        topic,
        [
            Put(
                json_of(v), millis(1, int(str(v["id"]))) if stamped else None, int(str(v["id"])) % 2
            )
            for v in values
        ],
    )
    inferred = typed("infer", topic, "new", "--bootstrap", kafka)
    assert "guessed from 40 messages" in inferred.stdout
    for line in inferred.stdout.splitlines():
        if line.startswith("  windrow "):
            typed(*line.split()[1:])
    assert sorted(row["id"] for row in rows_of(tmp_path / "new")) == list(range(40))
