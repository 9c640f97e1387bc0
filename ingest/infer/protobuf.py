"""Columns for a Protobuf message type.

Each field gets the narrowest column type that `formats.protobuf.fields` allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from windrow.ingest.formats.confluent.payloads import message_at
from windrow.ingest.formats.protobuf.descriptors import comments_at, compiled_text
from windrow.ingest.formats.protobuf.fields import (
    TYPES,
    is_json,
    is_map,
    is_timestamp,
    is_wrapper,
)
from windrow.ingest.infer.candidates import (
    LONGEST,
    Candidate,
    Composite,
    SchemaTypes,
    TypeGuess,
    array,
    list_of,
    map_of,
    mapping,
    record,
    struct_of,
)
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.dtypes import TIMESTAMP

_PLAIN = {
    **{name: TypeGuess(pa.int32()) for name in ("int32", "sint32", "sfixed32")},
    **{
        name: TypeGuess(pa.int64()) for name in ("int64", "sint64", "sfixed64", "uint32", "fixed32")
    },
    **{
        name: TypeGuess(pa.decimal128(20, 0), "unsigned, of 64 bits")
        for name in ("uint64", "fixed64")
    },
    "float": TypeGuess(pa.float32()),
    "double": TypeGuess(pa.float64()),
    "bool": TypeGuess(pa.bool_()),
    "string": TypeGuess(pa.string()),
    "bytes": TypeGuess(pa.binary()),
}


def protobuf_candidates(written: WriterSchema, path: Sequence[int]) -> list[Candidate]:
    """Returns the fields of the message type at a path of a schema, with their comments.

    Raises:
        SpecError: the schema can't be compiled, or has no type at the path.
    """
    origin = f"schema id {written.id}"
    kind = message_at(written, path, origin)
    comments = comments_at(compiled_text(written.text, written.references, origin), path)
    return candidates_of_type(kind, comments)


def candidates_of_type(kind: Any, comments: Mapping[str, str] = {}) -> list[Candidate]:
    """Returns the fields of a message type.

    Args:
        kind: the message type's descriptor.
        comments: the comments on fields, by the fields' names.
    """
    types = SchemaTypes(_open_type)
    outer_names = (f"the message {kind.full_name}",)
    return [
        Candidate(
            field.name,
            types.of(field, outer_names),
            _may_be_null(field),
            comments.get(field.name, ""),
        )
        for field in kind.fields
    ]


def _may_be_null(field: Any) -> bool:
    """Returns whether a field can be null: it may be absent, and has no default value."""
    default = field.has_default_value and field.message_type is None
    return bool(field.has_presence and not default and not field.is_required)


class _Item(msgspec.Struct, frozen=True):
    """Item of a repeated field.

    Attributes:
        repeated_field: the field's descriptor.
    """

    repeated_field: Any


def _open_type(field: Any) -> TypeGuess | Composite:
    if isinstance(field, _Item):
        return _single_type(field.repeated_field)
    if is_map(field):
        entry = field.message_type.fields_by_name
        if TYPES[entry["key"].type] == "string":
            return mapping(entry["value"])
        return Composite([entry["key"], entry["value"]], _entries)
    return array(_Item(field)) if field.is_repeated else _single_type(field)


def _single_type(field: Any) -> TypeGuess | Composite:
    inner = field.message_type
    if inner is None:
        return _enum(field) if TYPES[field.type] == "enum" else _PLAIN[TYPES[field.type]]
    if is_timestamp(inner):
        return TypeGuess(TIMESTAMP)
    if is_json(inner):
        return TypeGuess(pa.string(), "JSON")
    if is_wrapper(inner):
        return Composite([inner.fields_by_name["value"]], lambda guesses: guesses[0], None)
    return record(((part.name, part) for part in inner.fields), f"the message {inner.full_name}")


def _entries(key_and_value: Sequence[TypeGuess]) -> TypeGuess:
    """Returns a list of entries, for a map whose keys aren't texts."""
    key, value = key_and_value
    if value.type is None:
        return map_of(value)
    return list_of(struct_of([("key", key), ("value", value)]))


def _enum(field: Any) -> TypeGuess:
    return TypeGuess(
        pa.string(),
        f"one of {', '.join(value.name for value in list(field.enum_type.values)[:LONGEST])}",
    )
