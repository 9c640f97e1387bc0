"""MySQL's types as Canal names them beside each row, whose values are texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.ingest.infer.offer import Guess, Offer
from windrow.ingest.schema.dtypes import TIMESTAMP

_TYPE = re.compile(r"([a-z]+)(?:\((\d+)(?:,\s*(\d+))?\))?(.*)", re.DOTALL)
_WIDTHS = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
}
_UNSIGNED = {
    "tinyint": pa.int16(),
    "smallint": pa.int32(),
    "mediumint": pa.int32(),
    "int": pa.int64(),
    "integer": pa.int64(),
}
_OTHERS = {"float": pa.float64(), "double": pa.float64(), "date": pa.date32(), "year": pa.int16()}
_CLOCK = "read as UTC: MySQL's own zone isn't said"


def typed_offers(offers: Sequence[Offer], stated: Sequence[Any]) -> list[Offer]:
    """The fields with the types that the messages state; of which none is stated, and
    others than these, are texts.
    """
    named = {
        name: kind
        for types in stated
        if isinstance(types, Mapping)
        for name, kind in types.items()
        if isinstance(kind, str)
    }
    return [replace(offer, guess=_guess(named.get(offer.name, ""))) for offer in offers]


def _guess(stated: str) -> Guess:
    found = _TYPE.fullmatch(stated.strip().lower())
    if found is None:
        return Guess(pa.string())
    name, digits, scale, more = found.groups()
    if name in _WIDTHS:
        if "unsigned" not in more:
            return Guess(_WIDTHS[name])
        return Guess(_UNSIGNED.get(name, pa.decimal128(20, 0)))
    if name in {"decimal", "numeric"}:
        return _decimal(digits or "10", scale or "0") or Guess(
            pa.string(), f"{name} of {digits} digits"
        )
    if name in {"datetime", "timestamp"}:
        return Guess(TIMESTAMP, _CLOCK)
    return Guess(
        _OTHERS.get(name, pa.string()),
        "" if name in {*_OTHERS, "char", "varchar", "text"} else name,
    )


def _decimal(digits: str, scale: str) -> Guess | None:
    """None, if no column has so many digits."""
    if max(len(digits), len(scale)) > 3:
        return None
    fits = 1 <= int(digits) <= 38 and int(scale) <= int(digits)
    return Guess(pa.decimal128(int(digits), int(scale))) if fits else None
