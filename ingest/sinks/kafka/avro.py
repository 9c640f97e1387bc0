"""Rows as records in Avro's binary encoding, and the schema of the records.

The encoding follows Avro 1.12. Whole columns are encoded at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.sinks.kafka.byte_columns import (
    NAME,
    NoCounterpartError,
    as_lists,
    binary,
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
    validity,
    varints,
)

_UNITS = {"ms": "millis", "us": "micros", "ns": "nanos"}
_NULL, _VALUE = b"\x00", b"\x02"
"""First byte of a value in a union of null and another type: the branch's number, zigzag."""


def schema_text(columns: pa.Schema, name: str) -> str:
    """Returns the schema of records with these columns, as JSON.

    The same columns always have the same text.

    A column that may be null is a union of null and its type, with null as its default. So
    a column can be added later without breaking readers. Values in lists, maps and structs
    may always be null. A struct is a record named after its path.

    Args:
        columns: the columns, in the order of the fields.
        name: the full name of the record.

    Raises:
        NoCounterpartError: a name isn't allowed in Avro, or Avro has no such type.
    """
    return json.dumps(_RecordTypes(name).record(name, columns), separators=(",", ":"))


def records(columns: Sequence[tuple[pa.Array, bool]], head: bytes = b"") -> pa.BinaryArray:
    """Encodes the record of each row.

    Args:
        columns: the values of each field, and whether they may be null; at least one
            field. A row with a null in a field that may not be null is null.
        head: the bytes before each record.
    """
    return join_columns(
        [
            constant(head),
            *(piece for column, nullable in columns for piece in _field(column, nullable=nullable)),
        ]
    )


class _RecordTypes:
    """Makes the types of one schema, in which each record name is defined only once."""

    def __init__(self, root: str) -> None:
        self._taken_names = {root}

    def record(
        self, name: str, fields: Iterable[pa.Field], *, nested: bool = False
    ) -> dict[str, Any]:
        """Returns the type of a record, with the types of its fields."""
        record_fields = []
        for field in fields:
            if not NAME.fullmatch(field.name):
                raise NoCounterpartError(
                    f"{field.name!r} can't be the name of a field: Avro allows letters, digits and"
                    " _, and no digit first"
                )
            kind = self._type(field.type, f"{name}_{field.name}", field.name)
            null = (
                {"type": ["null", kind], "default": None}
                if field.nullable or nested
                else {"type": kind}
            )
            record_fields.append({"name": field.name, **null})
        return {"type": "record", "name": name, "fields": record_fields}

    def _type(self, kind: pa.DataType, path: str, field: str) -> Any:
        """Returns the type of values.

        Args:
            kind: the values' type in Arrow.
            path: the name for a record of this type.
            field: the column's name, for error messages.
        """
        if pa.types.is_dictionary(kind):
            return self._type(kind.value_type, path, field)
        if pa.types.is_struct(kind):
            # `a_b` may be the column `a_b`, or the field `b` of the column `a`
            return self.record(free_name(path, self._taken_names, "_"), kind, nested=True)
        if pa.types.is_map(kind):
            if not is_text(kind.key_type):
                raise NoCounterpartError(
                    f"{field} is a map whose keys aren't texts, and in Avro all are"
                )
            return {"type": "map", "values": ["null", self._type(kind.item_type, path, field)]}
        if is_list(kind):
            return {"type": "array", "items": ["null", self._type(kind.value_type, path, field)]}
        return _scalar(kind, field)


def _scalar(kind: pa.DataType, field: str) -> Any:
    if pa.types.is_timestamp(kind) and kind.unit in _UNITS:
        local = "" if kind.tz is not None else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[kind.unit]}"}
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision:
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    for fits, name in _SCALARS:
        if fits(kind):
            return name
    raise NoCounterpartError(f"{field} is {kind}, for which Avro has no type")


_SCALARS = (
    (is_int, "int"),
    (pa.types.is_int64, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_boolean, "boolean"),
    (is_text, "string"),
    (is_bytes, "bytes"),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
)


def _field(column: pa.Array, *, nullable: bool) -> list[Any]:
    """Returns the byte columns of a field, to be joined row by row."""
    pieces = _pieces(plain(column))
    if not nullable:
        return pieces
    tagged = [constant(_VALUE), *pieces]
    return [pc.fill_null(join_columns(tagged), _NULL)] if column.null_count else tagged


def _pieces(column: pa.Array) -> list[Any]:
    """Returns the byte columns of values, without the bytes of a union.

    If a value is null, at least one of the columns is null there.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        return _struct(column)
    if pa.types.is_map(kind):
        entries = as_lists(column)
        items = entries.flatten()
        keys, values = items.field(0), items.field(1)
        return _blocks(entries, join_columns([*_pieces(keys), *_field(values, nullable=True)]))
    if is_list(kind):
        return _blocks(column, join_columns(_field(column.flatten(), nullable=True)))
    if is_text(kind) or is_bytes(kind):
        octets = column.cast(pa.binary())
        return [_zigzag(lengths(octets), None), octets]
    if pa.types.is_decimal(kind):
        return _decimal(column)
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return [flat(column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column)]
    return [_zigzag(numbers(column), validity(column))]


def _struct(column: pa.StructArray) -> list[Any]:
    pieces = [piece for child in column.flatten() for piece in _field(child, nullable=True)]
    if not column.null_count:
        return pieces
    return [pc.if_else(column.is_valid(), join_columns(pieces), pa.scalar(None, pa.binary()))]


def _blocks(lists: pa.Array, items: pa.BinaryArray) -> list[Any]:
    """Returns a block with all items of a list (nothing for an empty list), then the end block.

    Args:
        lists: the lists.
        items: the encoded items of all lists that aren't null.
    """
    of_each = counts(lists)
    filled = of_each > 0
    closing = binary(
        np.zeros(int(filled.sum()), np.uint8), np.concatenate(([0], np.cumsum(filled))), None
    )
    return [_zigzag(of_each, validity(lists)), bodies(of_each, items), closing]


def _decimal(column: pa.Array) -> list[Any]:
    """Returns the length and the bytes of each decimal's unscaled number.

    The bytes are the shortest big-endian two's complement, like Java's
    `BigInteger.toByteArray`.
    """
    width = column.type.byte_width
    words = np.frombuffer(column.buffers()[1], np.uint8)[
        column.offset * width : (column.offset + len(column)) * width
    ]
    octets = words.reshape(-1, width)[:, ::-1]
    signs = np.where(octets[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
    # Number of leading bytes that only repeat the sign.
    repeated = np.logical_and.accumulate(octets == signs, axis=1).sum(axis=1)
    rest = np.take_along_axis(octets, np.minimum(repeated, width - 1)[:, None], axis=1)[:, 0]
    # They can all be dropped if the next byte's first bit shows the same sign.
    signed = (repeated < width) & ((rest ^ signs[:, 0]) < 0x80)
    dropped = np.where(signed, repeated, np.maximum(repeated - 1, 0))
    data = octets[np.arange(width) >= dropped[:, None]]
    sizes = (width - dropped).astype(np.int64)
    return [
        _zigzag(sizes, None),
        binary(data, np.concatenate(([0], np.cumsum(sizes))), validity(column)),
    ]


def _zigzag(integers: npt.NDArray[np.int64], valid: npt.NDArray[np.uint8] | None) -> pa.BinaryArray:
    """Encodes signed numbers in zigzag, so numbers near 0 are the shortest."""
    return varints((integers << 1 ^ integers >> 63).view(np.uint64), valid)
