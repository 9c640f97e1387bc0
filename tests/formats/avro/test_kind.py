"""How a spec states the Avro writer's schema: as a mapping, as JSON text or as a file's name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from windrow.ingest.formats.avro.kind import AvroSection

UNION = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": [None, {"type": "array", "items": None}]}],
}


def written(schema: Any) -> str:
    return AvroSection.model_validate(
        {"format": "avro", "schema": "a.b:C", "writer_schema": schema}
    ).writer_schema


def test_a_mapping_is_kept_as_json() -> None:
    """A schema that is a mapping is kept as JSON, and its type null keeps its name.

    YAML reads null as None.
    """
    named = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": ["null", {"type": "array", "items": "null"}]}],
    }
    assert json.loads(written(UNION)) == named


@pytest.mark.parametrize(
    "text", ["order.avsc", json.dumps({"type": "record", "name": "R", "fields": []})]
)
def test_a_text_stays_as_it_is(text: str) -> None:
    """A schema that is a text (a file's name or JSON) is kept unchanged."""
    assert written(text) == text


@pytest.mark.parametrize("schema", [None, 7, "", " ", {"a": {1, 2}}])
def test_what_can_be_no_schema(schema: Any) -> None:
    """A writer's schema that can't be valid is refused when the spec is read."""
    with pytest.raises(ValidationError, match="writer_schema"):
        written(schema)
