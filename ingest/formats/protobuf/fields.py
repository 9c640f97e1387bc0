"""How the fields of a message become columns: what is decided before any message is
read, and what reads a message that is parsed.

A column takes from a field what it can hold of it exactly; the few values that it can't
hold are dead letters:

- an integer of any kind becomes any integer, a float or a Decimal without digits after
  the point (`out_of_range` where the column doesn't hold it exactly), or a Datetime
  whose column says its `epoch`; a float a Float32 or a Float64, a double a Float64; a
  bool a Boolean;
- a string and bytes become a String (`invalid_utf8`) or a Binary; an enum a String, its
  name (`out_of_range`: it names no such number), or an integer, its number;
- a google.protobuf.Timestamp becomes a Datetime (`out_of_range`: not in the years 1 to
  9999), a wrapper what its value becomes; any other message, and a group, a Struct of
  some of its fields;
- a repeated field becomes a List, a map with text keys a List of key and value with
  `map`.

A field that isn't there is null where Protobuf can tell (`optional`, members of a
oneof, messages, all of proto2), which a column that isn't nullable refuses (`missing`),
and its default where that is stated; elsewhere it is the zero of its type.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.shared.calendar import MAX_MICROS, MIN_MICROS
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import TIMESTAMP, epoch_ratio

Read = Callable[[Any, str], Any]
"""(a field's value, its path) -> the value as pyarrow takes it; raises RefusedValueError."""
Get = Callable[[Any, str], Any]
"""(a message, its path) -> the value of one of its fields, or None."""

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
"""Protobuf's numbers of types."""
_SIZED = 2
"""The wire type of messages."""
_OF_ENTRY = (1, 2)
"""The fields of a map's entry: its key, its value."""
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS: dict[str, list[tuple[int, str, str]]] = {
    f"google.protobuf.{kind.capitalize().replace('Ui', 'UI')}Value": [(1, "value", kind)]
    for kind in ("double", "float", "int64", "uint64", "int32", "uint32", "bool", "string", "bytes")
}
"""The fields of those types of Google's that stand for a value: number, name and type."""


Absent = Literal["refused", "null"]
"""What a column, or a field of one, is that the type has no field for: a mistake; or
null, where it may be, as of another version.
"""


def readers(
    kind: Any, columns: Columns, absent: Absent = "refused", truncation: Truncation | None = None
) -> list[Get]:
    """What reads each column from a message of a type.

    Raises:
        SpecError: with each column that can't come from the type, and why.
    """
    wrong = [
        problem
        for c in columns.columns
        for problem in _misfits(
            kind, c.name, c.type, c.epoch, c.name, absent if c.nullable else "refused"
        )
    ]
    wrong += [
        f"{c.name}: metadata zone is for timestamps that are text"
        for c in columns.columns
        if c.zone is not None
    ]
    if wrong:
        what = f"The columns can't come from the message type {kind.full_name}: " + "; ".join(wrong)
        raise SpecError(what, "spec", "Fix the schema or the message type; nothing was read.")
    fields = _Fields(truncation or Truncation(columns.finer))
    return [
        _column(fields.field(kind, c.name, c.type, c.epoch), c.name, nullable=c.nullable)
        for c in columns.columns
    ]


def _column(get: Get, name: str, *, nullable: bool) -> Get:
    def column(message: Any, path: str) -> Any:
        try:
            value = get(message, path)
        except (
            UnicodeDecodeError
        ) as error:  # of a list or a map of proto2: its library looks when the items are asked for
            raise RefusedValueError(
                "invalid_utf8", f"Expected UTF-8, got {error.reason}", f"{path}.{name}"
            ) from None
        if value is None and not nullable:
            raise RefusedValueError("missing", "Expected a value, got none", f"{path}.{name}")
        return value

    return column


def _misfits(
    kind: Any, name: str, column: pa.DataType, epoch: str | None, path: str, absent: Absent
) -> Iterator[str]:
    """Why a field can't become a column, nowhere or somewhere in it."""
    field = kind.fields_by_name.get(name)
    if field is None:
        if absent == "refused":
            yield f"{path}: {kind.full_name} has no such field"
    elif is_map(field) and pa.types.is_map(column):
        entry = field.message_type.fields_by_name
        if TYPES[entry["key"].type] != "string":
            yield (
                f"{path}: a map of {TYPES[entry['key'].type]} keys can't become {column}: take a"
                " List of Struct"
            )
        yield from _misfits_of_value(entry["value"], column.item_type, None, f"{path}[...]", absent)
    elif field.is_repeated and pa.types.is_list(column):
        yield from _misfits_of_value(field, column.value_type, None, f"{path}[...]", absent)
    elif field.is_repeated or pa.types.is_list(column) or pa.types.is_map(column):
        hint = ": say metadata={'map': True}" if is_map(field) and pa.types.is_list(column) else ""
        yield f"{path}: {_words(field)} can't become {column}{hint}"
    else:
        yield from _misfits_of_value(field, column, epoch, path, absent)


def _misfits_of_value(
    field: Any, column: pa.DataType, epoch: str | None, path: str, absent: Absent
) -> Iterator[str]:
    """The same for one value of a field."""
    inner = field.message_type
    if inner is not None and pa.types.is_struct(column):
        for part in column:
            yield from _misfits(inner, part.name, part.type, None, f"{path}.{part.name}", absent)
    elif inner is not None and is_wrapper(inner):
        yield from _misfits_of_value(inner.fields_by_name["value"], column, epoch, path, absent)
    elif not _scalar_fits(field, column, epoch):
        yield f"{path}: {_words(field)} can't become {column}"


def _scalar_fits(field: Any, column: pa.DataType, epoch: str | None) -> bool:
    kind = TYPES[field.type]
    if field.message_type is not None:
        return bool(is_timestamp(field.message_type) and column == TIMESTAMP and epoch is None)
    if kind in INTEGERS:
        whole = pa.types.is_integer(column) or (pa.types.is_decimal(column) and column.scale == 0)
        return bool(
            whole or pa.types.is_floating(column) or (column == TIMESTAMP and epoch is not None)
        )
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
    """Whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_wrapper(kind: Any) -> bool:
    """Whether a type is one of those that stand for a value that may not be there."""
    return kind.full_name in _WRAPPERS and _has(kind, _WRAPPERS[kind.full_name])


def is_timestamp(kind: Any) -> bool:
    """Whether a type is Google's instant."""
    return kind.full_name == _TIMESTAMP and _has(
        kind, [(1, "seconds", "int64"), (2, "nanos", "int32")]
    )


def _has(kind: Any, fields: list[tuple[int, str, str]]) -> bool:
    """Whether a type has these fields alone, as Google's own have them: a stranger's
    may only be called so.
    """
    plain = not kind.is_extendable and not any(
        field.is_repeated or field.has_presence for field in kind.fields
    )
    return (
        plain
        and sorted((field.number, field.name, TYPES[field.type]) for field in kind.fields) == fields
    )


def _words(field: Any) -> str:
    """A field's type, for people."""
    if is_map(field):
        return "a map"
    kind = TYPES[field.type]
    named = f"{kind} {field.message_type.full_name}" if field.message_type is not None else kind
    return f"repeated {named}" if field.is_repeated else str(named)


class _Fields:
    """What makes the readers of a type's fields.

    `truncation`: what becomes of their timestamps that are finer than a microsecond.
    """

    def __init__(self, truncation: Truncation) -> None:
        self._truncation = truncation

    def field(self, kind: Any, name: str, column: pa.DataType, epoch: str | None) -> Get:
        """What reads a field for a column."""
        if name not in kind.fields_by_name:
            return lambda _message, _path: None
        field, step = kind.fields_by_name[name], f".{name}"
        if is_map(field):
            if pa.types.is_map(column):
                return _entries(
                    field,
                    self._value(field.message_type.fields_by_name["value"], column.item_type, None),
                )
            return _pairs(field, self._value(field, column.value_type, None))
        if field.is_repeated:
            read = self._value(field, column.value_type, None)
            return lambda message, path: [
                read(item, f"{path}{step}[{i}]") for i, item in enumerate(getattr(message, name))
            ]
        read = self._value(field, column, epoch)
        if not field.has_presence or (field.has_default_value and field.message_type is None):
            return lambda message, path: read(_of(message, name, path), path + step)
        return lambda message, path: (
            read(_of(message, name, path), path + step) if message.HasField(name) else None
        )

    def _value(self, field: Any, column: pa.DataType, epoch: str | None) -> Read:
        """What reads one value of a field."""
        inner, kind = field.message_type, TYPES[field.type]
        if inner is not None and pa.types.is_struct(column):
            fields = [(part.name, self.field(inner, part.name, part.type, None)) for part in column]
            return lambda value, path: {name: get(value, path) for name, get in fields}
        if inner is not None and column == TIMESTAMP and not is_wrapper(inner):
            return self._timestamp
        if inner is not None:
            read = self._value(inner.fields_by_name["value"], column, epoch)
            return lambda value, path: read(value.value, path)
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
        low, high, factor, divisor = bounds(column, epoch)
        form = {32: "<f", 64: "<d"}[column.bit_width] if pa.types.is_floating(column) else None

        def read(number: int, path: str) -> Any:
            held = (
                low <= number <= high
                if form is None
                else struct.unpack(form, struct.pack(form, number))[0] == number
            )
            if not held:
                raise RefusedValueError(
                    "out_of_range", f"Expected a number that a column of {column} can hold", path
                )
            if form is not None:
                return float(number)
            whole, finer = divmod(number * factor, divisor)
            if finer:
                self._truncation.needed(path)
            return whole

        return read

    def _timestamp(self, value: Any, path: str) -> int:
        micros, finer = divmod(value.nanos, 1_000)
        whole = value.seconds * 1_000_000 + micros
        if not 0 <= value.nanos < 1_000_000_000 or not MIN_MICROS <= whole <= MAX_MICROS:
            raise RefusedValueError(
                "out_of_range", "Expected a timestamp in the years 1 to 9999", path
            )
        if finer:
            self._truncation.needed(path)
        return int(whole)


def _of(message: Any, name: str, path: str) -> Any:
    """A field of a message; a string of proto2 is looked at only here."""
    try:
        return getattr(message, name)
    except UnicodeDecodeError as error:
        raise RefusedValueError(
            "invalid_utf8", f"Expected UTF-8, got {error.reason}", f"{path}.{name}"
        ) from None


def _entries(field: Any, read: Read) -> Get:
    def get(message: Any, path: str) -> list[tuple[str, Any]]:
        place = f"{path}.{field.name}[...]"  # a map's keys are data
        return [(key, read(value, place)) for key, value in _sorted_map(message, field, place)]

    return get


def _sorted_map(message: Any, field: Any, path: str) -> list[tuple[Any, Any]]:
    """A map's entries, in the order of their keys.

    One that has a field beside key and value is taken, as by Protobuf in Java and C++;
    the library keeps it as unknown, without its place among the others.
    """
    from google.protobuf.message import (
        DecodeError,
    )  # an extra, loaded where it is used
    from google.protobuf.unknown_fields import UnknownFieldSet  # as above

    known = getattr(message, field.name)
    found = dict(known.items())
    for one in UnknownFieldSet(message):
        if (one.field_number, one.wire_type) != (field.number, _SIZED):
            continue
        try:
            entry = known.GetEntryClass().FromString(one.data)
        except DecodeError:
            raise RefusedValueError(
                "not_protobuf", "Protobuf is malformed, as an entry of a map", path
            ) from None
        if any(inner.field_number in _OF_ENTRY for inner in UnknownFieldSet(entry)):
            continue  # a value that its enum doesn't name: such an entry is unknown everywhere
        if not entry.IsInitialized():
            raise RefusedValueError("missing", "Message misses required fields", path)
        if entry.key in known:
            raise RefusedValueError(
                "duplicate_key",
                "Map holds a key more than once, in entries with unknown fields and without",
                path,
            )
        found[entry.key] = entry.value
    return sorted(found.items(), key=lambda item: item[0])


def _pairs(field: Any, read: Read) -> Get:
    """A map as a list of structs of key and value, as it stands on the wire."""

    def get(message: Any, path: str) -> list[Any]:
        entry, place = getattr(message, field.name).GetEntryClass(), f"{path}.{field.name}[...]"
        return [
            read(entry(key=key, value=value), place)
            for key, value in _sorted_map(message, field, place)
        ]

    return get


def _text(value: Any, path: str) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise RefusedValueError(
            "invalid_utf8", f"Expected UTF-8, got {error.reason} (byte {error.start})", path
        ) from None


def _enum(names: dict[int, str]) -> Read:
    def read(number: int, path: str) -> str:
        if number not in names:
            raise RefusedValueError("out_of_range", "Expected a number that the enum names", path)
        return names[number]

    return read


def bounds(column: pa.DataType, epoch: str | None) -> tuple[int, int, int, int]:
    """Which numbers of a field a column holds, from the lowest to the highest; what
    they are multiplied with, and then divided by.

    A float holds some beyond them.
    """
    if column == TIMESTAMP and epoch is not None:
        factor, divisor = epoch_ratio(epoch)
        return -(-MIN_MICROS * divisor // factor), MAX_MICROS * divisor // factor, factor, divisor
    if pa.types.is_integer(column):
        return -(1 << column.bit_width - 1), (1 << column.bit_width - 1) - 1, 1, 1
    if pa.types.is_decimal(column):
        return 1 - 10**column.precision, 10**column.precision - 1, 1, 1
    most = 1 << (53 if column.bit_width == 64 else 24)
    return -most, most, 1, 1
