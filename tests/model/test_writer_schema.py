"""The digest of a writer's schema covers all its contents and nothing else."""

from __future__ import annotations

import pytest

from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.writer_schema import WriterSchema

SCHEMA = WriterSchema("7", "AVRO", '"grün"', (("a.B", "{}"), ("c", "")))


def test_its_digest_stays() -> None:
    """The digest never changes, because receipts keep it.

    It doesn't cover the id, because a GUID names the same schema.
    """
    assert SCHEMA.digest == "63ae256c3c356fa6713397d14f33cd24ef7101d5b747772d2707e8888548ba77"
    assert (
        WriterSchema(
            "x", *(getattr(SCHEMA, name) for name in ("kind", "text", "references"))
        ).digest
        == SCHEMA.digest
    )


@pytest.mark.parametrize(
    "other_schema",
    [
        WriterSchema("7", "JSON", '"grün"', SCHEMA.references),
        WriterSchema("7", "AVRO", '"grun"', SCHEMA.references),
        WriterSchema("7", "AVRO", '"grün"', SCHEMA.references[:1]),
        WriterSchema("7", "AVRO", '"grün"', SCHEMA.references[::-1]),
        WriterSchema("7", "AVRO", '"grün"', (("a.B", "{}"), ("d", ""))),
        WriterSchema("7", "AVRO", '"grün"'),
    ],
)
def test_another_schema_has_another_digest(other_schema: WriterSchema) -> None:
    """Another kind, text or reference, or another order of references, has another digest."""
    assert other_schema.digest != SCHEMA.digest


def test_its_size() -> None:
    """The size is the number of characters of the schema and its references, with their names."""
    assert (SCHEMA.size, WriterSchema("7", "AVRO", "").size) == (6 + 3 + 2 + 1, 0)


def test_it_survives() -> None:
    """A schema is the same after it is written as JSON and read back."""
    assert from_json(to_json(SCHEMA), WriterSchema) == SCHEMA
