"""Fields without a column are counted in every format, and the first ones are named."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.formats.avro.wire import varint
from windrow.ingest.config.load import parse_spec
from windrow.ingest.formats.json.decoder import DOCUMENT as ENCODING
from windrow.ingest.formats.kinds import make_decoder
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.runner.task import MOST_BYTES, MOST_FIELDS, OTHERS, IgnoredFields
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import messages_with

MODEL = """
import pandera.polars as pa
import polars as pl


class Row(pa.DataFrameModel):
    id: pl.Int64
    at: pl.Struct({"x": pl.Int64}) = pa.Field(nullable=True)
    lines: pl.List(pl.Struct({"x": pl.Int64})) = pa.Field(nullable=True)
    by: pl.List(pl.Struct({"key": pl.String, "value": pl.Struct({"x": pl.Int64})})) = pa.Field(
        nullable=True, metadata={"map": True}
    )


class Keyed(pa.DataFrameModel):
    id: pl.Int64
    v: pl.Int64 = pa.Field(nullable=True)
"""
DOCUMENT = {
    "id": 1,
    "at": {"x": 1, "y": 2},
    "lines": [{"x": 1}, {"x": 1, "z": {"x": 3}}],
    "by": {"k": {"x": 1, "w": 1}},
    "new": {"id": 3},
}
PATHS = {"at.y": 1, "lines.z": 1, "by.*.w": 1, "new": 1}
PLAIN = {"id": 1, "at": {"x": 1}, "lines": [], "by": {"k": {"x": 2}}}
EVENT = {"op": "c", "source": {"db": "d", "table": "customers"}, "before": None}
FILES = {
    "row.avsc": json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "id", "type": "long"},
                {
                    "name": "at",
                    "type": [
                        "null",
                        {
                            "type": "record",
                            "name": "A",
                            "fields": [{"name": n, "type": "long"} for n in "xy"],
                        },
                    ],
                },
                {"name": "lines", "type": {"type": "array", "items": "A"}},
                {
                    "name": "by",
                    "type": {
                        "type": "map",
                        "values": {
                            "type": "record",
                            "name": "B",
                            "fields": [{"name": n, "type": "long"} for n in "xw"],
                        },
                    },
                },
                {"name": "new", "type": "double"},
            ],
        }
    ),
    "row.proto": """
        syntax = "proto3";
        message Row {
          message At { int64 x = 1; int64 y = 2; }
          int64 id = 1; At at = 2; repeated At lines = 3; map<string, At> by = 4; double new = 5;
        }
    """,
}


def _avro(binary: bytes = b"\0") -> bytes:
    return varint(1) + b"\0\0" + binary + struct.pack("<d", 1)


def _json(*documents: Any) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


CASES: dict[str, tuple[dict[str, Any], list[bytes], list[bytes | None], int, dict[str, int]]] = {
    "json": (
        {"format": "json"},
        _json(DOCUMENT, PLAIN, {"new": 1}, {**PLAIN, "big": 10**30}),
        [],
        2,
        PATHS | {"big": 1},
    ),
    "json, strictly": (
        {"format": "json", "coerce": "lenient"},
        _json({**DOCUMENT, "id": "1"}, {**PLAIN, "id": "2"}),
        [],
        1,
        PATHS,
    ),
    "json, refused": ({"format": "json", "unknown": "dead"}, _json(DOCUMENT, PLAIN), [], 0, {}),
    "keys": (
        {
            "format": "json",
            "schema": "m.py:Keyed",
            "key": {"fields": ["id"]},
            "fields_include": "except_key",
        },
        _json({"v": 1}, {"v": 1, "w": 1}),
        [b'{"id": 1, "more": 2}', b'{"id": 1}'],
        2,
        {"key:more": 1, "w": 1},
    ),
    "debezium-json": (
        {"format": "debezium-json"},
        _json(
            {**EVENT, "after": DOCUMENT},
            {**EVENT, "after": PLAIN},
            {**EVENT, "op": "d", "before": PLAIN, "after": None},
        ),
        [],
        1,
        PATHS,
    ),
    "canal-json": (
        {"format": "canal-json", "schema": "m.py:Keyed"},
        _json(
            {
                "type": "INSERT",
                "isDdl": False,
                "data": [{"id": "1"}, {"id": "2", "new": "1"}],
                "database": "d",
                "es": 1,
            }
        ),
        [],
        1,
        {"new": 1},
    ),
    "avro": (
        {"format": "avro", "writer_schema": "row.avsc"},
        [_avro(), b"no", _avro()],
        [],
        2,
        {"at.y": 2, "lines.y": 2, "by.*.w": 2, "new": 2},
    ),
    "protobuf": (
        {"format": "protobuf", "descriptor": "row.proto", "message": "Row"},
        [
            bytes([8, 1, 18, 4, 8, 1, 16, 0, 26, 2, 8, 1]),  # at.y is the zero of its type
            bytes([8, 1, 56, 9, 34, 9, 10, 1, 65, 18, 4, 8, 1, 40, 1, 26, 2, 16, 1]),
            bytes([8, 1, 18, 2, 8, 1]),
        ],
        [],
        2,
        {"at.y": 1, "7": 1, "by.*.5": 1, "lines.y": 1},
    ),
    "csv": ({"format": "csv", "schema": "m.py:Keyed"}, [b"1,2", b"1,2,3"], [], 0, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_messages_with_fields_that_no_column_is_for(case: str, tmp_path: Path) -> None:
    """Messages with fields without a column are counted, except refused ones, by both decoders.

    Paths begin at the row, and have no keys of maps. Fields beside a change's row don't count.
    """
    decode, values, keys, count, fields = CASES[case]
    for name, text in {"m.py": MODEL, **FILES}.items():
        (tmp_path / name).write_text(text)
    spec = parse_spec(
        {
            "id": "a",
            "source": {"bootstrap_servers": "127.0.0.1:1", "topic": "customers"},
            "window": {"grid": "batch"},
            "decode": {"schema": "m.py:Row", **decode},
            "sink": {"path": "data"},
        },
        tmp_path,
    )
    messages = messages_with(values, keys or None)
    ignored = IgnoredFields()
    ignored.add(
        messages, make_decoder(spec.decode, tmp_path, (), keeps_unavailable=False).open()(messages)
    )
    assert (ignored.messages, dict(ignored.fields)) == (count, fields)


def _count_ignored(
    documents: list[dict[str, Any]], ignored: IgnoredFields, folder: Path
) -> IgnoredFields:
    (folder / "m.py").write_text(MODEL)
    messages = messages_with(_json(*({"id": 1, **document} for document in documents)))
    ignored.add(
        messages, RowDecoder(ModelReference("m.py:Keyed", folder), ENCODING).open()(messages)
    )
    return ignored


def test_what_is_named_is_bounded(tmp_path: Path) -> None:
    """The named fields are limited per split, by messages, bytes, fields and characters.

    Every message counts.
    """
    many_messages = _count_ignored([{"a": 1}] * 700, IgnoredFields(), tmp_path)
    many_messages = _count_ignored([{"b": 1}] * 700, many_messages, tmp_path)
    assert (many_messages.messages, dict(many_messages.fields)) == (1400, {"a": 700, "b": 300})
    large = _count_ignored([{"a": "x" * (MOST_BYTES // 2)}] * 3, IgnoredFields(), tmp_path)
    large = _count_ignored([{"a": 1}], large, tmp_path)
    assert (large.messages, dict(large.fields)) == (4, {"a": 2})
    wide = _count_ignored([{f"n{i:02}": 1 for i in range(25)}] * 2, IgnoredFields(), tmp_path)
    assert (len(wide.fields), wide.fields["n19"], wide.fields[OTHERS]) == (MOST_FIELDS + 1, 2, 10)
    assert max(map(len, _count_ignored([{"x" * 999: 1}], IgnoredFields(), tmp_path).fields)) == 100
