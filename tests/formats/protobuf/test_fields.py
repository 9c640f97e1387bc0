"""The check of columns against the fields of a message type, before any message is read.

An error names each column that can't come from its field.
"""

from __future__ import annotations

import importlib.util
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.protobuf import descriptors
from windrow.ingest.formats.protobuf.decoder import ProtobufEncoding, protobuf_batch_decoder
from windrow.ingest.formats.protobuf.descriptors import (
    TypesFile,
    compiled_text,
    descriptor_set,
    message_type,
)
from windrow.ingest.formats.protobuf.fields import reader
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import TIMESTAMP
from windrow.ingest.schema.user_code import ModelReference

HERE = Path(__file__).parent
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())]))


def order() -> Any:
    return message_type(descriptor_set(HERE / "things.proto"), "shop.Order", "things.proto")


def column_of(name: str, kind: pa.DataType, epoch: str | None = None) -> Columns:
    return Columns((Column(name, kind, nullable=True, epoch=epoch),))


@pytest.mark.parametrize(
    ("name", "kind", "epoch"),
    [
        ("id", pa.int8(), None),
        ("id", pa.float64(), None),
        ("id", TIMESTAMP, "ms"),
        ("large", pa.float32(), None),
        ("name", pa.binary(), None),
        ("code", pa.string(), None),
        ("kind", pa.int32(), None),
        ("share", pa.float64(), None),
        ("at", TIMESTAMP, None),
        ("at", pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())]), None),
        ("boxes", pa.struct([("value", pa.int64())]), None),
        ("large", pa.decimal128(20, 0), None),
        ("stock", pa.map_(pa.string(), pa.float64()), None),
        ("stock", PAIRS, None),
        ("place", pa.struct([("zip", pa.int16())]), None),
        ("before", pa.struct([("before", pa.struct([("id", pa.int64())]))]), None),
    ],
    ids=str,
)
def test_columns_that_can_come(name: str, kind: pa.DataType, epoch: str | None) -> None:
    """A column is accepted if it holds each value exactly or refuses it message by message."""
    assert callable(reader(order(), column_of(name, kind, epoch)))


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("other", pa.string(), "other: shop.Order has no such field"),
        ("id", pa.string(), "id: int64 can't become string"),
        ("id", TIMESTAMP, "id: int64 can't become timestamp[us, tz=UTC]"),
        ("large", pa.decimal128(20, 1), "large: uint64 can't become decimal128(20, 1)"),
        ("name", pa.int64(), "name: string can't become int64"),
        ("at", pa.string(), "at: message google.protobuf.Timestamp can't become string"),
        ("tags", pa.int32(), "tags: repeated int32 can't become int32"),
        ("tags", pa.list_(pa.string()), "tags[...]: repeated int32 can't become string"),
        ("id", pa.list_(pa.int64()), "id: int64 can't become list<item: int64>"),
        ("stock", pa.map_(pa.string(), pa.string()), "stock[...]: int64 can't become string"),
        ("stock", pa.string(), "stock: a map can't become string"),
        ("place", pa.struct([("town", pa.string())]), "place.town: shop.Place has no such field"),
        ("place", pa.struct([("lat", pa.float32())]), "place.lat: double can't become float"),
        ("boxes", pa.string(), "boxes: int32 can't become string"),
        ("kind", pa.float64(), "kind: enum can't become double"),
    ],
)
def test_columns_that_can_not_come(name: str, kind: pa.DataType, says: str) -> None:
    """The error names the column and both types."""
    with pytest.raises(SpecError) as refused:
        reader(order(), column_of(name, kind))
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("file", "message", "says"),
    [
        ("none.proto", "shop.Order", r"none\.proto can't be read: No such file"),
        ("things.proto", "shop.Other", r"things\.proto has no message type shop\.Other"),
        (
            "broken.proto",
            "shop.Order",
            r"broken\.proto can't be compiled: .*broken\.proto:1:1: Expected",
        ),
        ("models.py", "shop.Order", r"models\.py can't be used: DecodeError"),
        ("half.desc", "shop.Order", r"half\.desc can't be used: TypeError"),
    ],
)
def test_files_that_have_no_such_type(tmp_path: Path, file: str, message: str, says: str) -> None:
    """A file without the message type raises SpecError before anything is read."""
    for name in ("things.proto", "models.py"):
        (tmp_path / name).write_text((HERE / name).read_text())
    (tmp_path / "broken.proto").write_text("no protobuf")
    from google.protobuf import descriptor_pb2

    full_set = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set(HERE / "things.proto"))
    (tmp_path / "half.desc").write_bytes(
        descriptor_pb2.FileDescriptorSet(file=full_set.file[-1:]).SerializeToString()
    )
    with pytest.raises(SpecError, match=says):
        _ = RowDecoder(
            ModelReference("models.py:Order", tmp_path),
            ProtobufEncoding(TypesFile(tmp_path, file), message),
        ).columns


def test_a_file_in_a_folder_that_is_told_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec's folder may be a relative path, although the compiler runs in the file's folder."""
    monkeypatch.chdir(HERE.parent)
    assert descriptor_set(Path(HERE.name) / "things.proto") == descriptor_set(HERE / "things.proto")


def test_a_compiler_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing compiler raises SpecError that names the extra to install."""
    descriptors.compiled_file.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SpecError, match=r"grpcio-tools isn't installed") as refused:
        descriptor_set(HERE / "things.proto")
    assert "pip install 'windrow-ingest[protobuf]'" in refused.value.advice


def test_a_type_that_has_changed_counts(tmp_path: Path) -> None:
    """`open` reads the .proto file and its imports again, so a change applies to the next split."""
    (tmp_path / "models.py").write_text((HERE / "models.py").read_text())
    (tmp_path / "inner.proto").write_text(
        'syntax = "proto3"; package shop; message Id { int64 id = 1; }'
    )
    (tmp_path / "flat.proto").write_text(
        'syntax = "proto3"; package shop; import "inner.proto"; message Flat { int64 id = 1;'
        " optional string name = 2; Id more = 3; }"
    )
    decoder = RowDecoder(
        ModelReference("models.py:Flat", tmp_path),
        ProtobufEncoding(TypesFile(tmp_path, "flat.proto"), "shop.Flat"),
    )
    decoder.open()
    old_descriptors = descriptor_set(tmp_path / "flat.proto")
    (tmp_path / "inner.proto").write_text(
        'syntax = "proto3"; package shop; message Id { string id = 1; }'
    )
    assert descriptor_set(tmp_path / "flat.proto") != old_descriptors


@pytest.mark.parametrize(
    "fields",
    [
        "int64 nanos = 1; int32 seconds = 2;",
        "string seconds = 1; int32 nanos = 2;",
        "int64 seconds = 1; int32 nanos = 2; Order more = 3;",
        "",
        "repeated int64 seconds = 1; int32 nanos = 2;",
        "optional int64 seconds = 1; int32 nanos = 2;",
    ],
)
def test_a_type_that_is_only_called_an_instant(fields: str) -> None:
    """A type with the name of Google's Timestamp but other fields is refused.

    The meaning of its fields is unknown.
    """
    kind = called("Timestamp", fields)
    with pytest.raises(
        SpecError, match=r"it: message google.protobuf.Timestamp can't become timestamp"
    ):
        reader(kind, column_of("it", TIMESTAMP))


@pytest.mark.parametrize(
    "fields",
    [
        "",
        "int64 value = 2;",
        "string value = 1;",
        "repeated int64 value = 1;",
        "optional int64 value = 1;",
    ],
)
def test_a_type_that_is_only_called_a_wrapper(fields: str) -> None:
    """A type with the name of Google's Int64Value but other fields is refused."""
    with pytest.raises(
        SpecError, match=r"it: message google.protobuf.Int64Value can't become int64"
    ):
        reader(called("Int64Value", fields), column_of("it", pa.int64()))


@pytest.mark.parametrize(
    ("name", "fields", "kind"),
    [
        ("Timestamp", "int64 seconds = 1; int32 nanos = 2;", TIMESTAMP),
        ("UInt32Value", "uint32 value = 1;", pa.int64()),
        ("BytesValue", "bytes value = 1;", pa.binary()),
    ],
)
def test_a_type_like_googles_is_googles(name: str, fields: str, kind: pa.DataType) -> None:
    """A copy of Google's types is accepted, because registries keep copies of their files."""
    assert callable(reader(called(name, fields), column_of("it", kind)))


def called(name: str, fields: str) -> Any:
    """Returns a message with a field whose type has the name of one of Google's types."""
    text = (
        f'syntax = "proto3"; package google.protobuf; message {name} {{ {fields} }} message Order'
        f" {{ {name} it = 1; }}"
    )
    return message_type(compiled_text(text, (), "a test"), "google.protobuf.Order", "a test")


@pytest.mark.parametrize(
    ("kind", "column", "value", "fits"),
    [
        ("uint64", pa.decimal128(20, 0), (1 << 64) - 1, True),
        ("fixed64", pa.decimal128(20, 0), 1 << 63, True),
        ("uint64", pa.decimal128(19, 0), (1 << 63) - 1, True),
        ("uint64", pa.decimal128(19, 0), 10**19, False),
        ("int64", pa.decimal128(19, 0), -(1 << 63), True),
        ("sint32", pa.decimal128(3, 0), -1000, False),
        ("int32", pa.decimal128(3, 0), 999, True),
        ("int32", pa.float32(), -(1 << 31), True),
        ("uint64", pa.float64(), (1 << 64) - (1 << 11), True),
        ("int64", pa.float64(), -1, True),
        ("uint64", pa.float64(), (1 << 64) - 1, False),
        ("int32", pa.float32(), (1 << 24) + 1, False),
    ],
)
def test_integers_that_a_column_holds_exactly(
    kind: str, column: pa.DataType, value: int, fits: bool
) -> None:
    """A column takes the integers that it holds exactly, alone and packed in a list.

    Decimal(20, 0) holds all unsigned integers of 64 bits. A float holds only some integers.
    """
    text = (
        f'syntax = "proto3"; message M {{ {kind} a = 1; repeated {kind} b = 2; optional {kind} c ='
        " 3; }"
    )
    descriptor = message_type(compiled_text(text, (), "a test"), "M", "a test")
    columns = Columns(
        (
            Column("a", column, nullable=False),
            Column("b", pa.list_(column), nullable=False),
            Column("c", column, nullable=True),
        )
    )
    value_as, message = (
        Decimal(value) if pa.types.is_decimal(column) else value,
        GetMessageClass(descriptor)(a=value, b=[0, value]),
    )
    decoded = protobuf_batch_decoder(descriptor, columns).decode(
        pa.array([message.SerializeToString()], pa.binary()), "dead"
    )
    assert decoded.rows.to_pylist() == (
        [{"a": value_as, "b": [0, value_as], "c": None}] if fits else []
    )
    assert decoded.dead_reason.to_pylist() == ([] if fits else ["out_of_range"])
