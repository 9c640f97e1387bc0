"""Rules for which field of a message type can become which column, and readers of the values.

The rules are applied before any message is read. A column takes the values of a field that it
can hold exactly. A message with any other value is a dead letter, whose reason is in brackets
here:

- An integer becomes an integer of any size, a float or a Decimal without digits after
  the point (`out_of_range`: the column can't hold it exactly), or a Datetime if the
  column states its `epoch`. A float becomes a Float32 or a Float64, a double a Float64,
  a bool a Boolean.
- A string and bytes become a String (`invalid_utf8`) or a Binary. An enum becomes a
  String with the symbol (`out_of_range`: the number has none), or an integer with the
  number.
- A google.protobuf.Struct, Value or ListValue becomes a text, its JSON.
- A google.protobuf.Timestamp becomes a Datetime (`out_of_range`: not in the years 1 to
  9999). A wrapper becomes what its value can become. Any other message, and a group,
  becomes a Struct of some of its fields.
- A repeated field becomes a List. A map with string keys becomes a List of key and
  value, or a map if the column says `map`.
- A field with a wrong wire type is refused (`wrong_type`), because it was written as a field
  of another type.

A field that isn't set becomes its default, if the type states one. Otherwise it becomes null if
Protobuf distinguishes a field that isn't set (`optional`, members of a oneof, messages, all of
proto2); a column that isn't nullable refuses this null (`missing`). Any other field becomes the
zero of its type.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Collection
from typing import Any, Literal

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.shared.integers import MAX_MICROS, MIN_MICROS, IntegerRule, column_rule
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import TIMESTAMP, epoch_ratio

Read = Callable[[Any, str], Any]
"""Converts a value: (a field's value, its path) -> a Python object for pyarrow.

Raises RefusedValueError if the column can't hold it.
"""
Get = Callable[[Any, str], Any]
"""Reads a field: (a parsed message, its path) -> a Python object for pyarrow.

Null is None. Raises RefusedValueError if the column can't hold the value.
"""

INTEGERS = (
    "int64",
    "uint64",
    "int32",
    "fixed64",
    "fixed32",
    "uint32",
    "sfixed32",
    "sfixed64",
    "sint32",
    "sint64",
)
TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    10: "group",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
"""Types of fields, by their numbers in Protobuf's descriptors."""
_WIRES = ("VARINT", "I64", "LEN", "SGROUP", "EGROUP", "I32")
"""Protobuf's names of the wire types, by number."""
_SIZED = 2
"""Wire type of messages."""
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS: dict[str, list[tuple[int, str, str]]] = {
    f"google.protobuf.{kind.capitalize().replace('Ui', 'UI')}Value": [(1, "value", kind)]
    for kind in ("double", "float", "int64", "uint64", "int32", "uint32", "bool", "string", "bytes")
}
"""Fields of Google's wrappers, which are messages for a single value: number, name and type."""

_JSON_TYPES: dict[str, list[tuple[int, str, str]]] = {
    "google.protobuf.Struct": [(1, "fields", "message")],
    "google.protobuf.ListValue": [(1, "values", "message")],
    "google.protobuf.Value": [
        (1, "null_value", "enum"),
        (2, "number_value", "double"),
        (3, "string_value", "string"),
        (4, "bool_value", "bool"),
        (5, "struct_value", "message"),
        (6, "list_value", "message"),
    ],
}
"""Fields of Google's types for any JSON value: number, name and type."""
_EXACT = 2**53
"""Whole numbers below this one are written without a fraction and an exponent."""


Absent = Literal["refused", "null"]
"""Treatment of a column, or of a struct's field, that the message type has no field for.

It is refused as a mistake, or is null if the type may be another version of the schema. A
column that isn't nullable is always refused.
"""


def reader(
    kind: Any, columns: Columns, absent: Absent = "refused", truncation: Truncation | None = None
) -> Read:
    """Makes the reader of parsed messages of a type. It returns the values of the columns.

    Raises:
        SpecError: columns can't be read from the type; names each with the reason.
    """
    reason_by_column, gets = _readers(
        kind, columns, absent, truncation or Truncation(columns.finer)
    )
    if reason_by_column:
        raise SpecError(
            f"The columns can't come from the message type {kind.full_name}: "
            + "; ".join(reason_by_column.values()),
            "spec",
            "Fix the schema or the message type; nothing was read.",
        )
    return _checking_reader(
        kind,
        [c.name for c in columns.columns],
        lambda message, path: [g(message, path) for g in gets],
    )


def misfits(kind: Any, columns: Columns, absent: Absent = "refused") -> dict[str, str]:
    """Returns why columns can't be read from a type, by name."""
    return _readers(kind, columns, absent, Truncation())[0]


def _readers(
    kind: Any, columns: Columns, absent: Absent, truncation: Truncation
) -> tuple[dict[str, str], list[Get]]:
    """Makes the readers of the columns.

    Returns:
        Why columns can't be read from the type, by name; and the readers.
    """
    reason_by_column: dict[str, str] = {}
    gets: list[Get] = []
    for c in columns.columns:
        fields = _Fields(truncation, absent if c.nullable else "refused")
        get = fields.field(kind, c.name, c.type, c.epoch, c.name)
        gets.append(_column(get, c.name, nullable=c.nullable))
        if c.zone is not None:
            fields.problems.append(f"{c.name}: metadata zone is for timestamps that are text")
        if fields.problems:
            reason_by_column[c.name] = "; ".join(fields.problems)
    return reason_by_column, gets


def _checking_reader(kind: Any, names: Collection[str], read: Read) -> Read:
    """Returns a reader that refuses messages in which a named field has a wrong wire type.

    The library treats such a field as an unknown field, which looks as if it weren't set. It
    also treats a map's entry with unknown fields as an unknown field; `_sorted_map` reads
    these entries.
    """
    from google.protobuf.unknown_fields import UnknownFieldSet  # an extra, loaded where used

    fields = {field.number: field for field in kind.fields if field.name in names}

    def read_checked(message: Any, path: str) -> Any:
        for unknown_field in UnknownFieldSet(message):
            field = fields.get(unknown_field.field_number)
            if field is not None and not (is_map(field) and unknown_field.wire_type == _SIZED):
                raise RefusedValueError(
                    "wrong_type",
                    f"Expected {_words(field)},"
                    f" got the wire type {_WIRES[unknown_field.wire_type]}",
                    f"{path}.{field.name}",
                )
        return read(message, path)

    return read_checked


def _column(get: Get, name: str, *, nullable: bool) -> Get:
    def column(message: Any, path: str) -> Any:
        try:
            value = get(message, path)
        except UnicodeDecodeError as error:
            # The library checks the strings of a proto2 list or map only when they are read.
            raise RefusedValueError(
                "invalid_utf8", f"Expected UTF-8, got {error.reason}", f"{path}.{name}"
            ) from None
        if value is None and not nullable:
            raise RefusedValueError("missing", "Expected a value, got none", f"{path}.{name}")
        return value

    return column


def _scalar_fits(field: Any, column: pa.DataType, epoch: str | None) -> bool:
    kind = TYPES[field.type]
    if field.message_type is not None:
        return bool(
            (is_timestamp(field.message_type) and column == TIMESTAMP and epoch is None)
            or (is_json(field.message_type) and column == pa.string())
        )
    if kind in INTEGERS:
        return integer_rule(column, epoch) is not None
    if kind == "enum":
        return bool(column == pa.string() or pa.types.is_integer(column))
    takes = {
        "bool": (pa.bool_(),),
        "float": (pa.float32(), pa.float64()),
        "double": (pa.float64(),),
        "string": (pa.string(), pa.binary()),
        "bytes": (pa.binary(), pa.string()),
    }
    return column in takes.get(kind, ())


def is_map(field: Any) -> bool:
    """Returns whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_wrapper(kind: Any) -> bool:
    """Returns whether a type is one of Google's wrappers, which hold a single value."""
    return kind.full_name in _WRAPPERS and _has_exactly(kind, _WRAPPERS[kind.full_name])


def is_timestamp(kind: Any) -> bool:
    """Returns whether a type is google.protobuf.Timestamp."""
    return kind.full_name == _TIMESTAMP and _has_exactly(
        kind, [(1, "seconds", "int64"), (2, "nanos", "int32")]
    )


def is_json(kind: Any) -> bool:
    """Returns whether a type is Google's Struct, Value or ListValue, which hold any JSON value."""
    fields = sorted((field.number, field.name, TYPES[field.type]) for field in kind.fields)
    return _JSON_TYPES.get(kind.full_name) == fields


def _has_exactly(kind: Any, fields: list[tuple[int, str, str]]) -> bool:
    """Returns whether a type has exactly these fields, which Google's type has.

    A type of another author may have the same name and different fields.
    """
    plain = not kind.is_extendable and not any(
        field.is_repeated or field.has_presence for field in kind.fields
    )
    return (
        plain
        and sorted((field.number, field.name, TYPES[field.type]) for field in kind.fields) == fields
    )


def _words(field: Any) -> str:
    """Returns a description of a field's type, for errors."""
    if is_map(field):
        return "a map"
    kind = TYPES[field.type]
    named = f"{kind} {field.message_type.full_name}" if field.message_type is not None else kind
    return f"repeated {named}" if field.is_repeated else str(named)


class _Fields:
    """Makes the readers of a type's fields.

    Attributes:
        problems: why fields can't become their columns, at any depth.
    """

    def __init__(self, truncation: Truncation, absent: Absent) -> None:
        self.problems: list[str] = []
        self._truncation, self._absent = truncation, absent

    def field(
        self, kind: Any, name: str, column: pa.DataType, epoch: str | None, column_path: str
    ) -> Get:
        """Makes the reader of a field.

        Args:
            kind: the type that may have the field.
            name: the field's name.
            column: the type of the column, or of a struct's field.
            epoch: the column's unit.
            column_path: the column's path, for `problems`.
        """
        field, step = kind.fields_by_name.get(name), f".{name}"
        if field is None:
            self.problems += [f"{column_path}: {kind.full_name} has no such field"] * (
                self._absent == "refused"
            )
            return _null
        if is_map(field) and pa.types.is_map(column):
            entry = field.message_type.fields_by_name
            key = TYPES[entry["key"].type]
            if key != "string":
                hint = f"a map with {key} keys can't become {column}: take a List of Struct"
                self.problems.append(f"{column_path}: {hint}")
            return _entries(
                field, self._value(entry["value"], column.item_type, None, f"{column_path}[...]")
            )
        if field.is_repeated and pa.types.is_list(column):
            read = self._value(field, column.value_type, None, f"{column_path}[...]")
            if is_map(field):
                return _pairs(field, read)
            return lambda message, path: [
                read(item, f"{path}{step}[{i}]") for i, item in enumerate(getattr(message, name))
            ]
        if field.is_repeated or pa.types.is_list(column) or pa.types.is_map(column):
            self.problems.append(f"{column_path}: {_words(field)} can't become {column}")
            return _null
        read = self._value(field, column, epoch, column_path)
        has_no_presence, has_default = (
            not field.has_presence,
            field.has_default_value and not field.message_type,
        )
        return lambda message, path: (
            read(_read_field(message, name, path), path + step)
            if has_no_presence or message.HasField(name)
            else read(field.default_value, path + step)
            if has_default
            else None
        )

    def _value(self, field: Any, column: pa.DataType, epoch: str | None, column_path: str) -> Read:
        """Makes the converter of a single value of a field."""
        inner, kind = field.message_type, TYPES[field.type]
        if inner is not None and pa.types.is_struct(column):
            fields = [
                (
                    part.name,
                    self.field(inner, part.name, part.type, None, f"{column_path}.{part.name}"),
                )
                for part in column
            ]
            return _checking_reader(
                inner,
                [name for name, _ in fields],
                # Arrow takes a missing field as null; many structs of nulls would take much memory.
                lambda value, path: {
                    name: read for name, get in fields if (read := get(value, path)) is not None
                },
            )
        if inner is not None and is_wrapper(inner):
            read = self._value(inner.fields_by_name["value"], column, epoch, column_path)
            return _checking_reader(inner, ("value",), lambda value, path: read(value.value, path))
        if not _scalar_fits(field, column, epoch):
            self.problems.append(f"{column_path}: {_words(field)} can't become {column}")
            return _null
        if inner is not None and is_json(inner):
            return lambda value, path: json.dumps(
                _json_value(value, path), ensure_ascii=False, separators=(",", ":")
            )
        if inner is not None:
            return _checking_reader(inner, ("seconds", "nanos"), self._timestamp)
        if kind == "enum" and column == pa.string():
            return _enum(
                {number: value.name for number, value in field.enum_type.values_by_number.items()}
            )
        if kind in INTEGERS or kind == "enum":
            return self._integer(column, epoch)
        if kind in {"string", "bytes"}:
            return (
                _text
                if column == pa.string()
                else lambda value, _path: value.encode() if isinstance(value, str) else value
            )
        return lambda value, _path: value

    def _integer(self, column: pa.DataType, epoch: str | None) -> Read:
        rule = integer_rule(column, epoch)
        assert rule is not None  # `_scalar_fits` has refused the others
        form = {32: "<f", 64: "<d"}[column.bit_width] if pa.types.is_floating(column) else None

        def read(number: int, path: str) -> Any:
            fits = (
                rule.low <= number <= rule.high
                if form is None
                else struct.unpack(form, struct.pack(form, number))[0] == number
            )
            if not fits:
                raise RefusedValueError(
                    "out_of_range", f"Expected a number that a column of {column} can hold", path
                )
            if form is not None:
                return float(number)
            converted, finer = divmod(number * rule.factor, rule.divisor)
            if finer:
                self._truncation.note_cut(path)
            return converted

        return read

    def _timestamp(self, value: Any, path: str) -> int:
        micros, finer = divmod(value.nanos, 1_000)
        total_micros = value.seconds * 1_000_000 + micros
        if not 0 <= value.nanos < 1_000_000_000 or not MIN_MICROS <= total_micros <= MAX_MICROS:
            raise RefusedValueError(
                "out_of_range", "Expected a timestamp in the years 1 to 9999", path
            )
        if finer:
            self._truncation.note_cut(path)
        return int(total_micros)


def _null(_message: Any, _path: str) -> None:
    return None


def _read_field(message: Any, name: str, path: str) -> Any:
    """Returns a field of a message.

    The library checks a proto2 string only when it is read, so reading may raise.

    Raises:
        RefusedValueError: the field is a string that isn't UTF-8.
    """
    try:
        return getattr(message, name)
    except UnicodeDecodeError as error:
        raise RefusedValueError(
            "invalid_utf8", f"Expected UTF-8, got {error.reason}", f"{path}.{name}"
        ) from None


def _entries(field: Any, read: Read) -> Get:
    def get(message: Any, path: str) -> list[tuple[str, Any]]:
        # Keys are data, so the path has no key.
        item_path = f"{path}.{field.name}[...]"
        return [
            (key, read(value, item_path)) for key, value in _sorted_map(message, field, item_path)
        ]

    return get


def _sorted_map(message: Any, field: Any, path: str) -> list[tuple[Any, Any]]:
    """Returns a map's entries, in the order of their keys.

    An entry with more fields than key and value counts as an entry, like in Protobuf for Java
    and C++. Google's Python library treats such an entry as an unknown field, and doesn't
    keep its place among the other entries.
    """
    # an extra, loaded where it is used
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    parsed_entries = getattr(message, field.name)
    entries = dict(parsed_entries.items())
    for unknown_field in UnknownFieldSet(message):
        if (unknown_field.field_number, unknown_field.wire_type) != (field.number, _SIZED):
            continue
        try:
            entry = parsed_entries.GetEntryClass().FromString(unknown_field.data)
        except DecodeError:
            raise RefusedValueError(
                "not_protobuf", "The bytes are no entry of a Protobuf map", path
            ) from None
        _checking_reader(field.message_type, ("key", "value"), lambda entry, _: entry)(entry, path)
        if not entry.IsInitialized():
            raise RefusedValueError("missing", "Message misses required fields", path)
        if entry.key in parsed_entries:
            raise RefusedValueError(
                "duplicate_key",
                "Map has a key twice: in an entry with unknown fields, and in one without",
                path,
            )
        entries[entry.key] = entry.value
    return sorted(entries.items(), key=lambda item: item[0])


def _pairs(field: Any, read: Read) -> Get:
    """Makes the reader of a map that becomes a list of structs of key and value."""

    def get(message: Any, path: str) -> list[Any]:
        entry, item_path = getattr(message, field.name).GetEntryClass(), f"{path}.{field.name}[...]"
        return [
            read(entry(key=key, value=value), item_path)
            for key, value in _sorted_map(message, field, item_path)
        ]

    return get


def _text(value: Any, path: str) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise RefusedValueError(
            "invalid_utf8", f"Expected UTF-8, got {error.reason} (byte {error.start})", path
        ) from None


def _json_value(value: Any, path: str) -> Any:
    """Returns what a Struct, Value or ListValue holds, with the keys of objects in their order.

    Paths have no keys, because keys are data.

    Raises:
        RefusedValueError: a value of it is missing, is a number that JSON doesn't have, or has
            another wire type. Such a part would be lost, because the library treats it as an
            unknown field.
    """
    from google.protobuf.unknown_fields import UnknownFieldSet  # an extra, loaded where used

    kind = value.DESCRIPTOR.name
    if len(UnknownFieldSet(value)):
        raise RefusedValueError(
            "wrong_type", f"Expected google.protobuf.{kind}, got a field that it doesn't have", path
        )
    if kind == "Struct":
        return {key: _json_value(value.fields[key], path) for key in sorted(value.fields)}
    if kind == "ListValue":
        return [_json_value(item, path) for item in value.values]
    name = value.WhichOneof("kind")
    if name is None:
        raise RefusedValueError("missing", "Expected a google.protobuf.Value, got none", path)
    if name in {"struct_value", "list_value"}:
        return _json_value(getattr(value, name), path)
    if name != "number_value":
        return None if name == "null_value" else getattr(value, name)
    if not math.isfinite(value.number_value):
        raise RefusedValueError("out_of_range", "Expected a number that JSON has", path)
    is_whole = value.number_value.is_integer() and abs(value.number_value) < _EXACT
    return int(value.number_value) if is_whole else value.number_value


def _enum(names: dict[int, str]) -> Read:
    def read(number: int, path: str) -> str:
        if number not in names:
            raise RefusedValueError(
                "out_of_range", "Expected a number that has a symbol in the enum", path
            )
        return names[number]

    return read


def integer_rule(column: pa.DataType, epoch: str | None = None) -> IntegerRule | None:
    """Returns the rule for integers and enum numbers of a column; None if it can't hold them."""
    return column_rule(column, None if epoch is None else epoch_ratio(epoch))
