"""Debezium's events in Avro have the same results as in JSON."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.avro.wire import items, text, varint
from tests.formats.cdc.formats import HERE, decoder_of
from tests.formats.confluent.registries import FixedRegistry, avro, framed
from windrow.ingest.errors import SpecError
from windrow.ingest.ports.decoder import Decoded, Decoder
from windrow.ingest.testing.contracts.values import (
    check_shape,
    dead,
    deleted,
    messages_with,
    verdicts,
)

WRITER: dict[str, Any] = json.loads((HERE / "customers.avsc").read_text())
_PARSED = fastavro.parse_schema(WRITER)
ASKED: dict[str, Any] = {"envelope": {"op": "op", "at": "source.ts_ms"}}
EVENTS = decoder_of("debezium-avro", "Debtor", writer_schema="customers.avsc", **ASKED)
IN_JSON = decoder_of("debezium-json", "Debtor", **ASKED)
ANN = {
    "id": 1,
    "first_name": "Ann",
    "email": None,
    "born": 10957,
    "debt": "2.50",
    "seen": 1767603600000001,
    "more": "x",
}
EVE = {**ANN, "more": "hunter2"}


def event(
    op: str, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Returns an event as a JSON document."""
    return {
        "op": op,
        "before": before,
        "after": after,
        "source": {"version": "3", "ts_ms": 1767603600123, "db": "shop", "table": None},
    }


def encoded(document: dict[str, Any], schema: Any = _PARSED) -> bytes:
    """Returns the event in Avro."""
    out = io.BytesIO()
    exact = {
        name: (
            image
            and {**image, "debt": None if image.get("debt") is None else Decimal(image["debt"])}
        )
        for name, image in document.items()
        if name in {"before", "after"}
    }
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {**document, **exact})
    return out.getvalue()


def without_ids(decoded: Decoded) -> tuple[Any, ...]:
    """Returns the verdicts and counts, without the schema ids in the details."""
    details = [re.sub(r"^Schema id \d+: ", "", d) for d in decoded.dead_detail.to_pylist()]
    rows = list(zip(decoded.row_index.to_pylist(), decoded.rows.to_pylist(), strict=True))
    kept = None if decoded.unavailable is None else decoded.unavailable.to_pylist()
    refused = list(zip(dead(decoded), details, strict=True))
    return rows, deleted(decoded), refused, kept, decoded.dropped, decoded.filtered


class TestDebeziumAvro(DecoderContract):
    """Debezium's events in Avro fulfil the contract of every format."""

    GOOD: ClassVar = [
        encoded(event("c", None, ANN)),
        encoded(event("u", ANN, ANN)),
        encoded(event("d", ANN)),
        encoded(event("r", ANN, ANN)),
    ]
    BAD: ClassVar = [
        encoded(event("hunter2", None, ANN)),
        encoded(event("c", EVE)),
        encoded(event("d", None, EVE)),
        encoded(event("c", None, {**EVE, "first_name": None})),
        encoded(event("c", None, {**EVE, "born": 2**31 - 1})),
        encoded(event("t", None, EVE)),
        encoded(event("c", None, EVE))[:-1],
        encoded(event("c", None, EVE)) + b"\x00",
        encoded(event("c", None, EVE)).replace(b"Ann", b"\xff\xff\xff"),
    ]

    @pytest.fixture
    def decoder(self) -> Decoder:
        return EVENTS


def test_an_event_becomes_its_row() -> None:
    """An event becomes its row.

    Dates are days, decimals are Avro's type, and timestamps have the model's unit. This holds
    in the row and in the envelope.
    """
    decoded = EVENTS.open()(messages_with([TestDebeziumAvro.GOOD[0], None, encoded(event("m"))]))
    row = {
        "id": 1,
        "first_name": "Ann",
        "email": None,
        "born": date(2000, 1, 1),
        "debt": Decimal("2.50"),
        "seen": datetime(2026, 1, 5, 9, 0, 0, 1, UTC),
        "op": "c",
        "at": datetime(2026, 1, 5, 9, 0, 0, 123000, UTC),
    }
    assert verdicts(decoded) == {0: [row]}
    assert (decoded.dropped, decoded.filtered) == (1, 1)


def test_why_events_are_refused() -> None:
    """Events are refused with the same reasons and paths as in JSON.

    Bytes that aren't Avro are `not_avro`.
    """
    decoded = EVENTS.open()(messages_with(TestDebeziumAvro.BAD))
    assert [reason for _, _, reason in dead(decoded)] == [
        "unknown_change",
        "missing",
        "missing",
        "missing",
        "out_of_range",
        "truncate",
        "not_avro",
        "not_avro",
        "invalid_utf8",
    ]
    assert decoded.dead_detail.to_pylist()[2:5] == [
        "Expected a value, got none - at $.before",
        "Expected a value, got none - at $.after.first_name",
        "Expected a date that the calendar has - at $.after.born",
    ]


_ROWS = st.none() | st.builds(
    lambda i, name, born: {**ANN, "id": i, "first_name": name, "born": born},
    st.integers(0, 2),
    st.sampled_from(["Ann", "é", None]),
    st.sampled_from([None, 0, -719162, 2932896, 2932897]),
)


def in_json(document: dict[str, Any]) -> bytes:
    """Returns the event in JSON."""
    return json.dumps(document).encode()


_MARKS: list[dict[str, Any]] = [
    {"ts_ms": 1},
    {"status": "BEGIN", "id": "571:1", "event_count": None, "ts_ms": 1},
    {"databaseName": "d", "schemaName": None, "ddl": "ALTER", "ts_ms": 1},
    {"ts_ms": 1, "id": 1},
]
"""A heartbeat, the begin of a transaction, a new definition of a table, and none of these."""

_MARK_SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "record",
        "name": f"Mark{number}",
        "fields": [
            {
                "name": name,
                "type": ["null", {int: "long", str: "string"}[type(value or "")]],
            }
            for name, value in mark.items()
        ],
    }
    for number, mark in enumerate(_MARKS)
]


def by_id(document: dict[str, Any]) -> bytes:
    """Returns an event or a mark in Avro, behind the id of its schema."""
    if document in _MARKS:
        number = _MARKS.index(document)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(_MARK_SCHEMAS[number]), document)
        return framed(2 + number, out.getvalue())
    return framed(1, encoded(document))


REGISTRY = FixedRegistry((*avro(*map(json.dumps, (WRITER, *_MARK_SCHEMAS))),))
FORMS: dict[str, tuple[Callable[[dict[str, Any]], bytes], dict[str, Any]]] = {
    "debezium-json": (in_json, {}),
    "debezium-json-schema-confluent": (lambda document: framed(1, in_json(document)), {}),
    "debezium-avro": (encoded, {"writer_schema": "customers.avsc"}),
    "debezium-avro-confluent": (by_id, {}),
}
"""How each format of Debezium's events writes an event, and its own settings."""


@pytest.mark.parametrize("primary_key", [(), ("id",)], ids=["growing", "keyed"])
@given(
    events=st.lists(st.builds(event, st.sampled_from("crudtmx"), _ROWS, _ROWS), max_size=8),
    marks=st.lists(st.sampled_from(_MARKS), max_size=3),
)
def test_each_form_says_the_same(
    primary_key: tuple[str, ...], events: list[dict[str, Any]], marks: list[dict[str, Any]]
) -> None:
    """Each form gives the same rows, deletes, counts and reasons for any event.

    So it does for heartbeats, transactions and new definitions of tables. The writer's schema
    of `debezium-avro` allows none of these.
    """
    outcomes = {}
    for name, (write, options) in FORMS.items():
        decoder: Any = decoder_of(name, "Debtor", primary_key, **ASKED, **options)
        if name == "debezium-avro-confluent":
            decoder = decoder.asking(REGISTRY)
        documents = events if name == "debezium-avro" else [*events, *marks]
        decoded = decoder.open()(messages_with([write(document) for document in documents]))
        check_shape(decoded, decoder.columns.arrow_schema, len(documents))
        outcomes[name] = without_ids(decoded)
    assert outcomes["debezium-avro-confluent"] == outcomes["debezium-json"]
    assert outcomes["debezium-json-schema-confluent"] == outcomes["debezium-json"]
    if not marks:
        assert outcomes["debezium-avro"] == outcomes["debezium-json"]


def test_a_schema_that_is_no_envelope(tmp_path: Path) -> None:
    """A schema without Debezium's envelope is refused before anything is read.

    So is a missing file. The spec may hold the schema itself.
    """
    assert (
        decoder_of("debezium-avro", "Debtor", writer_schema=WRITER, **ASKED).columns
        == EVENTS.columns
    )
    with pytest.raises(SpecError, match="op: the Avro schema has no such field"):
        _ = decoder_of(
            "debezium-avro", "Debtor", writer_schema=WRITER["fields"][0]["type"][1], **ASKED
        ).columns
    with pytest.raises(
        SpecError, match=r"after\.name: the record shop.inventory.customers.Value has no such field"
    ):
        _ = decoder_of("debezium-avro", "Part", writer_schema=WRITER).columns
    with pytest.raises(SpecError, match=r"none\.avsc can't be read"):
        _ = decoder_of("debezium-avro", "Part", writer_schema="none.avsc").columns


def test_a_schema_in_a_file_that_changes(tmp_path: Path) -> None:
    """`open` reads the schema's file again, also in a worker that was already running."""
    (tmp_path / "models.py").write_text((HERE / "models.py").read_text())
    decoder, value = (
        decoder_of("debezium-avro", "Part", folder=tmp_path, writer_schema="e.avsc"),
        encoded(event("c", None, ANN)),
    )
    for part, name in (("first_name", "more"), ("more", "first_name")):
        (tmp_path / "e.avsc").write_text(
            json.dumps(WRITER)
            .replace(f'"{part}"', '"part"')
            .replace(f'{{"name": "{name}"', '{"name": "name"')
        )
        assert verdicts(decoder.open()(messages_with([value]))) == {
            0: [{"id": 1, "part": ANN[part], "name": ANN[name]}]
        }


def test_types_that_connect_names(tmp_path: Path) -> None:
    """Types that Connect names are decoded by their names.

    These are times with a zone, arrays, and decimals of any scale.
    """
    day = {"type": "int", "connect.name": "io.debezium.time.Date"}
    money = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    any_scale = {
        "type": "record",
        "name": "VariableScaleDecimal",
        "namespace": "io.debezium.data",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    }
    kinds: dict[str, Any] = {
        "at": {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
        "days": {"type": "array", "items": day},
        "amounts": {"type": "array", "items": money},
        "number": any_scale,
    }
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": name, "type": kind} for name, kind in kinds.items()],
    }
    images = [
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ]
    (tmp_path / "models.py").write_text(
        "import pandera.polars as pa\nimport polars as pl\n\n\nclass Thing(pa.DataFrameModel):\n   "
        ' at: pl.Datetime("us", "UTC")\n    days: pl.List(pl.Date)\n    amounts:'
        " pl.List(pl.Decimal(9, 2))\n    number: pl.Decimal(20, 4)\n"
    )
    decoder = decoder_of(
        "debezium-avro",
        "Thing",
        folder=tmp_path,
        writer_schema={"type": "record", "name": "Envelope", "fields": images},
    )
    after_image = (
        text("2020-01-01T00:00:00Z")
        + items(varint(10_957))
        + items(text(b"09"))
        + varint(2)
        + text(b"09")
    )
    decoded = decoder.open()(messages_with([varint(0) + varint(1) + after_image + text("c")]))
    assert verdicts(decoded) == {
        0: [
            {
                "at": datetime(2020, 1, 1, tzinfo=UTC),
                "days": [date(2000, 1, 1)],
                "amounts": [Decimal("123.45")],
                "number": Decimal("123.4500"),
            }
        ]
    }


def test_bytes_that_a_change_left_alone_are_none() -> None:
    """Bytes are unavailable only if they are exactly Debezium's placeholder."""
    image = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "long"}, {"name": "photo", "type": ["null", "bytes"]}],
    }
    writer = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", image]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    mark, values = b"__debezium_unavailable_value", []
    for photo in (mark, mark + b"x"):
        out = io.BytesIO()
        fastavro.schemaless_writer(
            out,
            fastavro.parse_schema(writer),
            {"op": "u", "before": None, "after": {"id": 1, "photo": photo}},
        )
        values.append(out.getvalue())
    decoded = decoder_of("debezium-avro", "Blob", writer_schema=writer).open()(
        messages_with(values)
    )
    assert (dead(decoded), decoded.rows["photo"].to_pylist()) == (
        [(0, "schema", "unavailable")],
        [mark + b"x"],
    )
