"""Confluent's formats fulfil the contract of every format."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.avro.models import FLAT
from tests.formats.avro.wire import text, varint
from tests.formats.confluent.registries import FixedRegistry, avro, framed
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder, Subjects
from windrow.ingest.formats.confluent.payloads import AvroPayloads, JsonPayloads
from windrow.ingest.schema.user_code import ModelReference

AVRO = Path(__file__).parents[1] / "avro"
OLD = (
    '{"type": "record", "name": "Old", "fields": [{"name": "name", "type": "string"}, {"name":'
    ' "id", "type": "int"}]}'
)
NAMELESS = (
    '{"type": "record", "name": "Old", "fields": [{"name": "id", "type": "int"}, {"name": "word",'
    ' "type": "string"}]}'
)


class TestAvro(DecoderContract):
    """Messages of two usable schemas, of unusable schemas and of an unknown schema."""

    GOOD: ClassVar = [
        framed(1, varint(1) + varint(1) + text("a")),
        framed(2, text("größer") + varint(-5)),
        framed(1, varint(1 << 60) + varint(1) + text("")),
    ]
    BAD: ClassVar = [
        framed(1, varint(1) + varint(0) + b"hunter2"),
        framed(2, text(b"hunter2\xff") + varint(1)),
        b"hunter2",
        framed(7, b"hunter2"),
        framed(3, b"hunter2"),
        framed(4, varint(1) + text("hunter2")),
        b"\x01hunter2",
    ]

    @pytest.fixture
    def decoder(self) -> ConfluentDecoder:
        registry = FixedRegistry((*avro(FLAT, OLD, '{"hunter2": 1', NAMELESS),))
        return ConfluentDecoder(
            ModelReference("models.py:Flat", AVRO), AvroPayloads(), Subjects(), registry=registry
        )


class TestJson(DecoderContract):
    """JSON, which needs no schema from the registry."""

    GOOD: ClassVar = [
        framed(1, b'{"id": 1, "name": "a"}'),
        framed(2, b'{"name": "b", "id": 2}'),
        framed(1, b' {"id":3,"name":"c"}'),
    ]
    BAD: ClassVar = [
        framed(1, b'{"id": "hunter2"}'),
        b'{"id": 1, "name": "hunter2"}',
        framed(9, b"hunter2"),
        b"\x00\x00hunter2",
    ]

    @pytest.fixture
    def decoder(self) -> ConfluentDecoder:
        return ConfluentDecoder(
            ModelReference("models.py:Flat", AVRO), JsonPayloads(), Subjects(), on_null="drop"
        )
