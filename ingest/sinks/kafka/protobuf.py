"""Rows as Protobuf messages (proto3), and the .proto file of the messages.

Whole columns are encoded at a time. The bytes are the same as those of Protobuf's own
serializers:

- Fields are in the order of their numbers.
- The numbers of a list are packed into one field.
- A field without presence has no bytes if its value is its type's zero.

Some values of a column can't be written in a message; `misfit` finds them before any value
is encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.sinks.kafka.byte_columns import (
    NAME,
    NoCounterpartError,
    as_lists,
    bodies,
    constant,
    counts,
    flat,
    free_name,
    is_bytes,
    is_int,
    is_list,
    is_text,
    join_columns,
    lengths,
    numbers,
    plain,
    varints,
)

_TIMESTAMP = "google.protobuf.Timestamp"
_IMPORT = 'import "google/protobuf/timestamp.proto";'
_VARINT, _I64, _LENGTH, _I32 = 0, 1, 2, 5
"""Wire types, by Protobuf's numbers."""
_KEY, _VALUE = 1, 2
"""Field numbers of a map's entry."""
_SECONDS, _NANOS = 1, 2
"""Field numbers of a Timestamp."""
_SECONDS_MIN, _SECONDS_MAX = -62_135_596_800, 253_402_300_799
"""Range of a Timestamp: the years 1 to 9999."""
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def schema_text(columns: pa.Schema, name: str) -> str:
    """Returns the .proto file; its first message has these columns as fields.

    The fields are numbered from 1 in the order of the columns. The same columns always
    have the same text.

    A column that may be null has presence (`optional`). All fields within structs have
    presence too. A list is a repeated field, whose items have no presence. A struct is a
    nested message, named after its column.

    Args:
        columns: the columns, in the order of the fields.
        name: the message's full name; the text before the last dot is the package.

    Raises:
        NoCounterpartError: a name isn't allowed in Protobuf, or Protobuf has no such type.
    """
    package, _, message = name.rpartition(".")
    if "google" in package.split("."):
        raise NoCounterpartError(
            f"the package {package} hides Google's own types, and instants need one of them"
        )
    body = _message(message, list(columns), (), "")
    heads = [f"package {package};"] if package else []
    heads += [_IMPORT] if any(_TIMESTAMP in line for line in body) else []
    return "\n".join(['syntax = "proto3";', *heads, "", *body, ""])


def _message(name: str, fields: Sequence[pa.Field], around: Sequence[str], path: str) -> list[str]:
    """Returns the lines that define a message.

    Args:
        name: the message's name.
        fields: the message's fields.
        around: the names of the messages that contain this message.
        path: the path to the fields, for error messages.
    """
    _refuse_names(fields, path)
    entries = [f"{_camel(field.name)}Entry" for field in fields if pa.types.is_map(field.type)]
    taken_names = {*(field.name for field in fields), *entries, *around, name}
    inner, lines = list[str](), list[str]()
    for number, field in enumerate(fields, 1):
        words, nested = _label_and_type(
            field,
            taken_names,
            (*around, name),
            f"{path}{field.name}",
            presence=field.nullable or bool(around),
        )
        inner += nested
        lines.append(f"{words} {field.name} = {number};")
    return [f"message {name} {{", *(f"  {line}" for line in [*inner, *lines]), "}"]


def _refuse_names(fields: Sequence[pa.Field], path: str) -> None:
    field_by_json_name: dict[str, str] = {}
    names = {field.name for field in fields}
    for field in fields:
        if not NAME.fullmatch(field.name):
            raise NoCounterpartError(
                f"{field.name!r} can't be the name of a field: Protobuf allows letters, digits and"
                " _, and no digit first"
            )
        first = field_by_json_name.setdefault(_json_name(field.name), field.name)
        if first != field.name:
            raise NoCounterpartError(
                f"{path}{first} and {path}{field.name} have the same name in Protobuf's JSON,"
                " which two fields must not have"
            )
        if pa.types.is_map(field.type) and f"{_camel(field.name)}Entry" in names:
            raise NoCounterpartError(
                f"the map {path}{field.name} needs the name {_camel(field.name)}Entry, which"
                " another column has"
            )


def _json_name(name: str) -> str:
    """Returns a field's name in Protobuf's JSON, which must be unique in a message."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _camel(name: str) -> str:
    """Returns a name in camel case, with a capital first."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _label_and_type(
    field: pa.Field, taken_names: set[str], around: Sequence[str], path: str, *, presence: bool
) -> tuple[str, list[str]]:
    """Returns a field's label and type, and the lines of the message that the type needs.

    Args:
        field: the field.
        taken_names: names that a nested message must not have.
        around: the names of the messages that contain the field.
        path: the path to the field, for error messages.
        presence: True if the field has presence.
    """
    kind = _value_type(field.type)
    if pa.types.is_map(kind):
        if not is_text(kind.key_type):
            raise NoCounterpartError(f"{path} is a map whose keys aren't texts")
        words, nested = _type(kind.item_type, field.name, taken_names, around, f"{path}[...]")
        return f"map<string, {words}>", nested
    if is_list(kind):
        words, nested = _type(kind.value_type, field.name, taken_names, around, f"{path}[...]")
        return f"repeated {words}", nested
    words, nested = _type(kind, field.name, taken_names, around, path)
    return f"optional {words}" if presence and not _is_message(kind) else words, nested


def _type(
    kind: pa.DataType, field: str, taken_names: set[str], around: Sequence[str], path: str
) -> tuple[str, list[str]]:
    """Returns the type of one value, and the lines of the message that the type needs."""
    kind = _value_type(kind)
    if pa.types.is_struct(kind):
        camel = _camel(field)
        name = free_name(camel if NAME.fullmatch(camel) else f"M{camel}", taken_names)
        return name, _message(name, list(kind), around, f"{path}.")
    if _is_many(kind):
        raise NoCounterpartError(
            f"{path} is a list or a map within another one, which Protobuf doesn't have: put a"
            " Struct between them"
        )
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _TIMESTAMP, []
    for fits, name in _SCALARS:
        if fits(kind):
            return name, []
    raise NoCounterpartError(f"{path} is {kind}, for which Protobuf has no type")


_SCALARS = (
    (is_int, "int32"),
    (pa.types.is_int64, "int64"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_boolean, "bool"),
    (is_text, "string"),
    (is_bytes, "bytes"),
)


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_many(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) or is_list(kind)


def _is_message(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) or pa.types.is_timestamp(kind))


# --------------------------------------------------------------------------------------------------


def misfit(columns: Mapping[str, pa.Array]) -> tuple[npt.NDArray[np.int64], str] | None:
    """Returns rows (ascending) with a value that a message can't have, and a sentence about it.

    Such a value is one of these: a null list or map, a null inside a list or map, or an
    instant outside the years 1 to 9999. The rows are those of the first column with such a
    value. The result is None if there is no such value.
    """
    return next(
        (
            finding
            for name, column in columns.items()
            for finding in _misfits(column, np.arange(len(column)), name, inside=False)
        ),
        None,
    )


def _misfits(
    column: pa.Array, rows: npt.NDArray[np.intp], path: str, *, inside: bool
) -> Iterator[tuple[npt.NDArray[np.int64], str]]:
    """Yields the rows with values that a message can't have, in a column and inside it.

    Args:
        column: the values.
        rows: the row of each value.
        path: the path to the values, for messages.
        inside: True if the values are in a list or a map.
    """
    column = plain(column)
    kind, is_repeated = column.type, _is_many(column.type)
    if (is_repeated or inside) and column.null_count:
        null_indices = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        yield (
            np.unique(rows[null_indices]),
            (
                f"{path} is null, and"
                f" {'a value in a list or a map' if inside else 'a list or a map'} can't be null"
            ),
        )
    if column.null_count:
        valid = column.is_valid()
        rows, column = rows[valid.to_numpy(zero_copy_only=False)], column.filter(valid)
    if pa.types.is_struct(kind):
        for field, child in zip(kind, column.flatten(), strict=True):
            yield from _misfits(child, rows, f"{path}.{field.name}", inside=False)
    elif is_repeated:
        lists = as_lists(column) if pa.types.is_map(kind) else column
        items, of_each = lists.flatten(), np.repeat(rows, counts(lists))
        values = items.field(1) if pa.types.is_map(kind) else items
        yield from _misfits(values, of_each, f"{path}[...]", inside=True)
    elif pa.types.is_timestamp(kind):
        seconds = numbers(column) // _PER_SECOND[kind.unit]
        strange = np.flatnonzero((seconds < _SECONDS_MIN) | (seconds > _SECONDS_MAX))
        if len(strange):
            yield np.unique(rows[strange]), f"{path} is outside the years 1 to 9999"


# --------------------------------------------------------------------------------------------------


def records(columns: Sequence[tuple[pa.Array, bool]], head: bytes = b"") -> pa.BinaryArray:
    """Encodes the message of each row.

    The bytes of a row that `misfit` returns are wrong.

    Args:
        columns: the values of each field, and whether the field has presence.
        head: the bytes before each message.
    """
    return join_columns([constant(head), *_fields(columns)])


def _fields(columns: Iterable[tuple[pa.Array, bool]]) -> Iterator[Any]:
    """Yields the byte columns of messages, to be joined row by row.

    No byte column has nulls: an absent field has no bytes.
    """
    for number, (column, presence) in enumerate(columns, 1):
        yield from _field(plain(column), number, presence=presence)


def _field(column: pa.Array, number: int, *, presence: bool) -> list[Any]:
    kind = column.type
    if pa.types.is_map(kind):
        return _map(as_lists(column), number)
    if is_list(kind):
        return _repeated(column, number)
    pieces = [constant(_tag(number, _wire_type(kind))), *_value(column)]
    if presence or _is_message(kind):
        return pieces if not column.null_count else [_unless(column.is_null(), pieces)]
    return [_unless(pa.array(_is_zero(column)), pieces)]


def _map(lists: pa.ListArray, number: int) -> list[Any]:
    """Encodes each map entry as a message with key and value, even if they are zeros."""
    items = lists.flatten()
    keys, values = items.field(0), plain(items.field(1))
    entry = join_columns(
        [
            constant(_tag(_KEY, _LENGTH)),
            *_value(keys),
            constant(_tag(_VALUE, _wire_type(values.type))),
            *_value(values),
        ]
    )
    return [bodies(counts(lists), join_columns([constant(_tag(number, _LENGTH)), *_sized(entry)]))]


def _repeated(lists: pa.Array, number: int) -> list[Any]:
    """Encodes the numbers of a list in one field, and other items in one field each."""
    items, of_each = plain(lists.flatten()), counts(lists)
    if _wire_type(items.type) == _LENGTH:
        return [bodies(of_each, join_columns([constant(_tag(number, _LENGTH)), *_value(items)]))]
    packed = bodies(of_each, join_columns(_value(items)))
    return [_unless(pa.array(of_each == 0), [constant(_tag(number, _LENGTH)), *_sized(packed)])]


def _value(column: pa.Array) -> list[Any]:
    """Returns the byte columns of values after the tag; a null has any bytes."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _sized(join_columns(list(_fields((child, True) for child in column.flatten()))))
    if pa.types.is_timestamp(kind):
        return _sized(_timestamps(numbers(column), _PER_SECOND[kind.unit]))
    if is_text(kind) or is_bytes(kind):
        return _sized(column.cast(pa.binary()))
    return (
        [flat(column)]
        if pa.types.is_floating(kind)
        else [varints(numbers(column).view(np.uint64), None)]
    )


def _timestamps(moments: npt.NDArray[np.int64], per_second: int) -> pa.BinaryArray:
    seconds, rest = np.divmod(moments, per_second)
    nanos = rest * (_PER_SECOND["ns"] // per_second)
    return join_columns(
        [
            _unless(
                pa.array(component == 0),
                [constant(_tag(number, _VARINT)), varints(component.view(np.uint64), None)],
            )
            for number, component in ((_SECONDS, seconds), (_NANOS, nanos))
        ]
    )


def _sized(content: pa.BinaryArray) -> list[Any]:
    """Returns each value's length, and its bytes."""
    return [varints(lengths(content).view(np.uint64), None), content]


def _unless(absent: pa.BooleanArray, pieces: Sequence[Any]) -> pa.BinaryArray:
    """Joins byte columns; a row that is absent has no bytes."""
    return pc.if_else(absent, constant(b""), join_columns(pieces))


def _is_zero(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns which values are null or their type's zero.

    Floats are compared by their bits, because -0.0 isn't the zero.
    """
    kind = column.type
    if is_text(kind) or is_bytes(kind):
        return lengths(column) == 0  # type: ignore[no-any-return]
    if pa.types.is_floating(kind):
        values = np.ascontiguousarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False))
        return values.view(np.uint32 if pa.types.is_float32(kind) else np.uint64) == 0  # type: ignore[no-any-return]
    return numbers(column) == 0  # type: ignore[no-any-return]


def _wire_type(kind: pa.DataType) -> int:
    """Returns the wire type of values."""
    if pa.types.is_floating(kind):
        return _I32 if pa.types.is_float32(kind) else _I64
    return _VARINT if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else _LENGTH


def _tag(number: int, wire_type: int) -> bytes:
    """Returns the tag of a field: its number and wire type, as a varint."""
    word, octets = number << 3 | wire_type, bytearray()
    while word > 0x7F:
        octets.append(word & 0x7F | 0x80)
        word >>= 7
    return bytes([*octets, word])
