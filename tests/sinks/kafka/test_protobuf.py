"""Rows as Protobuf messages: the bytes are those of Protobuf's own library, and windrow's own
decoder reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pandera.polars as pp
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from tests.sinks.kafka.deserializers import protobuf_class
from tests.sinks.kafka.world import encoder_of
from tests.sinks.values import MICROS, integers, raw
from windrow.ingest.errors import RefusedError
from windrow.ingest.formats.protobuf.decoder import protobuf_batch_decoder
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.registry.client import Subjects
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.row_changes import DELETED
from windrow.ingest.sinks.kafka.byte_columns import NoCounterpartError
from windrow.ingest.sinks.kafka.protobuf import misfit, records, schema_text
from windrow.ingest.sinks.kafka.registry_serializer import RegistrySerializer
from windrow.ingest.sinks.kafka.stage import KafkaStagerFactory
from windrow.ingest.sinks.kit.files.file_stager import RowLayout
from windrow.ingest.testing.contracts.windows import messages, window

LINE = pl.Struct({"sku": pl.String, "at": pl.Datetime("us", "UTC"), "sizes": pl.List(pl.Float32)})


class Every(pp.DataFrameModel):
    """A column of each type that a message can have; scalars with and without presence."""

    tiny: pl.Int8
    small: pl.Int16 = pp.Field(nullable=True)
    middle: pl.Int32
    large: pl.Int64 = pp.Field(nullable=True)
    huge: pl.Int64
    single: pl.Float32 = pp.Field(nullable=True)
    narrow: pl.Float32
    double: pl.Float64
    flag: pl.Boolean = pp.Field(nullable=True)
    sure: pl.Boolean
    text: pl.String
    note: pl.String = pp.Field(nullable=True)
    octets: pl.Binary = pp.Field(nullable=True)
    code: pl.Binary
    at: pl.Datetime("us", "UTC")
    seen: pl.Datetime("us", "UTC") = pp.Field(nullable=True)
    tags: pl.List(pl.String) = pp.Field(nullable=True)
    numbers: pl.List(pl.Int64)
    marks: pl.List(pl.Boolean)
    moments: pl.List(pl.Datetime("us", "UTC"))
    stock: pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})) = pp.Field(
        metadata={"map": True}, nullable=True
    )
    places: pl.List(pl.Struct({"key": pl.String, "value": LINE})) = pp.Field(metadata={"map": True})
    lines: pl.List(LINE)
    line: LINE = pp.Field(nullable=True)
    outer: pl.Struct({"inner": pl.Struct({"line": LINE, "n": pl.Int32})}) = pp.Field(nullable=True)


EVERY = Columns.of(Every)
SCHEMA: pa.Schema = EVERY.arrow_schema
INSTANTS = raw(pa.timestamp("us", "UTC"), *MICROS)[1]
MAYBE_TEXT = st.none() | st.text(max_size=5)
LINES = st.fixed_dictionaries(
    {
        "sku": MAYBE_TEXT,
        "at": st.none() | INSTANTS,
        "sizes": st.lists(st.floats(width=32), max_size=3),
    },
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tiny": integers(8),
    "small": st.none() | integers(16),
    "middle": integers(32),
    "large": st.none() | integers(64),
    "huge": integers(64),
    "single": st.none() | st.floats(width=32),
    "narrow": st.floats(width=32),
    "double": st.floats(),
    "flag": st.none() | st.booleans(),
    "sure": st.booleans(),
    "text": st.text(max_size=200),
    "note": MAYBE_TEXT,
    "octets": st.none() | st.binary(max_size=5),
    "code": st.binary(max_size=5),
    "at": INSTANTS,
    "seen": st.none() | INSTANTS,
    "tags": st.lists(st.text(max_size=5), max_size=70),
    "numbers": st.lists(integers(64), max_size=70),
    "marks": st.lists(st.booleans(), max_size=3),
    "moments": st.lists(INSTANTS, max_size=3),
    "stock": st.dictionaries(st.text(max_size=3), integers(64), max_size=3),
    "places": st.dictionaries(st.text(max_size=3), LINES, max_size=2),
    "lines": st.lists(LINES, max_size=3),
    "line": st.none() | LINES,
    "outer": (
        st.none()
        | st.fixed_dictionaries(
            {
                "inner": (
                    st.none()
                    | st.fixed_dictionaries(
                        {"line": st.none() | LINES, "n": st.none() | integers(32)}
                    )
                ),
            }
        )
    ),
}
ROWS = st.fixed_dictionaries(VALUES).map(
    lambda row: {**row, **{name: sorted(row[name].items()) for name in ("stock", "places")}}
)


@cache
def message_class() -> Any:
    """Compiles the message class of `Every` from its schema."""
    return protobuf_class(schema_text(SCHEMA, "any.Every"))


def encode_batch(batch: pa.RecordBatch) -> list[bytes]:
    """Returns the Protobuf message of each row."""
    payloads: list[bytes] = records(
        [(batch[field.name], field.nullable) for field in batch.schema]
    ).to_pylist()
    return payloads


def fill(message: Any, row: Mapping[str, Any], kind: Any) -> None:
    """Puts a row's values into an empty message, with Protobuf's own library."""
    for field in kind:
        if row[field.name] is not None:
            put(message, field.name, row[field.name], field.type)


def put(message: Any, name: str, value: Any, kind: Any) -> None:
    """Puts a value into a field."""
    part = getattr(message, name)
    if pa.types.is_map(kind):
        for key, member in value:
            if pa.types.is_struct(kind.item_type):
                fill(part[key], member, kind.item_type)
            else:
                part[key] = member
    elif pa.types.is_list(kind):
        for item in value:
            if pa.types.is_struct(kind.value_type) or pa.types.is_timestamp(kind.value_type):
                fill_message(part.add(), item, kind.value_type)
            else:
                part.append(item)
    elif pa.types.is_struct(kind) or pa.types.is_timestamp(kind):
        part.SetInParent()
        fill_message(part, value, kind)
    else:
        setattr(message, name, value)


def fill_message(message: Any, value: Any, kind: Any) -> None:
    """Puts a struct or a timestamp into an empty message."""
    if pa.types.is_struct(kind):
        fill(message, value, kind)
    else:
        stamp(message, value)


def stamp(message: Any, instant: datetime) -> None:
    """Puts a timestamp into a Timestamp message."""
    message.seconds, message.nanos = (
        pa.scalar(instant).cast(pa.int64()).as_py() // 1_000_000,
        instant.microsecond * 1000,
    )


@settings(max_examples=examples(50))
@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(0, 2))
def test_every_byte_is_what_protobuf_writes(rows: list[dict[str, Any]], cut: int) -> None:
    """The bytes of any value, also from a slice of a longer batch, are those of Protobuf's own
    serializer.

    Only the order of a map's entries may differ, because it has no meaning.
    """
    batch = pa.RecordBatch.from_pylist([*rows[:1] * cut, *rows], schema=SCHEMA).slice(cut)
    expected = [message_class()() for _ in rows]
    for message, row in zip(expected, rows, strict=True):
        fill(message, row, SCHEMA)
    payloads, due = (
        encode_batch(batch),
        [message.SerializeToString(deterministic=True) for message in expected],
    )
    assert [
        message_class().FromString(octets).SerializeToString(deterministic=True)
        for octets in payloads
    ] == due
    alike = [
        octets
        for octets, row in zip(due, rows, strict=True)
        if max(len(row["stock"]), len(row["places"])) < 2
    ]
    assert [
        octets
        for octets, row in zip(payloads, rows, strict=True)
        if max(len(row["stock"]), len(row["places"])) < 2
    ] == alike
    assert [*map(len, payloads)] == [*map(len, due)]


@settings(max_examples=examples(50))
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_windrow_reads_what_it_wrote(rows: list[dict[str, Any]]) -> None:
    """windrow's own decoder reads back each published value. Neither side refuses one."""
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    assert misfit({name: batch[name] for name in SCHEMA.names}) is None
    decoded = protobuf_batch_decoder(message_class().DESCRIPTOR, EVERY).decode(
        pa.array(encode_batch(batch), pa.binary()), "dead"
    )
    assert decoded.dead_reason.to_pylist() == []
    assert repr(decoded.rows.to_pylist()) == repr(batch.to_pylist())


def test_the_schema_says_what_columns_are() -> None:
    """Fields are numbered in column order.

    Nullable columns and fields of structs have presence, and message names don't clash.
    """
    inner = pa.struct([pa.field("order", pa.struct([pa.field("x", pa.int32())]))])
    columns = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("Order2", pa.string()),
            pa.field("order", inner),
            pa.field("tags", pa.list_(pa.string()), nullable=False),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("stock", pa.map_(pa.string(), inner)),
            pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
            pa.field("google", pa.struct([pa.field("at", pa.list_(pa.timestamp("us", "UTC")))])),
        ]
    )
    text = schema_text(columns, "shop.Order")
    assert (
        text
        == """\
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";

message Order {
  message Order3 {
    message Order2 {
      optional int32 x = 1;
    }
    Order2 order = 1;
  }
  message Stock {
    message Order2 {
      optional int32 x = 1;
    }
    Order2 order = 1;
  }
  message Google {
    repeated google.protobuf.Timestamp at = 1;
  }
  int64 id = 1;
  optional string Order2 = 2;
  Order3 order = 3;
  repeated string tags = 4;
  google.protobuf.Timestamp at = 5;
  map<string, Stock> stock = 6;
  optional string kind = 7;
  Google google = 8;
}
"""
    )
    assert [field.name for field in protobuf_class(text).DESCRIPTOR.fields] == columns.names


NESTED = pa.list_(pa.list_(pa.int64()))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([pa.field("the id", pa.int64())], "'the id' can't be the name"),
        ([pa.field("s", pa.struct([pa.field("1", pa.int64())]))], "'1' can't be the name"),
        ([pa.field("day", pa.date32())], r"day is date32\[day\], for which"),
        (
            [pa.field("s", pa.struct([pa.field("d", pa.decimal128(9, 2))]))],
            r"s.d is decimal128\(9, 2\), for which",
        ),
        ([pa.field("u", pa.uint64())], "u is uint64"),
        ([pa.field("local", pa.timestamp("us"))], "local is timestamp"),
        (
            [pa.field("m", pa.map_(pa.int64(), pa.int64()))],
            "m is a map whose keys aren't texts",
        ),
        ([pa.field("l", NESTED)], r"l\[...\] is a list or a map within another one"),
        (
            [pa.field("m", pa.map_(pa.string(), pa.list_(pa.int64())))],
            r"m\[...\] is a list or a map within another one",
        ),
        (
            [pa.field("a_b", pa.int64()), pa.field("aB", pa.int64())],
            "a_b and aB have the same name in Protobuf's JSON",
        ),
        (
            [
                pa.field("stock", pa.map_(pa.string(), pa.int64())),
                pa.field("StockEntry", pa.int64()),
            ],
            "stock needs the name StockEntry",
        ),
    ],
)
def test_what_protobuf_has_no_words_for(fields: list[pa.Field], says: str) -> None:
    """A column that Protobuf can't represent is refused with its name before anything is
    written.
    """
    with pytest.raises(NoCounterpartError, match=says):
        schema_text(pa.schema(fields), "R")


def test_a_package_that_would_hide_googles() -> None:
    """A package name that hides Google's own types is refused, because the Timestamp type
    couldn't be found.
    """
    with pytest.raises(NoCounterpartError, match="hides Google's own types"):
        schema_text(pa.schema([pa.field("id", pa.int64())]), "my.google.R")


STRUCT = pa.struct(
    [pa.field("l", pa.list_(pa.struct([pa.field("m", pa.map_(pa.string(), pa.int64()))])))]
)
FULL = {"l": [{"m": [("k", 1)]}]}


@pytest.mark.parametrize(
    ("kind", "good", "bad", "says"),
    [
        (pa.list_(pa.string()), [""], None, "c is null"),
        (pa.list_(pa.string()), [""], ["", None], r"c\[...\] is null"),
        (pa.map_(pa.string(), pa.int64()), [], None, "c is null"),
        (
            pa.map_(pa.string(), pa.int64()),
            [("k", 0)],
            [("k", 0), ("l", None)],
            r"c\[...\] is null",
        ),
        (STRUCT, FULL, {"l": None}, "c.l is null"),
        (STRUCT, None, {"l": [{"m": []}, None]}, r"c.l\[...\] is null"),
        (
            STRUCT,
            FULL,
            {"l": [{"m": []}, {"m": [("k", 1), ("l", None)]}]},
            r"c.l\[...\].m\[...\] is null",
        ),
        (
            pa.timestamp("us", "UTC"),
            None,
            253_402_300_800_000_000,
            "c is outside the years 1 to 9999",
        ),
        (
            pa.list_(pa.timestamp("us", "UTC")),
            [0],
            [0, -62_135_596_800_000_001],
            r"c\[...\] is outside the years",
        ),
    ],
)
def test_what_a_message_can_not_say(kind: pa.DataType, good: Any, bad: Any, says: str) -> None:
    """Rows with a value that a message can't hold are found, with its path, also in a slice of
    a longer batch.
    """
    column = pa.array([bad, good, good, bad, bad], kind)
    misfits = misfit({"id": pa.array(range(4)), "c": column.slice(1)})
    assert misfits is not None
    assert misfits[0].tolist() == [2, 3]
    assert re.match(says, misfits[1])
    assert misfit({"c": column.slice(1, 2)}) is None


def value(columns: tuple[str, ...]) -> RegistrySerializer:
    """Returns a value serializer whose schema has an id in the registry."""
    return RegistrySerializer("protobuf-confluent", columns, "R", Subjects(), schema_id=1)


def test_a_row_that_can_not_be_said_refuses_its_window(tmp_path: Path) -> None:
    """A row that can't be written refuses its window at staging, before anything is published.

    The error names the source offset.
    """
    split = Split("shop.orders", 0, 10, 13)
    rows = pa.schema([pa.field("tags", pa.list_(pa.string()))])
    split_stager = KafkaStagerFactory(
        RowLayout(rows, DEFAULT, "a"),
        encoder_of(value(("tags",)), staging=str(tmp_path)),
        window(0),
    )(split)
    with pytest.raises(
        RefusedError, match=r"the value of a row can't be written as Protobuf: tags\[...\] is null"
    ) as refused:
        split_stager.add(
            pa.record_batch(
                [pa.array([["a"], ["b", None], []], pa.list_(pa.string()))], schema=rows
            ),
            messages(split),
        )
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == (
        "shop.orders",
        0,
        11,
    )
    split_stager.discard()


def test_a_delete_has_no_value_to_say() -> None:
    """A delete has null columns, but is a message without a value, so its columns are not
    checked.
    """
    tags = pa.array([None, ["a"], None], pa.list_(pa.string()))
    batch = pa.record_batch({"id": [1, 2, 3], "tags": tags, DELETED: [True, False, True]})
    encoder = encoder_of(value(("id", "tags")), key=value(("id",)), primary_key=("id",))
    assert encoder.find_misfit(batch) is None
    tombstones = batch.set_column(2, DELETED, pa.array([True, False, False]))
    rows, reason = encoder.find_misfit(tombstones) or ([], "")
    assert (list(rows), reason) == (
        [2],
        (
            "the value of a row can't be written as Protobuf: tags is null, and a list or a map"
            " can't be null"
        ),
    )


def test_instants_before_1970() -> None:
    """Nanoseconds of a timestamp before 1970 count forwards, as Timestamp requires."""
    instant = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    message = protobuf_class(
        schema_text(pa.schema([pa.field("at", pa.timestamp("us", "UTC"))]), "R")
    )()
    (octets,) = records([(pa.array([instant], pa.timestamp("us", "UTC")), True)]).to_pylist()
    message.ParseFromString(octets)
    assert (message.at.seconds, message.at.nanos) == (-1, 999_999_000)
