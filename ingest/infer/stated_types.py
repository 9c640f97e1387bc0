"""Column types that are stated in change events.

By Kafka Connect's schema in each message, or by MySQL's types in Canal's events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.avro.schema import VARIABLE_DECIMAL
from windrow.ingest.formats.json.dialects import CONNECT_DECIMAL, CONNECT_FORMS, ZONED_TIMESTAMP
from windrow.ingest.infer.candidates import (
    OWN_SCALE,
    Candidate,
    TypeBudget,
    TypeGuess,
    decimal_of,
    list_of,
    struct_of,
)
from windrow.ingest.infer.documents import DECIMALS, by_key, candidates_of, scalar_type
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
    """The fields of the row in a field of the event (`image`).

    Raises:
        SpecError: the schema doesn't describe it.
    """
    row = next((part for part in _fields(schema) if part.get("field") == image), {})
    fields = [part for part in _fields(row) if isinstance(part.get("field"), str)]
    if not fields:
        what = f"The schema in the events doesn't have the fields in {image!a}"
        raise SpecError(
            what,
            "spec",
            "Nothing was written. Check how the connector writes its schema, or set its"
            " schemas.enable to false.",
        )
    budget = TypeBudget()
    return [
        Candidate(
            part["field"],
            _connect_guess(part, 0, budget),
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


def _connect_guess(part: Any, depth: int, budget: TypeBudget) -> TypeGuess:
    refusal = budget.refusal(depth)
    if refusal is not None or not isinstance(part, Mapping):
        return refusal or TypeGuess(None, "it has no type")
    kind, name = part.get("type"), part.get("name")
    if name == VARIABLE_DECIMAL:
        return OWN_SCALE
    if kind == "struct":
        return struct_of(
            (str(inner.get("field")), _inside(inner, depth, budget)) for inner in _fields(part)
        )
    if kind == "array":
        return list_of(_inside(part.get("items"), depth, budget))
    if kind == "map":
        keys = part.get("keys")
        if not isinstance(keys, Mapping) or keys.get("type") != "string":
            return TypeGuess(None, "a map whose keys are no texts")
        return list_of(
            struct_of(
                (
                    ("key", TypeGuess(pa.string())),
                    ("value", _inside(part.get("values"), depth, budget)),
                )
            )
        )
    if name == CONNECT_DECIMAL:
        return _connect_decimal(part.get("parameters"))
    instant = _instant(str(name), depth)
    if instant is not None:
        return instant
    if kind == "bytes":
        return TypeGuess(pa.string(), "bytes in base64")
    plain = _CONNECT_PLAIN.get(str(kind))
    return (
        TypeGuess(plain, str(name or ""))
        if plain is not None
        else TypeGuess(None, f"no column takes its type {kind!a}")
    )


def _instant(name: str, depth: int) -> TypeGuess | None:
    """The type of a date or a timestamp, by the name of its schema; None for other names."""
    if name == ZONED_TIMESTAMP:
        return TypeGuess(TIMESTAMP)
    form = CONNECT_FORMS.get(name, {})
    if "dates" in form:
        return TypeGuess(pa.date32())
    if "timestamps" not in form:
        return None
    # inside another type, the decoder reads the unit from the schema in the message
    epoch = form["timestamps"].removeprefix("epoch_") if depth == 0 else None
    return TypeGuess(TIMESTAMP, epoch=epoch)


def _inside(part: Any, depth: int, budget: TypeBudget) -> TypeGuess:
    return _connect_guess(part, depth + 1, budget)


def _connect_decimal(parameters: Any) -> TypeGuess:
    """A decimal of the stated precision, or of the greatest one that a column has."""
    stated = parameters if isinstance(parameters, Mapping) else {}
    scale, precision = (
        str(stated.get(name, other))
        for name, other in (("scale", "0"), ("connect.decimal.precision", "38"))
    )
    numbers = all(text.isdecimal() and len(text) < 10 for text in (scale, precision))
    kind = decimal_of(int(precision), int(scale)) if numbers else None
    return (
        TypeGuess(pa.string(), "a decimal of more digits than a column has, its bytes in base64")
        if kind is None
        else TypeGuess(kind)
    )


_MYSQL_TYPE = re.compile(r"([a-z]+)(?:\((\d+)(?:,\s*(\d+))?\))?(.*)", re.DOTALL)
_MYSQL_WIDTHS = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
}
_MYSQL_UNSIGNED = {
    "tinyint": pa.int16(),
    "smallint": pa.int32(),
    "mediumint": pa.int32(),
    "int": pa.int64(),
    "integer": pa.int64(),
}
_MYSQL_OTHERS = {
    "float": pa.float64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "year": pa.int16(),
}
_CLOCK = "read as UTC: the events don't have MySQL's time zone"


def typed_candidates(rows: Sequence[Mapping[str, Any]], stated: Sequence[Any]) -> list[Candidate]:
    """The fields of rows, of the types that Canal's events state; others are texts."""
    named = {
        name: kind
        for types in stated
        if isinstance(types, Mapping)
        for name, kind in types.items()
        if isinstance(kind, str)
    }
    values = by_key(rows)
    return [
        replace(
            candidate, guess=_mysql_guess(named.get(candidate.name, ""), values[candidate.name])
        )
        for candidate in candidates_of(rows)
    ]


def _mysql_guess(stated: str, values: Sequence[Any]) -> TypeGuess:
    found = _MYSQL_TYPE.fullmatch(stated.strip().lower())
    if found is None:
        return TypeGuess(pa.string())
    name, digits, scale, more = found.groups()
    if name in _MYSQL_WIDTHS:
        if "unsigned" not in more:
            return TypeGuess(_MYSQL_WIDTHS[name])
        return TypeGuess(_MYSQL_UNSIGNED.get(name, pa.decimal128(20, 0)))
    if name in {"decimal", "numeric"} and digits is None:
        present = [value for value in values if value is not None]
        guess = scalar_type(present, DECIMALS) if present else TypeGuess(None)
        return TypeGuess(guess.type or pa.string(), f"{name}, whose digits the events don't state")
    if name in {"decimal", "numeric"}:
        scale = scale or "0"
        short = max(len(digits), len(scale)) <= 3
        kind = decimal_of(int(digits), int(scale)) if short else None
        return (
            TypeGuess(pa.string(), f"{name} of {digits} digits")
            if kind is None
            else TypeGuess(kind)
        )
    if name in {"datetime", "timestamp"}:
        return TypeGuess(TIMESTAMP, _CLOCK)
    return TypeGuess(
        _MYSQL_OTHERS.get(name, pa.string()),
        "" if name in {*_MYSQL_OTHERS, "char", "varchar", "text"} else name,
    )
