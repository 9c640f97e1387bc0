"""Columns that are inferred from Avro schemas.

Each column can come from the schema. Each field without a column is left out with a reason.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.avro.schemas import random_schema
from tests.infer.models import columns_of, describe_columns, reason_by_field
from windrow.ingest.formats.confluent.payloads import AvroPayloads
from windrow.ingest.infer.avro import avro_candidates
from windrow.ingest.infer.candidates import over_versions
from windrow.ingest.model.writer_schema import WriterSchema


def writer_schema(schema: Any, *references: Any) -> WriterSchema:
    """Returns a schema as a registry returns it."""
    return WriterSchema(
        "7",
        "AVRO",
        json.dumps(schema),
        tuple((f"r{i}", json.dumps(r)) for i, r in enumerate(references)),
    )


def record(**fields: Any) -> dict[str, Any]:
    """Returns a record with fields of these types."""
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


ANY_SCALE = {
    "type": "record",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}


def logical_type(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """Returns a logical type."""
    return {"type": kind, "logicalType": name, **more}


TYPES: dict[str, tuple[Any, str]] = {
    "plain": ("long", "int64 not null"),
    "small": ("int", "int32 not null"),
    "perhaps": (["null", "string"], "string"),
    "connect_money": (
        logical_type("bytes", "decimal", precision=64, scale=2),
        "decimal128(38, 2) not null",
    ),
    "zoned": (
        {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
        "timestamp[us, tz=UTC] not null",
    ),
    "money": (logical_type("bytes", "decimal", precision=9, scale=2), "decimal128(9, 2) not null"),
    "fixed_money": (
        {"type": "fixed", "name": "M", "size": 8, "logicalType": "decimal", "precision": 9},
        "decimal128(9, 0) not null",
    ),
    "at": (logical_type("long", "timestamp-millis"), "timestamp[us, tz=UTC] not null"),
    "day": (["null", logical_type("int", "date")], "date32[day]"),
    "clock": (logical_type("long", "time-micros"), "int64 not null"),
    "wall": (logical_type("long", "local-timestamp-micros"), "int64 not null"),
    "uuid": (logical_type("string", "uuid"), "string not null"),
    "kind": ({"type": "enum", "name": "K", "symbols": ["A", "B"]}, "string not null"),
    "hash": ({"type": "fixed", "name": "H", "size": 4}, "binary not null"),
    "tags": ({"type": "array", "items": "string"}, "list<item: string> not null"),
    "counts": ({"type": "map", "values": "int"}, "map<string, int32> not null"),
    "inner": (
        {"type": "array", "items": {"type": "map", "values": "int"}},
        "list<item: list<item: struct<key: string, value: int32>>> not null",
    ),
    "to": (
        ["null", {"type": "record", "name": "To", "fields": [{"name": "zip", "type": "int"}]}],
        "struct<zip: int32>",
    ),
    "wide": (["int", "long"], "int64 not null"),
    "either": (["string", "int"], "struct<string: string, int: int32> not null"),
    "fine": (["null", "float", "double"], "double"),
}


def test_types_are_the_schemas(tmp_path: Path) -> None:
    """Each Avro type becomes a column that holds it exactly. Null makes the column nullable."""
    candidates = avro_candidates(
        writer_schema(record(**{name: kind for name, (kind, _) in TYPES.items()})), "value"
    )
    assert describe_columns(candidates, tmp_path) == {
        name: expected for name, (_, expected) in TYPES.items()
    }


NEVER: dict[str, tuple[Any, str]] = {
    "nothing": ("null", "no value of it has a byte"),
    "huge": (logical_type("bytes", "decimal", precision=50, scale=40), "a decimal of 50 digits"),
    "any_scale": (ANY_SCALE, "a decimal whose scale is in each message"),
    "ID": ("int", "differs from 'id' by case only"),
}


def test_what_no_column_can_hold_is_left_out(tmp_path: Path) -> None:
    """A field that no column can hold is left out, and the file has the reason.

    The other fields are columns.
    """
    candidates = avro_candidates(
        writer_schema(record(id="int", **{name: kind for name, (kind, _) in NEVER.items()})),
        "value",
    )
    assert list(describe_columns(candidates, tmp_path)) == ["id"]
    reasons = reason_by_field(candidates)
    assert {name: reason in reasons[name] for name, (_, reason) in NEVER.items()} == dict.fromkeys(
        NEVER, True
    )
    assert "# left out: 'nothing': no value of it has" in (tmp_path / "schema.py").read_text()


def test_what_the_schema_says_of_a_field_is_a_comment(tmp_path: Path) -> None:
    """The doc of a field is a comment on the column's line, whatever characters it has."""
    schema = record(id="int")
    schema["fields"][0]["doc"] = "The order's id\nimport os\u2028x = 1\x00"
    assert describe_columns(avro_candidates(writer_schema(schema), "value"), tmp_path) == {
        "id": "int32 not null"
    }
    assert (
        "    id: pl.Int32  # The order's id import os x = 1\n"
        in (tmp_path / "schema.py").read_text()
    )


def test_a_schema_that_is_no_record_is_one_column(tmp_path: Path) -> None:
    """A schema that is no record becomes one column. Keys are often strings."""
    assert describe_columns(avro_candidates(writer_schema("string"), "key"), tmp_path) == {
        "key": "string not null"
    }


def test_types_of_other_schemas_are_found(tmp_path: Path) -> None:
    """Types of referenced schemas are found."""
    candidates = avro_candidates(
        writer_schema(
            record(to="To"),
            {"type": "record", "name": "To", "fields": [{"name": "zip", "type": "int"}]},
        ),
        "value",
    )
    assert describe_columns(candidates, tmp_path) == {"to": "struct<zip: int32> not null"}


def test_what_an_older_version_lacks_may_be_null(tmp_path: Path) -> None:
    """A field that an older version lacks, or may have as null, is nullable.

    Messages of each version must fit.
    """
    newest = avro_candidates(writer_schema(record(a="int", b="int", c="int")), "value")
    older = [
        avro_candidates(writer_schema(schema), "value")
        for schema in (record(a="int", b="int"), record(a="int", b=["null", "int"], c="int"))
    ]
    assert describe_columns(over_versions(newest, older), tmp_path) == {
        "a": "int32 not null",
        "b": "int32",
        "c": "int32",
    }


def test_the_newest_default_is_the_value_of_older_messages(tmp_path: Path) -> None:
    """The default of the newest version is the value of messages of older versions.

    Avro's readers use it if a writer's schema lacks the field. Fields that only older versions
    have are left out with a reason, at any depth.
    """
    newest = record(a="int", cur="string", big="long", sub={**record(x="int"), "name": "I"})
    newest["fields"][1]["default"] = "EUR"
    newest["fields"][2]["default"] = 7
    inner = {**record(x="int", gone="int"), "name": "I"}
    older = [record(a="int", big="long", old="string", sub=inner)]
    merged = over_versions(
        avro_candidates(writer_schema(newest), "value"),
        [avro_candidates(writer_schema(schema), "value") for schema in older],
    )
    columns = {column.name: column for column in columns_of(merged, tmp_path).columns}
    assert [(name, column.nullable, column.default) for name, column in columns.items()] == [
        ("a", False, None),
        ("cur", False, pa.scalar("EUR")),
        ("big", False, None),
        ("sub", False, None),
    ]
    assert reason_by_field(merged) == dict.fromkeys(
        ("old", "sub.gone"), "only older versions of the schema have it"
    )


def test_a_field_of_several_records_takes_the_values_of_all() -> None:
    """A field of several records has a type that holds the values of all.

    It is left out if there is no such type. A field of only one record is left out too.
    """
    first_record = {**record(at="int", n="int", sub={**record(x="int"), "name": "S1"}), "name": "A"}
    second_record = {
        **record(at="string", n="long", sub={**record(x="int", y="int"), "name": "S2"})
    }
    schema = WriterSchema("7", "AVRO", json.dumps([first_record, {**second_record, "name": "B"}]))
    guess_by_name = {
        candidate.name: candidate.guess for candidate in avro_candidates(schema, "value")
    }
    assert {name: str(guess.type) for name, guess in guess_by_name.items()} == {
        "at": "None",
        "n": "int64",
        "sub": "struct<x: int32>",
    }
    assert guess_by_name["sub"].omitted == (("y", "only some types of the union have it"),)


def test_a_page_of_text_is_no_million_types() -> None:
    """A schema whose nested records double at each level is refused in bounded time."""
    nested: Any = "int"
    for depth in range(18):
        nested = {
            "type": "record",
            "name": f"R{depth}",
            "fields": [
                {"name": "x", "type": nested},
                {"name": "y", "type": f"R{depth - 1}" if depth else "int"},
            ],
        }
    (candidate,) = avro_candidates(writer_schema(record(deep=nested)), "value")
    assert any("more than 5,000 types" in reason for _, reason in candidate.guess.omitted)


def test_a_page_of_types_in_a_union() -> None:
    """The common type of a large union is computed once for each type that a column can have."""
    kinds = [
        {"type": "record", "name": f"r{n}", "fields": [{"name": "x", "type": "long"}]}
        for n in range(4_900)
    ]
    (candidate,) = avro_candidates(
        writer_schema({"type": "record", "name": "R", "fields": [{"name": "u", "type": kinds}]}),
        "value",
    )
    assert str(candidate.guess.type) == "struct<x: int64>"


def test_a_page_of_fields_of_one_enum() -> None:
    """Each field of a large enum keeps only as many symbols as fit into a comment."""
    enum = {"type": "enum", "name": "E", "symbols": [f"s{n}" for n in range(20_000)]}
    candidates = avro_candidates(
        writer_schema(record(e=enum, **{f"f{n}": "E" for n in range(4_000)})), "value"
    )
    assert sum(len(candidate.guess.note) for candidate in candidates) < 4_001 * 3_000


@pytest.mark.parametrize("part", range(25))
def test_any_column_can_come_from_its_schema(
    part: int, tmp_path: Path, dice: random.Random
) -> None:
    """The file that is written for a random schema loads, and its columns fit the schema."""
    schema = writer_schema(random_schema(dice).avro)
    candidates = avro_candidates(schema, "value")
    if any(candidate.usable for candidate in candidates):
        columns = columns_of(candidates, tmp_path)
        assert AvroPayloads().misfits(schema, (), columns, None) == {}
