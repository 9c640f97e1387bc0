"""The check of columns against the Avro schema, before any message is read.

An error names each column that can't come from its Avro type.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.avro.models import FLAT
from tests.formats.avro.wire import items, text, varint
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.decoder import AvroEncoding, AvroPass
from windrow.ingest.formats.avro.fit import check, ignored_fields
from windrow.ingest.formats.avro.given import GivenSchema
from windrow.ingest.formats.avro.resolve import resolve_schema
from windrow.ingest.formats.avro.schema import AvroSchema, parse_schema
from windrow.ingest.formats.avro.strict import StrictAvro
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.formats.shared.budget import budget
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.columns import Column, Columns, field_of
from windrow.ingest.schema.dtypes import TIMESTAMP
from windrow.ingest.schema.user_code import ModelReference

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
BIG = {"type": "bytes", "logicalType": "big-decimal"}
VARIABLE = {
    "type": "record",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
PAIRS = pa.list_(pa.struct([("value", pa.int32()), ("key", pa.string())]))
CONNECT, DEBEZIUM = "org.apache.kafka.connect.data", "io.debezium.time"
PLACE = {
    "type": "record",
    "name": "P",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}],
}
MEMBERS = ["null", "string", "long", {"type": "array", "items": "int"}, PLACE]
EITHER = pa.struct([("string", pa.string()), ("long", pa.int64())])
"""A union of several kinds, and a struct of two of its members."""


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def named(kind: str, name: str, **more: str) -> dict[str, Any]:
    """Returns an Avro type with the annotations that Kafka Connect writes."""
    return {"type": kind, "connect.name": name, **({"connect.parameters": more} if more else {})}


def schema(kind: Any) -> AvroSchema:
    return parse_schema(
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}), "here"
    )


def columns(kind: pa.DataType, epoch: str | None = None) -> Columns:
    return Columns((Column("a", kind, nullable=True, epoch=epoch),))


@pytest.mark.parametrize(
    ("kind", "column", "epoch"),
    [
        ("int", pa.int8(), None),
        ("int", pa.int64(), None),
        ("long", pa.int16(), None),
        ("long", pa.float32(), None),
        ("int", TIMESTAMP, "s"),
        (logical("int", "time-millis"), pa.int32(), None),
        (logical("long", "time-micros"), pa.int64(), None),
        (logical("long", "local-timestamp-micros"), pa.int64(), None),
        (logical("long", "timestamp-nanos"), TIMESTAMP, None),
        (logical("long", "timestamp-millis"), TIMESTAMP, "ms"),
        (logical("long", "timestamp-millis"), pa.int64(), None),
        (logical("long", "timestamp-millis"), TIMESTAMP, "us"),
        (DECIMAL, pa.decimal128(5, 2), None),
        (DECIMAL, pa.decimal128(6, 3), None),
        (DECIMAL, pa.decimal128(4, 2), None),
        (DECIMAL, pa.decimal128(38, 2), None),
        (DECIMAL, pa.binary(), None),
        (logical("fixed", "uuid", name="U", size=16), pa.binary(), None),
        (logical("fixed", "duration", name="D", size=12), pa.binary(), None),
        ("bytes", pa.string(), None),
        ("string", pa.binary(), None),
        (["int", "long"], pa.int64(), None),
        (["bytes", "string"], pa.string(), None),
        (["null", "float", "double"], pa.float64(), None),
        (PLACE, pa.struct([("y", pa.string())]), None),
        ({"type": "array", "items": PLACE}, pa.list_(pa.struct([("x", pa.int64())])), None),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32()), None),
        ({"type": "map", "values": "int"}, PAIRS, None),
    ],
    ids=str,
)
def test_columns_that_can_come(kind: Any, column: pa.DataType, epoch: str | None) -> None:
    """A column is accepted if it holds each value exactly or refuses it message by message."""
    check(schema(kind), columns(column, epoch))


@pytest.mark.parametrize(
    ("kind", "column", "epoch", "says"),
    [
        (MEMBERS, pa.struct([("string", pa.int64())]), None, "a.string: string can't become int64"),
        (MEMBERS, pa.struct([("string", pa.string()), ("x", pa.int64())]), None, "a: string can't"),
        ("null", pa.string(), None, "a: null can't become string"),
        (["null"], pa.string(), None, "a: the field is always null"),
        ("string", pa.int64(), None, "a: string can't become int64"),
        ("long", pa.string(), None, "a: long can't become string"),
        ("long", TIMESTAMP, None, "a: long can't become timestamp[us, tz=UTC]"),
        ("double", pa.float32(), None, "a: double can't become float"),
        ("double", pa.int64(), None, "a: double can't become int64"),
        ("int", pa.date32(), None, "a: int can't become date32[day]"),
        (
            logical("int", "date"),
            TIMESTAMP,
            "s",
            "a: int (date) can't become timestamp[us, tz=UTC]",
        ),
        (
            logical("long", "local-timestamp-millis"),
            TIMESTAMP,
            None,
            "since it names no moment in time: take Int64",
        ),
        (
            logical("long", "time-micros"),
            TIMESTAMP,
            None,
            "a: long (time-micros) can't become timestamp[us, tz=UTC]",
        ),
        (
            {**VARIABLE, "name": "other.Decimal"},
            pa.decimal128(5, 2),
            None,
            "a: record other.Decimal can't become decimal128(5, 2)",
        ),
        ("bytes", pa.decimal128(5, 2), None, "a: bytes can't become decimal128(5, 2)"),
        (
            logical("fixed", "uuid", name="U", size=16),
            pa.string(),
            None,
            "a: fixed U of 16 bytes (uuid) can't become string",
        ),
        (
            {"type": "fixed", "name": "F", "size": 0},
            pa.binary(),
            None,
            "a: fixed F of 0 bytes can't become binary",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            pa.int32(),
            None,
            "a: enum E can't become int32",
        ),
        (["null", "int", "string"], pa.int64(), None, "a: string can't become int64"),
        (
            {"type": "array", "items": "null"},
            pa.list_(pa.int32()),
            None,
            "a[...]: null can't become int32",
        ),
        ({"type": "array", "items": "string"}, pa.string(), None, "a: array can't become string"),
        (
            {"type": "map", "values": "int"},
            pa.list_(pa.int32()),
            None,
            "a: map can't become list<item: int32>: take List(Struct(",
        ),
        (
            {"type": "map", "values": "string"},
            pa.map_(pa.string(), pa.int32()),
            None,
            "a[...]: string can't become int32",
        ),
        (PLACE, pa.struct([("z", pa.string())]), None, "a.z: the record P has no such field"),
        (PLACE, pa.struct([("x", pa.string())]), None, "a.x: int can't become string"),
        (PLACE, pa.string(), None, "a: record P can't become string"),
    ],
)
def test_columns_that_can_not_come(
    kind: Any, column: pa.DataType, epoch: str | None, says: str
) -> None:
    """The error names the column and both types, and suggests a type if there is one."""
    with pytest.raises(SpecError) as refused:
        check(schema(kind), columns(column, epoch))
    assert says in refused.value.message


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    """The error lists all faults of a schema, also when a pipeline is assembled."""
    (tmp_path / "flat.py").write_text(
        "import pandera.polars as pa\nimport polars as pl\n\n\nclass Other(pa.DataFrameModel):\n   "
        " id: pl.String\n    more: pl.Int64\n"
    )
    with pytest.raises(SpecError) as refused:
        _ = RowDecoder(
            ModelReference("flat.py:Other", tmp_path), AvroEncoding(GivenSchema(FLAT, tmp_path))
        ).columns
    assert (
        "id: long can't become string; more: the Avro schema has no such field"
        in refused.value.message
    )


def test_a_schemas_file_that_is_not_there(tmp_path: Path) -> None:
    """The error names the schema's file if it is missing, is not UTF-8 or holds no schema."""
    folder = Path(__file__).parent
    with pytest.raises(SpecError, match=r"flat\.avsc can't be read: No such file"):
        _ = RowDecoder(
            ModelReference("models.py:Flat", folder), AvroEncoding(GivenSchema("flat.avsc", folder))
        ).columns
    (tmp_path / "models.py").write_text((folder / "models.py").read_text())
    (tmp_path / "flat.avsc").write_bytes(b"\xff")
    with pytest.raises(SpecError, match=r"flat\.avsc can't be read: it is not UTF-8"):
        _ = RowDecoder(
            ModelReference("models.py:Flat", tmp_path),
            AvroEncoding(GivenSchema("flat.avsc", tmp_path)),
        ).columns
    (tmp_path / "flat.avsc").write_text("{")
    with pytest.raises(SpecError, match=r"The Avro schema in flat\.avsc isn't JSON"):
        RowDecoder(
            ModelReference("models.py:Flat", tmp_path),
            AvroEncoding(GivenSchema("flat.avsc", tmp_path)),
        ).open()


def test_a_schemas_file_that_has_changed_counts(tmp_path: Path) -> None:
    """`open` reads the schema's file again, so a changed file applies to the next split."""
    (tmp_path / "models.py").write_text((Path(__file__).parent / "models.py").read_text())
    (tmp_path / "flat.avsc").write_text(FLAT)
    decoder = RowDecoder(
        ModelReference("models.py:Flat", tmp_path), AvroEncoding(GivenSchema("flat.avsc", tmp_path))
    )
    decoder.open()
    (tmp_path / "flat.avsc").write_text(FLAT.replace('"long"', '"string"'))
    with pytest.raises(SpecError, match="id: string can't become int64"):
        decoder.open()


def test_a_task_takes_the_schemas_files_along(tmp_path: Path) -> None:
    """A pickled decoder keeps the schema's files as they were when it was pickled."""
    (tmp_path / "models.py").write_text((Path(__file__).parent / "models.py").read_text())
    (tmp_path / "flat.avsc").write_text(FLAT)
    packed = pickle.dumps(
        RowDecoder(
            ModelReference("models.py:Flat", tmp_path),
            AvroEncoding(GivenSchema("flat.avsc", tmp_path)),
        )
    )
    (tmp_path / "flat.avsc").write_text(FLAT.replace('"long"', '"string"'))
    (tmp_path / "models.py").write_text("Flat = None")
    pickle.loads(packed).open()
    (tmp_path / "flat.avsc").unlink()
    (tmp_path / "models.py").unlink()
    unpickled = pickle.loads(packed)
    assert "id" in unpickled.columns.arrow_schema.names
    assert pickle.loads(pickle.dumps(unpickled)).columns == unpickled.columns


@pytest.mark.parametrize(
    ("kind", "column", "payload", "value"),
    [
        (logical("long", "timestamp-nanos"), TIMESTAMP, varint(-3_000), -3),
        ("long", pa.float64(), varint(1 << 53), float(1 << 53)),
        ("long", pa.float64(), varint((1 << 53) + 1), "out_of_range"),
        ("int", pa.float32(), varint(1 << 24), float(1 << 24)),
        ("int", pa.float32(), varint((1 << 24) + 1), "out_of_range"),
        ("int", pa.float32(), varint((1 << 24) + 2), float((1 << 24) + 2)),
        ("int", pa.float32(), varint(-(1 << 31)), -float(1 << 31)),
        ("long", pa.float64(), varint(-(1 << 63)), -float(1 << 63)),
        (logical("int", "date"), pa.date32(), varint(2_932_896), 2_932_896),
        (logical("int", "date"), pa.date32(), varint(2_932_897), "out_of_range"),
        ("bytes", pa.string(), text(b"\xff"), "invalid_utf8"),
        ("string", pa.binary(), text(b"\xff"), "invalid_utf8"),
        (DECIMAL, pa.decimal128(38, 2), text((10**38).to_bytes(17, "big")), "out_of_range"),
        (decimal(64, 2), pa.decimal128(38, 2), text(b"\x30\x39"), Decimal("123.45")),
        (decimal(64, 2), pa.decimal128(5, 2), text((99_999).to_bytes(3, "big")), Decimal("999.99")),
        (decimal(64, 2), pa.decimal128(5, 2), text((100_000).to_bytes(3, "big")), "out_of_range"),
        (DECIMAL, pa.decimal128(18, 4), text(b"\x30\x39"), Decimal("123.4500")),
        (DECIMAL, pa.decimal128(38, 33), text(b"\xcf\xc7"), Decimal("-123.45")),
        (DECIMAL, pa.decimal128(38, 36), text(b"\x30\x39"), "out_of_range"),
        (decimal(9, 4), pa.decimal128(12, 2), text(b"\x30\x0c"), Decimal("1.23")),
        (decimal(9, 4), pa.decimal128(12, 2), text(b"\x30\x39"), "out_of_range"),
        (VARIABLE, pa.decimal128(20, 4), varint(2) + text(b"\x30\x39"), Decimal("123.4500")),
        (VARIABLE, pa.decimal128(20, 4), varint(-2) + text(b"\xff"), Decimal("-100.0000")),
        (VARIABLE, pa.decimal128(20, 4), varint(5) + text(b"\x01"), "out_of_range"),
        (VARIABLE, pa.decimal128(20, 4), varint(-(1 << 31)) + text(b"\x01"), "out_of_range"),
        (VARIABLE, pa.decimal128(20, 4), varint((1 << 31) - 1) + text(b"\x00"), Decimal("0.0000")),
        (VARIABLE, pa.decimal128(20, 4), varint(2) + text(b""), "not_avro"),
        # Bytes of BigDecimalConversion in Avro for Java 1.12.0: 12.50, -0.001 and 1E+3.
        (BIG, pa.decimal128(20, 4), bytes.fromhex("080404e204"), Decimal("12.5000")),
        (BIG, pa.decimal128(20, 4), bytes.fromhex("0602ff06"), Decimal("-0.0010")),
        (BIG, pa.decimal128(20, 4), bytes.fromhex("06020105"), Decimal("1000.0000")),
        (BIG, pa.decimal128(20, 2), bytes.fromhex("0602ff06"), "out_of_range"),
        (BIG, pa.decimal128(20, 4), bytes.fromhex("0602ff0600"), "not_avro"),
        (BIG, pa.decimal128(20, 4), bytes.fromhex("0802ff06"), "not_avro"),
        (BIG, pa.binary(), bytes.fromhex("0602ff06"), bytes.fromhex("02ff06")),
        (
            named("bytes", f"{CONNECT}.Decimal", scale="2"),
            pa.decimal128(9, 2),
            text(b"\x30\x39"),
            Decimal("123.45"),
        ),
        (named("int", f"{CONNECT}.Date"), pa.date32(), varint(10_957), 10_957),
        (named("int", f"{DEBEZIUM}.Date"), pa.date32(), varint(2_932_897), "out_of_range"),
        (named("long", f"{CONNECT}.Timestamp"), TIMESTAMP, varint(5), 5_000),
        (named("long", f"{DEBEZIUM}.Timestamp"), TIMESTAMP, varint(5), 5_000),
        (named("long", f"{DEBEZIUM}.MicroTimestamp"), TIMESTAMP, varint(5), 5),
        (
            named("string", f"{DEBEZIUM}.ZonedTimestamp"),
            TIMESTAMP,
            text("1970-01-01T01:00:00.000005+01:00"),
            5,
        ),
        (
            named("string", f"{DEBEZIUM}.ZonedTimestamp"),
            TIMESTAMP,
            text("1970-01-01T00:00:00.000005Zx"),
            "wrong_format",
        ),
        (
            named("string", f"{DEBEZIUM}.ZonedTimestamp"),
            TIMESTAMP,
            text(b"1970-01-01T00:00:00\xff"),
            "invalid_utf8",
        ),
        (
            {"type": "array", "items": named("int", f"{DEBEZIUM}.Date")},
            pa.list_(pa.date32()),
            items(varint(10_957)),
            [10_957],
        ),
        (
            {"type": "map", "values": "int"},
            PAIRS,
            items(text("k") + varint(7)),
            [{"key": "k", "value": 7}],
        ),
        (
            {"type": "map", "values": "int"},
            PAIRS,
            items(*[text("k") + varint(7)] * 2),
            "duplicate_key",
        ),
        (
            {
                "type": "record",
                "name": "Q",
                "fields": [{"name": "m", "type": {"type": "map", "values": "int"}}],
            },
            pa.struct([("m", PAIRS)]),
            items(text("a") + varint(7)),
            {"m": [{"key": "a", "value": 7}]},
        ),
        (MEMBERS, EITHER, varint(0), None),
        (MEMBERS, EITHER, varint(1) + text("a"), {"string": "a"}),
        (MEMBERS, EITHER, varint(2) + varint(7), {"long": 7}),
        (MEMBERS, EITHER, varint(3) + items(varint(1)), {}),
        (MEMBERS, EITHER, varint(4) + varint(1) + text("y"), {}),
        (MEMBERS, EITHER, varint(5), "not_avro"),
        (MEMBERS, EITHER, varint(1) + text(b"\xff"), "invalid_utf8"),
        (
            MEMBERS,
            pa.struct([("array", pa.list_(pa.int32())), ("P", pa.struct([("y", pa.string())]))]),
            varint(4) + varint(1) + text("y"),
            {"P": {"y": "y"}},
        ),
        (
            {"type": "array", "items": MEMBERS},
            pa.list_(EITHER),
            items(varint(2) + varint(7), varint(0), varint(1) + text("a")),
            [{"long": 7}, None, {"string": "a"}],
        ),
        (
            {"type": "array", "items": DECIMAL},
            pa.list_(pa.decimal128(9, 4)),
            items(text(b"\x01")),
            [Decimal("0.0100")],
        ),
    ],
    ids=str,
)
def test_values_at_the_edge_of_a_column(
    kind: Any, column: pa.DataType, payload: bytes, value: object
) -> None:
    """Both decoders take a value that the column holds exactly, and refuse others.

    The schema states the unit and the scale.
    """
    strict, fast = (
        StrictAvro(schema(kind), columns(column)),
        machine_of(schema(kind), columns(column)),
    )
    decoded = fast.decode(pa.array([payload], pa.binary()), "dead")
    if isinstance(value, str):
        with pytest.raises(RefusedValueError) as refused:
            strict.decode(payload)
        assert (refused.value.reason, decoded.dead_reason.to_pylist()) == (value, [value])
    else:
        assert strict.decode(payload) == [value]
        assert decoded.rows.column(0).equals(pa.array([value], column))


def test_a_stated_unit_counts() -> None:
    """The schema's unit overrides the `epoch` of the column."""
    parsed = schema(logical("long", "timestamp-millis"))
    assert StrictAvro(parsed, columns(TIMESTAMP, "us")).decode(varint(5)) == [5_000]


def test_members_without_a_column_are_told() -> None:
    """The members that a struct leaves out are named as ignored, and fields inside one, too."""
    column = pa.struct([("string", pa.string()), ("P", pa.struct([("y", pa.string())]))])
    assert ignored_fields(schema(MEMBERS), columns(column)) == ("a.long", "a.array", "a.P.x")


def test_members_of_a_record_that_is_resolved() -> None:
    """By a registry, a member that lacks a field of its struct has null there."""
    place = pa.struct([("y", pa.string()), ("z", pa.int64())])
    wanted = columns(pa.struct([("P", place), ("long", pa.int64())]))
    resolved = resolve_schema(schema(MEMBERS), wanted)
    values = [varint(4) + varint(1) + text("b"), varint(2) + varint(7)]
    decoded = machine_of(resolved, wanted).decode(pa.array(values, pa.binary()), "dead")
    rows = [{"P": {"y": "b", "z": None}, "long": None}, {"P": None, "long": 7}]
    assert decoded.rows.column(0).to_pylist() == rows
    assert [StrictAvro(resolved, wanted).decode(value)[0] for value in values] == [
        {"P": {"y": "b"}},
        {"long": 7},
    ]


@pytest.mark.parametrize("kind", [DECIMAL, named("string", f"{DEBEZIUM}.ZonedTimestamp")], ids=str)
def test_what_the_pass_takes(kind: Any) -> None:
    """The compiled pass reads decimals with added zeros, and timestamps written as texts."""
    target_columns = columns(pa.decimal128(38, 20) if kind is DECIMAL else TIMESTAMP)
    message = text(b"\xcf\xc7") if kind is DECIMAL else text("2020-01-01T00:00:00Z")
    assert (
        AvroPass(schema(kind), target_columns).decode(pa.array([message], pa.binary())).mask.all()
    )


@pytest.mark.parametrize("epoch", [None, "ms"])
def test_a_text_that_is_a_timestamp_has_no_unit(epoch: str | None) -> None:
    """A timestamp written as text ignores the column's unit for numbers, in both decoders."""
    target_columns = Columns((Column("a", TIMESTAMP, nullable=False, epoch=epoch),))
    machine = machine_of(schema(named("string", f"{DEBEZIUM}.ZonedTimestamp")), target_columns)
    message = text("1970-01-01T00:00:00.000005Z")
    decoded = machine.decode(pa.array([message], pa.binary()), "dead")
    assert decoded.rows.column(0).cast(pa.int64()).to_pylist() == [5]
    assert machine.strict.decode(message) == [5]


@pytest.mark.parametrize(
    ("kind", "epoch"),
    [
        (logical("long", "timestamp-nanos"), None),
        (named("long", f"{DEBEZIUM}.NanoTimestamp"), None),
        ("long", "ns"),
    ],
    ids=["type", "name", "metadata"],
)
def test_timestamps_finer_than_a_microsecond(kind: Any, epoch: str | None) -> None:
    """Both decoders round finer timestamps down to the microsecond, and count them.

    This holds before 1970 too. With `finer: dead` both decoders refuse such messages.
    """
    target_columns, payloads = (
        Columns((Column("a", TIMESTAMP, nullable=False, epoch=epoch),)),
        [varint(n) for n in (1_001, -1, 5_000)],
    )
    machine = machine_of(schema(kind), target_columns)
    decoded = machine.decode(pa.array(payloads, pa.binary()), "dead")
    assert (decoded.rows.column(0).cast(pa.int64()).to_pylist(), decoded.truncated) == (
        [1, -1, 5],
        2,
    )
    assert len(machine.fast.decode(pa.array(payloads, pa.binary())).truncated) == 2
    assert [machine.strict.decode(payload) for payload in payloads] == [[1], [-1], [5]]
    zoned, texts = (
        schema(named("string", f"{DEBEZIUM}.ZonedTimestamp")),
        pa.array([text("1969-12-31T23:59:59.9999999Z")], pa.binary()),
    )
    for finer, verdict in (("truncate", ([0], 1)), ("dead", ([], 0))):
        either = machine_of(zoned, replace(columns(TIMESTAMP), finer=finer)).decode(texts, "dead")
        assert (either.row_index.to_pylist(), either.truncated) == verdict
    refused = machine_of(schema(kind), replace(target_columns, finer="dead")).decode(
        pa.array(payloads, pa.binary()), "dead"
    )
    assert (refused.row_index.to_pylist(), refused.dead_reason.to_pylist(), refused.truncated) == (
        [2],
        ["out_of_range"] * 2,
        0,
    )


def test_a_zone_is_for_texts() -> None:
    """A column with a zone is refused, also in a record, because no Avro type uses the zone."""
    zoned = Column("a", TIMESTAMP, nullable=True, zone="UTC")
    inside = schema(
        {
            "type": "record",
            "name": "P",
            "fields": [{"name": "a", "type": logical("long", "timestamp-millis")}],
        }
    )
    for written, target_columns in (
        (schema(logical("long", "timestamp-millis")), Columns((zoned,))),
        (inside, columns(pa.struct([field_of(zoned)]))),
    ):
        with pytest.raises(SpecError, match="metadata zone is for timestamps that are text"):
            check(written, target_columns)


def test_items_that_cost_more_than_they_bring() -> None:
    """A message whose items need much more memory than their bytes is refused by both decoders.

    A null item of a wide struct is one byte, but takes memory for each field of the struct.
    """
    wide = {
        "type": "record",
        "name": "W",
        "fields": [{"name": f"x{i}", "type": "int"} for i in range(100)],
    }
    parsed = schema({"type": "array", "items": ["null", wide]})
    target_columns = columns(pa.list_(pa.struct([(f"x{i}", pa.int32()) for i in range(100)])))
    machine = machine_of(parsed, target_columns)
    max_items = next(
        n for n in range(1000, 10_000) if 909 * (n + 1) > budget(len(items(*[varint(0)] * (n + 1))))
    )
    messages = [items(*[varint(0)] * n) for n in (max_items, max_items + 1, 100_000, 1)]
    decoded = machine.decode(pa.array(messages, pa.binary()), "dead")
    assert (decoded.row_index.to_pylist(), decoded.dead_reason.to_pylist()) == (
        [0, 3],
        ["too_large", "too_large"],
    )
    assert machine.fast.decode(pa.array(messages, pa.binary())).mask.tolist() == [
        True,
        False,
        False,
        True,
    ]


def machine_of(parsed: AvroSchema, target_columns: Columns) -> BatchDecoder:
    """Returns the batch decoder for columns that have no model."""
    return BatchDecoder(
        target_columns.arrow_schema,
        AvroPass(parsed, target_columns),
        StrictAvro(parsed, target_columns),
    )
