"""Strict decoder of one message in Avro's binary encoding, by the writer's schema.

It either reads the whole message, to the last byte, or refuses it with a precise reason. It is
simple and slow. The compiled pass (`scan.py`) may only take messages that this decoder takes,
too, and must read the same values.

No library decodes the messages. fastavro takes a negative index of a union or an enum, a
boolean of 2, and bytes after the record. A block that claims 2**60 nulls keeps it busy for
ever.

Each field of the writer's record has a reader (`Read`), which is made once from the field's
type and its column. A reader gets the cursor, which is the state of decoding one message. The
cursor is at the first byte of the reader's value. The reader moves it to the first byte after
the value, or raises. A field that no column is for also has a reader, because the end of a
value is only known by reading it.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from windrow.ingest.formats.avro.fit import (
    INT_BYTES,
    LONG_BYTES,
    PRIMITIVE_COLUMNS,
    check,
    decimal_scale,
    ignored_fields,
    integer_rule,
    is_big_decimal,
    is_null,
    member_name,
    members_of,
    names_in,
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
    RefusedType,
    UnionType,
)
from windrow.ingest.formats.json.values import converter
from windrow.ingest.formats.shared.budget import (
    NAMELESS_SHARE,
    OVER_BUDGET,
    budget,
    entry_cost,
    item_cost,
)
from windrow.ingest.formats.shared.integers import IntegerRule
from windrow.ingest.formats.shared.json_dialects import EXACT
from windrow.ingest.formats.shared.placeless import value_of
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.formats.shared.rest_text import RestText, kept_name
from windrow.ingest.schema.columns import Column, Columns, epoch_of

_MOST_SCALE_DIFFERENCE = 1000
"""Largest difference between the scales of a decimal and its column.

With a larger difference only 0 fits the column, and computing 10**difference would be slow.
"""

_JSON_COST = 64
"""Bytes of Python's object for a text, apart from its characters."""

MAX_DEPTH = 100
"""Deepest nesting of arrays, maps, and records that no column is for."""

Path = tuple[Any, str | int]
"""Path of a value: the path of the outer value, or None; and the last step.

It is only converted to a text if the value is refused.
"""

Read = Callable[["_Cursor", Path], Any]
"""Reads a value: (cursor, path of the value) -> a Python object for pyarrow.

Null is None. Raises RefusedValueError if the bytes aren't a value of the type.
"""


_ROOT: Path = (None, "$")


def _refusal(reason: str, message: str, path: Path) -> RefusedValueError:
    return RefusedValueError(reason, message, _path_text(path))


def _path_text(path: Path) -> str:
    steps: list[str] = []
    prefix: Any = path
    while prefix is not None:
        prefix, step = prefix
        is_key = isinstance(step, _MapKey)
        steps.append("[...]" if is_key else f"[{step}]" if isinstance(step, int) else step)
    return "".join(reversed(steps))


class _MapKey(str):
    """Step to the value of a map's key. Keys are data, so the path of a refusal has no key."""

    __slots__ = ()


def _names_of(path: Path) -> tuple[str, ...]:
    """Returns the names of fields, keys of maps and indexes of items on a path."""
    names: list[str] = []
    while path is not _ROOT:
        path, step = path
        names.append(str(step) if isinstance(step, int | _MapKey) else step.removeprefix("."))
    return tuple(reversed(names))


class _Cursor:
    """State of decoding one message.

    Attributes:
        budget: the bytes of columns that the remaining items of the message may take.
        data: the message.
        depth: the number of open arrays, maps, and records that no column is for.
        keep: False if the message is only checked. Then lists, maps and structs stay
            empty, so that checking takes no memory.
        pos: the index of the first byte that isn't read yet.
        rest: what no column is for, if rows keep it.
        truncation: the rule for timestamps finer than a microsecond.
    """

    __slots__ = ("budget", "data", "depth", "keep", "pos", "rest", "truncation")

    def __init__(self, data: bytes, truncation: Truncation, *, keep: bool) -> None:
        self.data = data
        self.truncation = truncation
        self.keep = keep
        self.pos = 0
        self.depth = 0
        self.budget = budget(len(data))
        self.rest = RestText(len(data), NAMELESS_SHARE)

    def take(self, count: int, path: Path) -> bytes:
        """Reads the next `count` bytes."""
        if not 0 <= count <= len(self.data) - self.pos:
            raise self.malformed_error(
                "a negative length" if count < 0 else "the message ends within a value", path
            )
        self.pos += count
        return self.data[self.pos - count : self.pos]

    def varint(self, path: Path, max_bytes: int = LONG_BYTES) -> int:
        """Reads an int (`max_bytes` is 5 bytes) or a long (10 bytes)."""
        if self.pos < len(self.data) and (byte := self.data[self.pos]) < 128:
            self.pos += 1
            return (byte >> 1) ^ -(byte & 1)
        number = 0
        for i in range(max_bytes):
            byte = self.take(1, path)[0]
            number |= (byte & 127) << 7 * i
            if byte < 128:
                if number >> (32 if max_bytes == INT_BYTES else 64):
                    break
                return (number >> 1) ^ -(number & 1)
        raise self.malformed_error("a number is too long", path)

    def malformed_error(self, message: str, path: Path) -> RefusedValueError:
        """Makes the error for bytes that aren't an encoding of the schema."""
        return _refusal("not_avro", f"Avro is malformed: {message} (byte {self.pos})", path)

    def descend(self, path: Path) -> None:
        """Enters an array, a map, or a record that no column is for.

        The caller decrements `depth` at its end.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _refusal(
                "too_deep",
                f"Expected arrays, maps and records nested at most {MAX_DEPTH} deep",
                path,
            )

    def spend(self, cost: int, path: Path) -> None:
        """Subtracts the cost of an array's item, or of a map's entry, from the budget."""
        self.budget -= cost
        if self.budget < 0:
            raise _refusal("too_large", OVER_BUDGET, path)


class StrictAvro:
    """Decodes one message at a time."""

    def __init__(
        self, schema: AvroSchema, columns: Columns, *, keeps_unknown: bool = False
    ) -> None:
        """Makes the readers of the root record's fields.

        Args:
            schema: the writer's schema.
            columns: the columns.
            keeps_unknown: whether rows have what no column is for.

        Raises:
            SpecError: a column can't be read from the schema.
        """
        self._rest_index, columns = columns.split_rest(keeps_unknown=keeps_unknown)
        self._row_path = columns.row_path or ()
        check(schema, columns)
        self.truncation = Truncation(columns.finer)
        self._schema, self._ignored = schema, ignored_fields(schema, columns)
        # The names and readers of the fields of each record that no struct is for, by the
        # record's name and whether it is in a JSON text.
        self._inner: dict[tuple[str, bool], list[tuple[str, Read]]] = {}
        # Those of them whose readers aren't made yet.
        self._unmade: list[tuple[str, bool]] = []
        self._json_records: dict[str, Read] = {}
        by_name = {column.name: column for column in columns.columns}
        self._order = list(by_name)
        self._fields = [
            (name, f".{name}", self._field(kind, by_name.get(name)))
            for name, kind in schema.records[schema.root].fields
        ]
        while self._unmade:
            name, in_json = self._unmade.pop()
            self._inner[name, in_json] += [
                (field, self._json(kind) if in_json else self._value(kind, None))
                for field, kind in schema.records[name].fields
                if in_json or not schema.is_empty(kind)
            ]

    def decode(self, message: bytes) -> list[Any]:
        """Returns the values of the columns, in order, as Python objects for pyarrow.

        The message is read twice. The first time it is only checked, because Python objects
        may take a hundred times the memory of the message. So a message that isn't a row
        doesn't take this memory.
        """
        self._read(_Cursor(message, self.truncation, keep=False))
        self.truncation.ignored = bool(self._ignored)
        cursor = _Cursor(message, self.truncation, keep=True)
        row = self._read(cursor)
        if self._rest_index is not None:
            row.insert(self._rest_index, cursor.rest.text)
        return row

    def ignored_fields(self, _message: bytes) -> tuple[str, ...]:
        """Returns the paths of fields that no column is for; all messages have the same."""
        return self._ignored

    def _read(self, cursor: _Cursor) -> list[Any]:
        row = {name: read(cursor, (_ROOT, step)) for name, step, read in self._fields}
        if cursor.pos < len(cursor.data):
            raise cursor.malformed_error("there are bytes after the record", _ROOT)
        return [row[name] for name in self._order]

    def _field(self, kind: AvroType, column: Column | None) -> Read:
        if column is None:
            return self._unnamed(kind)
        read = self._value(kind, column.type, column.epoch)
        return read if column.nullable else _required(read)

    def _unnamed(self, kind: AvroType) -> Read:
        """Makes the reader of a field that no column is for."""
        skip = self._value(kind, None)
        if self._rest_index is None:
            return skip
        read_json, depth = self._json(kind), len(self._row_path)

        def read(cursor: _Cursor, path: Path) -> None:
            names = _names_of(path)
            if names[:depth] != self._row_path:
                skip(cursor, path)
                return
            written = read_json(cursor, path)
            if cursor.keep:
                cursor.rest.add(f"{kept_name(names[depth:])}:{written}")

        return read

    def _value(self, kind: AvroType, column: pa.DataType | None, epoch: str | None = None) -> Read:
        """Makes the reader of a type whose values become values of a column.

        `check` has passed, so the type can become the column. If `column` is None, no column
        is for the values, and they are only checked.
        """
        if isinstance(kind, AbsentType) or (column is None and self._schema.is_empty(kind)):
            return _null
        if isinstance(kind, RefusedType):
            return _refused_branch(kind, column)
        if isinstance(kind, UnionType) and members_of(kind, names_in(column)):
            return _union([_null if is_null(b) else self._member(b, column) for b in kind.branches])
        if isinstance(kind, UnionType):
            return _union(
                [_null if is_null(b) else self._value(b, column, epoch) for b in kind.branches]
            )
        if isinstance(kind, ArrayType) and self._schema.is_empty(kind.items):
            return _empty_array
        if isinstance(kind, ArrayType):
            item_column, cost = (
                (None, 0) if column is None else (column.value_type, item_cost(column.value_type))
            )
            return _array(self._value(kind.items, item_column), cost)
        if isinstance(kind, MapType):
            return self._map(kind, column)
        if isinstance(kind, NamedReference) and column is None:
            return self._skip_record(kind.name)
        if isinstance(kind, NamedReference) and column == pa.string():
            return self._json(kind)
        if isinstance(kind, NamedReference):
            return (
                _variable_decimal(column)
                if pa.types.is_decimal(column)
                else self._struct(kind, column)
            )
        if isinstance(kind, EnumType):
            return _enum(kind.symbols)
        if isinstance(kind, FixedType):
            octets = _fixed(kind.size)
            return (
                _decimal(octets, decimal_scale(kind) or 0, column)
                if column is not None and pa.types.is_decimal(column)
                else octets
            )
        return _primitive(kind, PRIMITIVE_COLUMNS[kind.name] if column is None else column, epoch)

    def _member(self, kind: AvroType, column: pa.StructType) -> Read:
        """Makes the reader of a value of a union that becomes a struct of the union's members."""
        name = member_name(kind)
        index, step = column.get_field_index(name), f".{name}"
        if index < 0:
            read_unnamed = self._unnamed(kind)

            def read_other(cursor: _Cursor, path: Path) -> dict[str, Any]:
                read_unnamed(cursor, (path, step))
                return {}

            return read_other
        field = column.field(index)
        read = self._value(kind, field.type, epoch_of(field))

        def read_member(cursor: _Cursor, path: Path) -> dict[str, Any]:
            value = read(cursor, (path, step))
            return {name: value} if cursor.keep else {}

        return read_member

    def _map(self, kind: MapType, column: pa.DataType | None) -> Read:
        if column is None:
            return _map(self._value(kind.values, None), None)
        if pa.types.is_map(column):
            return _map(self._value(kind.values, column.item_type), entry_cost(column.item_type))
        cost = item_cost(column.value_type)
        return _pairs(_map(self._value(kind.values, value_of(column)), cost))

    def _struct(self, kind: NamedReference, column: pa.DataType) -> Read:
        type_by_field = {field.name: (field.type, epoch_of(field)) for field in column}
        keeps = self._rest_index is not None
        fields = [
            (
                name,
                f".{name}",
                name in type_by_field,
                self._value(field_type, *type_by_field[name])
                if name in type_by_field
                else self._unnamed(field_type),
            )
            for name, field_type in self._schema.records[kind.name].fields
            if name in type_by_field or keeps or not self._schema.is_empty(field_type)
        ]

        def read(cursor: _Cursor, path: Path) -> dict[str, Any]:
            values = {}
            for name, step, is_kept, read_field in fields:
                value = read_field(cursor, (path, step))
                # Arrow takes a missing field as null; many structs of nulls would take much memory.
                if is_kept and cursor.keep and value is not None:
                    values[name] = value
            return values

        return read

    def _skip_record(self, name: str) -> Read:
        """Makes the reader of a record that no column is for."""
        fields = self._fields_inside(name, in_json=False)

        def read(cursor: _Cursor, path: Path) -> None:
            cursor.descend(path)
            for field, skip in fields:
                skip(cursor, (path, f".{field}"))
            cursor.depth -= 1

        return read

    def _fields_inside(self, name: str, *, in_json: bool) -> list[tuple[str, Read]]:
        """Returns a list for the names and readers of a record's fields.

        It is found by the record's name, so a record may contain itself. `__init__` fills it in
        a loop, so that deeply nested records cause no recursion.
        """
        if (name, in_json) not in self._inner:
            self._inner[name, in_json] = []
            self._unmade.append((name, in_json))
        return self._inner[name, in_json]

    def _json(self, kind: AvroType) -> Read:
        """Makes the reader of a value as a JSON text.

        Texts are joined at once, because objects for all values would take more memory. The
        budget bounds the texts: they have the names of fields, which the message doesn't have.
        """
        if isinstance(kind, UnionType):
            return _union([self._json(branch) for branch in kind.branches])
        if self._schema.is_empty(kind):
            return lambda _cursor, _path: "null"
        if isinstance(kind, NamedReference):
            return self._json_record(kind.name)
        if isinstance(kind, ArrayType) and not self._schema.is_empty(kind.items):
            items = _array(self._json(kind.items), _JSON_COST)
            return lambda cursor, path: f"[{','.join(items(cursor, path))}]"
        if isinstance(kind, MapType):
            entries = _map(self._json(kind.values), _JSON_COST)
            return lambda cursor, path: _json_object(entries(cursor, path))
        read_value = self._value(kind, None)

        def read(cursor: _Cursor, path: Path) -> str:
            written = _json_scalar(read_value(cursor, path), path)
            cursor.spend(len(written), path)
            return written

        return read

    def _json_record(self, name: str) -> Read:
        if name not in self._json_records:
            self._json_records[name] = self._make_json_record(name)
        return self._json_records[name]

    def _make_json_record(self, name: str) -> Read:
        fields = self._fields_inside(name, in_json=True)
        of_nulls = _json_object((field, "null") for field, _ in self._schema.records[name].fields)
        cost = _JSON_COST + len(of_nulls)

        def read(cursor: _Cursor, path: Path) -> str:
            cursor.descend(path)
            cursor.spend(cost, path)
            members = [
                (field, read_field(cursor, (path, f".{field}"))) for field, read_field in fields
            ]
            cursor.depth -= 1
            return _json_object(members)

        return read


def _json_object(members: Iterable[tuple[str, str]]) -> str:
    return f"{{{','.join(f'{_json_scalar(name, _ROOT)}:{written}' for name, written in members)}}}"


def _json_scalar(value: Any, path: Path) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise _refusal("out_of_range", "Expected a number that JSON has", path)
    return json.dumps(
        base64.b64encode(value).decode() if isinstance(value, bytes) else value, ensure_ascii=False
    )


def _null(_cursor: _Cursor, _path: Path) -> None:
    return None


def _refused_branch(kind: RefusedType, column: pa.DataType) -> Read:
    def read(_cursor: _Cursor, path: Path) -> None:
        raise _refusal(
            kind.reason,
            f"Expected a value that a column of {column} can hold, got a union's {kind.words}",
            path,
        )

    return read


def _required(read: Read) -> Read:
    def required(cursor: _Cursor, path: Path) -> Any:
        value = read(cursor, path)
        if value is None:
            raise _refusal("missing", "Expected a value, got null", path)
        return value

    return required


def _union(branches: list[Read]) -> Read:
    def read(cursor: _Cursor, path: Path) -> Any:
        branch = cursor.varint(path, INT_BYTES)
        if not 0 <= branch < len(branches):
            raise cursor.malformed_error(f"the union has only {len(branches)} types", path)
        return branches[branch](cursor, path)

    return read


def _blocks(cursor: _Cursor, path: Path, item: Callable[[int], None]) -> None:
    """Reads the blocks of an array or a map, and calls `item` for each item.

    `item` gets the number of the item, and must read the item from the cursor. Each item has
    at least one byte, so the rest of the message bounds the number of items.
    """
    cursor.descend(path)
    number = 0
    while (count := cursor.varint(path)) != 0:
        end = None
        if count < 0:
            count, size = -count, cursor.varint(path)
            end = cursor.pos + size
            if size < 0:
                raise cursor.malformed_error("a block has a negative length", path)
        if count > len(cursor.data) - cursor.pos:
            raise cursor.malformed_error(
                "a block claims more items than the message has bytes", path
            )
        for _ in range(count):
            item(number)
            number += 1
        if end not in {None, cursor.pos}:
            raise cursor.malformed_error("a block's items don't end where it says", path)
    cursor.depth -= 1


def _array(read: Read, cost: int) -> Read:
    def array(cursor: _Cursor, path: Path) -> list[Any]:
        items: list[Any] = []

        def item(number: int) -> None:
            item_path = (path, number)
            cursor.spend(cost, item_path)
            value = read(cursor, item_path)
            if cursor.keep:
                items.append(value)

        _blocks(cursor, path, item)
        return items

    return array


def _empty_array(cursor: _Cursor, path: Path) -> None:
    """Skips the blocks of an array whose items have no bytes, without a loop over the items."""
    cursor.descend(path)
    while (count := cursor.varint(path)) != 0:
        if count == -(1 << 63) or (count < 0 and cursor.varint(path) != 0):
            raise cursor.malformed_error("a block's items don't end where it says", path)
    cursor.depth -= 1


def _map(read: Read, cost: int | None) -> Read:
    """Makes the reader of a map.

    Args:
        read: the reader of its values.
        cost: the cost of an entry; None if no column is for the map. Then the map may have
            a key twice.
    """

    def entries(cursor: _Cursor, path: Path) -> list[tuple[str, Any]]:
        kept_entries: list[tuple[str, Any]] = []
        keys: set[str] = set()
        key_path = (path, _MapKey())

        def entry(number: int) -> None:
            cursor.spend(cost or 0, key_path)
            key = _text(cursor, key_path)
            value = read(cursor, (path, _MapKey(key)))
            if cost is None:
                return
            keys.add(key)
            if len(keys) <= number:
                raise _refusal("duplicate_key", "Map has a key more than once", path)
            if cursor.keep:
                kept_entries.append((key, value))

        _blocks(cursor, path, entry)
        return kept_entries

    return entries


def _pairs(read: Read) -> Read:
    """Makes the reader of a map that becomes a list of structs of key and value."""
    return lambda cursor, path: [{"key": key, "value": value} for key, value in read(cursor, path)]


def _enum(symbols: tuple[str, ...]) -> Read:
    def read(cursor: _Cursor, path: Path) -> str:
        index = cursor.varint(path, INT_BYTES)
        if not 0 <= index < len(symbols):
            raise cursor.malformed_error(f"the enum has only {len(symbols)} symbols", path)
        return symbols[index]

    return read


def _fixed(size: int) -> Read:
    return lambda cursor, path: cursor.take(size, path)


def _bytes(cursor: _Cursor, path: Path) -> bytes:
    return cursor.take(cursor.varint(path), path)


def _text(cursor: _Cursor, path: Path) -> str:
    octets = _bytes(cursor, path)
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        where = cursor.pos - len(octets) + error.start
        raise _refusal(
            "invalid_utf8", f"Expected UTF-8, got {error.reason} (byte {where})", path
        ) from None


def _boolean(cursor: _Cursor, path: Path) -> bool:
    byte = cursor.take(1, path)[0]
    if byte > 1:
        raise cursor.malformed_error("a boolean is neither 0 nor 1", path)
    return bool(byte)


def _primitive(kind: PrimitiveType, column: pa.DataType, epoch: str | None) -> Read:
    if kind.name in {"int", "long"}:
        rule = integer_rule(kind, column, epoch)
        assert rule is not None  # `check` has passed
        return _integer(rule, INT_BYTES if kind.name == "int" else LONG_BYTES, column)
    if kind.name in {"bytes", "string"}:
        if is_big_decimal(kind) and pa.types.is_decimal(column):
            return _big_decimal(column)
        if pa.types.is_decimal(column):
            return _decimal(_bytes, decimal_scale(kind) or 0, column)
        if pa.types.is_temporal(column):
            return _time_text(column)
        if column == pa.string():
            return _text
        # A string must be UTF-8 even if the column is Binary.
        return _bytes if kind.name == "bytes" else lambda cursor, path: _text(cursor, path).encode()
    layout = {"float": "<f", "double": "<d"}.get(kind.name)
    if layout is None:
        return _boolean
    size = struct.calcsize(layout)
    return lambda cursor, path: struct.unpack(layout, cursor.take(size, path))[0]


def _integer(rule: IntegerRule, max_bytes: int, column: pa.DataType) -> Read:
    floating = {32: "<f", 64: "<d"}[column.bit_width] if pa.types.is_floating(column) else None
    expected = (
        "a date that the calendar has"
        if pa.types.is_date(column)
        else f"a number that a column of {column} can hold"
    )

    def read(cursor: _Cursor, path: Path) -> int | float:
        number = cursor.varint(path, max_bytes)
        if floating is not None:
            value: float = struct.unpack(floating, struct.pack(floating, number))[0]
            if value == number:
                return value
        elif rule.low <= number <= rule.high:
            if number % rule.divisor:
                cursor.truncation.note_cut(_path_text(path))
            return number * rule.factor // rule.divisor
        raise _refusal("out_of_range", f"Expected {expected}", path)

    return read


def _time_text(column: pa.DataType) -> Read:
    def read(cursor: _Cursor, path: Path) -> Any:
        convert = converter(column, None, EXACT, cursor.truncation)
        return convert(_text(cursor, path), _path_text(path))

    return read


def _decimal(octets: Read, scale: int, column: pa.DataType) -> Read:
    def read(cursor: _Cursor, path: Path) -> Decimal:
        return _decimal_value(cursor, octets(cursor, path), scale, column, path)

    return read


def _variable_decimal(column: pa.DataType) -> Read:
    def read(cursor: _Cursor, path: Path) -> Decimal:
        scale = cursor.varint(path, INT_BYTES)
        return _decimal_value(cursor, _bytes(cursor, path), scale, column, path)

    return read


def _big_decimal(column: pa.DataType) -> Read:
    """Makes the reader of bytes that hold the bytes of a decimal, and its scale."""

    def read(cursor: _Cursor, path: Path) -> Decimal:
        size = cursor.varint(path)
        end = cursor.pos + size
        octets, scale = _bytes(cursor, path), cursor.varint(path, INT_BYTES)
        if cursor.pos != end:
            raise cursor.malformed_error("a decimal doesn't end where it says", path)
        return _decimal_value(cursor, octets, scale, column, path)

    return read


def _decimal_value(
    cursor: _Cursor, octets: bytes, scale: int, column: pa.DataType, path: Path
) -> Decimal:
    """Converts an unscaled number to the column's scale.

    Raises:
        RefusedValueError: the conversion would lose a digit.
    """
    if not octets:
        raise cursor.malformed_error("a decimal has no bytes", path)
    unscaled, zeros = int.from_bytes(octets, "big", signed=True), column.scale - scale
    if unscaled and -_MOST_SCALE_DIFFERENCE <= zeros <= _MOST_SCALE_DIFFERENCE:
        unscaled, remainder = (
            (unscaled * 10**zeros, 0) if zeros >= 0 else divmod(unscaled, 10**-zeros)
        )
    else:
        remainder = unscaled
    if remainder or abs(unscaled) >= 10**column.precision:
        message = (
            f"Expected a decimal of {column.precision} digits, {column.scale} of them after the"
            " point"
        )
        raise _refusal("out_of_range", message, path)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -column.scale))
