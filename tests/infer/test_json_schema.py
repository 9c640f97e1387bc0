"""Columns that are inferred from JSON Schemas, as far as a schema describes the documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.infer.models import describe_columns, reason_by_field
from windrow.ingest.errors import SpecError
from windrow.ingest.infer.json_schema import json_candidates
from windrow.ingest.model.writer_schema import WriterSchema


def writer_schema(schema: Any, **references: Any) -> WriterSchema:
    """Returns a schema as a registry returns it."""
    return WriterSchema(
        "7",
        "JSON",
        json.dumps(schema),
        tuple((name, json.dumps(text)) for name, text in references.items()),
    )


SCHEMA = {
    "type": "object",
    "required": ["id", "at", "nothing", "to"],
    "properties": {
        "id": {"type": "integer", "description": "The order's id"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "ok": {"type": ["boolean", "null"]},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "to": {"$ref": "#/definitions/Place"},
        "home": {"$ref": "place"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "both": {"type": ["string", "integer"]},
        "open": {"type": "object"},
        "untold": {},
        "node": {"$ref": "#/definitions/Node"},
        "lost": {"$ref": "#/definitions/Lost"},
    },
    "definitions": {
        "Place": {"type": "object", "properties": {"zip": {"type": "integer"}}},
        "Node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/Node"}}},
    },
}


def test_types_are_the_schemas(tmp_path: Path) -> None:
    """A property is nullable if it isn't required or may be null.

    A property without a type is left out with a reason.
    """
    candidates = json_candidates(
        writer_schema(SCHEMA, place={"type": "object", "properties": {"city": {"type": "string"}}})
    )
    assert describe_columns(candidates, tmp_path) == {
        "id": "int64 not null",
        "at": "timestamp[us, tz=UTC] not null",
        "day": "date32[day]",
        "price": "double",
        "ok": "bool",
        "kind": "string",
        "to": "struct<zip: int64> not null",
        "home": "struct<city: string>",
        "tags": "list<item: string>",
        "counts": "map<string, int64>",
        "either": "string",
        "both": "string",
    }
    assert reason_by_field(candidates) == {
        "open": "it doesn't say which properties it has",
        "untold": "it has no type",
        "node": "'next': '#/definitions/Node' holds itself",
        "lost": "it has no type",
    }
    assert "id: pl.Int64  # The order's id" in (tmp_path / "schema.py").read_text()


def test_types_are_held_against_what_was_sampled() -> None:
    """The types of a schema are compared with the sample, at any depth and through references.

    A text that is no instant stays a text, a number keeps its digits, and missing types are
    inferred.
    """
    local = {"type": "string", "format": "date-time"}
    schema = {
        "type": "object",
        "required": ["x"],
        "properties": {
            "a": {
                "type": "object",
                "properties": {"t": local, "u": local, "later": {**local, "format": "date"}},
            },
            "all": {"type": "array", "items": local},
            "ref": {"$ref": "#/$defs/Ref"},
            "x": {"type": "number"},
            "open": {"type": "object"},
        },
        "$defs": {"Ref": {"type": "object", "properties": {"t": local}}},
    }
    naive, zoned = "2026-01-05T09:00:00", "2026-01-05T09:00:00Z"
    documents = [
        {"a": {"t": naive, "u": zoned, "more": 1}, "all": [naive], "ref": {"t": naive}},
        {"x": b"0.123456789012345678", "open": {"n": 1}, "more": True},
    ]
    candidates = json_candidates(writer_schema(schema), documents)
    assert {
        candidate.name: (str(candidate.guess.type), candidate.nullable) for candidate in candidates
    } == {
        "a": (
            "struct<t: string, u: timestamp[us, tz=UTC], later: date32[day], more: int64>",
            True,
        ),
        "all": ("list<item: string>", True),
        "ref": ("struct<t: string>", True),
        "x": ("decimal128(38, 18)", True),
        "open": ("struct<n: int64>", True),
        "more": ("bool", True),
    }


@pytest.mark.parametrize(
    "schema",
    [{}, {"type": "string"}, [], {"type": "object", "properties": {}}, {"$ref": "#"}, True],
)
def test_what_says_nothing_is_refused(schema: Any) -> None:
    """A schema that describes nothing is refused. The advice is to infer from the messages."""
    with pytest.raises(SpecError) as refused:
        json_candidates(writer_schema(schema))
    assert "--format json-schema-confluent" in refused.value.advice


@pytest.mark.parametrize("enum", [7, True, {"a": 1}, [1, None]])
def test_what_is_no_list_of_words_stops_nothing(enum: object) -> None:
    """An invalid enum in a schema is ignored, and the field is a text."""
    (candidate,) = json_candidates(
        writer_schema({"type": "object", "properties": {"a": {"type": "string", "enum": enum}}})
    )
    assert (str(candidate.guess.type), candidate.guess.note) == ("string", "")


def test_a_page_of_fields_of_one_enum() -> None:
    """Each field of a large enum keeps only as many words as fit into a comment."""
    properties = {f"f{n}": {"$ref": "#/enum"} for n in range(4_000)}
    candidates = json_candidates(
        writer_schema(
            {
                "properties": properties,
                "enum": {"type": "string", "enum": [f"s{n}" for n in range(20_000)]},
            }
        )
    )
    assert sum(len(candidate.guess.note) for candidate in candidates) < 4_000 * 3_000
