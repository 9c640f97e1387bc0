"""Readers of messages as consumers use: Confluent's own deserializers, or json."""

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
"""A function of the bytes and "key" or "value"; it returns the fields by name."""


def deserializer(form: str, client: SchemaRegistryClient, topic: str) -> Read:
    """Returns the deserializer of a format."""
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
    """Compiles the class from the .proto text in the registry.

    The deserializer would ask for a serialized descriptor, which the test registry doesn't
    have.
    """
    text = client.get_latest_version(subject).schema.schema_str
    assert text is not None
    return ProtobufDeserializer(protobuf_class(text), {"use.deprecated.format": False})


def protobuf_class(text: str) -> Any:
    """Returns the class of the first message in a .proto file."""
    types = compiled_text(text, (), "the test")
    return message_factory.GetMessageClass(
        message_type(types, name_at(types, (0,), "the test"), "the test")
    )


def members(message: Any) -> dict[str, Any] | None:
    """Returns the fields of a Protobuf message by name; None for an absent field with presence."""
    if message is None:
        return None
    fields = message.DESCRIPTOR.fields
    return {
        f.name: (
            None if f.has_presence and not message.HasField(f.name) else getattr(message, f.name)
        )
        for f in fields
    }
