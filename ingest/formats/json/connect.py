"""Decoder of messages in which Kafka Connect's JsonConverter has written their schema.

The schema says how the values are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.json.decoder import JsonEncoding, json_batch_decoder
from windrow.ingest.formats.row_decoder import DecodeValues, OnNull
from windrow.ingest.formats.shared.connect_types import (
    CONNECT_DECIMAL,
    PAYLOAD,
    SCHEMA,
    VARIABLE_DECIMAL,
    json_form,
)
from windrow.ingest.formats.shared.decoded import together
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.columns import Column, Columns

_KEPT = 64
"""Number of schemas, and of decoders for them, that are cached. A topic has few at a time."""

_SCALE = re.compile(r"-?[0-9]{1,9}")
_TEXTS = {"timestamps": "iso-8601", "dates": "iso-8601"}


@dataclass(frozen=True)
class ConnectEncoding(JsonEncoding):
    """Encoding as a JSON document that has a schema, which says how values are written."""

    def open(self, columns: Columns) -> DecodeValues:
        if any(_may_have_form(column.type) for column in columns.columns):
            return _DecoderBySchema(columns, self.reading).decode
        return super().open(columns)


class _DecoderBySchema:
    """Decodes each message by its own schema. Only one thread may use it at a time."""

    def __init__(self, columns: Columns, reading: Reading) -> None:
        self._schema, self._reading = columns.arrow_schema, reading
        self._texts = json_batch_decoder(
            Columns((Column(SCHEMA, pa.string(), nullable=True),)),
            Reading(lenient=True, non_numeric=reading.non_numeric),
        )
        self._decoder = lru_cache(_KEPT)(lambda stated: json_batch_decoder(columns, stated))

    def decode(self, values: pa.BinaryArray, on_null: OnNull) -> Decoded:
        """Returns the verdict on each value.

        A value that isn't JSON has no schema, and any of the decoders refuses it.
        """
        schema_texts = self._texts.decode(values, "dead")
        texts, schema_of = (
            pc.dictionary_encode(schema_texts.rows.column(SCHEMA)),
            np.full(len(values), -1),
        )
        schema_of[schema_texts.row_index.to_numpy()] = pc.fill_null(texts.indices, -1).to_numpy()
        groups: dict[Reading, int] = {}
        readings = [
            reading_by(text, self._reading) for text in [*texts.dictionary.to_pylist(), None]
        ]
        group = np.array([groups.setdefault(reading, len(groups)) for reading in readings])[
            schema_of
        ]
        parts = []
        for reading, number in groups.items():
            index = pa.array(np.flatnonzero(group == number))
            group_values = values if len(index) == len(values) else values.take(index)
            parts.append(self._decoder(reading).decode(group_values, on_null).renumber(index))
        return together(self._schema, parts)


def _may_have_form(kind: pa.DataType) -> bool:
    """Returns whether a schema may give the form of a type's values."""
    if pa.types.is_nested(kind):
        return any(_may_have_form(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


@lru_cache(_KEPT)
def reading_by(schema: str | None, reading: Reading) -> Reading:
    """Returns the rules for reading messages with a schema.

    Args:
        schema: the schema, a JSON text; None for messages without one.
        reading: the rules for values whose form the schema doesn't give.
    """
    try:
        stated = _reading_of(json.loads(schema or "null"), reading)
    except (ValueError, RecursionError):  # not a schema, or nested too deep
        stated = reading
    return replace(reading, fields=((PAYLOAD, stated),))


def _reading_of(schema: object, reading: Reading) -> Reading:
    """Returns the rules for reading a value with this schema, and all values inside it."""
    if not isinstance(schema, dict):
        return reading
    named_reading = _reading_by_name(schema, reading)
    inside = schema.get("fields")
    fields = tuple(_fields(inside, reading)) if isinstance(inside, list) else ()
    if schema.get("type") == "map":
        return replace(
            named_reading,
            items=replace(reading, fields=(("value", _reading_of(schema.get("values"), reading)),)),
        )
    return replace(
        named_reading,
        fields=fields,
        items=_reading_of(schema["items"], reading) if "items" in schema else None,
    )


def _fields(schemas: list[object], reading: Reading) -> Iterator[tuple[str, Reading]]:
    for schema in schemas:
        if isinstance(schema, dict) and isinstance(schema.get("field"), str):
            read = _reading_of(schema, reading)
            # Fields that change no rule are left out, so that more schemas share a decoder.
            if read != reading:
                yield schema["field"], read


def _reading_by_name(schema: dict[str, Any], reading: Reading) -> Reading:
    """Returns the rules for reading a value, without the values inside it.

    The schema's type and name give the rules. A decimal of Kafka Connect is base64; a text or
    a number is written as digits.
    """
    kind, name = str(schema.get("type")), schema.get("name")
    if name == CONNECT_DECIMAL:
        parameters = schema.get("parameters")
        scale = parameters.get("scale") if isinstance(parameters, dict) else None
        return (
            replace(reading, decimals="base64", scale=int(str(scale)))
            if _SCALE.fullmatch(str(scale))
            else reading
        )
    if name == VARIABLE_DECIMAL:
        return replace(reading, decimals="base64")
    if kind not in {"bytes", "struct", "array", "map"}:
        reading = replace(reading, decimals="numeric")
    stated = json_form(name)
    return reading if stated is None else replace(reading, stated=True, **{**_TEXTS, **stated})
