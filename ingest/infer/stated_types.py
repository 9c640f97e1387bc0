"""Column types by the types that change events contain.

The types are in Kafka Connect's schema in each message, or are MySQL's types in Canal's events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.json.values import converter
from windrow.ingest.formats.shared.connect_types import (
    CONNECT_DECIMAL,
    ISO_DATE,
    LOGICAL_TYPES,
    VARIABLE_DECIMAL,
    ZONED,
    json_form,
)
from windrow.ingest.formats.shared.json_dialects import CANAL
from windrow.ingest.infer.candidates import (
    OWN_SCALE,
    Candidate,
    Composite,
    SchemaTypes,
    TypeGuess,
    array,
    decimal_of,
    record,
)
from windrow.ingest.infer.json_documents import DECIMALS, by_key, candidates_of, scalar_type, takes
from windrow.ingest.schema.dtypes import TIMESTAMP

_CONNECT_PLAIN = {
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


def row_candidates(schema: Mapping[str, Any], image: str) -> list[Candidate]:
    """Returns the fields of the row in an event.

    Args:
        schema: Kafka Connect's schema in the message.
        image: the field of the event that has the row; "" if the event itself is the row.

    Raises:
        SpecError: the schema doesn't describe the row.
    """
    rows = _fields(schema) if image else [{**schema, "field": image}]
    row = next((part for part in rows if part.get("field") == image), {})
    fields = [part for part in _fields(row) if isinstance(part.get("field"), str)]
    if not fields:
        raise SpecError(
            f"The schema in the events doesn't have the fields in {image!a}",
            "spec",
            "Nothing was written. Check how the connector writes its schema, or set its"
            " schemas.enable to false.",
        )
    types = SchemaTypes(_open_type)
    return [
        Candidate(
            part["field"],
            types.of(part),
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


def _open_type(part: Any) -> TypeGuess | Composite:
    if not isinstance(part, Mapping):
        return TypeGuess(None, "it has no type")
    kind, name = part.get("type"), str(part.get("name") or "")
    form, (_, logical) = json_form(name) or {}, LOGICAL_TYPES.get(name, ("", None))
    if name == VARIABLE_DECIMAL:
        return OWN_SCALE
    if kind == "struct":
        return record((str(inner.get("field")), inner) for inner in _fields(part))
    if kind == "array":
        return array(part.get("items"))
    if kind == "map":
        keys = part.get("keys")
        if not isinstance(keys, Mapping) or keys.get("type") != "string":
            return TypeGuess(None, "a map whose keys are no texts")
        values = {**_mapping(part.get("values")), "field": "value"}
        entry = [{"type": "string", "field": "key"}, values]
        return array({"type": "struct", "fields": entry})
    if name == CONNECT_DECIMAL:
        return _connect_decimal(part.get("parameters"))
    if logical == ZONED or "timestamps" in form:
        unit = form.get("timestamps", "").removeprefix("epoch_")
        return TypeGuess(TIMESTAMP, epoch=unit or None)
    if logical == ISO_DATE or "dates" in form:
        return TypeGuess(pa.date32())
    if kind == "bytes":
        return TypeGuess(pa.string(), "bytes in base64")
    plain = _CONNECT_PLAIN.get(str(kind))
    return TypeGuess(plain, name if plain else f"no column takes its type {kind!a}")


def _mapping(part: Any) -> Mapping[str, Any]:
    return part if isinstance(part, Mapping) else {}


def _connect_decimal(parameters: Any) -> TypeGuess:
    """Returns a decimal of the stated precision, or of 38 digits without one."""
    stated = _mapping(parameters)
    scale, precision = (
        str(stated.get(name, default))
        for name, default in (("scale", "0"), ("connect.decimal.precision", "38"))
    )
    numbers = all(text.isdecimal() and len(text) < 10 for text in (scale, precision))
    kind = decimal_of(int(precision), int(scale)) if numbers else None
    return (
        TypeGuess(pa.string(), "a decimal of more digits than a column has, its bytes in base64")
        if kind is None
        else TypeGuess(kind)
    )


_MYSQL_TYPE = re.compile(r"([a-z]+)(?:\((\d+)(?:,\s*(\d+))?\))?(.*)", re.DOTALL)
_MYSQL_INTEGERS = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
}
_MYSQL_UNSIGNED = {
    pa.int8(): pa.int16(),
    pa.int16(): pa.int32(),
    pa.int32(): pa.int64(),
    pa.int64(): pa.decimal128(20, 0),
}
_CLOCK = TypeGuess(TIMESTAMP, "read as UTC: the events don't have MySQL's time zone")
_MYSQL_OTHERS = {
    "float": TypeGuess(pa.float64()),
    "double": TypeGuess(pa.float64()),
    "date": TypeGuess(pa.date32()),
    "year": TypeGuess(pa.int16()),
    "datetime": _CLOCK,
    "timestamp": _CLOCK,
    **{name: TypeGuess(pa.string()) for name in ("char", "varchar", "text")},
}


def typed_candidates(rows: Sequence[Mapping[str, Any]], stated: Sequence[Any]) -> list[Candidate]:
    """Returns the fields of rows, with the types that Canal's events contain.

    A field without a type is a text. A field is also a text if a value isn't of its type:
    `0000-00-00`, or a number with leading zeros.

    Args:
        rows: the rows.
        stated: the types of each event's fields, by field.
    """
    type_by_name = {
        name: kind
        for types in stated
        if isinstance(types, Mapping)
        for name, kind in types.items()
        if isinstance(kind, str)
    }
    values, candidates = by_key(rows), []
    for candidate in candidates_of(rows):
        kind = type_by_name.get(candidate.name, "").strip().lower()
        present = [value for value in values[candidate.name] if value is not None]
        guess = _mysql_guess(kind, present)
        convert = converter(guess.type, reading=CANAL)
        if not all(takes(convert, value) for value in present):
            guess = TypeGuess(pa.string(), f"{kind}, but not all of its values are")
        candidates.append(replace(candidate, guess=guess))
    return candidates


def _mysql_guess(stated: str, values: Sequence[Any]) -> TypeGuess:
    match = _MYSQL_TYPE.fullmatch(stated)
    if match is None:
        return TypeGuess(pa.string())
    name, digits, scale, more = match.groups()
    if name in _MYSQL_INTEGERS:
        kind = _MYSQL_INTEGERS[name]
        return TypeGuess(_MYSQL_UNSIGNED[kind] if "unsigned" in more else kind)
    if name not in {"decimal", "numeric"}:
        return _MYSQL_OTHERS.get(name, TypeGuess(pa.string(), name))
    if digits is None:
        guess = scalar_type(values, DECIMALS) if values else TypeGuess(None)
        return TypeGuess(guess.type or pa.string(), f"{name}, whose digits the events don't state")
    short = max(len(digits), len(scale or "0")) <= 3
    kind = decimal_of(int(digits), int(scale or "0")) if short else None
    return TypeGuess(kind) if kind else TypeGuess(pa.string(), f"{name} of {digits} digits")
