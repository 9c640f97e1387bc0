"""The columns of a Delta table: which types it holds, and how two schemas differ. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import DataType

from windrow.ingest.errors import SpecError
from windrow.ingest.schema.metadata import names_beyond_spark, refuse_wrong
from windrow.ingest.sinks.columns import inner_difference

Evolve = Literal["none", "add_columns", "widen"]
"""What may become of a table's columns (`sink.evolve`)."""

_SIZES = {
    **{
        name: ("whole number", size)
        for size, name in enumerate(("byte", "short", "integer", "long"))
    },
    **{name: ("float", size) for size, name in enumerate(("float", "double"))},
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")

_PLAIN = (
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_decimal128,
)


def check_rows(rows: pa.Schema, metadata: Mapping[str, str]) -> None:
    """Refuse what a Delta table would store as something else, or not at all, and
    metadata columns that can't stand beside the rows'.

    Delta takes unsigned integers without a word and stores signed ones, so the types
    are listed here.

    Raises:
        SpecError: naming every column that can't be stored as it is, and what to use.
    """
    refuse_wrong(rows.names, metadata)
    lower = [n.lower() for n in rows.names]
    wrong = [
        f"{n}: the name stands there twice (case doesn't count)"
        for n in sorted({n for n in lower if lower.count(n) > 1})
    ]
    wrong += [f"{f.name}: {f.type}" for f in rows if not _storable(f.type)]
    unreadable = list(
        names_beyond_spark((*rows, *(pa.field(name, pa.string()) for name in metadata.values())))
    )
    if unreadable:
        what = (
            "the schema has names that Spark can't read in a Delta table:"
            f" {', '.join(map(repr, unreadable))}"
        )
        do = (
            "Take names without blanks, tabs, line breaks and ,;{}()=: a metadata column is renamed"
            " under metadata, a field of messages by a function (transform.spark). A table of"
            " Iceberg holds any name."
        )
        raise SpecError(what, "spec", do)
    if not rows.names:
        wrong.append("there are no columns")
    if wrong:
        what = "the schema can't be stored in a Delta table as it is: " + "; ".join(wrong)
        do = (
            "Use signed integers, float32/64, bool, string, binary, date32, decimal128,"
            " timestamp[us], structs, lists or maps of these; in maps only times with a zone."
        )
        raise SpecError(what, "spec", do)


def _storable(kind: pa.DataType, *, in_map: bool = False) -> bool:
    """Times without a zone need a feature of the protocol, which deltalake 1.6 forgets
    when it makes a table that has them in a map.
    """
    if pa.types.is_timestamp(kind):
        return kind.unit == "us" and (kind.tz == "UTC" or (kind.tz is None and not in_map))
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(
            _storable(kind.field(i).type, in_map=in_map) for i in range(kind.num_fields)
        )
    if pa.types.is_map(kind):
        return _storable(kind.key_type, in_map=True) and _storable(kind.item_type, in_map=True)
    if pa.types.is_list(kind):
        return _storable(kind.value_type, in_map=in_map)
    return any(test(kind) for test in _PLAIN)


@dataclass(frozen=True)
class Evolution:
    """What becomes of a table's columns so that files with other ones fit it.

    `schema`: its columns then, which may be the same. `added`: those that it hasn't
    yet. `changes`: these and the ones that become others, in words. `widened`: whether
    what is there has to be written anew in wider columns, `narrow`: whether the new
    files have to. `problems`: why it can't be, column by column.
    """

    schema: Schema
    added: tuple[Field, ...]
    changes: tuple[str, ...]
    widened: bool
    narrow: bool
    problems: tuple[str, ...]


def evolution(table: Schema, wanted: Schema, evolve: Evolve) -> Evolution:
    """How a table takes files with the wanted columns.

    What these don't have is null in their rows; what it has wider, they get as wide.

    The order of columns doesn't count: Delta finds them by name, and added ones always come last.
    """
    there, here = {f.name: f for f in table.fields}, {f.name: f for f in wanted.fields}
    shared = {name: _common(f, here[name], evolve) for name, f in there.items() if name in here}
    new = [f for name, f in here.items() if name not in there]
    added = [f for f in new if f.nullable]
    after = [shared.get(name) or f for name, f in there.items()]
    problems = [f"{f.name}: new, but not nullable ({_shape(f)})" for f in new if not f.nullable]
    problems += [
        f"{f.name}: new ({_shape(f)}), and sink.evolve is none" for f in added if evolve == "none"
    ]
    problems += [_missing(f) for name, f in there.items() if name not in here and not f.nullable]
    problems += [_differs(there[name], here[name]) for name, f in shared.items() if f is None]
    return Evolution(
        Schema([*after, *added]),
        tuple(added),
        (
            *(f"{f.name} ({_shape(f)})" for f in added),
            *(_becomes(there[f.name], f) for f in after if _shape(f) != _shape(there[f.name])),
        ),
        any(f.type != there[f.name].type for f in after),
        any(
            f.type != here[f.name].type
            for f in after
            if f.name in here and shared[f.name] is not None
        ),
        tuple(problems),
    )


def difference(table: Schema, wanted: Schema, evolve: Evolve) -> list[str]:
    """What keeps a table from becoming one of exactly the wanted columns, column by column."""
    become, here = evolution(table, wanted, evolve), {f.name: f for f in wanted.fields}
    there, told = {f.name: f for f in table.fields}, set(become.problems)
    gone = [_missing(f) for f in table.fields if f.name not in here]
    kept = [f for f in become.schema.fields if f.name in there and f.name in here]
    narrower = [
        _differs(there[f.name], here[f.name]) for f in kept if _shape(f) != _shape(here[f.name])
    ]
    return [*become.problems, *(problem for problem in (*gone, *narrower) if problem not in told)]


def has_local_times(schema: Schema) -> bool:
    """Whether a column, however deep, is a time without a zone: such a table needs a
    feature of the protocol.
    """
    return '"timestamp_ntz"' in schema.to_json()


def in_files(table: Schema, partition: str) -> pa.Schema:
    """The columns of a table's files: all but the partition column, whose value the log has."""
    return pa.schema([f for f in pa.schema(table) if f.name != partition])


def _common(there: Field, here: Field, evolve: Evolve) -> Field | None:
    """The column that holds the values of both; None if there is none, or the table may
    not become it.
    """
    if _shape(there) == _shape(here):
        return there
    kind = _wider(there.type, here.type)
    if evolve != "widen" or kind is None:
        return None
    return Field(
        there.name, kind, nullable=there.nullable or here.nullable, metadata=there.metadata
    )


def _wider(one: DataType, other: DataType) -> DataType | None:
    """The type of two that holds the values of both, each with the checksum that it has
    (`ingest.schema.checksum`), if there is one.
    """
    if one == other:
        return one
    first, second = _size(one), _size(other)
    if first is None or second is None or first[0] != second[0]:
        return None
    return one if first > second else other


def _size(kind: DataType) -> tuple[str, int] | None:
    """Of types that differ in how many values they hold: which ones those are, and this
    one's place among them.
    """
    name = _name(kind)
    decimal = _DECIMAL.fullmatch(name)
    return (
        _SIZES.get(name) if decimal is None else (f"decimal of scale {decimal[2]}", int(decimal[1]))
    )


def _missing(field: Field) -> str:
    return f"{field.name}: in the table ({_shape(field)}), not in the schema"


def _differs(there: Field, here: Field) -> str:
    inside = inner_difference(*(pa.schema(Schema([f])).field(0) for f in (there, here)))
    return (
        f"{there.name}: at {inside}"
        if inside
        else f"{there.name}: {_shape(there)} in the table, {_shape(here)} in the schema"
    )


def _becomes(there: Field, after: Field) -> str:
    return f"{there.name} ({_shape(there)} to {_shape(after)})"


def _shape(field: Field) -> str:
    return _name(field.type) if field.nullable else f"{_name(field.type)} not null"


def _name(kind: DataType) -> str:
    return kind.to_json().strip('"')
