"""Values of Kafka Connect's JsonConverter, read by the schema in the message.

The values are generated, of all types and nested.
"""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from windrow.ingest.formats.json.connect import ConnectEncoding
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.formats.shared.nesting import nest_columns
from windrow.ingest.schema.columns import Column

CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
EPOCH, INSTANT = datetime(1970, 1, 1, tzinfo=UTC), pa.timestamp("us", tz="UTC")
OTHER_READINGS = [
    Reading(),
    Reading("epoch_s", lenient=True, decimals="base64", dates="epoch_days", zone="Europe/Berlin"),
]
"""Readings of specs, which have no effect on values with a schema."""

Value = tuple[pa.DataType, dict[str, Any], Any, Any]
"""The type of a column, Connect's schema, the value in JSON, and the expected value."""


def base64_of(unscaled: int) -> str:
    """Returns a decimal's bytes in base64, as Java's BigInteger writes them."""
    return base64.b64encode(
        unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    ).decode()


def decimal(dice: random.Random) -> Value:
    """Returns a decimal. Its schema states the scale, or the value holds it."""
    unscaled, scale, more = dice.randint(-(10**12), 10**12), dice.randint(0, 6), dice.randint(0, 3)
    kind, is_ = pa.decimal128(30, scale + more), Decimal(unscaled).scaleb(-scale)
    if dice.random() < 0.3:
        return (
            kind,
            {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
            {"scale": scale, "value": base64_of(unscaled)},
            is_,
        )
    return (
        kind,
        {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": {"scale": str(scale)}},
        base64_of(unscaled),
        is_,
    )


def day(dice: random.Random) -> Value:
    """Returns a date, as days or as text."""
    days = dice.randint(-100_000, 100_000)
    is_ = date(1970, 1, 1) + timedelta(days)
    if dice.random() < 0.3:
        return (
            pa.date32(),
            {"type": "string", "name": f"{DEBEZIUM}IsoDate"},
            f"{is_.isoformat()}Z",
            is_,
        )
    return (
        pa.date32(),
        {"type": "int32", "name": dice.choice([f"{CONNECT}Date", f"{DEBEZIUM}Date"])},
        days,
        is_,
    )


def instant(dice: random.Random) -> Value:
    """Returns a timestamp in some unit, or as text."""
    micros = dice.randint(-(10**15), 10**16)
    name, per, times = dice.choice(
        [
            (f"{CONNECT}Timestamp", 1_000, 1),
            (f"{DEBEZIUM}Timestamp", 1_000, 1),
            (f"{DEBEZIUM}MicroTimestamp", 1, 1),
            (f"{DEBEZIUM}NanoTimestamp", 1, 1_000),
            (f"{DEBEZIUM}ZonedTimestamp", 1, 0),
            (f"{DEBEZIUM}IsoTimestamp", 1, 0),
        ]
    )
    is_ = EPOCH + timedelta(microseconds=micros // per * per)
    if not times:
        return (
            INSTANT,
            {"type": "string", "name": name},
            is_.isoformat().replace("+00:00", "Z"),
            is_,
        )
    return INSTANT, {"type": "int64", "name": name}, micros // per * times, is_


def plain(dice: random.Random) -> Value:
    """Returns a value that the schema describes no further than JSON does."""
    number = dice.randint(-(1 << 31), (1 << 31) - 1)
    return dice.choice(
        [
            (pa.int64(), {"type": "int32"}, number, number),
            (pa.string(), {"type": "string"}, str(number), str(number)),
            (pa.float64(), {"type": "double"}, number / 8, number / 8),
            (pa.bool_(), {"type": "boolean"}, number > 0, number > 0),
        ]
    )


def value(dice: random.Random, depth: int = 0) -> Value:
    """Returns a random value, which may be nested."""
    roll = dice.random()
    if depth > 2 or roll < 0.55:
        kind, schema, written, is_ = dice.choice([decimal, day, instant, plain])(dice)
        none = dice.random() < 0.1
        return kind, {**schema, "optional": True}, None if none else written, None if none else is_
    kind, schema, written, is_ = value(dice, depth + 1)
    if roll < 0.7:
        return pa.list_(kind), {"type": "array", "items": schema}, [written, None], [is_, None]
    if roll < 0.8:
        return (
            pa.map_(pa.string(), kind),
            {"type": "map", "keys": {"type": "string"}, "values": schema},
            {"a b": written},
            [("a b", is_)],
        )
    more = value(dice, depth + 1)
    fields = [{"field": "x", **schema}, {"field": "y", **more[1]}]
    return (
        pa.struct([("x", kind), ("y", more[0])]),
        {"type": "struct", "fields": fields},
        {"x": written, "y": more[2]},
        {"x": is_, "y": more[3]},
    )


def test_every_value_is_what_its_schema_says(dice: random.Random) -> None:
    """A value is read by the message's own units, scales and texts, at any depth."""
    for number in range(60):
        cases = [value(dice) for _ in range(3)]
        names = ["a", "b", "c"]
        columns = nest_columns(
            [
                (("payload", name), Column("", kind, nullable=True))
                for name, (kind, *_) in zip(names, cases, strict=True)
            ]
        )
        schema = {
            "type": "struct",
            "fields": [
                {"field": name, **field_schema}
                for name, (_, field_schema, *_) in zip(names, cases, strict=True)
            ],
        }
        document = {
            "schema": schema,
            "payload": {
                name: written for name, (_, _, written, _) in zip(names, cases, strict=True)
            },
        }
        decode = ConnectEncoding(reading=OTHER_READINGS[number % 2]).open(columns)
        decoded = decode(pa.array([json.dumps(document).encode()]), "dead")
        assert decoded.dead_detail.to_pylist() == []
        row = decoded.rows.column("payload")[0].as_py()
        assert row == {name: is_ for name, (*_, is_) in zip(names, cases, strict=True)}, document
