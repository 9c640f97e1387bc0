"""Columns of a Protobuf message type.

For each field the narrowest type that `formats.protobuf.fields` takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.ingest.formats.protobuf.descriptors import (
    comments_at,
    compiled_text,
    message_type,
    name_at,
)
from windrow.ingest.formats.protobuf.fields import TYPES, is_map, is_timestamp, is_wrapper
from windrow.ingest.infer.candidates import (
    LONGEST,
    Candidate,
    TypeBudget,
    TypeGuess,
    list_of,
    map_of,
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


def protobuf_schema_candidates(written: WriterSchema, path: Sequence[int]) -> list[Candidate]:
    """The fields of the message type at a path of a schema, with their comments.

    Raises:
        SpecError: the schema can't be compiled, or has no type there.
    """
    candidates = protobuf_candidates(message_of(written, path))
    comments = comments_at(
        compiled_text(written.text, written.references, f"schema id {written.id}"), path
    )
    return [replace(candidate, doc=comments.get(candidate.name, "")) for candidate in candidates]


def message_of(written: WriterSchema, path: Sequence[int]) -> Any:
    """The message type at a path of a schema.

    Raises:
        SpecError: the schema can't be compiled, or has no type there.
    """
    origin = f"schema id {written.id}"
    types = compiled_text(written.text, written.references, origin)
    return message_type(types, name_at(types, path, origin), origin)


def protobuf_candidates(kind: Any) -> list[Candidate]:
    """The fields of a message type's descriptor."""
    types = _ProtobufTypes()
    return [
        Candidate(field.name, types.of(field, (kind.full_name,)), _may_be_null(field))
        for field in kind.fields
    ]


def _may_be_null(field: Any) -> bool:
    """Returns whether the field can be absent, and has no default value."""
    default = field.has_default_value and field.message_type is None
    return bool(field.has_presence and not default and not field.is_required)


class _ProtobufTypes:
    """Chooses the column types of one schema. `around`: the message types that a field is in."""

    def __init__(self) -> None:
        self._budget = TypeBudget()

    def of(self, field: Any, around: tuple[str, ...]) -> TypeGuess:
        if is_map(field):
            return self._map(field.message_type.fields_by_name, around)
        one = self._one(field, around)
        return list_of(one) if field.is_repeated else one

    def _one(self, field: Any, around: tuple[str, ...]) -> TypeGuess:
        refusal = self._budget.refusal(len(around))
        if refusal is not None:
            return refusal
        inner = field.message_type
        if inner is None:
            return _enum(field) if TYPES[field.type] == "enum" else _PLAIN[TYPES[field.type]]
        if is_timestamp(inner):
            return TypeGuess(TIMESTAMP)
        if is_wrapper(inner):
            return self._one(inner.fields_by_name["value"], around)
        if inner.full_name in around:
            return TypeGuess(None, f"the message {inner.full_name} holds itself")
        return struct_of(
            (part.name, self.of(part, (*around, inner.full_name))) for part in inner.fields
        )

    def _map(self, entry: Any, around: tuple[str, ...]) -> TypeGuess:
        """A map if it is a column of its own with texts as keys; else a list of its entries."""
        key, value = self._one(entry["key"], around), self._one(entry["value"], around)
        if len(around) == 1 and key.type == pa.string():
            return map_of(value)
        if value.type is None:
            return map_of(value)
        return list_of(struct_of([("key", key), ("value", value)]))


def _enum(field: Any) -> TypeGuess:
    return TypeGuess(
        pa.string(),
        f"one of {', '.join(value.name for value in list(field.enum_type.values)[:LONGEST])}",
    )
