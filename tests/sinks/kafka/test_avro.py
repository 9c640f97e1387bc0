"""Rows as Avro records, which fastavro and windrow's own reader read back."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pandera.polars as pp
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.avro.wire import text as octets
from tests.formats.avro.wire import varint
from tests.profiles import examples
from tests.sinks.values import COLUMNS, DAYS, MICROS, integers, raw
from windrow.ingest.formats.avro.decoder import avro_batch_decoder
from windrow.ingest.formats.avro.schema import parse_schema
from windrow.ingest.schema.columns import Columns
from windrow.ingest.sinks.kafka.avro import records, schema_text
from windrow.ingest.sinks.kafka.byte_columns import NoCounterpartError


class Every(pp.DataFrameModel):
    """A column of each type that a table may have."""

    tiny: pl.Int8
    small: pl.Int16 = pp.Field(nullable=True)
    middle: pl.Int32
    large: pl.Int64 = pp.Field(nullable=True)
    single: pl.Float32 = pp.Field(nullable=True)
    double: pl.Float64
    flag: pl.Boolean = pp.Field(nullable=True)
    text: pl.String
    octets: pl.Binary = pp.Field(nullable=True)
    day: pl.Date = pp.Field(nullable=True)
    at: pl.Datetime("us", "UTC")
    amount: pl.Decimal(18, 2) = pp.Field(nullable=True)
    tags: pl.List(pl.String) = pp.Field(nullable=True)
    stock: pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})) = pp.Field(
        metadata={"map": True}, nullable=True
    )
    place: pl.Struct({"city": pl.String, "lat": pl.Float64, "codes": pl.List(pl.Int32)}) = pp.Field(
        nullable=True
    )


EVERY = Columns.of(Every)
MAYBE_TEXT = st.none() | st.text(max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tiny": integers(8),
    "small": st.none() | integers(16),
    "middle": integers(32),
    "large": st.none() | integers(64),
    "single": st.none() | st.floats(width=32),
    "double": st.floats(),
    "flag": st.none() | st.booleans(),
    "text": st.text(max_size=200),
    "octets": st.none() | st.binary(max_size=5),
    "day": st.none() | raw(pa.date32(), *DAYS)[1],
    "at": raw(pa.timestamp("us", "UTC"), *MICROS)[1],
    "amount": (
        st.none() | st.integers(-(10**18 - 1), 10**18 - 1).map(lambda n: Decimal(n).scaleb(-2))
    ),
    "tags": st.none() | st.lists(MAYBE_TEXT, max_size=70),
    "stock": (
        st.none()
        | st.dictionaries(st.text(max_size=3), st.none() | integers(64), max_size=3).map(
            lambda d: list(d.items())
        )
    ),
    "place": (
        st.none()
        | st.fixed_dictionaries(
            {
                "city": MAYBE_TEXT,
                "lat": st.none() | st.floats(),
                "codes": st.none() | st.lists(st.none() | integers(32), max_size=3),
            }
        )
    ),
}


def encode_batch(batch: pa.RecordBatch) -> list[bytes]:
    """Returns the Avro record of each row."""
    payloads: list[bytes] = records(
        [(batch[field.name], field.nullable) for field in batch.schema]
    ).to_pylist()
    return payloads


def to_plain(value: Any, kind: pa.DataType) -> Any:
    """Returns a value as fastavro gives it.

    Floats become texts, so that NaN equals NaN and -0.0 isn't 0.0.
    """
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {
            key: to_plain(member, kind.item_type)
            for key, member in (value.items() if isinstance(value, dict) else value)
        }
    if pa.types.is_list(kind):
        return [to_plain(member, kind.value_type) for member in value]
    if pa.types.is_struct(kind):
        return {field.name: to_plain(value[field.name], field.type) for field in kind}
    return repr(value) if isinstance(value, float) else value


def read_by_fastavro(message: bytes, schema: Any, columns: pa.Schema) -> dict[str, Any]:
    """Reads a message with fastavro, which must use all of its bytes."""
    stream = io.BytesIO(message)
    record = fastavro.schemaless_reader(stream, schema, None)
    assert stream.read() == b""
    assert isinstance(record, dict)
    return {field.name: to_plain(record[field.name], field.type) for field in columns}


@settings(max_examples=examples(100))
@given(st.data(), st.lists(st.tuples(COLUMNS, st.booleans()), min_size=1, max_size=4))
def test_another_reader_reads_what_was_written(data: st.DataObject, columns: list[Any]) -> None:
    """fastavro reads any value of any type and nesting, also from a slice of a longer batch."""
    schema = pa.schema(
        [
            pa.field(f"c{i}", kind, nullable=nullable)
            for i, ((kind, _), nullable) in enumerate(columns)
        ]
    )
    count, cut = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 2))
    values = [
        data.draw(
            st.lists(
                st.none() | strategy if nullable else strategy,
                min_size=count + cut,
                max_size=count + cut,
            )
        )
        for (_, strategy), nullable in columns
    ]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema
    ).slice(cut)
    parsed = fastavro.parse_schema(json.loads(schema_text(schema, "any.Row")))
    expected = [
        {field.name: to_plain(row[field.name], field.type) for field in schema}
        for row in rows.to_pylist()
    ]
    assert [read_by_fastavro(message, parsed, schema) for message in encode_batch(rows)] == expected


@settings(max_examples=examples(100))
@given(st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=5))
def test_windrow_reads_what_it_wrote(rows: list[dict[str, Any]]) -> None:
    """windrow's own decoder reads back each published value, and refuses no message."""
    batch = pa.RecordBatch.from_pylist(rows, schema=EVERY.arrow_schema)
    machine = avro_batch_decoder(
        parse_schema(schema_text(batch.schema, "any.Every"), "the test"), EVERY
    )
    decoded = machine.decode(pa.array(encode_batch(batch), pa.binary()), "dead")
    assert decoded.dead_reason.to_pylist() == []
    assert repr(decoded.rows.to_pylist()) == repr(batch.to_pylist())


def test_the_schema_says_what_columns_are() -> None:
    """Null is a union's first branch and the default, so columns may be added and dropped.

    Each struct has its own name.
    """
    inner = pa.struct([pa.field("c", pa.struct([pa.field("x", pa.int32())]))])
    outer = pa.struct([pa.field("b_c", pa.struct([pa.field("y", pa.int32())]))])
    columns = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("day", pa.date32()),
            pa.field("a_b", inner),
            pa.field("a", outer),
            pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
    text = schema_text(columns, "shop.Order")
    parsed_schema = json.loads(text)
    assert parsed_schema["fields"][:2] == [
        {"name": "id", "type": "long"},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    ]
    assert '"shop.Order_a_b_c"' in text
    assert '"shop.Order_a_b_c_2"' in text
    fastavro.parse_schema(parsed_schema)


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (pa.field("the id", pa.int64()), "'the id' can't be the name"),
        (pa.field("s", pa.struct([pa.field("1", pa.int64())])), "'1' can't be the name"),
        (pa.field("d", pa.duration("us")), "d is duration"),
        (pa.field("u", pa.uint64()), "u is uint64"),
        (pa.field("m", pa.map_(pa.int64(), pa.int64())), "m is a map whose keys aren't texts"),
    ],
)
def test_what_avro_has_no_words_for(field: pa.Field, says: str) -> None:
    """A column that Avro can't represent is refused with its name before anything is written."""
    with pytest.raises(NoCounterpartError, match=says):
        schema_text(pa.schema([field]), "R")


def test_selections_are_texts() -> None:
    """A dictionary-encoded column is written as its values."""
    kinds = pa.array(["a", None, "a"]).dictionary_encode()
    assert records([(kinds, True)]).to_pylist() == [b"\x02\x02a", b"\x00", b"\x02\x02a"]


def test_values_are_as_short_as_can_be() -> None:
    """Numbers and decimals take no more bytes than needed: a decimal has the bytes of Java's
    `BigInteger.toByteArray`.
    """
    edges = [
        0,
        1,
        -1,
        63,
        64,
        -64,
        -65,
        127,
        128,
        -128,
        -129,
        255,
        256,
        2**31,
        -(2**31),
        2**62,
        2**63 - 1,
        -(2**63),
    ]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(edges, pa.int64()), pa.array(map(Decimal, edges), pa.decimal128(38, 0))],
        ["n", "d"],
    )
    shortest = [n.to_bytes((n + (n < 0)).bit_length() // 8 + 1, "big", signed=True) for n in edges]
    expected = [
        b"\x02" + varint(n) + b"\x02" + octets(short)
        for n, short in zip(edges, shortest, strict=True)
    ]
    assert encode_batch(batch) == expected
    assert encode_batch(batch.slice(5)) == expected[5:]


def test_days_and_instants() -> None:
    """The first and the last year are written, and so is an empty batch."""
    schema = pa.schema(
        [
            pa.field("day", pa.date32(), nullable=False),
            pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        ]
    )
    ends = [
        (date(1, 1, 1), datetime(1, 1, 1, tzinfo=UTC)),
        (date(9999, 12, 31), datetime(9999, 12, 31, tzinfo=UTC)),
    ]
    batch = pa.RecordBatch.from_pylist(
        [{"day": day, "at": instant} for day, instant in ends], schema=schema
    )
    parsed = fastavro.parse_schema(json.loads(schema_text(schema, "R")))
    assert [
        read_by_fastavro(message, parsed, schema) for message in encode_batch(batch)
    ] == batch.to_pylist()
    assert encode_batch(batch.slice(0, 0)) == []
