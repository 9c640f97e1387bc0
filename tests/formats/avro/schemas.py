"""Random Avro schemas, columns that fit them, and messages, whole and broken.

All of them come from a seed. `Reference` reads the messages with fastavro.
"""

from __future__ import annotations

import io
import math
import random
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import fastavro
import pyarrow as pa

from tests.formats.avro.wire import items, sized, text, varint
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import TIMESTAMP, epoch_ratio

TEXTS = (
    "",
    "a",
    "customer-12345",
    "seven77",
    "eight888",
    "größer",
    "日本語の文字列",
    "😀😀",
    "x" * 70,
    "\x00",
    "null",
    "é" * 8,
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_SECOND = 253_402_300_799
FIRST_SECOND = -62_135_596_800
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.float32())


@dataclass
class Made:
    """A random Avro schema with columns that can come from it.

    Attributes:
        avro: the schema of the record.
        columns: the columns.
        named: the schema's named types by their full names.
    """

    avro: dict[str, Any]
    columns: Columns = field(default_factory=lambda: Columns(()))
    named: dict[str, Any] = field(default_factory=dict)


def random_schema(r: random.Random, max_fields: int = 8) -> Made:
    """Returns a record schema. Most of its fields have a column."""
    while True:
        maker = _Maker(r)
        fields = [{"name": f"f{i}", "type": maker.type(0)} for i in range(r.randint(1, max_fields))]
        columns = [
            column
            for avro_field in fields
            if r.random() < 0.8 and (column := maker.column(avro_field["name"], avro_field["type"]))
        ]
        if columns:
            r.shuffle(columns)
            return Made(
                {
                    "type": "record",
                    "name": "Top",
                    "namespace": r.choice(("", "shop")),
                    "fields": fields,
                },
                Columns(tuple(columns)),
                maker.named,
            )


class _Maker:
    def __init__(self, r: random.Random) -> None:
        self._r = r
        self.named: dict[str, Any] = {}

    def type(self, depth: int) -> Any:
        r = self._r
        if depth < 3 and r.random() < 0.45:
            nested = r.randrange(5)
            if nested == 0:
                return {"type": "array", "items": self.type(depth + 1)}
            if nested == 1:
                return {"type": "map", "values": self.type(depth + 1)}
            if nested == 2:
                return self._record(depth)
            return self._union(depth)
        usable_names = [
            name for name, definition in self.named.items() if definition.get("fields") != []
        ]
        if usable_names and r.random() < 0.1:
            return r.choice(usable_names)
        return r.choice(
            (self._primitive, self._primitive, self._logical, self._fixed, self._enum)
        )()

    def _primitive(self) -> Any:
        return self._r.choice(
            (
                "null",
                "boolean",
                "int",
                "int",
                "long",
                "long",
                "float",
                "double",
                "bytes",
                "string",
                "string",
            )
        )

    def _logical(self) -> Any:
        r = self._r
        scale = r.randint(0, 6)
        return r.choice(
            (
                {"type": "int", "logicalType": "date"},
                {"type": "long", "logicalType": "timestamp-millis"},
                {"type": "long", "logicalType": "timestamp-micros"},
                {"type": "int", "logicalType": "time-millis"},
                {"type": "long", "logicalType": "time-micros"},
                {"type": "string", "logicalType": "uuid"},
                {
                    "type": "bytes",
                    "logicalType": "decimal",
                    "precision": r.choice((9, 18, 25)),
                    "scale": scale,
                },
            )
        )

    def _fixed(self) -> Any:
        name, size = f"Fixed{len(self.named)}", self._r.choice((0, 1, 5, 8, 16))
        definition = {"type": "fixed", "name": name, "size": size}
        if size in {5, 8, 16} and self._r.random() < 0.4:
            max_precision = len(str((1 << 8 * size - 1) - 1)) - 1
            definition |= {
                "logicalType": "decimal",
                "precision": self._r.randint(3, min(max_precision, 38)),
                "scale": self._r.randint(0, 3),
            }
        self.named[name] = definition
        return definition

    def _enum(self) -> Any:
        name = f"Enum{len(self.named)}"
        self.named[name] = definition = {
            "type": "enum",
            "name": name,
            "symbols": [f"S{i}" for i in range(self._r.randint(1, 5))],
        }
        return definition

    def _record(self, depth: int) -> Any:
        r = self._r
        name = f"Record{len(self.named)}"
        definition: dict[str, Any] = {"type": "record", "name": name, "fields": []}
        self.named[name] = definition
        fields = [{"name": f"g{i}", "type": self.type(depth + 1)} for i in range(r.randint(0, 4))]
        if r.random() < 0.2:
            fields.append(
                {
                    "name": "self",
                    "type": r.choice((["null", name], {"type": "array", "items": name})),
                }
            )
        definition["fields"] = fields
        return definition

    def _union(self, depth: int) -> Any:
        r = self._r
        if r.random() < 0.2:
            return r.choice(
                (
                    ["null", "int", "long"],
                    ["int", "long"],
                    ["bytes", "null", "string"],
                    ["string"],
                    ["null", "float", "double"],
                )
            )
        branch = self.type(depth + 1)
        if isinstance(branch, list):
            return branch
        if branch == "null":
            return ["null", "string"]
        return r.choice((["null", branch], [branch, "null"]))

    def column(self, name: str, avro: Any) -> Column | None:
        kind = self._fitting_type(avro, 0)
        if kind is None:
            return None
        plain = isinstance(avro, str) and avro in {"int", "long"} and kind == TIMESTAMP
        return Column(
            name,
            kind,
            nullable=self._r.random() < 0.8,
            epoch=self._r.choice(("s", "ms", "us")) if plain else None,
        )

    def _fitting_type(self, avro: Any, depth: int) -> pa.DataType | None:
        """Returns a random type that a column of this Avro type may have.

        It is None if there is no such type, or if the Avro type contains itself.
        """
        r = self._r
        avro = self.named.get(avro, avro) if isinstance(avro, str) else avro
        if depth > 6:
            return None
        if isinstance(avro, list):
            kinds = [self._fitting_type(branch, depth + 1) for branch in avro if branch != "null"]
            if len(kinds) > 1 and all(branch in ("null", "int", "long") for branch in avro):
                return r.choice((pa.int64(), pa.float64()))
            if len(kinds) > 1:
                return pa.float64() if "double" in avro else r.choice((pa.string(), pa.binary()))
            return kinds[0] if kinds else None
        if isinstance(avro, str):
            plain = r.random() < 0.2
            options: dict[str, tuple[pa.DataType, ...]] = {
                "boolean": (pa.bool_(),),
                "int": (TIMESTAMP,) if plain and depth == 0 else INTEGERS,
                "long": (TIMESTAMP,) if plain and depth == 0 else INTEGERS,
                "float": (pa.float32(), pa.float64()),
                "double": (pa.float64(),),
                "bytes": (pa.binary(), pa.string()),
                "string": (pa.string(), pa.string(), pa.binary()),
            }
            return r.choice(options[avro]) if avro in options else None
        return self._fitting_whole(avro, depth)

    def _fitting_whole(self, avro: dict[str, Any], depth: int) -> pa.DataType | None:
        r, kind, logical = self._r, avro["type"], avro.get("logicalType")
        if kind in {"array", "map"}:
            inner = self._fitting_type(avro["items" if kind == "array" else "values"], depth + 1)
            if inner is None or kind == "array":
                return None if inner is None else pa.list_(inner)
            pairs = pa.list_(pa.struct(r.sample([("key", pa.string()), ("value", inner)], 2)))
            return r.choice((pa.map_(pa.string(), inner), pairs))
        if kind == "record":
            fitting = [
                (f["name"], column_type)
                for f in avro["fields"]
                if (column_type := self._fitting_type(f["type"], depth + 1)) is not None
            ]
            kept_fields = r.sample(fitting, r.randint(1, len(fitting))) if fitting else []
            return pa.struct(kept_fields) if kept_fields else None
        if kind == "enum":
            return pa.string()
        if logical == "decimal":
            zeros = r.choice((0, 0, min(3, 38 - avro["precision"]), 38 - avro["precision"]))
            return pa.decimal128(
                min(38, avro["precision"] + zeros + r.choice((0, 0, 3))), avro["scale"] + zeros
            )
        if kind == "fixed":
            return pa.binary() if avro["size"] else None
        if logical == "date":
            return r.choice((pa.date32(), pa.int64()))
        if logical is not None and logical.startswith("timestamp"):
            return TIMESTAMP
        return {"uuid": pa.string(), "time-millis": pa.int32()}.get(logical, pa.int64())


class Writer:
    """Writes random values of a schema, in any way that the encoding allows.

    Args:
        r: the source of randomness.
        schema: the schema.
        odd: the share of numbers that are far out of range.
    """

    def __init__(self, r: random.Random, schema: Made, odd: float = 0.0) -> None:
        self._r = r
        self._named = schema.named
        self._odd = odd
        self._schema = schema.avro
        self._deep = 0

    def message(self) -> bytes:
        return b"".join(self._value(field["type"]) for field in self._schema["fields"])

    def _value(self, avro: Any) -> bytes:
        r = self._r
        avro = self._named.get(avro, avro) if isinstance(avro, str) else avro
        if isinstance(avro, list):
            branch = (
                avro.index("null")
                if "null" in avro and (self._deep > 6 or r.random() < 0.3)
                else r.randrange(len(avro))
            )
            return varint(branch, r.random() < 0.02) + self._value(avro[branch])
        if isinstance(avro, str):
            return self._primitive(avro)
        kind, logical = avro["type"], avro.get("logicalType")
        if kind in {"array", "map"}:
            return self._items(avro)
        if kind == "record":
            self._deep += 1
            written = b"".join(self._value(field["type"]) for field in avro["fields"])
            self._deep -= 1
            return written
        if kind == "enum":
            return varint(r.randrange(len(avro["symbols"])))
        if logical == "decimal":
            return self._decimal(avro)
        if kind == "fixed":
            return r.randbytes(avro["size"])
        return self._of_logical(logical) if logical else self._primitive(kind)

    def _of_logical(self, logical: str) -> bytes:
        r = self._r
        if logical == "uuid":
            return text(str(uuid.UUID(bytes=r.randbytes(16))))
        if logical.startswith("timestamp") and r.random() < self._odd:
            return varint(r.randrange(-(1 << 31), 1 << 31))
        seconds = r.choice(
            (0, -1, FIRST_SECOND, LAST_SECOND, r.randrange(FIRST_SECOND, LAST_SECOND))
        )
        return varint(
            {
                "date": r.choice((-719_162, 2_932_896, 0, r.randrange(30_000))),
                "time-millis": r.randrange(86_400_000),
                "time-micros": r.randrange(86_400_000_000),
                "timestamp-millis": seconds * 1_000,
                "timestamp-micros": seconds * 1_000_000,
            }[logical]
        )

    def _items(self, avro: dict[str, Any]) -> bytes:
        r = self._r
        self._deep += 1
        keys = r.sample([*TEXTS, *(f"key{i}" for i in range(20))], 32)
        written, blocks = [], b""
        for _ in range(0 if self._deep > 6 else r.choice((0, 0, 1, 2, 3, 9))):
            key = b"" if avro["type"] == "array" else text(keys.pop())
            written.append(
                key + self._value(avro["items" if avro["type"] == "array" else "values"])
            )
            if r.random() < 0.2:
                blocks += (items if r.random() < 0.5 else sized)(*written)[:-1]
                written = []
        self._deep -= 1
        return blocks + (sized if r.random() < 0.3 and written else items)(*written)

    def _decimal(self, avro: dict[str, Any]) -> bytes:
        r, precision = self._r, avro["precision"]
        number = r.choice(
            (
                0,
                1,
                -1,
                10**precision - 1,
                1 - 10**precision,
                r.randrange(-(10**precision), 10**precision),
            )
        )
        least = (number if number >= 0 else ~number).bit_length() // 8 + 1
        if avro["type"] == "fixed":
            return number.to_bytes(avro["size"], "big", signed=True)
        return text(number.to_bytes(least + r.choice((0, 0, 0, 1, 9)), "big", signed=True))

    def _primitive(self, kind: str) -> bytes:
        r = self._r
        bits = 32 if kind == "int" else 64
        wide = r.choice(
            (
                0,
                -1,
                64,
                -65,
                (1 << bits - 1) - 1,
                -(1 << bits - 1),
                r.randrange(-(1 << bits - 1), 1 << bits - 1),
            )
        )
        number = wide if r.random() < self._odd else r.randrange(-100, 100)
        longer = r.choice((0,) * 20 + (1, 2)) if kind == "long" or abs(number) < 100 else 0
        makers: dict[str, Callable[[], bytes]] = {
            "null": lambda: b"",
            "boolean": lambda: bytes([r.randrange(2)]),
            "int": lambda: varint(number, longer),
            "long": lambda: varint(number, min(longer, 10 - len(varint(number)))),
            "float": lambda: struct.pack(
                "<f",
                r.choice((0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, r.uniform(-1e6, 1e6))),
            ),
            "double": lambda: struct.pack(
                "<d",
                r.choice((0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, r.uniform(-1e9, 1e9))),
            ),
            "bytes": lambda: text(
                r.choice((*TEXTS, r.choice(TEXTS))).encode()
                if r.random() < 0.9
                else r.randbytes(r.randrange(20))
            ),
            "string": lambda: text("".join(r.choice(TEXTS) for _ in range(r.choice((0, 1, 1, 2))))),
        }
        return makers[kind]()


def mutate(r: random.Random, message: bytes) -> bytes:
    """Returns the message with one to three changes, such as removed or added bytes."""
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        position = r.randrange(len(message) + 1)
        message = r.choice(
            (
                lambda m, position: m[:position],
                lambda m, position: m[:position] + m[position + 1 :],
                lambda m, position: m[:position] + bytes([r.randrange(256)]) + m[position + 1 :],
                lambda m, position: (
                    m[:position]
                    + r.choice(
                        (
                            b"\xff" * 9,
                            b"\x80" * 9 + b"\x01",
                            b"\xff" * 10,
                            b"\x01",
                            b"\x00",
                            varint(1 << 60),
                        )
                    )
                    + m[position:]
                ),
                lambda m, position: m + r.choice((b"\x00", b"\x02a", m)),
                lambda m, position: m[:position] + r.randbytes(4) + m[position + 1 :],
            )
        )(message, position)
    return message


class Reference:
    """fastavro as the reference decoder for whole messages."""

    def __init__(self, schema: Made) -> None:
        self._parsed = fastavro.parse_schema(schema.avro)
        self._columns = schema.columns.columns

    def row(self, message: bytes) -> list[Any]:
        """Returns the values of the columns as Arrow's `to_pylist` returns them."""
        stream = io.BytesIO(message)
        record = fastavro.schemaless_reader(stream, self._parsed)
        assert stream.tell() == len(message)
        return [
            _as_column(record[column.name], column.type, column.epoch) for column in self._columns
        ]


def _as_column(value: Any, kind: pa.DataType, epoch: str | None) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind) and isinstance(value, dict):
        return [
            {"key": key, "value": _as_column(item, kind.value_type.field("value").type, None)}
            for key, item in value.items()
        ]
    if pa.types.is_list(kind):
        return [_as_column(item, kind.value_type, None) for item in value]
    if pa.types.is_map(kind):
        return [(key, _as_column(item, kind.item_type, None)) for key, item in value.items()]
    if pa.types.is_struct(kind):
        return {f.name: _as_column(value[f.name], f.type, None) for f in kind}
    if kind == pa.float32():
        return struct.unpack("<f", struct.pack("<f", value))[0]
    if kind == TIMESTAMP and type(value) is int:
        return EPOCH + timedelta(microseconds=value * epoch_ratio(str(epoch))[0])
    if isinstance(value, time):
        micros = (
            (value.hour * 60 + value.minute) * 60 + value.second
        ) * 1_000_000 + value.microsecond
        # Only a time-millis has a column of this type.
        return micros // 1_000 if kind == pa.int32() else micros
    if isinstance(value, date) and not isinstance(value, datetime) and pa.types.is_integer(kind):
        return value.toordinal() - date(1970, 1, 1).toordinal()
    if isinstance(value, uuid.UUID):
        return str(value)
    if kind == pa.string():
        return value.decode() if isinstance(value, bytes) else value
    if kind == pa.binary():
        return value.encode() if isinstance(value, str) else value
    return float(value) if kind == pa.float64() else value
