"""Values of well-known producers are read as meant, with the producer's `decode` section.

One case for each form; the corpus of each format has the edge cases. Some forms of Protobuf's
producers are only in the tests of Protobuf: files that serializers don't register, nanoseconds,
and entries of maps with unknown fields.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.formats.avro.wire import items, text, varint
from tests.formats.confluent.registries import FixedRegistry, framed
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder
from windrow.ingest.formats.kinds import FORMATS, make_decoder
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.testing.contracts.values import messages_with

INSTANT = 'pl.Datetime("us", "UTC")'
TAGS = 'pl.List(pl.Struct({"key": pl.String, "value": pl.String}))'
BYTES = {"decimal_format": "base64"}


def at(micros: int = 0, hour: int = 9) -> datetime:
    """Returns a time on 5 January 2026."""
    return datetime(2026, 1, 5, hour, 0, 0, micros, UTC)


def debezium(**after: Any) -> bytes:
    """Returns Debezium's event of a new row."""
    return json.dumps({"op": "c", "before": None, "after": after}).encode()


def canal(kind: str, *data: dict[str, Any], **more: Any) -> bytes:
    """Returns Canal's flat message."""
    return json.dumps(
        {
            "type": kind,
            "database": "shop",
            "table": "parts",
            "isDdl": False,
            "data": list(data) or None,
            **more,
        }
    ).encode()


JSON: dict[str, tuple[dict[str, Any], str, bytes, Any]] = {
    "debezium, time.precision.mode isostring": (
        {"format": "debezium-json", "dates": "iso-8601"},
        "pl.Date",
        debezium(v="2024-02-29Z"),
        date(2024, 2, 29),
    ),
    "debezium, date[]": (
        {"format": "debezium-json"},
        "pl.List(pl.Date)",
        debezium(v=[1, None]),
        [date(1970, 1, 2), None],
    ),
    "debezium, numeric(9, 2)[]": (
        {"format": "debezium-json", **BYTES},
        "pl.List(pl.Decimal(9, 2))",
        debezium(v=["D0JA"]),
        [Decimal("10000.00")],
    ),
    "debezium, numeric without digits": (
        {"format": "debezium-json", **BYTES},
        "pl.Decimal(20, 4)",
        debezium(v={"scale": 1, "value": "AMg="}),
        Decimal("20.0000"),
    ),
    "debezium, a large value that an update left alone": (
        {"format": "debezium-json"},
        "pl.String",
        debezium(v="__debezium_unavailable_value"),
        "unavailable",
    ),
    "debezium's rows alone, a date": (
        {"format": "json", "dates": "epoch_days"},
        "pl.Date",
        b'{"v": 366}',
        date(1971, 1, 2),
    ),
    "debezium's rows alone, a decimal": (
        {"format": "json", **BYTES},
        "pl.Decimal(9, 2)",
        b'{"v": "/w=="}',
        Decimal("-0.01"),
    ),
    "debezium's rows alone, without a setting": (
        {"format": "json"},
        "pl.Decimal(9, 2)",
        b'{"v": "/w=="}',
        "wrong_format",
    ),
    "canal, an insert that says what was before": (
        {"format": "canal-json"},
        "pl.Int64",
        canal("INSERT", {"v": "7"}, old=[]),
        7,
    ),
    "canal, a first load": ({"format": "canal-json"}, "pl.Int64", canal("INIT", {"v": "7"}), 7),
    "canal, a transaction's id": ({"format": "canal-json"}, "pl.Int64", canal("GTID"), "filtered"),
    "canal, an XA transaction that is given up": (
        {"format": "canal-json"},
        "pl.Int64",
        canal("XAROLLBACK"),
        "filtered",
    ),
    "canal, a heartbeat": ({"format": "canal-json"}, "pl.Int64", canal("MHEARTBEAT"), "filtered"),
    "maxwell, a column of JSON": (
        {"format": "maxwell-json", "coerce": "lenient"},
        "pl.String",
        (
            b'{"database": "shop", "table": "parts", "type": "insert", "data": {"v": {"a":[1,'
            b' {"b":"x"}]}}}'
        ),
        '{"a":[1, {"b":"x"}]}',
    ),
    "an object for a text": (
        {"format": "json", "coerce": "lenient"},
        "pl.String",
        b'{"v": {"b":  null}}',
        '{"b":  null}',
    ),
    "an object of any keys in an object": (
        {"format": "json"},
        f'pl.Struct({{"tags": {TAGS}}})',
        b'{"v": {"tags": {"a": "x"}}}',
        {"tags": [{"key": "a", "value": "x"}]},
    ),
    "Go's time.RFC3339Nano": (
        {"format": "json"},
        INSTANT,
        b'{"v": "2026-01-05T09:00:00.123456789Z"}',
        at(123456),
    ),
    ".NET's round trip": (
        {"format": "json"},
        INSTANT,
        b'{"v": "2026-01-05T10:00:00.1234567+01:00"}',
        at(123456),
    ),
    "Python's isoformat of a local time": (
        {"format": "json", "zone": "Europe/Berlin"},
        INSTANT,
        b'{"v": "2026-01-05T10:00:00.123456"}',
        at(123456),
    ),
    "the same, without a zone in the spec": (
        {"format": "json"},
        INSTANT,
        b'{"v": "2026-01-05T10:00:00.123456"}',
        "wrong_format",
    ),
    "Java's OffsetDateTime of a whole minute": (
        {"format": "json"},
        INSTANT,
        b'{"v": "2026-01-05T09:00Z"}',
        at(),
    ),
    "Jackson's java.util.Date": (
        {"format": "json"},
        INSTANT,
        b'{"v": "2026-01-05T09:00:00.123+0000"}',
        at(123000),
    ),
    "PostgreSQL's timestamptz": (
        {"format": "json"},
        INSTANT,
        b'{"v": "2026-01-05 09:00:00.5+00"}',
        at(500000),
    ),
    "Jackson's Instant": (
        {"format": "json", "timestamps": "epoch_s"},
        INSTANT,
        b'{"v": 1767603600.000001234}',
        at(1),
    ),
    "a float just above half of the smallest": (
        {"format": "json"},
        "pl.Float32",
        b'{"v": 7.00649232162408536e-46}',
        2.0**-149,
    ),
}
"""Cases: the `decode` section, the type of the column `v`, the message and the result.

The result is the column's value, the reason of a dead letter, or `filtered`.
"""


def connect(kind: str, **more: Any) -> dict[str, Any]:
    """Returns a type as Connect's converter writes it."""
    return {"type": kind, **more}


AVRO: dict[str, tuple[Any, str, bytes, Any]] = {
    "debezium's ZonedTimestamp": (
        connect("string", **{"connect.name": "io.debezium.time.ZonedTimestamp"}),
        INSTANT,
        text("2026-01-05T10:00:00+01:00"),
        at(),
    ),
    "Connect's Decimal, whose precision nobody stated": (
        connect("bytes", logicalType="decimal", precision=64, scale=2),
        "pl.Decimal(38, 2)",
        text(b"\x01\x86\x9f"),
        Decimal("999.99"),
    ),
    "a decimal of a smaller scale": (
        connect("bytes", logicalType="decimal", precision=9, scale=2),
        "pl.Decimal(18, 4)",
        text(b"\xff"),
        Decimal("-0.0100"),
    ),
    "a map in a record": (
        {
            "type": "record",
            "name": "Q",
            "fields": [{"name": "m", "type": {"type": "map", "values": "string"}}],
        },
        f'pl.Struct({{"m": {TAGS}}})',
        items(text("a") + text("x")),
        {"m": [{"key": "a", "value": "x"}]},
    ),
    "an int that is exactly a float": ("int", "pl.Float32", varint(-(2**31)), -(2.0**31)),
    "an int that is none": ("int", "pl.Float32", varint(2**31 - 1), "out_of_range"),
    "another record of a union in a record": (
        [
            {"type": "record", "name": name, "fields": [{"name": field, "type": "string"}]}
            for name, field in (("A", "x"), ("B", "y"))
        ],
        'pl.Struct({"x": pl.String})',
        varint(1) + text("w"),
        "other_record",
    ),
}
"""Cases: the types of the field and the column, the field's bytes and the result.

The result is the column's value or the reason of a dead letter.
"""


def judged(
    folder: Path, column: str, value: bytes, schemas: tuple[str, ...] = (), /, **decode: Any
) -> Any:
    """Returns the value of the column `v`, the reason of a dead letter, or `filtered`."""
    (folder / "schema.py").write_text(
        "import pandera.polars as pa\nimport polars as pl\n\n\nclass One(pa.DataFrameModel):\n   "
        f" v: {column} = pa.Field(nullable=True)\n"
    )
    section: Any = section_at(FORMATS[decode["format"]])
    # The old row is read only if there is a primary key.
    primary_key = ("v",) if decode["format"] == "canal-json" else ()
    decoder = make_decoder(
        section.model_validate({"schema": "schema.py:One", **decode}), folder, primary_key
    )
    if isinstance(decoder, ConfluentDecoder):
        decoder = decoder.asking(
            FixedRegistry(
                tuple(WriterSchema(str(i), "AVRO", text) for i, text in enumerate(schemas, 1))
            )
        )
    decoded = decoder.open()(messages_with([value]))
    if decoded.filtered:
        return "filtered"
    return (
        decoded.dead_reason[0].as_py()
        if len(decoded.dead_index)
        else decoded.rows.column("v")[0].as_py()
    )


@pytest.mark.parametrize("name", JSON)
def test_json(name: str, tmp_path: Path) -> None:
    """JSON values are read by the setting for their form, and nothing is guessed."""
    decode, column, value, expected = JSON[name]
    assert judged(tmp_path, column, value, **decode) == expected


@pytest.mark.parametrize("name", AVRO)
def test_avro(name: str, tmp_path: Path) -> None:
    """Avro values are read by the registry's schema, which may have names outside Avro's rules."""
    kind, column, value, expected = AVRO[name]
    fields = [
        {"name": "odd-name", "type": "int"},
        {"name": "größe$", "type": "string"},
        {"name": "v", "type": kind},
    ]
    written = json.dumps(
        {"type": "record", "name": "R", "namespace": "app.Main$", "fields": fields}
    )
    payload = framed(1, varint(5) + text("x") + value)
    assert judged(tmp_path, column, payload, (written,), format="avro-confluent") == expected


def test_several_records_in_one_topic(tmp_path: Path) -> None:
    """Messages of the records that the spec names are rows.

    Records are told apart by their schemas' names, or are branches of one schema.
    """
    orders = {"type": "record", "name": "shop.Ordered", "fields": [{"name": "v", "type": "long"}]}
    users = {
        "type": "record",
        "name": "shop.UserDeleted",
        "fields": [{"name": "v", "type": "long"}],
    }
    schemas = tuple(json.dumps(schema) for schema in (orders, users, [orders, users]))
    values = [
        framed(1, varint(7)),
        framed(2, varint(7)),
        framed(3, varint(0) + varint(7)),
        framed(3, varint(1) + varint(7)),
    ]
    decode = {"format": "avro-confluent", "records": ["Ordered"]}
    assert [judged(tmp_path, "pl.Int64", value, schemas, **decode) for value in values] == [
        7,
        "other_record",
    ] * 2
