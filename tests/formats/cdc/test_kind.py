"""The options of the formats of change events."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.formats.cdc.formats import decoder_of
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.kinds import FORMATS
from windrow.ingest.settings.kinds import section_at


@pytest.mark.parametrize(
    ("name", "decode", "says"),
    [
        ("debezium-json", {"envelope": {"op": ""}}, "at least 1 item"),
        (
            "debezium-json",
            {"envelope": {"op": "source..ts_ms"}},
            "must be a field, or one inside another",
        ),
        (
            "debezium-json",
            {"envelope": {"a": "source", "b": "source.ts_ms"}},
            "a field becomes one column, whole or in parts",
        ),
        (
            "debezium-json",
            {"envelope": {"a": "op", "b": "op"}},
            "op and op: a field becomes one column",
        ),
        (
            "debezium-json",
            {"envelope": {"op": "op"}, "headers": {"op": "x"}},
            "op: comes from the key or a header already",
        ),
        (
            "debezium-json",
            {"envelope": {"op": "op"}, "key": {"fields": ["op"]}},
            "op: comes from the key or a header already",
        ),
        ("debezium-json", {"unknown": "dead"}, "'ignore' or 'keep'"),
        ("canal-json", {"schema_include": True}, "unknown key"),
    ],
)
def test_what_does_not_go_together(name: str, decode: dict[str, Any], says: str) -> None:
    """Options that contradict each other are refused when the spec is read."""
    with pytest.raises(ValidationError) as refused:
        section_at(FORMATS[name]).model_validate({"format": name, "schema": "a.b:C", **decode})
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("name", "model", "primary_key", "decode", "says"),
    [
        ("debezium-json", "Bytes", (), {}, "no bytes: after.photo"),
        ("debezium-json", "Bytes", (), {"schema_include": True}, "no bytes: payload.after.photo"),
        ("canal-json", "Bytes", (), {}, "no bytes: data"),
        (
            "maxwell-json",
            "Part",
            (),
            {"table_include": "(?=a)"},
            "decode.table_include is not a regular expression of RE2",
        ),
        (
            "canal-json",
            "Part",
            (),
            {"database_include": "("},
            "decode.database_include is not a regular expression of RE2",
        ),
        (
            "maxwell-json",
            "Part",
            (),
            {"table_include": "a)|(b"},
            "decode.table_include is not a regular expression of RE2",
        ),
        (
            "debezium-json",
            "Part",
            (),
            {"envelope": {"op": "op"}},
            "decode.envelope names op, which the schema doesn't have",
        ),
        (
            "canal-json",
            "Bare",
            (),
            {"envelope": {"id": "type"}},
            "no column of the schema is left",
        ),
        (
            "debezium-json",
            "Part",
            ("id",),
            {"envelope": {"id": "source.pos"}},
            "The primary key has no column of the changed row",
        ),
    ],
)
def test_what_does_not_fit_the_schema(
    name: str, model: str, primary_key: tuple[str, ...], decode: dict[str, Any], says: str
) -> None:
    """Options that don't fit the model raise SpecError before anything is read."""
    with pytest.raises(SpecError) as refused:
        _ = decoder_of(name, model, primary_key, **decode).columns
    assert says in refused.value.message


def test_each_option_counts() -> None:
    """Each option changes the decoder; none is accepted and then ignored."""
    options: dict[str, dict[str, Any]] = {
        "json": {"dates": "epoch_days", "decimal_format": "base64"},
        "json-schema-confluent": {"dates": "epoch_days", "decimal_format": "base64"},
        "debezium-json": {
            "schema_include": True,
            "dates": "iso-8601",
            "decimal_format": "base64",
            "timestamps": "epoch_ms",
            "on_null": "dead",
            "envelope": {"op": "op"},
            "database_include": "a",
            "table_include": "a",
            "unavailable": "null",
            "flattened": True,
        },
        "canal-json": {
            "timestamps": "iso-8601",
            "coerce": "strict",
            "database_include": "a",
            "table_include": "a",
            "on_null": "dead",
        },
        "maxwell-json": {
            "timestamps": "iso-8601",
            "coerce": "lenient",
            "database_include": "a",
            "table_include": "a",
            "on_null": "dead",
        },
    }
    for name, settings in options.items():
        plain = decoder_of(name, "Customer")
        assert [
            option
            for option, value in settings.items()
            if decoder_of(name, "Customer", **{option: value}) == plain
        ] == []
