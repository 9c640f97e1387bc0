"""Change events behind the ids of a registry's schemas."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar
from unittest import mock

import pytest

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.avro.wire import text, varint
from tests.formats.cdc import test_avro
from tests.formats.cdc.corpus import DEBEZIUM
from tests.formats.cdc.formats import HERE, decoder_of
from tests.formats.cdc.recorded import RECORDINGS
from tests.formats.cdc.test_contract import bad, good
from tests.formats.confluent.registries import FixedRegistry, avro, framed
from windrow.ingest.formats.avro.decoder import AvroPass
from windrow.ingest.formats.avro.strict import StrictAvro
from windrow.ingest.formats.kinds import FORMATS, make_decoder
from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.testing.contracts.values import dead, deleted, messages_with, verdicts

RECORDING = RECORDINGS["adaptive"]
ENVELOPE = json.dumps(test_avro.WRITER)


def by_registry(
    model: str,
    registry: FixedRegistry,
    primary_key: tuple[str, ...] = (),
    *,
    keeps_unavailable: bool = False,
    **decode: Any,
) -> Decoder:
    """Returns the decoder of a `decode` section that asks a registry."""
    name = "debezium-avro-confluent"
    section = section_at(FORMATS[name]).model_validate(
        {"format": name, "schema": f"models.py:{model}", **decode}
    )
    decoder: Any = make_decoder(section, HERE, primary_key, keeps_unavailable=keeps_unavailable)
    asking: Decoder = decoder.asking(registry)
    return asking


class TestAvro(DecoderContract):
    """Debezium's events in Avro, by a schema of the registry."""

    GOOD: ClassVar = [framed(1, value) for value in test_avro.TestDebeziumAvro.GOOD]
    BAD: ClassVar = [
        *(framed(1, value) for value in test_avro.TestDebeziumAvro.BAD),
        b"hunter2",
        framed(7, b"hunter2"),
        framed(2, b"hunter2"),
        framed(3, text("hunter2")),
    ]

    @pytest.fixture
    def decoder(self) -> Decoder:
        row = '{"type": "record", "name": "Row", "fields": [{"name": "email", "type": "string"}]}'
        return by_registry(
            "Debtor", FixedRegistry((*avro(ENVELOPE, '{"hunter2": 1', row),)), **test_avro.ASKED
        )


class TestJson(DecoderContract):
    """Debezium's events in JSON, behind the id of a JSON Schema."""

    GOOD: ClassVar = [framed(1, value) for value in good(DEBEZIUM)]
    BAD: ClassVar = [*(framed(1, value) for value in bad(DEBEZIUM)), b'{"op": "hunter2"}']

    @pytest.fixture
    def decoder(self) -> Decoder:
        return decoder_of(
            "debezium-json-schema-confluent",
            "Customer",
            envelope={"op": "op", "at": "source.ts_ms"},
        )


def outcome(decoder: Decoder, values: list[bytes | None]) -> tuple[Any, ...]:
    """Returns what becomes of messages, without the schema ids in the details."""
    return test_avro.without_ids(decoder.open()(messages_with(values)))


@pytest.mark.parametrize("keeps_unavailable", [False, True])
@pytest.mark.parametrize("primary_key", [(), ("id",)], ids=["growing", "keyed"])
def test_recorded_events_say_the_same_in_each_form(
    primary_key: tuple[str, ...], keeps_unavailable: bool
) -> None:
    """Debezium's own events have the same rows, deletes, reasons and counts in each form."""
    events = RECORDING.events
    avro_decoder = by_registry(
        "Recorded", RECORDING.registry, primary_key, keeps_unavailable=keeps_unavailable
    )
    section = {"format": "debezium-json", "schema": "models.py:Recorded"}
    in_json = make_decoder(
        section_at(FORMATS["debezium-json"]).model_validate(
            {**section, "decimal_format": "base64"}
        ),
        HERE,
        primary_key,
        keeps_unavailable=keeps_unavailable,
    )
    framed_json = decoder_of(
        "debezium-json-schema-confluent", "Recorded", primary_key, decimal_format="base64"
    )
    by_avro = outcome(avro_decoder, [event.value for event in events])
    assert by_avro == outcome(in_json, [event.json for event in events])
    if not keeps_unavailable:
        values = [None if event.json is None else framed(9, event.json) for event in events]
        assert by_avro == outcome(framed_json, values)
    rows, deletes, reasons, _, dropped, filtered = by_avro
    assert (dropped, filtered) == (3, 4)
    assert {reason for (_, _, reason), _ in reasons} == (
        {"truncate", "out_of_range"}
        if keeps_unavailable and primary_key
        else {"truncate", "out_of_range", "unavailable"}
    )
    assert len(deletes) == (3 if primary_key else 0)
    assert rows[0][1]["anyscale"] == Decimal("1.2340")


MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "adaptive": ("Recorded", {"decimal_format": "base64"}),
    "micro": ("Recorded", {"decimal_format": "base64"}),
    "connect": ("RecordedMillis", {"decimal_format": "base64"}),
    "string": ("RecordedTexts", {"dates": "iso-8601"}),
    "us": ("RecordedMicros", {}),
    "ns": ("RecordedNanos", {}),
}
"""The model and the settings of JSON for each recorded mode. Avro needs no settings."""


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_of_decimals_and_times(mode: str) -> None:
    """Values mean the same in each `decimal.handling.mode` and `time.precision.mode`.

    The schemas in Avro say how they are written, and in JSON the settings do. Infinite
    timestamps and dates of PostgreSQL are dead letters with the same reason.
    """
    model, options = MODES[mode]
    recording = RECORDINGS[mode]
    events = [event for event in recording.events if event.topic == "shop.public.customers"][:2]
    by_avro = outcome(by_registry(model, recording.registry), [event.value for event in events])
    in_json = decoder_of("debezium-json", model, **options)
    assert by_avro == outcome(in_json, [event.json for event in events])
    ((_, row),), (((_, _, reason), _),) = by_avro[0], by_avro[2]
    micros = 123000 if mode == "connect" else 123456
    assert row["ts"] == datetime(2026, 1, 5, 9, 0, 0, micros, UTC)
    assert row["ts3"] == datetime(2026, 1, 5, 9, 0, 0, 123000, UTC)
    assert row["tstz"] == datetime(2026, 1, 5, 9, 0, 0, 500000, UTC)
    assert row["born"] == date(2000, 1, 1)
    assert Decimal(str(row["price"])) == Decimal("12.34")
    assert reason == ("wrong_format" if mode == "string" else "out_of_range")


def test_schemas_that_change_within_a_window() -> None:
    """Each message is read by its own schema.

    Columns were added and dropped, and became wider.
    """
    decoder = by_registry("Recorded", RECORDING.registry)
    rows = [row for _, row in outcome(decoder, [event.value for event in RECORDING.events])[0]]
    first, last = rows[0], next(row for row in rows if row["id"] == 7)
    assert (first["small"], first["r"], first["x"], first["added"]) == (1, 1.5, "<a/>", None)
    assert (last["small"], last["r"], last["x"], last["added"]) == (
        3_000_000_000,
        0.1,
        None,
        "more",
    )
    assert first["ts"] == datetime(2026, 1, 5, 9, 0, 0, 123456, UTC)


def test_a_tombstone_deletes_by_a_key_of_the_registry() -> None:
    """A message without a value deletes the row of its key, which names a schema, too."""
    key = {"format": "avro-confluent", "fields": ["id"]}
    decoder = by_registry("Recorded", RECORDING.registry, ("id",), key=key, keeps_unavailable=True)
    events = [event for event in RECORDING.events if event.topic == "shop.public.customers"]
    decoded = decoder.open()(
        messages_with(
            [event.value for event in events],
            [event.key for event in events],
        )
    )
    tombstones = [index for index, event in enumerate(events) if event.value is None]
    assert len(tombstones) == 3
    assert set(tombstones) < {index for index, _ in deleted(decoded)}
    assert decoded.dropped == 0


def test_a_schema_of_another_table_is_no_reason() -> None:
    """A message of a table that isn't wanted is filtered, or refused for its table.

    That its schema doesn't fit the columns doesn't count. In a wanted table it does.
    """
    other = json.loads(ENVELOPE)
    other["fields"][0]["type"][1]["fields"][0]["type"] = "string"
    documents = [test_avro.event("c", None, {**test_avro.ANN, "id": id_}) for id_ in (1, "x", "x")]
    for document, table in zip(documents, ("customers", "parts", "customers"), strict=True):
        document["source"]["table"] = table
    values = [
        framed(1, test_avro.encoded(documents[0])),
        *(framed(2, test_avro.encoded(document, other)) for document in documents[1:]),
    ]
    registry = FixedRegistry((*avro(ENVELOPE, json.dumps(other)),))
    for options, of_others in (({}, ["other_table"]), ({"table_include": "customers"}, [])):
        decoder = by_registry("Debtor", registry, **test_avro.ASKED, **options)
        decoded = decoder.open()(messages_with(values))
        assert decoded.row_index.to_pylist() == [0]
        assert decoded.dead_reason.to_pylist() == [*of_others, "incompatible_schema"]
        assert decoded.filtered == 1 - len(of_others)
    assert "string can't become int64" in decoded.dead_detail[0].as_py()


def test_a_good_event_is_decoded_once() -> None:
    """The compiled pass alone takes a good event, in one run over its bytes."""
    values = [value for value in TestAvro.GOOD if value != TestAvro.GOOD[2]]
    registry = FixedRegistry((*avro(ENVELOPE),))
    decode = by_registry("Debtor", registry, ("id",), **test_avro.ASKED).open()
    expected = verdicts(decode(messages_with(values)))
    with (
        mock.patch.object(StrictAvro, "decode", side_effect=AssertionError),
        mock.patch.object(AvroPass, "decode", autospec=True, side_effect=AvroPass.decode) as ran,
    ):
        assert verdicts(decode(messages_with(values))) == expected
    assert ran.call_count == 1


def test_an_event_in_a_union_is_refused() -> None:
    """A schema that is no record is named as unusable: no envelope has this form."""
    registry = FixedRegistry((*avro('["null", ' + ENVELOPE + "]"),))
    decoder = by_registry("Debtor", registry, **test_avro.ASKED)
    decoded = decoder.open()(messages_with([framed(1, varint(1) + TestAvro.GOOD[0][5:])]))
    assert dead(decoded) == [(0, "schema", "incompatible_schema")]


def test_the_registry_need_not_know_the_topic() -> None:
    """A window can be planned although the subject has several records, or doesn't exist."""
    decoder: Any = by_registry("Debtor", FixedRegistry(), **test_avro.ASKED)
    assert decoder.prepared(["customers"]).schemas == []
