"""Rows as records in Avro's binary encoding, whole columns at a time, and the schema
that they are written with.

By Avro 1.12.
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
    is_bytes,
    is_int,
    is_list,
    is_text,
    joined,
    lengths,
    numbers,
    plain,
    validity,
    varints,
)

_UNITS = {"ms": "millis", "us": "micros", "ns": "nanos"}
_NULL, _VALUE = b"\x00", b"\x02"
"""How a value of a union of null and another type begins: the number of the branch, 0 or 1."""


def schema_text(columns: pa.Schema, name: str) -> str:
    """The schema of records with these columns, as JSON; the same columns always have the same text.

    A column that may be null is a union of null and its type, with null as its default,
    so that a column may be added later on and old readers' records still fit. Values in
    lists, maps and structs may always be null. Structs are records named after the way
    to them.

    Args:
        columns: the columns, in the order of the fields.
        name: the full name of the record.

    Raises:
        NoCounterpartError: a name isn't Avro's, or a type has no counterpart there.
    """  # noqa: E501
    return json.dumps(_RecordTypes(name).record(name, columns), separators=(",", ":"))


def records(columns: Sequence[tuple[pa.Array, bool]], head: bytes = b"") -> pa.BinaryArray:
    """The record of each row.

    Args:
        columns: of each field its values, and whether they may be null. A row with a
            null that may not be is null. At least one.
        head: what each begins with.
    """
    return joined(
        [
            constant(head),
            *(part for column, nullable in columns for part in _field(column, nullable=nullable)),
        ]
    )


class _RecordTypes:
    """Types as a schema tells them, while it is put together: a name is defined once."""

    def __init__(self, root: str) -> None:
        self._taken = {root}

    def record(
        self, name: str, fields: Iterable[pa.Field], *, nested: bool = False
    ) -> dict[str, Any]:
        """A record, and all that lies in it."""
        told = []
        for field in fields:
            if not NAME.fullmatch(field.name):
                raise NoCounterpartError(
                    f"{field.name!r} is no name for a field: Avro takes letters, digits and _, and"
                    " no digit first"
                )
            kind = self._type(field.type, f"{name}_{field.name}", field.name)
            null = (
                {"type": ["null", kind], "default": None}
                if field.nullable or nested
                else {"type": kind}
            )
            told.append({"name": field.name, **null})
        return {"type": "record", "name": name, "fields": told}

    def _type(self, kind: pa.DataType, path: str, field: str) -> Any:
        """`path`: what a record would be called here; `field`: the column, for people."""
        if pa.types.is_dictionary(kind):
            return self._type(kind.value_type, path, field)
        if pa.types.is_struct(kind):
            return self.record(self._free(path), kind, nested=True)
        if pa.types.is_map(kind):
            if not is_text(kind.key_type):
                raise NoCounterpartError(
                    f"{field} is a map with keys that aren't texts, which Avro's all are"
                )
            return {"type": "map", "values": ["null", self._type(kind.item_type, path, field)]}
        if is_list(kind):
            return {"type": "array", "items": ["null", self._type(kind.value_type, path, field)]}
        return _scalar(kind, field)

    def _free(self, path: str) -> str:
        """A name that isn't taken: `a_b` may be the column `a_b`, or `b` in `a`."""
        number, name = 1, path
        while name in self._taken:
            number += 1
            name = f"{path}_{number}"
        self._taken.add(name)
        return name


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
    for fits, told in _SCALARS:
        if fits(kind):
            return told
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
    """The parts of a field, to be joined row by row."""
    parts = _parts(plain(column))
    if not nullable:
        return parts
    whole = [constant(_VALUE), *parts]
    return [pc.fill_null(joined(whole), _NULL)] if column.null_count else whole


def _parts(column: pa.Array) -> list[Any]:
    """The parts of a value without its union, at least one of them null where the value is."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _struct(column)
    if pa.types.is_map(kind):
        entries = as_lists(column)
        items = entries.flatten()
        keys, values = items.field(0), items.field(1)
        return _blocks(entries, joined([*_parts(keys), *_field(values, nullable=True)]))
    if is_list(kind):
        return _blocks(column, joined(_field(column.flatten(), nullable=True)))
    if is_text(kind) or is_bytes(kind):
        return _octets(column.cast(pa.binary()))
    if pa.types.is_decimal(kind):
        return _decimal(column)
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return [flat(column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column)]
    return [_zigzag(numbers(column), validity(column))]


def _struct(column: pa.StructArray) -> list[Any]:
    parts = [part for child in column.flatten() for part in _field(child, nullable=True)]
    if not column.null_count:
        return parts
    return [pc.if_else(column.is_valid(), joined(parts), pa.scalar(None, pa.binary()))]


def _octets(column: pa.BinaryArray) -> list[Any]:
    """A length, and so many bytes."""
    return [_zigzag(lengths(column), None), column]


def _blocks(lists: pa.Array, items: pa.BinaryArray) -> list[Any]:
    """One block with all items, if there are any, and the empty one behind it.

    `items`: those of all lists that aren't null, encoded.
    """
    of_each = counts(lists)
    filled = of_each > 0
    closing = binary(
        np.zeros(int(filled.sum()), np.uint8), np.concatenate(([0], np.cumsum(filled))), None
    )
    return [_zigzag(of_each, validity(lists)), bodies(of_each, items), closing]


def _decimal(column: pa.Array) -> list[Any]:
    """The shortest two's complement, the first byte first, behind its length, as Java's
    `BigInteger.toByteArray` has it.
    """
    width = column.type.byte_width
    words = np.frombuffer(column.buffers()[1], np.uint8)[
        column.offset * width : (column.offset + len(column)) * width
    ]
    octets = words.reshape(-1, width)[:, ::-1]
    signs = np.where(octets[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
    # bytes that say nothing but the sign
    repeated = np.logical_and.accumulate(octets == signs, axis=1).sum(axis=1)
    rest = np.take_along_axis(octets, np.minimum(repeated, width - 1)[:, None], axis=1)[:, 0]
    signed = (repeated < width) & ((rest ^ signs[:, 0]) < 0x80)  # the byte behind them says it, too
    dropped = np.where(signed, repeated, np.maximum(repeated - 1, 0))
    data = octets[np.arange(width) >= dropped[:, None]]
    sizes = (width - dropped).astype(np.int64)
    return [
        _zigzag(sizes, None),
        binary(data, np.concatenate(([0], np.cumsum(sizes))), validity(column)),
    ]


def _zigzag(whole: npt.NDArray[np.int64], valid: npt.NDArray[np.uint8] | None) -> pa.BinaryArray:
    """Numbers that may be below 0, those next to it the shortest."""
    return varints((whole << 1 ^ whole >> 63).view(np.uint64), valid)
