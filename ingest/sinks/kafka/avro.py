"""Rows as records in Avro's binary encoding, whole columns at a time, and the schema that they are written with. By Avro 1.12.

A row's bytes are those of its fields, one behind the other, so a batch is encoded by encoding columns and joining them, row by row, in one
pass of Arrow's. Nothing here goes over rows in Python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BITS = 7
"""Of a number, in each byte of a varint; the eighth says that another byte follows."""
_UNITS = {"ms": "millis", "us": "micros", "ns": "nanos"}
_NULL, _VALUE = b"\x00", b"\x02"
"""How a value of a union of null and another type begins: the number of the branch, 0 or 1."""


class NotAvroError(ValueError):
    """Columns that can't be fields of an Avro record; the text says which, and why."""


def schema_text(columns: pa.Schema, name: str) -> str:
    """The schema of records with these columns, as JSON; the same columns always have the same text.

    A column that may be null is a union of null and its type, with null as its default, so that a column may be added later on and old
    readers' records still fit. Values in lists, maps and structs may always be null. Structs are records named after the way to them.

    Args:
        columns: the columns, in the order of the fields.
        name: the full name of the record.

    Raises:
        NotAvroError: a name isn't Avro's, or a type has no counterpart there.
    """
    return json.dumps(_RecordTypes(name).record(name, columns), separators=(",", ":"))


def records(columns: Sequence[tuple[pa.Array, bool]], head: bytes = b"") -> pa.BinaryArray:
    """The record of each row.

    Args:
        columns: of each field its values, and whether they may be null. A row with a null that may not be is null. At least one.
        head: what each begins with.
    """
    return _joined([_constant(head), *(part for column, nullable in columns for part in _field(column, nullable=nullable))])


class _RecordTypes:
    """Types as a schema tells them, while it is put together: a name is defined once."""

    def __init__(self, root: str) -> None:
        self._taken = {root}

    def record(self, name: str, fields: Iterable[pa.Field], *, nested: bool = False) -> dict[str, Any]:
        """A record, and all that lies in it."""
        told = []
        for field in fields:
            if not _NAME.fullmatch(field.name):
                raise NotAvroError(f"{field.name!r} is no name for a field: Avro takes letters, digits and _, and no digit first")
            kind = self._type(field.type, f"{name}_{field.name}", field.name)
            null = {"type": ["null", kind], "default": None} if field.nullable or nested else {"type": kind}
            told.append({"name": field.name, **null})
        return {"type": "record", "name": name, "fields": told}

    def _type(self, kind: pa.DataType, path: str, field: str) -> Any:
        """`path`: what a record would be called here; `field`: the column, for people."""
        if pa.types.is_dictionary(kind):
            return self._type(kind.value_type, path, field)
        if pa.types.is_struct(kind):
            return self.record(self._free(path), kind, nested=True)
        if pa.types.is_map(kind):
            if not _is_text(kind.key_type):
                raise NotAvroError(f"{field} is a map with keys that aren't texts, which Avro's all are")
            return {"type": "map", "values": ["null", self._type(kind.item_type, path, field)]}
        if _is_list(kind):
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
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    for fits, told in _SCALARS:
        if fits(kind):
            return told
    raise NotAvroError(f"{field} is {kind}, for which Avro has no type")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_int(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) and kind.bit_width <= 32)


_SCALARS = (
    (_is_int, "int"),
    (pa.types.is_int64, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_boolean, "boolean"),
    (_is_text, "string"),
    (_is_bytes, "bytes"),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
)


def _field(column: pa.Array, *, nullable: bool) -> list[Any]:
    """The parts of a field, to be joined row by row."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    parts = _parts(column)
    if not nullable:
        return parts
    whole = [_constant(_VALUE), *parts]
    return [pc.fill_null(_joined(whole), _NULL)] if column.null_count else whole


def _parts(column: pa.Array) -> list[Any]:
    """The parts of a value without its union, at least one of them null where the value is."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _struct(column)
    if pa.types.is_map(kind):
        entries = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        items = entries.flatten()
        keys, values = items.field(0), items.field(1)
        return _blocks(entries, _joined([*_parts(keys), *_field(values, nullable=True)]))
    if _is_list(kind):
        return _blocks(column, _joined(_field(column.flatten(), nullable=True)))
    if _is_text(kind) or _is_bytes(kind):
        return _octets(column.cast(pa.binary()))
    if pa.types.is_decimal(kind):
        return _decimal(column)
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return [_flat(column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column)]
    return [_varints(_numbers(column), _validity(column))]


def _struct(column: pa.StructArray) -> list[Any]:
    parts = [part for child in column.flatten() for part in _field(child, nullable=True)]
    if not column.null_count:
        return parts
    return [pc.if_else(column.is_valid(), _joined(parts), pa.scalar(None, pa.binary()))]


def _octets(column: pa.BinaryArray) -> list[Any]:
    """A length, and so many bytes."""
    lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return [_varints(lengths.astype(np.int64), None), column]


def _blocks(lists: pa.Array, items: pa.BinaryArray) -> list[Any]:
    """One block with all items, if there are any, and the empty one behind it. `items`: those of all lists that aren't null, encoded.

    The items of a list lie one behind the other, so their bytes needn't be moved: only the ends of items become the ends of lists.
    """
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(counts)))
    bounds = (
        np.frombuffer(items.buffers()[1], np.int32)[items.offset : items.offset + len(items) + 1] if len(items) else np.zeros(1, np.int32)
    )
    bodies = _binary(items.buffers()[2] or b"", bounds[ends], None)
    filled = counts > 0
    closing = _binary(np.zeros(int(filled.sum()), np.uint8), np.concatenate(([0], np.cumsum(filled))), None)
    return [_varints(counts, _validity(lists)), bodies, closing]


def _decimal(column: pa.Array) -> list[Any]:
    """The shortest two's complement, the first byte first, behind its length, as Java's `BigInteger.toByteArray` has it."""
    width = column.type.byte_width
    words = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * width : (column.offset + len(column)) * width]
    octets = words.reshape(-1, width)[:, ::-1]
    signs = np.where(octets[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
    repeated = np.logical_and.accumulate(octets == signs, axis=1).sum(axis=1)  # bytes that say nothing but the sign
    rest = np.take_along_axis(octets, np.minimum(repeated, width - 1)[:, None], axis=1)[:, 0]
    signed = (repeated < width) & ((rest ^ signs[:, 0]) < 0x80)  # the byte behind them says it, too
    dropped = np.where(signed, repeated, np.maximum(repeated - 1, 0))
    validity = _validity(column)
    data = octets[np.arange(width) >= dropped[:, None]]
    lengths = (width - dropped).astype(np.int64)
    return [_varints(lengths, None), _binary(data, np.concatenate(([0], np.cumsum(lengths))), validity)]


def _flat(column: pa.Array) -> pa.BinaryArray:
    """Values of a fixed width, the last byte first, as Arrow has them."""
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return _binary(np.ascontiguousarray(values), np.arange(len(values) + 1) * values.itemsize, _validity(column))


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Whole numbers, dates and instants, with any number for null."""
    narrow = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    whole = column.cast(narrow).cast(pa.int64())
    return pc.fill_null(whole, 0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _varints(numbers: npt.NDArray[np.int64], validity: npt.NDArray[np.uint8] | None) -> pa.BinaryArray:
    """Numbers, zigzag, seven bits a byte from the lowest on."""
    words = (numbers << 1 ^ numbers >> 63).view(np.uint64)
    most = max(1, -(-int(words.max(initial=0)).bit_length() // _BITS))
    sizes = np.ones(len(words), np.int64)
    octets = np.empty((len(words), most), np.uint8)
    for place in range(most):
        above = words >> np.uint64(_BITS * place)
        more = above > np.uint64(0x7F)
        octets[:, place] = (above & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        sizes += more
    ends = np.concatenate(([0], np.cumsum(sizes)))
    data = octets if ends[-1] == octets.size else octets[np.arange(most) < sizes[:, None]]
    return _binary(np.ascontiguousarray(data), ends, validity)


def _validity(column: pa.Array) -> npt.NDArray[np.uint8] | None:
    """Arrow's bitmap of a column, from its first bit on; None if nothing is null."""
    if not column.null_count:
        return None
    return np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little")


def _binary(data: Any, ends: npt.NDArray[Any], validity: npt.NDArray[np.uint8] | None) -> pa.BinaryArray:
    """An array of bytes, from those of all values, and where each begins and the last one ends."""
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def _constant(octets: bytes) -> pa.BinaryScalar:
    return pa.scalar(octets, pa.binary())


def _joined(parts: Sequence[Any]) -> pa.BinaryArray:
    """The bytes of each row, one part behind the other; null where one of them is."""
    return pc.binary_join_element_wise(*parts, _constant(b""))
