"""Forms of producers around rows are recognised, and read by the proposed settings."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from typing import Any

import pyarrow as pa
import pytest

from tests.infer.test_every_value import run

ROWS = [b'{"id": %d, "name": "a"}' % i for i in range(5)]
FIELDS = [{"field": "id", "type": "int32"}, {"field": "name", "type": "string"}]
SCHEMA = json.dumps({"type": "struct", "fields": FIELDS}).encode()
EVENT = b'{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": %s}'
FORMS: dict[str, tuple[list[bytes], dict[str, Any]]] = {
    "gzip": ([gzip.compress(row) for row in ROWS], {"codecs": ["gzip"]}),
    "zstd": (
        [bytes(pa.compress(row, codec="zstd", asbytes=True)) for row in ROWS],
        {"codecs": ["zstd"]},
    ),
    "zlib": ([zlib.compress(row) for row in ROWS], {"codecs": ["deflate"]}),
    "base64 of gzip": (
        [base64.b64encode(gzip.compress(row)) for row in ROWS],
        {"codecs": ["base64", "gzip"]},
    ),
    "JSON as a text": ([json.dumps(row.decode()).encode() for row in ROWS], {"codecs": ["json"]}),
    "an array": ([b"[" + b",".join(ROWS) + b"]"], {"rows": "array"}),
    "lines": ([b"\n".join(ROWS)], {"rows": "lines"}),
    "lines in gzip": (
        [gzip.compress(b"\n".join(ROWS))],
        {"codecs": ["gzip"], "rows": "lines"},
    ),
    "an object around the row": ([b'{"data": %s}' % row for row in ROWS], {"root": "data"}),
    "CloudEvents": ([EVENT % row for row in ROWS], {"root": "data"}),
    "Connect's schema": (
        [b'{"schema": %s, "payload": %s}' % (SCHEMA, row) for row in ROWS],
        {"schema_include": True},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_are_proposed(name: str) -> None:
    """Each form has the settings that make the same rows of it."""
    values, settings = FORMS[name]
    done = run([(None, value) for value in values])
    decode = done.settings.decode.model_dump(exclude_defaults=True)
    assert {name: decode.get(name) for name in settings} == {
        name: tuple(setting) if isinstance(setting, list) else setting
        for name, setting in settings.items()
    }
    rows = [row for of_message in done.rows for row in of_message or ()]
    assert rows == list(map(json.loads, ROWS))
    assert done.inferred.fit


def test_types_of_connects_schema() -> None:
    """The schema beside a row says the types: days become dates, not numbers."""
    date = {"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date"}
    document = {"schema": {"type": "struct", "fields": [date]}, "payload": {"day": 20458}}
    done = run([(None, json.dumps(document).encode())] * 3)
    assert str(done.rows[0]) == "[{'day': datetime.date(2026, 1, 5)}]"


def test_what_is_beside_a_root_is_told() -> None:
    """A hint names the fields of an event beside its data."""
    done = run([(None, EVENT % row) for row in ROWS])
    assert "id, source, specversion, type beside data" in " ".join(done.inferred.notes)


@pytest.mark.parametrize(
    "value", [b'{"a": {"b": 1}, "c": 1}', b'{"2026": {"01": 1}}', b'{"data": {}, "a": 1}']
)
def test_other_objects_stay_columns(value: bytes) -> None:
    """An object beside other fields, or one whose keys are data, is a column, not the root."""
    done = run([(None, value)] * 3, format="json")
    assert "root" not in done.settings.decode.model_dump(exclude_defaults=True)
