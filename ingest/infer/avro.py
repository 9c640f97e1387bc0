"""Columns for an Avro schema.

Each field gets the narrowest column type that `formats.avro.fit` allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from windrow.ingest.errors import format_count
from windrow.ingest.formats.avro.fit import (
    PRIMITIVE_COLUMNS,
    fits,
    is_big_decimal,
    is_null,
    is_recursive,
    is_variable_decimal,
    member_name,
)
from windrow.ingest.formats.avro.schema import (
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
from windrow.ingest.formats.cdc.envelope import DEBEZIUM
from windrow.ingest.infer.candidates import (
    LONGEST,
    MOST_DIGITS,
    OWN_SCALE,
    Candidate,
    Composite,
    SchemaTypes,
    TypeGuess,
    array,
    decimal_of,
    example,
    mapping,
    record,
    struct_of,
    unmatched_paths,
)
from windrow.ingest.infer.change_events import mongodb_by_registry
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.dtypes import TIMESTAMP

_MOST_MEMBERS = 20
"""Limit of the types of a union that become a struct of members."""
_NO_INSTANT = "since 1970 by some clock, which is no instant"
_NOTES = {
    "timestamp-nanos": (
        "nanoseconds: what is finer than a microsecond is cut off, see `decode.finer`"
    ),
    "duration": "duration: months, days and milliseconds of 4 bytes each",
    "time-millis": "time-millis: milliseconds since midnight",
    "time-micros": "time-micros: microseconds since midnight",
    "local-timestamp-millis": f"local-timestamp-millis: milliseconds {_NO_INSTANT}",
    "local-timestamp-micros": f"local-timestamp-micros: microseconds {_NO_INSTANT}",
    "local-timestamp-nanos": f"local-timestamp-nanos: nanoseconds {_NO_INSTANT}",
}
"""Comments on columns of logical types."""


def avro_candidates(written: WriterSchema, only: str) -> list[Candidate]:
    """Returns the fields of a schema's record, or of all records of a union.

    Args:
        written: the schema.
        only: the name of the only column if the schema isn't a record.

    Raises:
        SpecError: the text isn't an Avro schema.
    """
    schemas = roots_of(written, only)
    schema_json = json.loads(written.text)
    stated = {
        part["name"]: part
        for branch in (schema_json if isinstance(schema_json, list) else [schema_json])
        if isinstance(branch, dict)
        for part in reversed(branch.get("fields", []))
    }
    fields_per_schema = [dict(schema.records[schema.root].fields) for schema in schemas]
    types = [SchemaTypes(partial(_open_type, schema)) for schema in schemas]
    candidates = []
    for name in dict.fromkeys(name for fields in fields_per_schema for name in fields):
        having = [n for n, fields in enumerate(fields_per_schema) if name in fields]
        kinds = [(schemas[n], fields_per_schema[n][name]) for n in having]
        guess = _widest_guess([types[n].of(fields_per_schema[n][name]) for n in having], kinds)
        nullable = len(having) < len(fields_per_schema) or any(
            _takes_null(kind) for _, kind in kinds
        )
        candidates.append(_candidate(name, guess, stated.get(name, {}), nullable=nullable))
    return candidates


def roots_of(written: WriterSchema, only: str | None) -> list[AvroSchema]:
    """Returns the record of a schema, or all records of a union.

    Args:
        written: the schema.
        only: the name of the only column if the schema isn't a record; None refuses such a
            schema.

    Raises:
        SpecError: the text isn't an Avro schema.
    """
    root = parse_root(
        written.text, f"schema id {written.id}", [text for _, text in written.references], only
    )
    return (
        [root]
        if isinstance(root, AvroSchema)
        else [branch for branch in root if branch is not None]
    )


def row_of_envelope(written: WriterSchema) -> WriterSchema | None:
    """Returns the schema of the row in an envelope of Debezium; None if it is no envelope.

    Args:
        written: the schema, which can be parsed.

    Raises:
        SpecError: the envelope's row is no record, as in events of MongoDB.
    """
    stated = json.loads(written.text)
    fields = stated.get("fields", []) if isinstance(stated, dict) else []
    types = {field["name"]: field["type"] for field in fields}
    if not {DEBEZIUM.removed, DEBEZIUM.written, *DEBEZIUM.kind} <= types.keys():
        return None
    for name in (DEBEZIUM.removed, DEBEZIUM.written):
        for branch in types[name] if isinstance(types[name], list) else [types[name]]:
            if isinstance(branch, dict) and branch.get("type") == "record":
                row = {"namespace": stated.get("namespace", ""), **branch}
                return msgspec.structs.replace(written, text=json.dumps(row))
    raise mongodb_by_registry()


def _candidate(
    name: str, guess: TypeGuess, stated: Mapping[str, Any], *, nullable: bool
) -> Candidate:
    """Returns a field with its doc and its default.

    Args:
        name: the field's name.
        guess: the field's type.
        stated: the field's JSON in the schema.
        nullable: whether the field may be null.
    """
    doc, default = stated.get("doc"), stated.get("default")
    plain = guess.type in PRIMITIVE_COLUMNS.values() and guess.type != pa.binary()
    return Candidate(
        name,
        guess,
        nullable,
        doc if isinstance(doc, str) else "",
        repr(default) if plain and default is not None and len(repr(default)) < LONGEST else "",
    )


def _takes_null(kind: AvroType) -> bool:
    return isinstance(kind, UnionType) and any(map(is_null, kind.branches))


def _open_type(schema: AvroSchema, kind: AvroType) -> TypeGuess | Composite:
    if schema.is_empty(kind):
        return TypeGuess(None, "no value of it has a byte")
    if isinstance(kind, UnionType):
        branches = [branch for branch in kind.branches if not is_null(branch)]
        of_schema = [(schema, branch) for branch in branches]
        return Composite(branches, lambda guesses: _union_guess(guesses, of_schema), None)
    if is_variable_decimal(schema, kind):
        return OWN_SCALE
    if is_recursive(schema, kind):
        return TypeGuess(pa.string(), "JSON, since the record contains itself")
    if isinstance(kind, NamedReference):
        return record(schema.records[kind.name].fields, f"the record {kind.name}")
    if isinstance(kind, ArrayType):
        return array(kind.items)
    return mapping(kind.values) if isinstance(kind, MapType) else _scalar(schema, kind)


def _union_guess(
    guesses: Sequence[TypeGuess], branches: Sequence[tuple[AvroSchema, AvroType]]
) -> TypeGuess:
    """Returns the widest type of a union, or a struct of its members if no type takes all.

    The arguments are those of `_widest_guess`.
    """
    widest = _widest_guess(guesses, branches)
    names = [member_name(kind) for _, kind in branches]
    # A column of both couldn't tell a plain text from a record's JSON.
    is_one_kind = widest.type is not None and not any(is_recursive(*branch) for branch in branches)
    if is_one_kind or not 1 < len(set(names)) == len(names) <= _MOST_MEMBERS:
        return widest
    return struct_of(zip(names, guesses, strict=True))


def _widest_guess(
    guesses: Sequence[TypeGuess], branches: Sequence[tuple[AvroSchema, AvroType]]
) -> TypeGuess:
    """Returns the widest of several types, which takes the values of all of them.

    Args:
        guesses: the types.
        branches: the Avro type that each guess is for, with its schema.
    """
    if len(guesses) == 1:
        return guesses[0]
    # Only the first guess of each type is compared, because a union may have thousands of
    # branches with few types.
    guess_by_type = {guess.type: guess for guess in reversed(guesses) if guess.type is not None}
    fitting = [
        guess
        for guess in guesses
        if guess_by_type.get(guess.type) is guess
        and all(fits(schema, branch, guess.type, None) for schema, branch in branches)
    ]
    if not fitting:
        return TypeGuess(None, "no type takes all types of the union")
    widest = max(fitting, key=lambda guess: _width(guess.type))
    omitted_in_others = dict.fromkeys(
        path
        for kind in reversed(guess_by_type)
        for path in unmatched_paths(widest.type, example(kind))
    )
    omitted_paths = tuple(
        (path, "only some types of the union have it") for path in omitted_in_others
    )
    return replace(widest, omitted=widest.omitted + omitted_paths)


def _width(kind: pa.DataType) -> int:
    """Returns the order of types that take the same branches; the widest takes all values."""
    return int(kind.bit_width) if pa.types.is_primitive(kind) else int(pa.types.is_binary(kind))


def _scalar(schema: AvroSchema, kind: AvroType) -> TypeGuess:
    if isinstance(kind, EnumType):
        return TypeGuess(pa.string(), f"one of {', '.join(kind.symbols[:LONGEST])}")
    if not isinstance(kind, PrimitiveType | FixedType):
        return TypeGuess(None, "it is always null")
    if is_big_decimal(kind):
        return OWN_SCALE
    if kind.logical is not None and kind.logical.name == "decimal":
        return _decimal(kind.logical)
    timed = [time for time in (pa.date32(), TIMESTAMP) if fits(schema, kind, time, None)]
    note = "" if kind.logical is None else _NOTES.get(kind.logical.name, "")
    if isinstance(kind, FixedType):
        return TypeGuess(pa.binary(), note or f"always {format_count(kind.size, 'byte')}")
    return TypeGuess(timed[0] if timed else PRIMITIVE_COLUMNS[kind.name], note)


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
