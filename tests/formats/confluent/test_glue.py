"""Messages behind the frame of AWS Glue: a header version, a compression and a UUID."""

from __future__ import annotations

import json
import uuid
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from tests.formats.avro.wire import text, varint
from tests.formats.confluent.registries import FixedRegistry, avro, framed
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder, Subjects
from windrow.ingest.formats.confluent.payloads import AvroPayloads
from windrow.ingest.formats.shared.codecs import FREE, SHARE
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import messages_with

VERSIONS = [uuid.UUID(int=7), uuid.UUID(int=7 << 120)]
FIELDS = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
SCHEMAS = [
    json.dumps({"type": "record", "name": "Flat", "fields": fields})
    for fields in (FIELDS, FIELDS[::-1])
]
"""Schemas whose fields are in different orders."""


def payload(version: int, number: int, name: str = "a") -> bytes:
    fields = [varint(number), text(name)]
    return b"".join(fields[::-1] if version else fields)


def of_glue(version: int, inner: bytes, form: int = 0) -> bytes:
    return bytes([3, form]) + VERSIONS[version].bytes + inner


def compressed(version: int, inner: bytes) -> bytes:
    return of_glue(version, zlib.compress(inner), 5)


def decoder() -> ConfluentDecoder:
    of_uuids = [
        WriterSchema(f"glue-{version}", "AVRO", schema)
        for version, schema in zip(VERSIONS, SCHEMAS, strict=True)
    ]
    return ConfluentDecoder(
        ModelReference("models.py:Flat", Path(__file__).parents[1] / "avro"),
        AvroPayloads(),
        Subjects(),
        registry=FixedRegistry((*of_uuids, *avro(SCHEMAS[0]))),
    )


def test_each_message_is_read_by_the_version_that_it_names() -> None:
    """Messages of several versions, compressed or not, and of Confluent are rows in order."""
    values = [
        of_glue(0, payload(0, 1)),
        compressed(1, payload(1, 2)),
        framed(1, payload(0, 3)),
        None,
        of_glue(1, payload(1, 4)),
        compressed(0, payload(0, 5, "b" * 20_000)),
    ]
    decoded = decoder().open()(messages_with(values))
    assert decoded.rows.column("id").to_pylist() == [1, 2, 3, 4, 5]
    assert decoded.row_index.to_pylist() == [0, 1, 2, 4, 5]
    assert decoded.dead_reason.to_pylist() == ["tombstone"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (of_glue(0, zlib.compress(payload(0, 1))[:-1], 5), "not_deflate"),
        (of_glue(0, zlib.compress(payload(0, 1)) + b"x", 5), "not_deflate"),
        (of_glue(0, payload(0, 1), 5), "not_deflate"),
        (compressed(0, payload(0, 1, "b" * (2 * FREE + SHARE * 1000))), "too_large"),
        (compressed(0, b""), "not_avro"),
        (of_glue(0, payload(0, 1), 7), "no_schema_id"),
        (of_glue(0, b"")[:-1], "no_schema_id"),
        (b"\3\5", "no_schema_id"),
        (b"\3\0" + uuid.UUID(int=8).bytes + payload(0, 1), "unknown_schema"),
    ],
)
def test_what_is_no_payload_is_a_dead_letter(value: bytes, reason: str) -> None:
    """A payload that can't be decompressed within bounds is refused; those beside it are rows."""
    values = [compressed(0, payload(0, 1)), value, of_glue(0, payload(0, 2))]
    decoded = decoder().open()(messages_with(values))
    assert (decoded.dead_index.to_pylist(), decoded.dead_reason.to_pylist()) == ([1], [reason])
    assert decoded.row_index.to_pylist() == [0, 2]


def test_a_dead_letter_names_its_schema() -> None:
    """The id of a message's schema is known without the registry, also of a compressed one."""
    values = [of_glue(1, b""), compressed(0, b""), None, b"{}"]
    ids = decoder().schema_ids(messages_with(values), pa.array(["value"] * 4))
    assert ids.to_pylist() == [f"glue-{VERSIONS[1]}", f"glue-{VERSIONS[0]}", None, None]
