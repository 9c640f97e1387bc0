"""Messages of confluent-kafka's own serializers are decoded.

They register with a test registry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from tests.formats.avro.models import FLAT
from tests.registry.server import RegistryServer
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder
from windrow.ingest.formats.confluent.payloads import AvroPayloads, JsonPayloads, ProtobufPayloads
from windrow.ingest.formats.protobuf.descriptors import compiled_text, message_type
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.registry.client import Registry, Subjects
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import messages_with

AVRO = Path(__file__).parents[1] / "avro"
ROWS = [{"id": n, "name": f"größer {n}"} for n in range(5)]
JSON_SCHEMA = json.dumps(
    {
        "title": "Flat",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    }
)


@pytest.fixture
def client(schema_registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    """confluent-kafka's own registry client."""
    with SchemaRegistryClient({"url": schema_registry.url, "timeout": 10}) as registry_client:
        yield registry_client


def read(
    schema_registry: RegistryServer, payloads: Any, messages: list[bytes], headers: Any = ()
) -> list[Any]:
    """Returns the rows that windrow decodes."""
    decoder = ConfluentDecoder(
        ModelReference("models.py:Flat", AVRO),
        payloads,
        Subjects(),
        registry=Registry(schema_registry.url),
    )
    decoded = decoder.open()(messages_with(messages, None, headers))
    assert decoded.dead_detail.to_pylist() == []
    rows: list[Any] = decoded.rows.to_pylist()
    return rows


@pytest.mark.parametrize("in_header", [False, True])
def test_avro(
    schema_registry: RegistryServer, client: SchemaRegistryClient, in_header: bool
) -> None:
    """Avro messages are read by the id before the value, or by the GUID in a header."""
    conf = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
    serialize = AvroSerializer(client, FLAT, conf=conf)
    context = [SerializationContext("t", MessageField.VALUE, headers=[]) for _ in ROWS]
    messages = [
        serialize(row, message_context) for row, message_context in zip(ROWS, context, strict=True)
    ]
    assert (
        read(
            schema_registry,
            AvroPayloads(),
            messages,
            [message_context.headers for message_context in context],
        )
        == ROWS
    )
    assert in_header == bool(context[0].headers)
    assert AvroDeserializer(client)(messages[0], context[0]) == ROWS[0]


def test_protobuf(schema_registry: RegistryServer, client: SchemaRegistryClient) -> None:
    """Protobuf messages are read by schemas and imports that are registered as descriptors.

    The descriptors are in base64. The names of the schema's messages are known too.
    """
    maker = 'syntax = "proto2"; package shop; message Maker { required string name = 1; }'
    text = (
        'syntax = "proto3"; package shop; import "shop/maker.proto"; import'
        ' "google/protobuf/timestamp.proto"; message Other { Maker maker = 1; } message Flat {'
        " int64 id = 1; string name = 2; Maker maker = 3; google.protobuf.Timestamp at = 4; }"
    )
    types = compiled_text(text, (("shop/maker.proto", maker),), "a test")
    flat = GetMessageClass(message_type(types, "shop.Flat", "a test"))
    serialize = ProtobufSerializer(flat, client)
    context = SerializationContext("t", MessageField.VALUE)
    messages = [serialize(flat(**row, maker={"name": "m"}), context) for row in ROWS]
    registered = client.get_latest_version("t-value").schema.schema_str
    assert "message" not in registered
    assert read(schema_registry, ProtobufPayloads(), messages) == ROWS
    written = WriterSchema("1", "PROTOBUF", registered)
    assert ProtobufPayloads().records(written) == [{"Other"}, {"Flat"}]


def test_json(schema_registry: RegistryServer, client: SchemaRegistryClient) -> None:
    """JSON messages are read without a request to the registry."""
    serialize = JSONSerializer(JSON_SCHEMA, client)
    messages = [serialize(row, SerializationContext("t", MessageField.VALUE)) for row in ROWS]
    request_count = len(schema_registry.requested_paths)
    assert read(schema_registry, JsonPayloads(), messages) == ROWS
    assert len(schema_registry.requested_paths) == request_count


def test_what_the_client_expects_of_a_registry(client: SchemaRegistryClient) -> None:
    """The test registry answers confluent-kafka's client as a real registry does.

    This covers subjects, versions, references, GUIDs, deletion and the codes of refusals.
    """
    inner = Schema('{"type": "record", "name": "In", "fields": []}')
    outer = Schema(
        '{"type": "record", "name": "Out", "fields": [{"name": "in", "type": "In"}]}',
        "AVRO",
        [SchemaReference("In", "in", 1)],
    )
    assert (
        client.register_schema("in", inner),
        client.register_schema("out", outer),
        client.register_schema("too", inner),
    ) == (1, 2, 1)
    assert client.register_schema("out", inner) == 1
    assert sorted(client.get_subjects()) == ["in", "out", "too"]
    assert client.get_versions("out") == [1, 2]
    assert client.get_latest_version("out").schema_id == 1
    assert client.get_version("out", 1).schema == outer
    assert client.get_version("out", 1).schema.references == outer.references
    assert client.lookup_schema("out", inner).version == 2
    client.clear_caches()
    guid = client.get_version("in", 1).guid
    assert guid is not None
    assert client.get_schema_by_guid(guid).schema_str == inner.schema_str
    assert client.get_schema(2).references == outer.references
    assert client.delete_subject("out") == [1, 2]
    client.clear_caches()
    assert client.get_subjects() == ["in", "too"]
    assert client.get_version("out", 1, deleted=True).schema_id == 2
    for ask, code in [
        (lambda: client.get_schema(99), 40403),
        (lambda: client.get_versions("out"), 40401),
        (lambda: client.get_version("in", 9), 40402),
        (lambda: client.lookup_schema("in", outer), 40403),
        (lambda: client.lookup_schema("none", outer), 40401),
    ]:
        with pytest.raises(SchemaRegistryError) as refused:
            ask()
        assert (refused.value.http_status_code, refused.value.error_code) == (404, code)
