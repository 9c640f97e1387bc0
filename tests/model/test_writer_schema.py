"""A writer's schema: its digest is of all that it is, and of nothing else."""

from __future__ import annotations

import pytest

from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.writer_schema import WriterSchema

SCHEMA = WriterSchema("7", "AVRO", '"grün"', (("a.B", "{}"), ("c", "")))


def test_its_digest_stays() -> None:
    """Receipts keep it for ever, so it is never another one; the id is not in it, for a
    GUID names the same schema.
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
    """In whatever it differs: kind, text, what it refers to, and in which order."""
    assert other_schema.digest != SCHEMA.digest


def test_its_size() -> None:
    """Characters of it and of all that it refers to, with their names."""
    assert (SCHEMA.size, WriterSchema("7", "AVRO", "").size) == (6 + 3 + 2 + 1, 0)


def test_it_survives() -> None:
    """As JSON and back."""
    assert from_json(to_json(SCHEMA), WriterSchema) == SCHEMA
