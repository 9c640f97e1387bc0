"""Columns that are inferred from Protobuf schemas.

Each column can come from the message type. Each field without a column is left out with a
reason.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.formats.protobuf.schemas import random_schema
from tests.infer.models import columns_of, describe_columns, reason_by_field
from windrow.ingest.formats.confluent.payloads import ProtobufPayloads
from windrow.ingest.formats.protobuf.fields import reader
from windrow.ingest.infer.protobuf import candidates_of_type, protobuf_candidates
from windrow.ingest.model.writer_schema import WriterSchema

SCHEMA = WriterSchema(
    "7",
    "PROTOBUF",
    """\
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "other.proto";
enum Kind { NONE = 0; SOME = 1; }
message Empty {}
message Sale {
  // Of the sale,
  // for ever.
  int64 id = 1;
  uint32 pieces = 2;
  optional string note = 3;
  Kind kind = 4;
  google.protobuf.Timestamp at = 5;
  google.protobuf.DoubleValue weight = 6;
  repeated string tags = 7;
  map<string, int32> counts = 8;
  map<int32, string> names = 9;
  message To { int32 zip = 1;  // Its code
 map<string, int32> inner = 2; }
  To to = 10;
  Sale before = 11;
  Empty empty = 12;
  other.Place place = 13;
}
""",
    (("other.proto", 'syntax = "proto3"; package other; message Place { float north = 1; }'),),
)


def test_types_are_the_schemas(tmp_path: Path) -> None:
    """Each Protobuf type becomes a column that holds it.

    A column is nullable if Protobuf can tell that the field is missing.
    """
    candidates = protobuf_candidates(SCHEMA, (1,))
    assert describe_columns(candidates, tmp_path) == {
        "id": "int64 not null",
        "pieces": "int64 not null",
        "note": "string",
        "kind": "string not null",
        "at": "timestamp[us, tz=UTC]",
        "weight": "double",
        "tags": "list<item: string> not null",
        "counts": "map<string, int32> not null",
        "names": "list<item: struct<key: int32, value: string>> not null",
        "to": "struct<zip: int32, inner: list<item: struct<key: string, value: int32>>>",
        "place": "struct<north: float>",
    }
    assert reason_by_field(candidates) == {
        "before": "the message shop.Sale holds itself",
        "empty": "it has no fields",
    }
    columns = columns_of(candidates, tmp_path)
    assert ProtobufPayloads().misfits(SCHEMA, (1,), columns, None) == {}


def test_what_the_schema_says_of_a_field_is_a_comment(tmp_path: Path) -> None:
    """A comment before or after a field becomes the column's comment, also in a nested message."""
    columns_of(protobuf_candidates(SCHEMA, (1,)), tmp_path)
    assert "    id: pl.Int64  # Of the sale, for ever.\n" in (tmp_path / "schema.py").read_text()
    assert {
        candidate.name: candidate.doc.strip() for candidate in protobuf_candidates(SCHEMA, (1, 2))
    } == {
        "zip": "Its code",
        "inner": "",
    }


@pytest.mark.parametrize("part", range(15))
def test_any_column_can_come_from_its_type(part: int, tmp_path: Path, dice: random.Random) -> None:
    """The file that is written for a random message type loads, and its columns fit the type."""
    kind = random_schema(dice).kind
    candidates = candidates_of_type(kind)
    if any(candidate.usable for candidate in candidates):
        assert reader(kind, columns_of(candidates, tmp_path), "null")
