"""Guesses of the columns of JSON documents.

A field's type is the first type in `TYPES` whose strict conversion takes every sampled value.
The conversions are the JSON decoder's.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import format_count
from windrow.ingest.formats.json.values import Convert, LongInteger, converter, integer
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.infer.candidates import (
    DEEPEST,
    Candidate,
    TypeGuess,
    is_double,
    list_of,
    struct_of,
)
from windrow.ingest.schema.dtypes import TIMESTAMP

COMMON = 0.98
"""Share of values that decides a column's type if there are at least `MANY` values.

Messages with a value of another type are refused.
"""

MANY = 100

MOST_FIELDS = 200
"""Limit of the fields of objects. If there are more, the keys are data, not names."""

FEWEST_KEYS = 3
"""Smallest number of different keys that are data because each object has few of them."""

FEWEST_MIXED_KEYS = 10
"""Replacement for `FEWEST_KEYS` if the values are of several kinds and become texts."""


@dataclass(frozen=True)
class Scalars:
    """Types that are tried for plain values.

    Attributes:
        types: pairs of a type and its conversion.
        texts: whether the format has a setting that makes texts of values of several kinds.
    """

    types: tuple[tuple[pa.DataType, Convert], ...]
    texts: bool = False

    def mixed_type(self, reason: str) -> TypeGuess:
        """Returns the guess for values that no type takes: a text if possible."""
        return TypeGuess(pa.string() if self.texts else None, reason, lenient=self.texts)


TYPES = (
    pa.bool_(),
    pa.int64(),
    pa.float64(),
    TIMESTAMP,
    pa.date32(),
    pa.string(),
    *(pa.decimal128(38, scale) for scale in (0, 9, 18, 28)),
)
"""Types that are tried for plain values, in this order."""


def scalars(reading: Reading, *, texts: bool) -> Scalars:
    """Returns the types with the conversions of a dialect."""
    return Scalars(tuple((kind, converter(kind, None, reading)) for kind in TYPES), texts)


STRICT = scalars(Reading(non_numeric=True), texts=False)
DECIMALS = Scalars(
    tuple(
        type_and_convert
        for type_and_convert in STRICT.types
        if pa.types.is_decimal(type_and_convert[0])
    )
)
EXACT_OR_TEXT = replace(STRICT, texts=True)


def parse_json(value: bytes) -> Any:
    """Parses JSON; returns None if the value isn't JSON.

    A number with a fraction becomes its literal in bytes, and NaN becomes a float.
    """
    try:
        return json.loads(
            value.decode(), parse_int=integer, parse_float=str.encode, parse_constant=float
        )
    except (ValueError, RecursionError):
        return None


def parse_document(value: bytes) -> dict[str, Any] | None:
    """Parses a JSON object like `parse_json`; returns None if the value isn't a JSON object."""
    parsed = parse_json(value)
    return parsed if isinstance(parsed, dict) else None


def candidates_of(
    documents: Sequence[Mapping[str, Any]], tried: Scalars = EXACT_OR_TEXT
) -> list[Candidate]:
    """Returns the fields of documents from `parse_document`, in the order of their first use."""
    return [
        Candidate(
            key, guess_type(values, tried), nullable=len(values) < len(documents) or None in values
        )
        for key, values in by_key(documents).items()
    ]


def by_key(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns the values of each field."""
    values: dict[str, list[Any]] = {}
    for document in documents:
        for key, value in document.items():
            values.setdefault(key, []).append(value)
    return values


def guess_type(values: Sequence[Any], tried: Scalars = EXACT_OR_TEXT, depth: int = 0) -> TypeGuess:
    """Guesses the type of a field from its values.

    Args:
        values: the values.
        tried: the types that are tried for plain values.
        depth: the number of objects and arrays around the field.
    """
    present = [v for v in values if v is not None]
    if not present:
        return TypeGuess(pa.string(), "only null was sampled: set the type that it will have")
    shapes = Counter(map(_shape, present))
    shape, count = shapes.most_common(1)[0]
    if not is_decisive(count, len(present)):
        return tried.mixed_type(f"no type takes both {' and '.join(sorted(shapes))}")
    if depth >= DEEPEST:
        return TypeGuess(None, f"it lies more than {DEEPEST} levels deep")
    alike_values = [v for v in present if _shape(v) == shape]
    guess = _of_shape(shape, alike_values, tried, depth)
    return (
        guess
        if count == len(present)
        else _add_rare_note(guess, len(present) - count, len(present))
    )


def _of_shape(shape: str, values: Sequence[Any], tried: Scalars, depth: int) -> TypeGuess:
    if shape == "objects":
        return _struct(values, tried, depth + 1)
    return _list(values, tried, depth + 1) if shape == "arrays" else scalar_type(values, tried)


def _shape(value: object) -> str:
    return (
        "objects"
        if isinstance(value, dict)
        else "arrays"
        if isinstance(value, list)
        else "plain values"
    )


def is_decisive(fitting_count: int, total_count: int) -> bool:
    """Returns whether `fitting_count` of `total_count` values decide the type of all."""
    return fitting_count == total_count or (
        total_count >= MANY and fitting_count >= COMMON * total_count
    )


def _add_rare_note(guess: TypeGuess, others: int, total_count: int) -> TypeGuess:
    note = f"{others} of {format_count(total_count, 'sampled value')} of another type, and refused"
    return (
        guess
        if guess.type is None
        else replace(guess, note="; ".join(filter(None, [guess.note, note])))
    )


def scalar_type(values: Sequence[Any], tried: Scalars) -> TypeGuess:
    """Guesses the type of plain values, or of texts."""
    best, best_count = None, 0
    all_integers = all(type(value) in (int, LongInteger) for value in values)
    # `coerce: lenient`, which another field may need, takes the numbers in these texts.
    texts = [value for value in values if tried.texts and type(value) is str]
    for kind, convert in tried.types:
        fitting_values = [value for value in values if takes(convert, value)]
        if pa.types.is_floating(kind) and (
            all_integers or not all(map(is_double, fitting_values + texts))
        ):
            continue  # A float would change digits.
        if len(fitting_values) == len(values):
            return TypeGuess(kind, _time_note(kind, values))
        if len(fitting_values) > best_count:
            best, best_count = kind, len(fitting_values)
    if best is not None and is_decisive(best_count, len(values)):
        return _add_rare_note(TypeGuess(best), len(values) - best_count, len(values))
    return tried.mixed_type("no type takes all of its values")


_EPOCHS = {10: "s", 13: "ms", 16: "us", 19: "ns"}
"""Units of numbers since 1970, by the number of digits that they have from 2001 to 2286."""
_TIME = 'pl.Datetime("us", "UTC") with metadata={"%s": "%s"} reads them as times'
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?")


def _time_note(kind: pa.DataType, values: Sequence[Any]) -> str:
    """Returns advice for values that look like times but need metadata to be read as times.

    Returns "" if the values don't look like times.
    """
    texts = [str(value) for value in values]
    if kind == pa.int64() and len(digits := {len(text) for text in texts}) == 1:
        unit = _EPOCHS.get(digits.pop(), "")
        recent = unit and all(text < "2" for text in texts)
        return f"numbers like {unit} since 1970: {_TIME % ('epoch', unit)}" if recent else ""
    if kind == pa.string() and all(map(_LOCAL.fullmatch, texts)):
        return f"times without an offset: {_TIME % ('zone', 'UTC')}, or another zone"
    return ""


def takes(convert: Convert, value: Any) -> bool:
    """Returns whether a conversion takes a value."""
    try:
        convert(value, "$")
    except RefusedValueError:
        return False
    return True


def _list(values: Sequence[Sequence[Any]], tried: Scalars, depth: int) -> TypeGuess:
    items = [item for value in values for item in value]
    guess = list_of(guess_type(items, tried, depth))
    return (
        guess
        if items or guess.type is None
        else replace(guess, note="only empty lists were sampled: set the type of their items")
    )


def _struct(values: Sequence[Mapping[str, Any]], tried: Scalars, depth: int) -> TypeGuess:
    fields = by_key(values)
    entry_guess = _entry_type(fields, values, tried, depth)
    if entry_guess is not None and entry_guess.type is None:
        return entry_guess
    if entry_guess is not None:
        entries = list_of(struct_of((("key", TypeGuess(pa.string())), ("value", entry_guess))))
        note = f"{format_count(len(fields), 'different key')} sampled"
        return replace(entries, note="; ".join(filter(None, [note, entries.note])))
    guess = struct_of(
        (key, guess_type(field_values, tried, depth)) for key, field_values in fields.items()
    )
    return guess if fields else TypeGuess(None, "only objects without fields were sampled")


def keys_are_data(documents: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether the names of the documents' fields seem to be data."""
    return _entry_type(by_key(documents), documents, EXACT_OR_TEXT, 0) is not None


def _entry_type(
    fields: Mapping[str, list[Any]],
    objects: Sequence[Mapping[str, Any]],
    tried: Scalars,
    depth: int,
) -> TypeGuess | None:
    """Returns the type of all values of objects whose keys are data; None if keys are names.

    Args:
        fields: the values of each key.
        objects: the objects.
        tried: the types that are tried for plain values.
        depth: the number of objects and arrays around the values.
    """
    has_many_fields = len(fields) > MOST_FIELDS
    if not has_many_fields and len(fields) < max(FEWEST_KEYS, 2 * max(map(len, objects))):
        return None
    all_values = [value for field_values in fields.values() for value in field_values]
    guess = guess_type(all_values, tried, depth)
    # Plain values of several kinds may come from a few optional fields.
    names = guess.lenient and (guess.type != pa.string() or len(fields) < FEWEST_MIXED_KEYS)
    return (
        guess if has_many_fields or (guess.type and not names and _are_alike(all_values)) else None
    )


def _are_alike(values: Sequence[Any]) -> bool:
    """Returns whether at least half of the values that are objects share a field."""
    objects = [value for value in values if isinstance(value, dict)]
    fields = Counter(name for value in objects for name in value)
    return 2 * max(fields.values(), default=0) >= len(objects)
