"""A schema of a registry, with which the writer of some messages wrote them."""

from __future__ import annotations

import hashlib

import msgspec

MOST_CHARACTERS = 1 << 20
"""The largest size of a schema with all its references; a larger one is refused."""


class WriterSchema(msgspec.Struct, frozen=True):
    """A schema with all schemas that it refers to. An id means the same schema for ever.

    `id`: what messages name it by, a number or a GUID of the registry. `kind`: `AVRO`,
    `PROTOBUF` or `JSON`. `references`: name and text of each schema that it refers to;
    each comes after those that it refers to itself.
    """

    id: str
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """Its length in characters, with its references."""
        return len(self.text) + sum(len(name) + len(text) for name, text in self.references)

    @property
    def digest(self) -> str:
        """SHA-256 of kind, text and references, by which a receipt names the schema."""
        return hashlib.sha256(
            msgspec.json.encode([self.kind, self.text, self.references])
        ).hexdigest()
