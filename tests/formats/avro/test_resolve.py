"""Avro's schema resolution, in both decoders: columns that differ from the writer's fields."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pandera.polars as pp
import polars as pl
import pyarrow as pa
import pytest

from tests.formats.avro.wire import items, text, varint
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.decoder import AvroPass, avro_batch_decoder
from windrow.ingest.formats.avro.fit import MOST_TYPES
from windrow.ingest.formats.avro.program import program_of
from windrow.ingest.formats.avro.resolve import resolve_schema
from windrow.ingest.formats.avro.schema import parse_schema
from windrow.ingest.formats.avro.strict import StrictAvro
from windrow.ingest.schema.columns import Column, Columns


class Reader(pp.DataFrameModel):
    """The columns that are read."""

    id: pl.Int64
    score: pl.Float64 = pp.Field(nullable=True)
    name: pl.String = pp.Field(nullable=True)
    place: pl.Struct({"city": pl.String, "zip": pl.Struct({"code": pl.Int64})}) = pp.Field(
        nullable=True
    )
    tags: pl.List(pl.Struct({"k": pl.String, "v": pl.Int64})) = pp.Field(nullable=True)


COLUMNS = Columns.of(Reader)


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


def read(
    schema: Any,
    *messages: bytes,
    references: tuple[str, ...] = (),
    columns: Columns = COLUMNS,
    records: tuple[str, ...] = (),
) -> list[Any]:
    """Returns each message's row or reason, and asserts that both decoders agree."""
    resolved_schema = resolve_schema(
        parse_schema(json.dumps(schema), "a test", references), columns, records
    )
    fast, strict = (
        AvroPass(resolved_schema, columns).decode(pa.array(messages, pa.binary())),
        StrictAvro(resolved_schema, columns),
    )
    decoded = avro_batch_decoder(resolved_schema, columns).decode(
        pa.array(messages, pa.binary()), "dead"
    )
    rows, dead = (
        iter(decoded.rows.to_pylist()),
        dict(zip(decoded.dead_index.to_pylist(), decoded.dead_reason.to_pylist(), strict=True)),
    )
    verdicts = [dead[i] if i in dead else next(rows) for i in range(len(messages))]
    assert fast.mask.tolist() == [not isinstance(verdict, str) for verdict in verdicts]
    for message, verdict in zip(messages, verdicts, strict=True):
        if not isinstance(verdict, str):
            expected = pa.RecordBatch.from_arrays(
                [
                    pa.array([v], f.type)
                    for v, f in zip(strict.decode(message), columns.arrow_schema, strict=True)
                ],
                schema=columns.arrow_schema,
            )
            assert expected.to_pylist() == [verdict]
    return verdicts


NONE: dict[str, Any] = {"score": None, "name": None, "place": None, "tags": None}


def test_a_writer_of_fewer_and_other_fields() -> None:
    """A column without a writer's field is null, and a field without a column is skipped.

    Numbers are promoted to wider types.
    """
    writer = record("Old", more="string", id="int", score="long")
    assert read(writer, text("x") + varint(3) + varint(4)) == [{**NONE, "id": 3, "score": 4.0}]


def test_structs_of_fewer_fields() -> None:
    """A struct is resolved by its own column, at any depth, in lists and in two places at once."""
    pair = record("Pair", k="string")
    writer = record(
        "Old",
        id="long",
        place=record("Place", zip=["null", record("Zip", other="int")], pair=pair),
        tags={"type": "array", "items": "Pair"},
    )
    full_message = varint(1) + varint(1) + varint(7) + text("p") + items(text("a"), text("b"))
    bare = varint(1) + varint(0) + text("p") + items()
    assert read(writer, full_message, bare) == [
        {
            **NONE,
            "id": 1,
            "place": {"city": None, "zip": {"code": None}},
            "tags": [{"k": "a", "v": None}, {"k": "b", "v": None}],
        },
        {**NONE, "id": 1, "place": {"city": None, "zip": None}, "tags": []},
    ]


def test_unions_of_more_types() -> None:
    """A branch of a union that can't become the column refuses only the messages that use it."""
    writer = record(
        "Old", id=["long", "string"], name=["null", "string", "int", record("N", a="int")]
    )
    messages = [
        varint(0) + varint(1) + varint(1) + text("a"),
        varint(1) + text("x") + varint(0),
        varint(0) + varint(1) + varint(2) + varint(5),
        varint(0) + varint(2) + varint(3) + varint(5),
        varint(0) + varint(3) + varint(0),
    ]
    assert read(writer, *messages) == [
        {**NONE, "id": 1, "name": "a"},
        "wrong_type",
        "wrong_type",
        "wrong_type",
        {**NONE, "id": 3},
    ]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ((), ["x", "other_record", "other_record"]),
        (("Second",), ["other_record", None, "other_record"]),
        (("First", "a.Fewer"), ["x", "other_record", None]),
    ],
)
def test_unions_of_several_records(records: tuple[str, ...], expected: list[str | None]) -> None:
    """A struct comes from the record that the spec names.

    Without a name it comes from a record with all its fields. Any other record is refused and
    is never a struct of nulls, at any depth.
    """
    place_type = [
        "null",
        record("First", city="string", zip=["null", record("Zip", code="int")]),
        record("Second", other="int"),
        record("a.Fewer", zip=["null", "Zip"]),
    ]
    columns = Columns(tuple(column for column in COLUMNS.columns if column.name in {"id", "place"}))
    messages = [
        varint(1) + varint(1) + text("x") + varint(0),
        varint(1) + varint(2) + varint(5),
        varint(1) + varint(3) + varint(0),
    ]
    rows = read(
        record("R", id="long", place=place_type), *messages, columns=columns, records=records
    )
    assert [row if isinstance(row, str) else row["place"]["city"] for row in rows] == expected


@pytest.mark.parametrize(
    ("writer", "message"),
    [
        (record("Old", id="string"), "id: string can't become int64"),
        (record("Old", id=["null", "string"]), "id: string can't become int64"),
        (record("Old", name="string"), "id: the Avro schema has no such"),
        (
            record("Old", id="long", tags={"type": "array", "items": record("Empty")}),
            "tags: the array's items are always null or empty",
        ),
    ],
)
def test_a_writer_whose_messages_can_never_be_rows(writer: Any, message: str) -> None:
    """A schema whose messages can never be rows is refused, and the error names the column."""
    with pytest.raises(SpecError, match=message):
        read(writer, b"")


def test_types_of_other_schemas() -> None:
    """A schema may use the names of the schemas that it refers to."""
    references = (
        json.dumps(record("x.Zip", code="int")),
        json.dumps(record("x.Place", city="string", zip="x.Zip")),
    )
    rows = read(
        record("x.Old", id="long", place="x.Place"),
        varint(1) + text("c") + varint(5),
        references=references,
    )
    assert rows == [{**NONE, "id": 1, "place": {"city": "c", "zip": {"code": 5}}}]
    with pytest.raises(SpecError, match=r"no type 'x\.Zip' is defined before it is used"):
        parse_schema(references[1], "a test")


def test_a_schema_that_is_no_record() -> None:
    """A schema that is no record becomes the only column. Many keys are only a string."""

    class One(pp.DataFrameModel):
        id: pl.Int64

    columns = Columns.of(One)
    resolved_schema = resolve_schema(parse_schema('"int"', "a test", only="id"), columns)
    assert avro_batch_decoder(resolved_schema, columns).decode(
        pa.array([varint(-3)], pa.binary()), "dead"
    ).rows.to_pylist() == [{"id": -3}]
    with pytest.raises(SpecError, match="isn't a record"):
        parse_schema('"int"', "a test")


def test_it_reads_what_the_reference_reads() -> None:
    """fastavro reads the same values if the columns are its reader's schema."""
    zip_ = record("Zip", code=["null", "long"])
    reader_schema = record("Reader", id="long", score=["null", "double"], name=["null", "string"])
    for field in reader_schema["fields"][1:]:
        field["default"] = None
    writers = [
        (record("Reader", name="bytes", id="int"), {"name": b"a", "id": 1}),
        (record("Reader", id="int", score="float"), {"id": 2, "score": 1.5}),
        (record("Reader", score=["int", "long", "null"], id="long"), {"id": 3, "score": 1 << 40}),
        (record("Reader", id="long", gone=zip_), {"id": 4, "gone": {"code": 1}}),
    ]
    for writer, value in writers:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, writer, value)
        expected = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), writer, reader_schema)
        [row] = read(writer, out.getvalue())
        assert {name: row[name] for name in ("id", "score", "name")} == expected


WRITTEN_AS = {
    "long": ("int", "long"),
    "double": ("int", "long", "float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
    "boolean": ("boolean",),
}
"""For each type, the types that the specification promotes to it."""
VALUES: dict[str, tuple[Any, ...]] = {
    "int": (0, -5, 1 << 20),
    "long": (7, -(1 << 40)),
    "float": (1.5, -0.25),
    "double": (0.1, 1e300),
    "string": ("", "größe"),
    "bytes": (b"", "größe".encode()),
    "boolean": (True, False),
}
TYPES = {
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "boolean": pa.bool_(),
}


def versions(
    dice: random.Random,
) -> tuple[list[Column], list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """Returns random columns, and another version of their schema.

    Returns:
        The columns, the same columns as fields of a reader's schema, the writer's schema, and
            the values of a message.
    """
    columns, reader_fields, written, values = (
        [],
        [],
        [{"name": "more", "type": "string"}],
        {"more": "x"},
    )
    for number, kind in enumerate(dice.choices(list(TYPES), k=6)):
        name, nullable, default = (
            f"f{number}",
            dice.random() < 0.5,
            dice.choice(VALUES[kind]) if dice.random() < 0.5 else None,
        )
        default = None if kind == "bytes" else default
        aliases = dice.sample([f"old{number}", f"older{number}"], dice.randint(0, 2))
        both = ["null", kind] if default is None else [kind, "null"]
        default_entry = {"default": default} if default is not None or nullable else {}
        reader_fields.append(
            {"name": name, "type": both if nullable else kind, "aliases": aliases, **default_entry}
        )
        scalar = None if default is None else pa.scalar(default, TYPES[kind])
        columns.append(Column(name, TYPES[kind], nullable, aliases=tuple(aliases), default=scalar))
        if default_entry and number and dice.random() < 0.4:
            continue
        written_name, written_kind = dice.choice([name, *aliases]), dice.choice(WRITTEN_AS[kind])
        values[written_name] = (
            None if nullable and dice.random() < 0.3 else dice.choice(VALUES[written_kind])
        )
        written.append(
            {"name": written_name, "type": ["null", written_kind] if nullable else written_kind}
        )
    dice.shuffle(written)
    return columns, reader_fields, {"type": "record", "name": "R", "fields": written}, values


def test_versions_are_read_as_the_reference_reads_them(dice: random.Random) -> None:
    """fastavro reads the same values if fields are new, removed, renamed or of another type."""
    for _ in range(150):
        columns, reader_fields, writer, values = versions(dice)
        out, all_columns = io.BytesIO(), Columns(tuple(columns))
        fastavro.schemaless_writer(out, writer, values)
        reader = {"type": "record", "name": "R", "fields": reader_fields}
        expected = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), writer, reader)
        parsed = parse_schema(json.dumps(writer), "a test")
        machine = avro_batch_decoder(
            resolve_schema(parsed, all_columns.as_written(parsed.fields).columns), all_columns
        )
        assert machine.decode(pa.array([out.getvalue()], pa.binary()), "dead").rows.to_pylist() == [
            expected
        ]


def test_what_unions_of_records_cost() -> None:
    """A short schema of nested unions that would need millions of steps is refused quickly."""
    level: Any = "int"
    for depth in range(5):
        level = [
            record(
                f"R{depth}_{n}",
                zip=(
                    level
                    if n == 0
                    else [f"R{depth - 1}_{m}" for m in range(12)]
                    if depth
                    else "int"
                ),
            )
            for n in range(12)
        ]
    kind: Any = pl.Int64
    for _ in range(5):
        kind = pl.Struct({"zip": kind})
    deep = type(
        "Deep",
        (pp.DataFrameModel,),
        {"__annotations__": {"zip": kind}, "zip": pp.Field(nullable=True)},
    )
    with pytest.raises(SpecError, match=f"more than {MOST_TYPES} types"):
        read(record("Root", zip=level), b"", columns=Columns.of(deep))


def test_many_fields_of_one_enum() -> None:
    """An enum's symbols are stored once, not for each field that uses the enum."""
    symbols = [f"s{n}" for n in range(1_000)]
    fields = {f"f{n}": "E" for n in range(1_000)}
    writer = record(
        "Old", id="long", name={"type": "enum", "name": "E", "symbols": symbols}, **fields
    )
    assert read(
        writer, varint(1) + varint(7) * 1_001, varint(1) + varint(7) * 1_000 + varint(1_000)
    ) == [
        {**NONE, "id": 1, "name": "s7"},
        "not_avro",
    ]
    resolved_schema = resolve_schema(parse_schema(json.dumps(writer), "a test"), COLUMNS)
    assert len(program_of(resolved_schema, COLUMNS).numbers) < 20 * 2_000


def test_a_page_of_records_in_one_another() -> None:
    """A schema may hold thousands of nested records, because depth is judged for each message."""
    kinds = [record("r0", a="long"), *(record(f"r{n}", a=f"r{n - 1}") for n in range(1, 3_000))]
    writer = record(
        "Old",
        id="long",
        **{f"f{n}": {"type": "array", "items": kind} for n, kind in enumerate(kinds)},
    )

    def message(field: int) -> bytes:
        return (
            varint(1) + varint(0) * field + varint(1) + varint(5) + varint(0) * (len(kinds) - field)
        )

    row = {**NONE, "id": 1}
    assert read(writer, message(0), message(90), message(2_000), message(2_999)) == [
        row,
        row,
        "too_deep",
        "too_deep",
    ]


def test_what_fields_without_bytes_cost() -> None:
    """Fields without bytes cost nothing: a message takes no more steps than it has bytes."""
    item = record("Item", a="boolean", **{f"n{n}": "null" for n in range(10_000)})
    writer = record("Old", id="long", more={"type": "array", "items": item})
    full_message = varint(1) + items(*[b"\1"] * 200_000)
    assert read(writer, full_message, full_message + b"\0") == [{**NONE, "id": 1}, "not_avro"]
