"""What columns JSON documents seem to have. Pure.

A value's type is the first of some whose strict conversion takes every sampled value,
so what is guessed is what the decoder will take.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.ingest.formats.json.values import (
    EXACT,
    Convert,
    LongInteger,
    Reading,
    converter,
    integer,
)
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.infer.offer import DEEPEST, Guess, Offer, list_of, struct_of
from windrow.ingest.schema.dtypes import TIMESTAMP

COMMON = 0.98
"""From `MANY` values on, a type that so large a share of them has is the column's;
messages with another are refused.
"""

MANY = 100

MOST_FIELDS = 200
"""An object with more different keys has data for keys."""

Scalars = tuple[tuple[pa.DataType, Convert], ...]

TYPES = (
    pa.bool_(),
    pa.int64(),
    pa.float64(),
    TIMESTAMP,
    pa.date32(),
    pa.string(),
    pa.decimal128(38, 0),
    pa.decimal128(38, 9),
)
"""What plain values are tried as, in this order."""


def scalars(reading: Reading) -> Scalars:
    """The same, each with what converts a value that is read so."""
    return tuple((kind, converter(kind, None, reading)) for kind in TYPES)


_EXACT = scalars(EXACT)


def document(value: bytes) -> dict[str, Any] | None:
    """A message as a JSON object, its numbers as literals; None if it is none."""
    try:
        found = json.loads(
            value.decode(), parse_int=integer, parse_float=str.encode, parse_constant=_no_constant
        )
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _no_constant(_: str) -> None:
    raise ValueError


def offers_of(documents: Sequence[Mapping[str, Any]], tried: Scalars = _EXACT) -> list[Offer]:
    """The fields of some documents, as `document` gives them, in the order in which
    they were seen.
    """
    return [
        Offer(
            key, guess_type(values, tried), nullable=len(values) < len(documents) or None in values
        )
        for key, values in by_key(documents).items()
    ]


def by_key(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values of each field."""
    values: dict[str, list[Any]] = {}
    for one in documents:
        for key, value in one.items():
            values.setdefault(key, []).append(value)
    return values


def guess_type(values: Sequence[Any], tried: Scalars = _EXACT, depth: int = 0) -> Guess:
    """The type of a place in documents, from what stood there; `depth`: how many
    objects and arrays it lies in.
    """
    present = [v for v in values if v is not None]
    if not present:
        return Guess(pa.string(), "only null was seen: say what it will be")
    shapes = Counter(map(_shape, present))
    shape, count = shapes.most_common(1)[0]
    if not enough(count, len(present)):
        return Guess(None, f"no type takes both {' and '.join(sorted(shapes))}")
    if depth >= DEEPEST:
        return Guess(None, f"it lies more than {DEEPEST} levels deep")
    mine = [v for v in present if _shape(v) == shape]
    guess = _of_shape(shape, mine, tried, depth)
    return guess if count == len(present) else _rare(guess, len(present) - count, len(present))


def _of_shape(shape: str, values: Sequence[Any], tried: Scalars, depth: int) -> Guess:
    if shape == "objects":
        return _struct(values, tried, depth + 1)
    return _list(values, tried, depth + 1) if shape == "arrays" else _scalar(values, tried)


def _shape(value: object) -> str:
    return (
        "objects"
        if isinstance(value, dict)
        else "arrays"
        if isinstance(value, list)
        else "plain values"
    )


def enough(mine: int, every: int) -> bool:
    """Whether so many of all values say what the others should be."""
    return mine == every or (every >= MANY and mine >= COMMON * every)


def _rare(guess: Guess, others: int, every: int) -> Guess:
    note = f"{others} of {every} sampled values are of another type, and refused"
    return (
        guess
        if guess.type is None
        else Guess(guess.type, "; ".join(filter(None, [guess.note, note])))
    )


def _scalar(values: Sequence[Any], tried: Scalars) -> Guess:
    best, most = None, 0
    whole = all(type(value) in (int, LongInteger) for value in values)
    for kind, convert in tried:
        if whole and pa.types.is_floating(kind):
            continue  # the next ones of such a field need not be exactly a float
        fitting = sum(takes(convert, v) for v in values)
        if fitting == len(values):
            return Guess(kind)
        if fitting > most:
            best, most = kind, fitting
    if best is not None and enough(most, len(values)):
        return _rare(Guess(best), len(values) - most, len(values))
    return Guess(None, "no type takes all of its values")


def takes(convert: Convert, value: Any) -> bool:
    """Whether a strict conversion takes a value."""
    try:
        convert(value, "$")
    except RefusedValueError:
        return False
    return True


def _list(values: Sequence[Sequence[Any]], tried: Scalars, depth: int) -> Guess:
    items = [item for value in values for item in value]
    guess = list_of(guess_type(items, tried, depth))
    return (
        guess
        if items or guess.type is None
        else Guess(guess.type, "only empty lists were seen: say what they will hold")
    )


def _struct(values: Sequence[Mapping[str, Any]], tried: Scalars, depth: int) -> Guess:
    fields = by_key(values)
    if len(fields) > MOST_FIELDS:
        entry = (
            ("key", Guess(pa.string())),
            ("value", guess_type([v for found in fields.values() for v in found], tried, depth)),
        )
        guess = list_of(struct_of(entry))
        return replace(
            guess,
            note="; ".join(filter(None, [f"{len(fields)} different keys were seen", guess.note])),
        )
    guess = struct_of((key, guess_type(found, tried, depth)) for key, found in fields.items())
    return guess if fields else Guess(None, "only objects without fields were seen")
