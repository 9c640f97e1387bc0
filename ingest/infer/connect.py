"""The schema that Connect's JsonConverter writes beside each event of Debezium's, and
the columns that it has.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.infer.offer import Guess, Offer, Room, list_of, struct_of
from windrow.ingest.schema.dtypes import TIMESTAMP

_PLAIN = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_NAMED = {
    "io.debezium.time.Date": Guess(pa.date32()),
    "org.apache.kafka.connect.data.Date": Guess(pa.date32()),
    "io.debezium.time.Timestamp": Guess(TIMESTAMP, epoch="ms"),
    "org.apache.kafka.connect.data.Timestamp": Guess(TIMESTAMP, epoch="ms"),
    "io.debezium.time.MicroTimestamp": Guess(TIMESTAMP, epoch="us"),
    "io.debezium.time.ZonedTimestamp": Guess(TIMESTAMP),
    "io.debezium.time.NanoTimestamp": Guess(TIMESTAMP, epoch="ns"),
}
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def row_offers(schema: Mapping[str, Any], image: str) -> list[Offer]:
    """The fields of the row that lies in a field of the event.

    Raises:
        SpecError: the schema says nothing of it.
    """
    row = next((part for part in _fields(schema) if part.get("field") == image), {})
    fields = [part for part in _fields(row) if isinstance(part.get("field"), str)]
    if not fields:
        what = f"The schema beside the events says nothing of the fields in {image!a}"
        raise SpecError(
            what,
            "spec",
            "Nothing was written. See how the connector writes its schema, or set schemas.enable to"
            " false there.",
        )
    room = Room()
    return [
        Offer(
            part["field"],
            _guess(part, 0, room),
            part.get("optional") is True,
            str(part.get("doc") or ""),
        )
        for part in fields
    ]


def _fields(schema: Any) -> list[Mapping[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    return (
        [part for part in fields if isinstance(part, Mapping)] if isinstance(fields, list) else []
    )


def _guess(part: Any, depth: int, room: Room) -> Guess:
    refusal = room.refusal(depth)
    if refusal is not None or not isinstance(part, Mapping):
        return refusal or Guess(None, "its type isn't said")
    kind, name = part.get("type"), part.get("name")
    if name == _VARIABLE:
        return Guess(
            None,
            "a decimal of which each message says the scale: take Decimal(38, N) with the scale"
            " that you want",
        )
    if kind == "struct":
        return struct_of(
            (str(inner.get("field")), _inside(inner, depth, room)) for inner in _fields(part)
        )
    if kind == "array":
        return list_of(_inside(part.get("items"), depth, room))
    if kind == "map":
        keys = part.get("keys")
        if not isinstance(keys, Mapping) or keys.get("type") != "string":
            return Guess(None, "a map whose keys are no texts")
        return list_of(
            struct_of(
                (("key", Guess(pa.string())), ("value", _inside(part.get("values"), depth, room)))
            )
        )
    if name == _DECIMAL:
        return _decimal(part.get("parameters"))
    if isinstance(name, str) and name in _NAMED:
        # the schema says it there, too
        return _NAMED[name] if depth == 0 else replace(_NAMED[name], epoch=None)
    if kind == "bytes":
        return Guess(pa.string(), "bytes in base64")
    plain = _PLAIN.get(str(kind))
    return (
        Guess(plain, str(name or ""))
        if plain is not None
        else Guess(None, f"no column takes its type {kind!a}")
    )


def _inside(part: Any, depth: int, room: Room) -> Guess:
    return _guess(part, depth + 1, room)


def _decimal(parameters: Any) -> Guess:
    """With the digits that are stated; without, as many as a column has."""
    stated = parameters if isinstance(parameters, Mapping) else {}
    scale, precision = (
        str(stated.get(name, other))
        for name, other in (("scale", "0"), ("connect.decimal.precision", "38"))
    )
    numbers = all(text.isdecimal() and len(text) < 10 for text in (scale, precision))
    if not (numbers and 1 <= int(precision) <= 38 and int(scale) <= int(precision)):
        return Guess(pa.string(), "a decimal of more digits than a column has, its bytes in base64")
    return Guess(pa.decimal128(int(precision), int(scale)))
