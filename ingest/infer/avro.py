"""Columns of an Avro schema: for each field the narrowest type that `formats.avro.fit` takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.ingest.formats.avro.fit import (
    PRIMITIVE_COLUMNS,
    fits,
    is_null,
    is_variable_decimal,
)
from windrow.ingest.formats.avro.schema import (
    ZONED,
    ArrayType,
    AvroSchema,
    AvroType,
    EnumType,
    FixedType,
    Logical,
    MapType,
    NamedReference,
    PrimitiveType,
    UnionType,
    parse_root,
)
from windrow.ingest.infer.candidates import (
    LONGEST,
    MOST_DIGITS,
    OWN_SCALE,
    Candidate,
    TypeBudget,
    TypeGuess,
    decimal_of,
    example,
    list_of,
    map_of,
    passed_over,
    struct_of,
)
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.dtypes import TIMESTAMP

_LOGICAL = {
    "date": TypeGuess(pa.date32()),
    "timestamp-millis": TypeGuess(TIMESTAMP),
    "timestamp-micros": TypeGuess(TIMESTAMP),
    "timestamp-nanos": TypeGuess(
        TIMESTAMP, "nanoseconds: what is finer than a microsecond is cut off, see `decode.finer`"
    ),
    ZONED: TypeGuess(TIMESTAMP),
    "duration": TypeGuess(pa.binary(), "duration: months, days and milliseconds of 4 bytes each"),
    "time-millis": TypeGuess(pa.int32(), "time-millis: milliseconds since midnight"),
    "time-micros": TypeGuess(pa.int64(), "time-micros: microseconds since midnight"),
    "local-timestamp-millis": TypeGuess(
        pa.int64(),
        "local-timestamp-millis: milliseconds since 1970 by some clock, which is no instant",
    ),
    "local-timestamp-micros": TypeGuess(
        pa.int64(),
        "local-timestamp-micros: microseconds since 1970 by some clock, which is no instant",
    ),
    "local-timestamp-nanos": TypeGuess(
        pa.int64(),
        "local-timestamp-nanos: nanoseconds since 1970 by some clock, which is no instant",
    ),
}


def avro_candidates(written: WriterSchema, only: str) -> list[Candidate]:
    """The fields of a schema's record, or of all records of a union.

    `only`: the name of the one column of a schema that is no record.

    Raises:
        SpecError: the text is no Avro schema.
    """
    types = [_AvroTypes(schema) for schema in roots_of(written, only)]
    found = json.loads(written.text)
    stated = {
        part["name"]: part
        for record in (found if isinstance(found, list) else [found])
        if isinstance(record, dict)
        for part in reversed(record.get("fields", []))
    }
    each = [dict(one.schema.records[one.schema.root].fields) for one in types]
    return [
        _candidate(
            name,
            [
                (one, fields[name])
                for one, fields in zip(types, each, strict=True)
                if name in fields
            ],
            stated.get(name, {}),
            missing=any(name not in fields for fields in each),
        )
        for name in dict.fromkeys(name for fields in each for name in fields)
    ]


def roots_of(written: WriterSchema, only: str | None) -> list[AvroSchema]:
    """The records of a schema: its own, or those of its union.

    Raises:
        SpecError: the text is no Avro schema.
    """
    root = parse_root(
        written.text, f"schema id {written.id}", [text for _, text in written.references], only
    )
    return [root] if isinstance(root, AvroSchema) else [one for one in root if one is not None]


def _candidate(
    name: str,
    kinds: Sequence[tuple[_AvroTypes, AvroType]],
    stated: Mapping[str, Any],
    *,
    missing: bool,
) -> Candidate:
    """A field of one record, or of several: its type takes the values of all.

    `missing`: whether there are records without it; `stated`: the field as it is written.
    """
    guess = _widest(
        [types.of(kind, ()) for types, kind in kinds],
        [(types.schema, kind) for types, kind in kinds],
    )
    doc, default = stated.get("doc"), stated.get("default")
    plain = guess.type in PRIMITIVE_COLUMNS.values() and guess.type != pa.binary()
    return Candidate(
        name,
        guess,
        missing or any(_takes_null(kind) for _, kind in kinds),
        doc if isinstance(doc, str) else "",
        repr(default) if plain and default is not None and len(repr(default)) < LONGEST else "",
    )


def _takes_null(kind: AvroType) -> bool:
    return isinstance(kind, UnionType) and any(map(is_null, kind.branches))


class _AvroTypes:
    """Chooses the column types of one schema. `around`: the records that a type is in."""

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema
        self._budget = TypeBudget()

    def of(self, kind: AvroType, around: tuple[str, ...]) -> TypeGuess:
        refusal = self._budget.refusal(len(around))
        if refusal is not None:
            return refusal
        if self.schema.is_empty(kind):
            return TypeGuess(None, "no value of it has a byte")
        if isinstance(kind, UnionType):
            return self._union(kind, around)
        if isinstance(kind, NamedReference):
            return self._record(kind, around)
        if isinstance(kind, ArrayType):
            return list_of(self.of(kind.items, (*around, "[]")))
        if isinstance(kind, MapType):
            return map_of(self.of(kind.values, (*around, "{}")))
        return _scalar(kind)

    def _record(self, kind: NamedReference, around: tuple[str, ...]) -> TypeGuess:
        if kind.name in around:
            return TypeGuess(None, f"the record {kind.name} holds itself")
        if is_variable_decimal(self.schema, kind):
            return OWN_SCALE
        inside = (*around, kind.name)
        return struct_of(
            (name, self.of(field, inside)) for name, field in self.schema.records[kind.name].fields
        )

    def _union(self, kind: UnionType, around: tuple[str, ...]) -> TypeGuess:
        branches = [branch for branch in kind.branches if not is_null(branch)]
        guesses = [self.of(branch, around) for branch in branches]
        return _widest(guesses, [(self.schema, branch) for branch in branches])


def _widest(
    guesses: Sequence[TypeGuess], branches: Sequence[tuple[AvroSchema, AvroType]]
) -> TypeGuess:
    """The type of one of several types that takes the values of all."""
    if len(guesses) == 1:
        return guesses[0]
    # the first guess of each type: a union may have thousands of branches, and few types
    each = {guess.type: guess for guess in reversed(guesses) if guess.type is not None}
    fitting = [
        guess
        for guess in guesses
        if each.get(guess.type) is guess
        and all(fits(schema, branch, guess.type, None) for schema, branch in branches)
    ]
    if not fitting:
        return TypeGuess(None, "no type takes all types of the union")
    widest = max(fitting, key=lambda guess: _width(guess.type))
    more = dict.fromkeys(
        path for kind in reversed(each) for path in passed_over(widest.type, example(kind))
    )
    told = tuple((path, "only some types of the union have it") for path in more)
    return replace(widest, left_out=widest.left_out + told)


def _width(kind: pa.DataType) -> int:
    """Orders types that take the same branches: the widest one takes all of their values."""
    return int(kind.bit_width) if pa.types.is_primitive(kind) else int(pa.types.is_binary(kind))


def _scalar(kind: AvroType) -> TypeGuess:
    if isinstance(kind, EnumType):
        return TypeGuess(pa.string(), f"one of {', '.join(kind.symbols[:LONGEST])}")
    if not isinstance(kind, PrimitiveType | FixedType):
        return TypeGuess(None, "it is always null")
    if kind.logical is not None and kind.logical.name == "decimal":
        return _decimal(kind.logical)
    if kind.logical is not None and kind.logical.name in _LOGICAL:
        return _LOGICAL[kind.logical.name]
    if isinstance(kind, FixedType):
        return TypeGuess(pa.binary(), f"always {kind.size} bytes")
    return TypeGuess(PRIMITIVE_COLUMNS[kind.name])


def _decimal(logical: Logical) -> TypeGuess:
    if logical.precision > MOST_DIGITS >= logical.scale:
        note = (
            f"{logical.precision} digits by its schema: a message with more than {MOST_DIGITS} is"
            " refused"
        )
        return TypeGuess(pa.decimal128(MOST_DIGITS, logical.scale), note)
    if logical.precision > MOST_DIGITS:
        return TypeGuess(
            None, f"a decimal of {logical.precision} digits: a column has at most {MOST_DIGITS}"
        )
    return TypeGuess(decimal_of(logical.precision, logical.scale))
