"""What columns a message type of Protobuf's has: of each field the narrowest that
`decode.protobuf.fields` lets it become.
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
from windrow.ingest.infer.offer import LONGEST, Guess, Offer, Room, list_of, map_of, struct_of
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.dtypes import TIMESTAMP

_PLAIN = {
    **{name: Guess(pa.int32()) for name in ("int32", "sint32", "sfixed32")},
    **{name: Guess(pa.int64()) for name in ("int64", "sint64", "sfixed64", "uint32", "fixed32")},
    **{name: Guess(pa.decimal128(20, 0), "unsigned, of 64 bits") for name in ("uint64", "fixed64")},
    "float": Guess(pa.float32()),
    "double": Guess(pa.float64()),
    "bool": Guess(pa.bool_()),
    "string": Guess(pa.string()),
    "bytes": Guess(pa.binary()),
}


def protobuf_schema_offers(written: WriterSchema, path: Sequence[int]) -> list[Offer]:
    """The fields of the message type at a path of a schema, with what the schema says of them.

    Raises:
        SpecError: it can't be compiled, or has none there.
    """
    offers = protobuf_offers(message_of(written, path))
    comments = comments_at(
        compiled_text(written.text, written.references, f"schema id {written.id}"), path
    )
    return [replace(offer, doc=comments.get(offer.name, "")) for offer in offers]


def message_of(written: WriterSchema, path: Sequence[int]) -> Any:
    """The message type at a path of a schema.

    Raises:
        SpecError: it can't be compiled, or has none there.
    """
    place = f"schema id {written.id}"
    types = compiled_text(written.text, written.references, place)
    return message_type(types, name_at(types, path, place), place)


def protobuf_offers(kind: Any) -> list[Offer]:
    """The fields of a message type, as its descriptor has them."""
    types = _ProtobufTypes()
    return [
        Offer(field.name, types.of(field, (kind.full_name,)), _may_be_null(field))
        for field in kind.fields
    ]


def _may_be_null(field: Any) -> bool:
    """Whether Protobuf can tell that it isn't there, and no default stands for it then."""
    default = field.has_default_value and field.message_type is None
    return bool(field.has_presence and not default and not field.is_required)


class _ProtobufTypes:
    """The types of one schema.

    What is `around` a field is the message types that it lies in, so that none holds itself.
    """

    def __init__(self) -> None:
        self._room = Room()

    def of(self, field: Any, around: tuple[str, ...]) -> Guess:
        if is_map(field):
            return self._map(field.message_type.fields_by_name, around)
        one = self._one(field, around)
        return list_of(one) if field.is_repeated else one

    def _one(self, field: Any, around: tuple[str, ...]) -> Guess:
        refusal = self._room.refusal(len(around))
        if refusal is not None:
            return refusal
        inner = field.message_type
        if inner is None:
            return _named(field) if TYPES[field.type] == "enum" else _PLAIN[TYPES[field.type]]
        if is_timestamp(inner):
            return Guess(TIMESTAMP)
        if is_wrapper(inner):
            return self._one(inner.fields_by_name["value"], around)
        if inner.full_name in around:
            return Guess(None, f"the message {inner.full_name} holds itself")
        return struct_of(
            (part.name, self.of(part, (*around, inner.full_name))) for part in inner.fields
        )

    def _map(self, entry: Any, around: tuple[str, ...]) -> Guess:
        """A map where its keys are texts and it is a column of its own; else a list of
        what it holds.
        """
        key, value = self._one(entry["key"], around), self._one(entry["value"], around)
        if len(around) == 1 and key.type == pa.string():
            return map_of(value)
        if value.type is None:
            return map_of(value)
        return list_of(struct_of([("key", key), ("value", value)]))


def _named(field: Any) -> Guess:
    return Guess(
        pa.string(),
        f"one of {', '.join(value.name for value in list(field.enum_type.values)[:LONGEST])}",
    )
