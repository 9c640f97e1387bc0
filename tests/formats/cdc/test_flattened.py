"""Rows that Debezium's ExtractNewRecordState has taken out of their envelopes."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.cdc.formats import decoder_of
from tests.formats.cdc.recorded import FLATTENED
from tests.formats.cdc.test_by_registry import by_registry
from tests.infer.test_every_value import run
from windrow.ingest.errors import SpecError
from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.testing.contracts.values import dead, deleted, messages_with

REMOVED = {
    "tombstone": [2, 3, 6],
    "rewrite": [2, 3, 6],
    "rewrite-with-tombstone": [2, 2, 3, 3, 6, 6],
}
"""The ids that each mode of deletions deletes: by tombstones, by `__deleted`, and by both."""


def encoded(document: dict[str, Any] | None) -> bytes | None:
    """Returns a document as JSON."""
    return None if document is None else json.dumps(document).encode()


@pytest.mark.parametrize("in_avro", [False, True])
@pytest.mark.parametrize("mode", REMOVED)
def test_rows_and_deletions(mode: str, in_avro: bool) -> None:
    """Each mode of deletions makes the same table, in JSON and in Avro by a registry.

    Without a primary key, a deletion that has values is a row, and a tombstone is counted.
    """
    recording = FLATTENED[mode]
    values = [event.value if in_avro else event.json for event in recording.events]
    keys = [event.key if in_avro else encoded(event.json_key) for event in recording.events]

    def decoder(primary_key: tuple[str, ...], **settings: Any) -> Decoder:
        if in_avro:
            return by_registry(
                "Recorded", recording.registry, primary_key, flattened=True, **settings
            )
        settings["decimal_format"] = "base64"
        return decoder_of("debezium-json", "Recorded", primary_key, flattened=True, **settings)

    key = {"format": "avro-confluent" if in_avro else "json", "fields": ["id"]}
    keyed = decoder(("id",), key=key).open()(messages_with(values, keys))
    ids = [row["id"] for row in keyed.rows.to_pylist()]
    assert ids == [1, 1, 5, 6, 1, 7, 5, 8]
    assert [row["id"] for _, row in deleted(keyed)] == REMOVED[mode]
    reasons = [reason for _, _, reason in dead(keyed)]
    assert reasons == ["out_of_range", "out_of_range", "unavailable"]
    appended = decoder(()).open()(messages_with(values, keys))
    assert appended.rows.num_rows == len(ids) + (3 if mode.startswith("rewrite") else 0)
    assert appended.dropped == values.count(None)


def test_a_deletion_needs_only_its_key() -> None:
    """A deletion whose other columns are missing deletes, and an unknown `__op` is refused."""
    decode = decoder_of("debezium-json", "Part", ("id",), flattened=True).open()
    rows: list[dict[str, Any]] = [
        {"id": 1, "__deleted": "true"},
        {"id": 2, "__op": "d"},
        {"id": 3, "__op": "z"},
        {"id": 4, "__table": "parts"},
        {"id": 5, "__table": "customers"},
    ]
    decoded = decode(messages_with(list(map(encoded, rows))))
    assert deleted(decoded) == [(0, {"id": 1}), (1, {"id": 2})]
    assert dead(decoded) == [
        (2, "schema", "unknown_change"),
        (3, "schema", "other_table"),
        (4, "schema", "missing"),
    ]


def test_a_given_schema_without_the_fields_of_debezium() -> None:
    """A schema in the spec needs no field of Debezium's: each row is written then."""
    fields = [{"name": "id", "type": "int"}, {"name": "part", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "Value", "fields": fields})
    settings: dict[str, Any] = {"writer_schema": schema, "flattened": True}
    decoder = decoder_of("debezium-avro", "Bare", ("id",), **settings)
    decoded = decoder.open()(messages_with([b"\x02\x02a"]))
    assert decoded.rows.to_pylist() == [{"id": 1}]


def test_a_field_is_one_column() -> None:
    """A field of the row can't be a column of the envelope, too: one value has one type."""
    for settings, path in (({"flattened": True}, "part"), ({}, "before.part")):
        decoder = decoder_of("debezium-json", "Part", envelope={"name": path}, **settings)
        with pytest.raises(SpecError, match=f"decode.envelope takes {path} from the row"):
            _ = decoder.columns


@pytest.mark.parametrize("mode", ["rewrite", "rewrite-with-tombstone"])
def test_infer_proposes_the_rows(mode: str) -> None:
    """Rows with fields of ExtractNewRecordState are a keyed table, from which rows are deleted."""
    events = FLATTENED[mode].events
    pairs = [(encoded(event.json_key), event.json) for event in events]
    done = run(pairs, topic="shop.public.customers")
    assert (done.format, done.key, done.settings.decode.flattened) == (
        "debezium-json",
        ("id",),
        True,
    )
    assert done.settings.decode.key.fields == ("id",)
    assert any("delete.tombstone.handling.mode: drop" in note for note in done.inferred.notes)
    assert done.rows[3] == []


def test_infer_reads_the_schema_beside_a_row() -> None:
    """The schema in each message gives the types, and values are read by it."""
    events = [event for event in FLATTENED["rewrite"].events if event.with_schema]
    done = run([(encoded(event.json_key), encoded(event.with_schema)) for event in events])
    assert (done.settings.decode.schema_include, done.key) == (True, ("id",))
    assert "price: pl.Decimal(9, 2)" in done.schema
    assert done.rows[0] is not None
    assert str(done.rows[0][0]["price"]) == "12.34"


class TestContract(DecoderContract):
    """Flattened rows fulfil the contract of every format."""

    GOOD: ClassVar = [
        b'{"id": 1, "part": "a", "__op": "c"}',
        b'{"id": 2, "part": "b", "__deleted": "false", "__source_ts_ms": 1}',
        b'{"id": 3, "part": "c"}',
    ]
    BAD: ClassVar = [b'{"id": "hunter2", "part": "x"}', b'{"id": 1, "part": 7, "__op": "hunter2"}']

    @pytest.fixture
    def decoder(self) -> Decoder:
        return decoder_of("debezium-json", "Part", flattened=True)
