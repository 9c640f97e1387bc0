"""A schema registry in memory, without HTTP, for tests of decoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow.ingest.model.writer_schema import WriterSchema


@dataclass(frozen=True)
class FixedRegistry:
    """A registry that has the same schemas under each subject."""

    schemas: tuple[WriterSchema, ...] = ()

    def of_subject(self, subject: str, limit: int) -> list[WriterSchema]:
        return list(self.schemas)[:limit]

    def schema(self, id_: str) -> WriterSchema | None:
        return next((schema for schema in self.schemas if schema.id == id_), None)


def avro(*texts: str) -> Sequence[WriterSchema]:
    """Returns Avro schemas with the ids 1, 2, ..."""
    return [WriterSchema(str(i + 1), "AVRO", text) for i, text in enumerate(texts)]


def framed(id_: int, payload: bytes) -> bytes:
    """Returns a message that begins with the id of its schema."""
    return b"\x00" + id_.to_bytes(4, "big") + payload
