"""The truth about one message: Avro's binary encoding by the writer's schema, to the
last byte, or a precise refusal.

Simple, and slow.

No library judges here: fastavro, the reference for what is whole, takes a negative
index of a union or an enum, a boolean of 2 and whatever stands behind the record, and a
block that claims 2**60 nulls keeps it busy for ever. `scan.py` may only take what this
module takes too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from windrow.ingest.formats.avro.fit import (
    INT_BYTES,
    LONG_BYTES,
    IntegerRule,
    budget,
    check,
    decimal_scale,
    entry_cost,
    integer_rule,
    is_null,
    item_cost,
    value_of,
)
from windrow.ingest.formats.avro.schema import (
    AbsentType,
    ArrayType,
    AvroSchema,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedReference,
    PrimitiveType,
    UnfitType,
    UnionType,
)
from windrow.ingest.formats.json.values import EXACT, converter
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.schema.columns import Column, Columns, epoch_of
from windrow.ingest.schema.dtypes import TIMESTAMP

_MOST_SCALE = 1000
"""What a decimal's scale may differ from its column's: beyond it no digit is left."""

MAX_DEPTH = 100
"""Arrays, maps and records that no column is for, in one another."""

Path = tuple[Any, str | int]
"""Where a value is: the path of what it lies in, or None, and its own step.

It is put together only where it is told.
"""

Read = Callable[["_Cursor", Path], Any]
"""(where in the message, the path there) -> the value as pyarrow takes it, None for
null; raises RefusedValueError.
"""


_ROOT: Path = (None, "$")


def _refused(reason: str, what: str, path: Path) -> RefusedValueError:
    return RefusedValueError(reason, what, _told(path))


def _told(path: Path) -> str:
    steps: list[str] = []
    at: Any = path
    while at is not None:
        at, step = at
        steps.append(f"[{step}]" if isinstance(step, int) else step)
    return "".join(reversed(steps))


class _Cursor:
    """A place in a message, how deep in it, and what its items may still cost.

    `keep`: whether what is read is wanted, or only judged.
    """

    __slots__ = ("at", "data", "depth", "keep", "left", "truncation")

    def __init__(self, data: bytes, truncation: Truncation, *, keep: bool) -> None:
        self.data = data
        self.truncation = truncation
        self.keep = keep
        self.at = 0
        self.depth = 0
        self.left = budget(len(data))

    def take(self, count: int, path: Path) -> bytes:
        """The next bytes."""
        if not 0 <= count <= len(self.data) - self.at:
            raise self.malformed(
                "a negative length" if count < 0 else "the message ends within a value", path
            )
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self, path: Path, most: int = LONG_BYTES) -> int:
        """An int of at most 5 bytes, or a long of at most 10."""
        if self.at < len(self.data) and (byte := self.data[self.at]) < 128:
            self.at += 1
            return (byte >> 1) ^ -(byte & 1)
        number = 0
        for i in range(most):
            byte = self.take(1, path)[0]
            number |= (byte & 127) << 7 * i
            if byte < 128:
                if number >> (32 if most == INT_BYTES else 64):
                    break
                return (number >> 1) ^ -(number & 1)
        raise self.malformed("a number is too long", path)

    def malformed(self, what: str, path: Path) -> RefusedValueError:
        """That these are no bytes of the schema's."""
        return _refused("not_avro", f"Avro is malformed: {what} (byte {self.at})", path)

    def descend(self, path: Path) -> None:
        """Into an array, a map, or a record that no column is for."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _refused(
                "too_deep",
                f"Expected at most {MAX_DEPTH} arrays, maps and records in one another",
                path,
            )

    def spend(self, cost: int, path: Path) -> None:
        """For an item of a list or an entry of a map."""
        self.left -= cost
        if self.left < 0:
            raise _refused(
                "too_large", "Expected items that fit into 32 bytes a byte of the message", path
            )


class StrictAvro:
    """Decodes one message at a time."""

    def __init__(self, schema: AvroSchema, columns: Columns) -> None:
        check(schema, columns)
        self.truncation = Truncation(columns.finer)
        self._schema = schema
        self._skipped: dict[str, list[tuple[str, Read]]] = {}
        self._unread: list[str] = []
        by_name = {column.name: column for column in columns.columns}
        self._order = list(by_name)
        self._fields = [
            (name, f".{name}", self._field(kind, by_name.get(name)))
            for name, kind in schema.records[schema.root].fields
        ]
        while self._unread:
            name = self._unread.pop()
            kept = [
                (field, kind)
                for field, kind in schema.records[name].fields
                if not schema.is_empty(kind)
            ]
            self._skipped[name] += [(f".{field}", self._skip(kind)) for field, kind in kept]

    def decode(self, message: bytes) -> list[Any]:
        """The values of the columns, in order, as pyarrow takes them.

        It is judged first, for values as Python's objects may take a hundred times the
        memory of the message.

        Raises:
            RefusedValueError: with the reason.
        """
        self._read(_Cursor(message, self.truncation, keep=False))
        return self._read(_Cursor(message, self.truncation, keep=True))

    def _read(self, cursor: _Cursor) -> list[Any]:
        row = {name: read(cursor, (_ROOT, step)) for name, step, read in self._fields}
        if cursor.at < len(cursor.data):
            raise cursor.malformed("there are bytes behind the record", _ROOT)
        return [row[name] for name in self._order]

    def _field(self, kind: AvroType, column: Column | None) -> Read:
        if column is None:
            return self._skip(kind)
        read = self._value(kind, column.type, column.epoch)
        return read if column.nullable else _required(read)

    def _value(self, kind: AvroType, column: pa.DataType, epoch: str | None = None) -> Read:
        """What reads a type for a column."""
        if isinstance(kind, AbsentType):
            return _null
        if isinstance(kind, UnfitType):
            return _unfit(kind, column)
        if isinstance(kind, UnionType):
            return _union(
                [_null if is_null(b) else self._value(b, column, epoch) for b in kind.branches]
            )
        if isinstance(kind, ArrayType):
            return _array(self._value(kind.items, column.value_type), item_cost(column.value_type))
        if isinstance(kind, MapType) and pa.types.is_map(column):
            return _map(self._value(kind.values, column.item_type), entry_cost(column.item_type))
        if isinstance(kind, MapType):
            return _pairs(
                _map(self._value(kind.values, value_of(column)), item_cost(column.value_type))
            )
        if isinstance(kind, NamedReference):
            return (
                _variable_decimal(column)
                if pa.types.is_decimal(column)
                else self._struct(kind, column)
            )
        if isinstance(kind, EnumType):
            return _enum(kind.symbols)
        if isinstance(kind, FixedType):
            size = kind.size
            bytes_of = lambda cursor, path: cursor.take(size, path)  # read like the others  # noqa: E731
            return (
                _decimal(bytes_of, decimal_scale(kind) or 0, column)
                if pa.types.is_decimal(column)
                else bytes_of
            )
        return _primitive(kind, column, epoch)

    def _struct(self, kind: NamedReference, column: pa.DataType) -> Read:
        wanted = {field.name: (field.type, epoch_of(field)) for field in column}
        fields = [
            (
                name,
                f".{name}",
                name in wanted,
                self._value(of, *wanted[name]) if name in wanted else self._skip(of),
            )
            for name, of in self._schema.records[kind.name].fields
            if name in wanted or not self._schema.is_empty(of)
        ]

        def read(cursor: _Cursor, path: Path) -> dict[str, Any]:
            found = {}
            for name, step, kept, of in fields:
                value = of(cursor, (path, step))
                if kept and cursor.keep:
                    found[name] = value
            return found

        return read

    def _skip(self, kind: AvroType) -> Read:
        """What passes over a type that no column is for, just as strictly."""
        if self._schema.is_empty(kind):
            return _null
        if isinstance(kind, UnionType):
            return _union([self._skip(branch) for branch in kind.branches])
        if isinstance(kind, ArrayType):
            return (
                _empty_array
                if self._schema.is_empty(kind.items)
                else _array(self._skip(kind.items), 0)
            )
        if isinstance(kind, MapType):
            return _map(self._skip(kind.values), None)
        if isinstance(kind, NamedReference):
            return self._skip_record(kind.name)
        if isinstance(kind, EnumType):
            return _enum(kind.symbols)
        if isinstance(kind, FixedType):
            return lambda cursor, path: cursor.take(kind.size, path)
        assert isinstance(kind, PrimitiveType)  # others are where columns are
        natural = {
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
        }
        return _primitive(
            kind, natural.get(kind.name, pa.binary() if kind.name == "bytes" else pa.string()), None
        )

    def _skip_record(self, name: str) -> Read:
        """By the name, so that a record may hold itself; what its fields are is found
        later, so records in one another don't nest here.
        """
        if name not in self._skipped:
            self._skipped[name] = []
            self._unread.append(name)
        fields = self._skipped[name]

        def read(cursor: _Cursor, path: Path) -> None:
            cursor.descend(path)
            for step, skip in fields:
                skip(cursor, (path, step))
            cursor.depth -= 1

        return read


def _null(_cursor: _Cursor, _path: Path) -> None:
    return None


def _unfit(kind: UnfitType, column: pa.DataType) -> Read:
    def read(_cursor: _Cursor, path: Path) -> None:
        raise _refused(
            kind.reason,
            f"Expected what a column of {column} can hold, got a union's {kind.words}",
            path,
        )

    return read


def _required(read: Read) -> Read:
    def required(cursor: _Cursor, path: Path) -> Any:
        value = read(cursor, path)
        if value is None:
            raise _refused("missing", "Expected a value, got null", path)
        return value

    return required


def _union(branches: list[Read]) -> Read:
    def read(cursor: _Cursor, path: Path) -> Any:
        branch = cursor.varint(path, INT_BYTES)
        if not 0 <= branch < len(branches):
            raise cursor.malformed(f"a union of {len(branches)} types has no such branch", path)
        return branches[branch](cursor, path)

    return read


def _blocks(cursor: _Cursor, path: Path, item: Callable[[int], None]) -> None:
    """Each item of an array or a map, whose number is given; all of them have bytes."""
    cursor.descend(path)
    number = 0
    while (count := cursor.varint(path)) != 0:
        end = None
        if count < 0:
            count, size = -count, cursor.varint(path)
            end = cursor.at + size
            if size < 0:
                raise cursor.malformed("a negative length", path)
        if count > len(cursor.data) - cursor.at:
            raise cursor.malformed("a block claims more items than there are bytes", path)
        for _ in range(count):
            item(number)
            number += 1
        if end not in {None, cursor.at}:
            raise cursor.malformed("a block has another length than it says", path)
    cursor.depth -= 1


def _array(read: Read, cost: int) -> Read:
    def array(cursor: _Cursor, path: Path) -> list[Any]:
        items: list[Any] = []

        def item(number: int) -> None:
            place = (path, number)
            cursor.spend(cost, place)
            value = read(cursor, place)
            if cursor.keep:
                items.append(value)

        _blocks(cursor, path, item)
        return items

    return array


def _empty_array(cursor: _Cursor, path: Path) -> None:
    """Items without bytes: however many a block claims."""
    cursor.descend(path)
    while (count := cursor.varint(path)) != 0:
        if count == -(1 << 63) or (count < 0 and cursor.varint(path) != 0):
            raise cursor.malformed("a block has another length than it says", path)
    cursor.depth -= 1


def _map(read: Read, cost: int | None) -> Read:
    """`cost`: None where no column is for it; then a key may be there twice."""

    def entries(cursor: _Cursor, path: Path) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        keys: set[str] = set()
        place = (path, "[...]")  # a map's keys are data

        def entry(number: int) -> None:
            cursor.spend(cost or 0, place)
            key = _text(cursor, place)
            value = read(cursor, place)
            if cost is None:
                return
            keys.add(key)
            if len(keys) <= number:
                raise _refused("duplicate_key", "Map holds a key more than once", path)
            if cursor.keep:
                found.append((key, value))

        _blocks(cursor, path, entry)
        return found

    return entries


def _pairs(read: Read) -> Read:
    """A map's entries as structs."""
    return lambda cursor, path: [{"key": key, "value": value} for key, value in read(cursor, path)]


def _enum(symbols: tuple[str, ...]) -> Read:
    def read(cursor: _Cursor, path: Path) -> str:
        index = cursor.varint(path, INT_BYTES)
        if not 0 <= index < len(symbols):
            raise cursor.malformed(f"an enum of {len(symbols)} symbols has no such one", path)
        return symbols[index]

    return read


def _bytes(cursor: _Cursor, path: Path) -> bytes:
    return cursor.take(cursor.varint(path), path)


def _text(cursor: _Cursor, path: Path) -> str:
    octets = _bytes(cursor, path)
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        where = cursor.at - len(octets) + error.start
        raise _refused(
            "invalid_utf8", f"Expected UTF-8, got {error.reason} (byte {where})", path
        ) from None


def _boolean(cursor: _Cursor, path: Path) -> bool:
    byte = cursor.take(1, path)[0]
    if byte > 1:
        raise cursor.malformed("a boolean is neither 0 nor 1", path)
    return bool(byte)


def _primitive(kind: PrimitiveType, column: pa.DataType, epoch: str | None) -> Read:
    if kind.name in {"int", "long"}:
        rule = integer_rule(kind, column, epoch)
        assert rule is not None  # `check` has looked
        return _integer(rule, INT_BYTES if kind.name == "int" else LONG_BYTES, column)
    if kind.name in {"bytes", "string"}:
        if pa.types.is_decimal(column):
            return _decimal(_bytes, decimal_scale(kind) or 0, column)
        if pa.types.is_timestamp(column):
            return _zoned
        # a string is UTF-8, also where its bytes alone are wanted
        text = kind.name == "string" or column == pa.string()
        return (
            (_text if column == pa.string() else lambda cursor, path: _text(cursor, path).encode())
            if text
            else _bytes
        )
    layout = {"float": "<f", "double": "<d"}.get(kind.name)
    if layout is None:
        return _boolean
    size = struct.calcsize(layout)
    return lambda cursor, path: struct.unpack(layout, cursor.take(size, path))[0]


def _integer(rule: IntegerRule, most: int, column: pa.DataType) -> Read:
    floating = {32: "<f", 64: "<d"}[column.bit_width] if pa.types.is_floating(column) else None
    wanted = (
        "a date that the calendar has"
        if pa.types.is_date(column)
        else f"a number that a column of {column} can hold"
    )

    def read(cursor: _Cursor, path: Path) -> int | float:
        number = cursor.varint(path, most)
        if floating is not None:
            value: float = struct.unpack(floating, struct.pack(floating, number))[0]
            if value == number:
                return value
        elif rule.low <= number <= rule.high:
            if number % rule.divisor:
                cursor.truncation.needed(_told(path))
            return number * rule.factor // rule.divisor
        raise _refused("out_of_range", f"Expected {wanted}", path)

    return read


def _zoned(cursor: _Cursor, path: Path) -> Any:
    return converter(TIMESTAMP, None, EXACT, cursor.truncation)(_text(cursor, path), _told(path))


def _decimal(bytes_of: Read, scale: int, column: pa.DataType) -> Read:
    def read(cursor: _Cursor, path: Path) -> Decimal:
        return _exact(cursor, bytes_of(cursor, path), scale, column, path)

    return read


def _variable_decimal(column: pa.DataType) -> Read:
    def read(cursor: _Cursor, path: Path) -> Decimal:
        scale = cursor.varint(path, INT_BYTES)
        return _exact(cursor, _bytes(cursor, path), scale, column, path)

    return read


def _exact(cursor: _Cursor, octets: bytes, scale: int, column: pa.DataType, path: Path) -> Decimal:
    """A number of this scale as one of the column's, if it has all of its digits."""
    if not octets:
        raise cursor.malformed("a decimal has no bytes", path)
    unscaled, zeros = int.from_bytes(octets, "big", signed=True), column.scale - scale
    if unscaled and -_MOST_SCALE <= zeros <= _MOST_SCALE:
        unscaled, lost = (unscaled * 10**zeros, 0) if zeros >= 0 else divmod(unscaled, 10**-zeros)
    else:
        lost = unscaled
    if lost or abs(unscaled) >= 10**column.precision:
        what = (
            f"Expected a decimal of {column.precision} digits, {column.scale} of them after the"
            " point"
        )
        raise _refused("out_of_range", what, path)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -column.scale))
