"""A registry in memory, without HTTP: what a decoder is given in tests that are about decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow.ingest.model.writer_schema import WriterSchema


@dataclass(frozen=True)
class FixedRegistry:
    """Has some schemas, under any subject."""

    schemas: tuple[WriterSchema, ...] = ()

    def of_subject(self, subject: str, limit: int) -> list[WriterSchema]:
        return list(self.schemas)[:limit]

    def schema(self, id_: str) -> WriterSchema | None:
        return next((schema for schema in self.schemas if schema.id == id_), None)


def avro(*texts: str) -> Sequence[WriterSchema]:
    """Avro schemas with the ids 1, 2, ..."""
    return [WriterSchema(str(i + 1), "AVRO", text) for i, text in enumerate(texts)]


def framed(id_: int, payload: bytes) -> bytes:
    """A message that names a schema by its number."""
    return b"\x00" + id_.to_bytes(4, "big") + payload
