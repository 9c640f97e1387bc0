"""Reads messages as consumers do: by Confluent's own deserializers, or by json."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from windrow.ingest.formats.protobuf.descriptors import compiled_text, message_type, name_at

KEY, VALUE = MessageField.KEY, MessageField.VALUE

Read = Callable[[bytes | None, str], Any]
"""Takes a key or a value, and which of both it is; returns its members by name."""


def deserializer(form: str, client: SchemaRegistryClient, topic: str) -> Read:
    """The deserializer of a format."""
    if form == "json":
        return lambda octets, _part: None if octets is None else json.loads(octets)
    if form == "avro-confluent":
        avro = AvroDeserializer(client)
        return lambda octets, part: avro(octets, SerializationContext(topic, part))
    deserializer_by_part = {part: _protobuf(client, f"{topic}-{part}") for part in (KEY, VALUE)}
    return lambda octets, part: members(
        deserializer_by_part[part](octets, SerializationContext(topic, part))
    )


def _protobuf(client: SchemaRegistryClient, subject: str) -> Any:
    """Compiles the class from the registry's text: the registry of the tests has no other
    form, for which the deserializer would ask.
    """
    text = client.get_latest_version(subject).schema.schema_str
    assert text is not None
    return ProtobufDeserializer(protobuf_class(text), {"use.deprecated.format": False})


def protobuf_class(text: str) -> Any:
    """The class of the first message of a .proto file."""
    types = compiled_text(text, (), "the test")
    return message_factory.GetMessageClass(
        message_type(types, name_at(types, (0,), "the test"), "the test")
    )


def members(message: Any) -> dict[str, Any] | None:
    """The fields of a Protobuf message; None where one isn't there that has presence."""
    if message is None:
        return None
    fields = message.DESCRIPTOR.fields
    return {
        f.name: (
            None if f.has_presence and not message.HasField(f.name) else getattr(message, f.name)
        )
        for f in fields
    }
