"""Schemas of a registry, with which producers wrote messages."""

from __future__ import annotations

import hashlib

import msgspec

MOST_CHARACTERS = 1 << 20
"""The maximum size of a schema with all its references, in characters. A larger one is refused."""

GLUE = "glue-"
"""Beginning of the id of a schema in AWS Glue; the UUID of the schema's version follows."""


class WriterSchema(msgspec.Struct, frozen=True):
    """A schema with all schemas that it refers to. An id always means the same schema.

    Attributes:
        id: the id in messages: a number or a GUID of the registry, or an id of AWS Glue.
        kind: `AVRO`, `PROTOBUF` or `JSON`.
        text: the text of the schema.
        references: name and text of each schema that it refers to. A schema comes after
            those that it refers to itself.
    """

    id: str
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """The length in characters, with the references."""
        return len(self.text) + sum(len(name) + len(text) for name, text in self.references)

    @property
    def digest(self) -> str:
        """SHA-256 of kind, text and references, by which a receipt names the schema."""
        return hashlib.sha256(
            msgspec.json.encode([self.kind, self.text, self.references])
        ).hexdigest()
