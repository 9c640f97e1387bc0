"""A schema is parsed by Avro's specification. An error names the place of the fault."""

from __future__ import annotations

import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.formats.avro.schemas import random_schema
from tests.formats.avro.wire import varint
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.decoder import avro_batch_decoder
from windrow.ingest.formats.avro.schema import (
    MOST_NESTED,
    ArrayType,
    EnumType,
    FixedType,
    Logical,
    MapType,
    NamedReference,
    PrimitiveType,
    UnionType,
    parse_schema,
)
from windrow.ingest.schema.columns import Column, Columns


def record(*types: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{i}", "type": kind} for i, kind in enumerate(types)],
        **more,
    }


def types_of(*types: Any, **more: Any) -> list[Any]:
    parsed = parse_schema(json.dumps(record(*types, **more)), "here")
    return [kind for _, kind in parsed.records[parsed.root].fields]


def test_types_are_what_they_say() -> None:
    """Each kind of type is parsed, in its long and its short form."""
    fixed, enum = (
        {"type": "fixed", "name": "F", "size": 3},
        {
            "type": "enum",
            "name": "E",
            "symbols": ["A"],
        },
    )
    assert types_of("int", {"type": "int"}, {"type": {"type": "int"}}) == [PrimitiveType("int")] * 3
    assert types_of({"type": "array", "items": "string"}) == [ArrayType(PrimitiveType("string"))]
    assert types_of({"type": "map", "values": ["null", "long"]}) == [
        MapType(UnionType((PrimitiveType("null"), PrimitiveType("long"))))
    ]
    assert types_of(fixed, "F", enum, "E") == [FixedType("F", 3)] * 2 + [EnumType("E", ("A",))] * 2
    assert types_of(["null", "R"]) == [UnionType((PrimitiveType("null"), NamedReference("R")))]


def test_names_are_looked_up_in_their_namespace() -> None:
    """A name without dots belongs to the namespace around it.

    A nested type inherits the namespace of its record.
    """
    inner = {
        "type": "record",
        "name": "a.b.Inner",
        "fields": [{"name": "x", "type": {"type": "fixed", "name": "F", "size": 1}}],
    }
    assert types_of(inner, "a.b.F", "a.b.Inner", namespace="shop") == [
        NamedReference("a.b.Inner"),
        FixedType("a.b.F", 1),
        NamedReference("a.b.Inner"),
    ]
    assert (
        types_of({"type": "fixed", "name": "G", "size": 1}, "G", "shop.G", namespace="shop")
        == [FixedType("shop.G", 1)] * 3
    )


@pytest.mark.parametrize(
    ("written", "logical"),
    [
        ({"type": "int", "logicalType": "date"}, Logical("date")),
        ({"type": "long", "logicalType": "date"}, None),
        ({"type": "long", "logicalType": "timestamp-nanos"}, Logical("timestamp-nanos")),
        ({"type": "int", "logicalType": "timestamp-millis"}, None),
        ({"type": "string", "logicalType": "uuid"}, Logical("uuid")),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            Logical("decimal", 5, 2),
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5}, Logical("decimal", 5, 0)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 6}, None),
        ({"type": "bytes", "logicalType": "decimal"}, None),
        (
            {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4},
            Logical("decimal", 4, 0),
        ),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5}, None),
        (
            {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
            Logical("duration"),
        ),
        ({"type": "int", "logicalType": "money"}, None),
        ({"type": "int", "logicalType": ["date"]}, None),
    ],
)
def test_logical_types(written: dict[str, Any], logical: Logical | None) -> None:
    """A logical type that doesn't fit its type is ignored, as the specification says."""
    (kind,) = types_of(written)
    assert kind.logical == logical


def test_the_digits_of_a_fixed() -> None:
    """The precision of a fixed is limited by its number of bytes."""
    for size in range(1, 200):
        max_precision = len(str((1 << 8 * size - 1) - 1)) - 1
        decimal = {"type": "fixed", "size": size, "logicalType": "decimal"}
        fits, not_ = types_of(
            {**decimal, "name": "F", "precision": max_precision},
            {**decimal, "name": "G", "precision": max_precision + 1},
        )
        assert (fits.logical, not_.logical) == (Logical("decimal", max_precision, 0), None)
    (giant,) = types_of(
        {
            "type": "fixed",
            "name": "F",
            "size": (1 << 31) - 1,
            "logicalType": "decimal",
            "precision": 4,
        }
    )
    assert giant.logical == Logical("decimal", 4, 0)


@pytest.mark.parametrize("inner", [[], ["long"]])
def test_many_records_in_one_another(inner: list[Any]) -> None:
    """A schema of thousands of nested records is parsed in time linear to its length."""
    types: list[Any] = [
        {"type": "record", "name": "r0", "fields": [{"name": "a", "type": kind} for kind in inner]}
    ]
    types += [
        {"type": "record", "name": f"r{n}", "fields": [{"name": "a", "type": f"r{n - 1}"}]}
        for n in range(1, 9_500)
    ]
    parsed = parse_schema(json.dumps(record(*types)), "here")
    assert len(parsed.empty) == (0 if inner else len(parsed.records))


def test_many_types_in_a_union() -> None:
    """A union of many types is parsed in time linear to its length."""
    (union,) = types_of([{"type": "fixed", "name": f"f{n}", "size": 1} for n in range(20_000)])
    assert len(union.branches) == 20_000


DEEP: Any = "int"
for _ in range(MOST_NESTED):
    DEEP = {"type": "array", "items": DEEP}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "isn't JSON"),
        ("[" * 100_000, "isn't JSON: RecursionError"),
        ('"int"', "isn't a record"),
        ('{"type": "array", "items": "int"}', "isn't a record"),
        (json.dumps({"type": "record", "name": "R"}), "$: a record needs a list of fields"),
        (
            json.dumps({"type": "record", "fields": []}),
            "$: a record, an enum and a fixed need a name",
        ),
        (json.dumps({"type": "record", "name": "a..b", "fields": []}), "$: 'a..b' can't be a name"),
        (json.dumps({"type": "record", "name": "R(1)", "fields": []}), "$: 'R(1)' can't be a name"),
        (
            json.dumps({"type": "record", "name": "R", "fields": [{"name": "a\n", "type": "int"}]}),
            "$.fields[0]: a field needs a name",
        ),
        (json.dumps({"type": "record", "name": "int", "fields": []}), "$: 'int' can't be a name"),
        (json.dumps(record("text")), "$.f0.type: no type 'text' is defined before it is used"),
        (json.dumps(record({"type": "array"})), "$.f0.type: items is missing"),
        (
            json.dumps(record({"type": "map", "values": 7})),
            "$.f0.type.values: a type is a name, an object or a list",
        ),
        (json.dumps(record([])), "$.f0.type: a union needs at least one type"),
        (json.dumps(record(["int", ["null"]])), "$.f0.type: a union can't contain a union"),
        (json.dumps(record(["int", "int"])), "$.f0.type: a union can't contain int twice"),
        (
            json.dumps(
                record([{"type": "array", "items": "int"}, {"type": "array", "items": "long"}])
            ),
            "can't contain array twice",
        ),
        (
            json.dumps(record({"type": "enum", "name": "E", "symbols": ["A", "A"]})),
            "an enum needs at least one symbol, and each symbol only once",
        ),
        (
            json.dumps(record({"type": "enum", "name": "E", "symbols": [1]})),
            "$.f0.type: an enum needs a list of symbols",
        ),
        (
            json.dumps(record({"type": "fixed", "name": "F", "size": -1})),
            "$.f0.type: a fixed needs a size",
        ),
        (
            json.dumps(record({"type": "fixed", "name": "F", "size": True})),
            "$.f0.type: a fixed needs a size",
        ),
        (
            json.dumps(record({"type": "fixed", "name": "R", "size": 1})),
            "$.f0.type: R is defined twice",
        ),
        (
            json.dumps(
                {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}
            ),
            "$: two fields are called a",
        ),
        (
            json.dumps({"type": "record", "name": "R", "fields": [{"type": "int"}]}),
            "$.fields[0]: a field needs a name",
        ),
        (json.dumps(record(DEEP)), f"types are nested more than {MOST_NESTED} deep"),
        (json.dumps(record("int", doc="x" * (1 << 20))), "is longer than"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, says: str) -> None:
    """A text that is no schema raises SpecError with the place of the fault."""
    with pytest.raises(SpecError) as refused:
        parse_schema(text, "here")
    assert says in refused.value.message


def test_names_that_others_write() -> None:
    """Names that Java's Avro and fastavro accept are accepted, even outside the specification.

    Only a field that becomes a column needs a valid name.
    """
    parsed = parse_schema(
        json.dumps(
            {
                "type": "record",
                "name": "R",
                "namespace": "org.apache.Test$",
                "fields": [
                    {
                        "name": "größe",
                        "type": {"type": "enum", "name": "E-1", "symbols": ["größer", "a-b"]},
                    },
                    {"name": "user-id", "type": "int"},
                ],
            }
        ),
        "here",
    )
    columns = Columns(
        (
            Column("größe", pa.string(), nullable=False),
            Column("user-id", pa.int32(), nullable=False),
        )
    )
    decoded = avro_batch_decoder(parsed, columns).decode(
        pa.array([varint(0) + varint(5)], pa.binary()), "dead"
    )
    assert (parsed.root, decoded.rows.to_pylist()) == (
        "org.apache.Test$.R",
        [{"größe": "größer", "user-id": 5}],
    )


def test_what_fastavro_reads_is_read(dice: random.Random) -> None:
    """Each schema that is accepted here is accepted by fastavro too.

    The schemas are random, whole and with one text replaced.
    """
    for _ in range(200):
        text = json.dumps(random_schema(dice).avro)
        parse_schema(text, "here")
        changed_text = text.replace(
            dice.choice(('"int"', '"string"', '"record"', '"items"', '"name"')),
            dice.choice(('"x"', "7", '"long"', "[]")),
            1,
        )
        try:
            parse_schema(changed_text, "here")
        except SpecError:
            continue
        fastavro.parse_schema(json.loads(changed_text))
