"""A schema as a registry has it: what the writer of some messages wrote them with."""

from __future__ import annotations

import hashlib

import msgspec

MOST_CHARACTERS = 1 << 20
"""Of a schema with all that it refers to; a larger one is not taken."""


class WriterSchema(msgspec.Struct, frozen=True):
    """A schema with all that it refers to. An id means one schema for ever.

    `id`: what messages name it by, a number of the registry's or a GUID. `kind`:
    `AVRO`, `PROTOBUF` or `JSON`. `references`: the names that it has for other schemas,
    and their texts, each behind those that it refers to itself.
    """

    id: str
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """How long it is, in characters."""
        return len(self.text) + sum(len(name) + len(text) for name, text in self.references)

    @property
    def digest(self) -> str:
        """Of all of it: what a receipt tells it by."""
        return hashlib.sha256(
            msgspec.json.encode([self.kind, self.text, self.references])
        ).hexdigest()
