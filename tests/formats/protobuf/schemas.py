"""Random message types, columns that can come from them, and messages, whole and broken."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2, wrappers_pb2

from tests.formats.protobuf.wire import BEGIN, EIGHT, END, FOUR, SIZED, VARINT, tag, varint
from windrow.ingest.formats.protobuf.fields import TYPES
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import TIMESTAMP

NUMBERS = {name: number for number, name in TYPES.items()}
SCALARS = [name for name in NUMBERS if name not in {"group", "message", "enum"}]
INTEGERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float64(),
    pa.float32(),
    *(pa.decimal128(n, 0) for n in (9, 19, 20)),
]
COLUMNS = {
    "bool": [pa.bool_()],
    "float": [pa.float32(), pa.float64()],
    "double": [pa.float64()],
    "string": [pa.string(), pa.binary()],
    "bytes": [pa.binary(), pa.string()],
    "enum": [pa.string(), pa.int32(), pa.int64(), pa.int8()],
}
WRAPPERS = {
    "google.protobuf.Int64Value": "int64",
    "google.protobuf.UInt32Value": "uint32",
    "google.protobuf.StringValue": "string",
    "google.protobuf.BoolValue": "bool",
    "google.protobuf.DoubleValue": "double",
    "google.protobuf.BytesValue": "bytes",
}
INSTANT = "google.protobuf.Timestamp"
Descriptor = Any


@dataclass
class Made:
    """A message type and columns that can come from it."""

    kind: Descriptor
    columns: Columns


@dataclass
class _Maker:
    r: random.Random
    proto2: bool
    file: descriptor_pb2.FileDescriptorProto = field(
        default_factory=descriptor_pb2.FileDescriptorProto
    )

    def message(self, name: str, depth: int, into: Any = None) -> None:
        """Adds a message type with random fields."""
        r, message_type = self.r, self.file.message_type.add() if into is None else into
        message_type.name = name
        numbers = r.sample([*range(1, 20), 100, 1023, 1024, 5000, (1 << 29) - 1], r.randint(1, 8))
        if r.random() < 0.3:
            message_type.oneof_decl.add(name="way")
            for i in range(r.randint(1, 3)):
                message_type.field.add(
                    name=f"o{i}",
                    number=30 + i,
                    label=1,
                    type=NUMBERS[r.choice(SCALARS)],
                    oneof_index=0,
                )
        for i, number in enumerate(numbers):
            self._field(message_type, f"f{i}", number, depth, name)

    def _field(
        self, message_type: Any, name: str, number: int, depth: int, message_name: str
    ) -> None:
        r = self.r
        added = message_type.field.add(name=name, number=number, label=r.choice((1, 1, 1, 3)))
        roll = r.random()
        if roll < 0.1 and depth:
            self._map(message_type, added, depth)
        elif roll < 0.3 and depth:
            inner = f"{message_name}X{number}"
            self.message(inner, depth - 1)
            added.type, added.type_name = NUMBERS["message"], f".t.{inner}"
        elif roll < 0.35:
            added.type, added.type_name = (
                NUMBERS["message"],
                (f".t.{message_name}" if not depth else ".t.Root"),
            )
        elif roll < 0.45:
            added.type, added.type_name = NUMBERS["message"], f".{r.choice([*WRAPPERS, INSTANT])}"
        elif roll < 0.55:
            added.type, added.type_name = NUMBERS["enum"], ".t.Kind"
        else:
            added.type = NUMBERS[r.choice(SCALARS)]
        if added.label == 1 and self.proto2 and r.random() < 0.1:
            added.label = 2
        if added.label == 1 and self.proto2 and added.type == NUMBERS["int32"] and r.random() < 0.5:
            added.default_value = str(r.choice((5, -3, 70_000)))
        if added.label == 1 and not self.proto2 and not added.type_name and r.random() < 0.3:
            message_type.oneof_decl.add(name=f"_{name}")
            added.proto3_optional, added.oneof_index = True, len(message_type.oneof_decl) - 1

    def _map(self, message_type: Any, added: Any, depth: int) -> None:
        entry = message_type.nested_type.add(name=f"{added.name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(
            name="key",
            number=1,
            label=1,
            type=NUMBERS[self.r.choice(("string", "string", "int32"))],
        )
        value = entry.field.add(name="value", number=2, label=1)
        if self.r.random() < 0.4:
            inner = f"{message_type.name}M{added.number}"
            self.message(inner, depth - 1)
            value.type, value.type_name = NUMBERS["message"], f".t.{inner}"
        else:
            value.type = NUMBERS[self.r.choice(SCALARS)]
        added.label, added.type, added.type_name = (
            3,
            NUMBERS["message"],
            f".t.{message_type.name}.{entry.name}",
        )


def random_schema(r: random.Random) -> Made:
    """Returns a random message type with columns."""
    maker = _Maker(r, proto2=r.random() < 0.3)
    file = maker.file
    file.name, file.package, file.syntax = "t.proto", "t", "proto2" if maker.proto2 else "proto3"
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    enum = file.enum_type.add(name="Kind")
    for i, number in enumerate([0, *sorted(r.sample([1, 2, 3, 7, -4, 200], r.randint(1, 4)))]):
        enum.value.add(name=f"K{i}", number=number)
    maker.message("Root", 2)
    pool = descriptor_pool.DescriptorPool()
    for well_known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(well_known.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    kind = pool.FindMessageTypeByName("t.Root")
    columns = tuple(
        Column(descriptor.name, column, nullable, "ms" if epoch else None)
        for descriptor in kind.fields
        for column, epoch in [_column(r, descriptor, 2, epochs=True)]
        for nullable in [r.random() < 0.8]
        if column is not None and r.random() < 0.8
    )
    return Made(kind, Columns(columns)) if columns else random_schema(r)


def _column(
    r: random.Random, descriptor: Any, depth: int, *, epochs: bool = False
) -> tuple[pa.DataType | None, bool]:
    """Returns a type that a field can become, and whether the field is an epoch."""
    inner = descriptor.message_type
    if inner is not None and inner.GetOptions().map_entry:
        fields = inner.fields_by_name
        value, _ = _value_column(r, fields["value"], depth - 1)
        if value is None:
            return None, False
        if TYPES[fields["key"].type] == "string" and r.random() < 0.8:
            return pa.map_(pa.string(), value), False
        key, _ = _value_column(r, fields["key"], depth)
        return pa.list_(pa.struct([("key", key), ("value", value)])), False
    value, epoch = _value_column(r, descriptor, depth, epochs=epochs and not descriptor.is_repeated)
    return (
        (pa.list_(value), False) if descriptor.is_repeated and value is not None else (value, epoch)
    )


def _value_column(
    r: random.Random, descriptor: Any, depth: int, *, epochs: bool = False
) -> tuple[pa.DataType | None, bool]:
    inner, name = descriptor.message_type, TYPES[descriptor.type]
    if inner is not None and inner.full_name == INSTANT and r.random() < 0.8:
        return TIMESTAMP, False
    if inner is not None and inner.full_name in WRAPPERS and r.random() < 0.8:
        return _value_column(r, inner.fields_by_name["value"], depth, epochs=epochs)
    if inner is not None:
        parts = (
            [(f.name, _column(r, f, depth - 1)[0]) for f in inner.fields if r.random() < 0.7]
            if depth > 0
            else []
        )
        parts = [part for part in parts if part[1] is not None]
        return (pa.struct(parts), False) if parts else (None, False)
    if name in COLUMNS:
        return r.choice(COLUMNS[name]), False
    if epochs and r.random() < 0.1:
        return TIMESTAMP, True
    return r.choice([pa.int64(), pa.int64(), *INTEGERS]), False


# --------------------------------------------------------------------------------------------------


def message(r: random.Random, kind: Descriptor, depth: int = 3, odd: float = 0.02) -> bytes:
    """Returns a message in an encoding that a writer may choose.

    Its fields may be unordered, repeated, unknown, packed or not. Its numbers include edge
    cases.
    """
    pieces = []
    for descriptor in kind.fields:
        if descriptor.is_required or r.random() < 0.7:
            times = r.randint(0, 3) if descriptor.is_repeated else 1 + (r.random() < odd)
            values = [_value(r, descriptor, depth, odd) for _ in range(times)]
            pieces += _write(r, descriptor, values, odd)
    if r.random() < 0.3:
        r.shuffle(pieces)
    if r.random() < odd:
        unknown = r.choice(
            [
                tag(77, VARINT) + varint(5),
                tag(99, SIZED) + b"\x02ab",
                tag(78, EIGHT) + b"8" * 8,
                tag(79, FOUR) + b"4444",
            ]
        )
        pieces.insert(r.randint(0, len(pieces)), r.choice([unknown, tag(80, BEGIN) + tag(80, END)]))
    return b"".join(pieces)


def _write(
    r: random.Random, descriptor: Any, values: list[tuple[int, bytes]], odd: float
) -> list[bytes]:
    if descriptor.is_repeated and values and values[0][0] != SIZED and r.random() < 0.6:
        octets = b"".join(value for _, value in values)
        return [tag(descriptor.number, SIZED) + varint(len(octets)) + octets]
    if r.random() < odd / 5:  # A field with another wire type.
        others = [(VARINT, b"\x05"), (EIGHT, b"8" * 8), (SIZED, b"\x02ab"), (FOUR, b"4444")]
        wire, octets = r.choice(others)
        return [tag(descriptor.number, wire) + octets]
    return [
        tag(descriptor.number, wire) + (varint(len(value)) + value if wire == SIZED else value)
        for wire, value in values
    ]


def _value(r: random.Random, descriptor: Any, depth: int, odd: float) -> tuple[int, bytes]:
    """Returns the wire type and the bytes of a value."""
    name, inner = TYPES[descriptor.type], descriptor.message_type
    if inner is not None:
        if inner.full_name == INSTANT:
            seconds = r.choice([0, 1, -1, r.randint(-62135596800, 253402300799)])
            nanos = r.choice(
                [0, 5_000, 999_999_000] + ([1, -1, 1 << 31] if r.random() < 3 * odd else [])
            )
            return SIZED, tag(1, VARINT) + varint(seconds) + tag(2, VARINT) + varint(nanos)
        return SIZED, message(r, inner, depth - 1, odd) if depth > 0 else b""
    if name == "string":
        return SIZED, r.choice(["", "a", "aé€😀", "x" * r.randint(1, 20)]).encode() + (
            b"\xff" if r.random() < odd / 2 else b""
        )
    if name == "bytes":
        return SIZED, r.choice([b"", b"\xff\0", b"abc"])
    if name == "double":
        return EIGHT, struct.pack(
            "<d", r.choice([0.0, -0.0, 1.5, float("nan"), float("inf"), r.uniform(-1e9, 1e9)])
        )
    if name == "float":
        return FOUR, struct.pack(
            "<f", r.choice([0.0, -0.0, 1.5, float("nan"), r.uniform(-1e9, 1e9)])
        )
    if name in {"fixed64", "sfixed64"}:
        return EIGHT, struct.pack("<Q", _number(r, odd) & (1 << 64) - 1)
    if name in {"fixed32", "sfixed32"}:
        return FOUR, struct.pack("<I", _number(r, odd) & (1 << 32) - 1)
    if name == "enum":
        return VARINT, varint(r.choice([0, 1, 2, 3] if r.random() > odd else [99, -4, 7, 1 << 40]))
    if name == "bool":
        return VARINT, varint(r.choice([0, 1, 1] if r.random() > odd else [2, -1]))
    return VARINT, varint(_number(r, odd), r.choice([0] * 20 + [1]))


def _number(r: random.Random, odd: float) -> int:
    if r.random() < 2 * odd:
        return r.choice(
            [
                -(1 << 63),
                (1 << 63) - 1,
                1 << 31,
                -(1 << 31),
                (1 << 32) - 1,
                1 << 32,
                -1,
                40_000,
                253402300799999,
                1 << 53,
            ]
        )
    return r.choice([0, 1, 5, 100, 127])


def mutate(r: random.Random, payload: bytes) -> bytes:
    """Returns the message with one random change."""
    position = r.randrange(len(payload) + 1)
    return r.choice(
        [
            payload[:position],
            payload[:position] + r.randbytes(r.randint(1, 3)) + payload[position:],
            payload[:position] + payload[position + 1 :],
            payload + b"\x0c",
            payload[:position] + bytes([r.randrange(256)]) + payload[position + 1 :],
            payload[:position] + b"\xff" * 11,
        ]
    )
