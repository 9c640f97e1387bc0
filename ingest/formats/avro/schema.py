"""An Avro schema, read from its JSON: the types that the writer of the messages had."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.ingest.errors import SpecError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MOST_NESTED = 50
"""Types written in one another; deeper ones take names."""
MOST_BYTES = 1 << 20
"""Of a schema's text."""

_CONNECT_PRECISION = 64
"""Connect's, of a decimal whose precision nobody has stated."""

_DO = "Fix the Avro schema; nothing was read."


ZONED = "zoned-timestamp"
"""A string that is a timestamp with an offset.

The specification has no such logical type, Debezium has.
"""
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
"""A record of a scale and the bytes of a decimal: Debezium's, of numbers whose column
states no scale.
"""


@dataclass(frozen=True)
class Logical:
    """What a type stands for beyond its bytes. `precision`, `scale`: of a decimal."""

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class PrimitiveType:
    """One of `PRIMITIVES`."""

    name: str
    logical: Logical | None = None


@dataclass(frozen=True)
class FixedType:
    """Always so many bytes."""

    name: str
    size: int
    logical: Logical | None = None


@dataclass(frozen=True)
class EnumType:
    """One of some symbols, by its number."""

    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class ArrayType:
    """Any number of items."""

    items: AvroType


@dataclass(frozen=True)
class MapType:
    """Any number of values, each with a text as its key."""

    values: AvroType


@dataclass(frozen=True)
class UnionType:
    """One of some types, by its number."""

    branches: tuple[AvroType, ...]


@dataclass(frozen=True)
class NamedReference:
    """A record, by its name: the only type that may hold itself."""

    name: str


@dataclass(frozen=True)
class RecordType:
    """Fields, one behind the other. `aliases`: what else the writer calls it."""

    name: str
    fields: tuple[tuple[str, AvroType], ...]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class AbsentType:
    """A field that the reader wants and the writer doesn't have: null, without a byte.

    Put in by `resolve.py`.
    """


@dataclass(frozen=True)
class UnfitType:
    """A type of a union that can't become what the reader wants: a value of it is refused.

    `words`: the type, for people. As above.
    """

    words: str
    reason: str = "wrong_type"


AvroType = (
    PrimitiveType
    | FixedType
    | EnumType
    | ArrayType
    | MapType
    | UnionType
    | NamedReference
    | AbsentType
    | UnfitType
)
"""Records are told by name, and lie in `AvroSchema.records`."""


@dataclass(frozen=True)
class AvroSchema:
    """A whole schema.

    `root`: the record that each message is; `empty`: the records that never have a byte.
    """

    root: str
    records: Mapping[str, RecordType]
    empty: frozenset[str]

    @classmethod
    def of(cls, root: str, records: Mapping[str, RecordType]) -> AvroSchema:
        """A schema of some records."""
        return cls(root, records, _empty_records(records))

    @property
    def names(self) -> tuple[str, ...]:
        """The full names of the root, its aliases among them; an empty one if it is no record."""
        return (self.root, *self.records[self.root].aliases)

    @property
    def fields(self) -> frozenset[str]:
        """The names of the root's fields."""
        return frozenset(name for name, _ in self.records[self.root].fields)

    def is_empty(self, kind: AvroType) -> bool:
        """Whether values of a type have no bytes: then a block may claim any number of
        them, and nothing can be read of any.
        """
        return _is_empty(kind, self.empty)


def parse_schema(
    text: str, place: str, references: Sequence[str] = (), only: str | None = None
) -> AvroSchema:
    """A schema from its JSON text, by the Avro specification 1.12.

    Args:
        text: the schema's.
        place: where it stands, for people.
        references: the texts of schemas whose names it uses, each behind those that it
            uses itself.
        only: what the one field of a record is called that stands for a schema that is
            no record; None: it must be one.

    Raises:
        SpecError: with what is wrong in it, and where.
    """
    root = parse_root(text, place, references, only)
    if isinstance(root, AvroSchema):
        return root
    raise SpecError(
        f"The Avro schema in {place} is a union of records: the table's columns are the fields"
        " of one",
        "spec",
        _DO,
    )


def parse_root(
    text: str, place: str, references: Sequence[str] = (), only: str | None = None
) -> AvroSchema | list[AvroSchema | None]:
    """The same; of a union of records each of them as a schema of its own, and None in
    the place of null.
    """
    if len(text) + sum(map(len, references)) > MOST_BYTES:
        raise SpecError(
            f"The Avro schema in {place} is longer than {MOST_BYTES} bytes", "spec", _DO
        )
    parser = _Parser()
    try:
        for reference in references:
            parser.type(json.loads(reference), "", "$", 0)
        root = parser.type(json.loads(text), "", "$", 0)
    except _SchemaError as error:
        raise SpecError(f"The Avro schema in {place} can't be used: {error}", "spec", _DO) from None
    except (ValueError, RecursionError) as error:
        raise SpecError(
            f"The Avro schema in {place} is no JSON: {type(error).__name__}: {error}", "spec", _DO
        ) from None
    if isinstance(root, NamedReference):
        return AvroSchema.of(root.name, parser.records)
    branches = root.branches if isinstance(root, UnionType) else ()
    records = [
        AvroSchema.of(one.name, parser.records) if isinstance(one, NamedReference) else None
        for one in branches
    ]
    if any(records) and all(
        found or one == PrimitiveType("null") for found, one in zip(records, branches, strict=True)
    ):
        return records
    if only is None:
        raise SpecError(
            f"The Avro schema in {place} is no record: the table's columns are the fields of one",
            "spec",
            _DO,
        )
    return AvroSchema.of("", {**parser.records, "": RecordType("", ((only, root),))})


def _empty_records(records: Mapping[str, RecordType]) -> frozenset[str]:
    """The records of nothing but empty types, in one another; one that holds itself has
    no value without end, and isn't among them.
    """
    lacking = {
        name: {kind.name for _, kind in record.fields if isinstance(kind, NamedReference)}
        for name, record in records.items()
        if all(
            isinstance(kind, NamedReference) or _is_empty(kind, frozenset())
            for _, kind in record.fields
        )
    }
    holders: dict[str, list[str]] = {}
    for name, others in lacking.items():
        for other in others:
            holders.setdefault(other, []).append(name)
    ready = [name for name, others in lacking.items() if not others]
    empty: set[str] = set()
    while ready:
        name = ready.pop()
        empty.add(name)
        for holder in holders.get(name, ()):
            lacking[holder].discard(name)
            if not lacking[holder]:
                ready.append(holder)
    return frozenset(empty)


def _is_empty(kind: AvroType, empty: frozenset[str]) -> bool:
    if isinstance(kind, NamedReference):
        return kind.name in empty
    return (
        isinstance(kind, AbsentType)
        or (isinstance(kind, PrimitiveType) and kind.name == "null")
        or (isinstance(kind, FixedType) and kind.size == 0)
    )


class _SchemaError(ValueError):
    """Where, and what is wrong."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__(f"{path}: {what}")


class _Parser:
    def __init__(self) -> None:
        self.records: dict[str, RecordType] = {}
        self._named: dict[str, AvroType] = {}

    def type(self, written: Any, space: str, path: str, depth: int) -> AvroType:
        """A type where `space` is the namespace around it."""
        if depth > MOST_NESTED:
            raise _SchemaError(f"more than {MOST_NESTED} types in one another", path)
        if isinstance(written, str):
            return self._by_name(written, space, path)
        if isinstance(written, list):
            return self._union(written, space, path, depth)
        if not isinstance(written, dict):
            raise _SchemaError("a type is a name, an object or a list", path)
        kind = written.get("type")
        if isinstance(kind, dict | list):
            return self.type(kind, space, f"{path}.type", depth + 1)
        if kind == "array":
            return ArrayType(self._below(written, "items", space, path, depth))
        if kind == "map":
            return MapType(self._below(written, "values", space, path, depth))
        if kind in {"record", "error", "enum", "fixed"}:
            return self._definition(str(kind), written, space, path, depth)
        if kind in PRIMITIVES:
            return PrimitiveType(str(kind), _logical(written, str(kind), None))
        if isinstance(kind, str):
            return self._by_name(kind, space, path)
        raise _SchemaError("a type is missing", path)

    def _by_name(self, name: str, space: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return PrimitiveType(name)
        known = self._named.get(_full(name, space)) or self._named.get(name)
        if known is None:
            raise _SchemaError(f"there is no type {name!r} before it", path)
        return known

    def _below(
        self, written: dict[str, Any], key: str, space: str, path: str, depth: int
    ) -> AvroType:
        if key not in written:
            raise _SchemaError(f"{key} is missing", path)
        return self.type(written[key], space, f"{path}.{key}", depth + 1)

    def _union(self, written: list[Any], space: str, path: str, depth: int) -> UnionType:
        branches = tuple(
            self.type(each, space, f"{path}[{i}]", depth + 1) for i, each in enumerate(written)
        )
        if not branches:
            raise _SchemaError("a union of no types has no value", path)
        if any(isinstance(branch, UnionType) for branch in branches):
            raise _SchemaError("a union can't hold a union", path)
        names = [
            branch.name if hasattr(branch, "name") else type(branch).__name__ for branch in branches
        ]
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise _SchemaError(
                f"a union can't hold {twice[0].removesuffix('Type').lower()} twice", path
            )
        return UnionType(branches)

    def _definition(
        self, kind: str, written: dict[str, Any], space: str, path: str, depth: int
    ) -> AvroType:
        name = _name(written, space, path)
        if name in self._named:
            raise _SchemaError(f"{name} is defined twice", path)
        if kind == "fixed":
            size = written.get("size")
            if type(size) is not int or not 0 <= size < 1 << 31:
                raise _SchemaError("a fixed needs a size, a number of bytes", path)
            made: AvroType = FixedType(name, size, _logical(written, "fixed", size))
        elif kind == "enum":
            made = EnumType(name, _symbols(written, path))
        else:
            made = NamedReference(name)
        self._named[name] = made
        if isinstance(made, NamedReference):
            space = name.rpartition(".")[0]
            self.records[name] = RecordType(
                name, tuple(self._fields(written, space, path, depth)), _aliases(written, space)
            )
        return made

    def _fields(
        self, written: dict[str, Any], space: str, path: str, depth: int
    ) -> list[tuple[str, AvroType]]:
        fields = written.get("fields")
        if not isinstance(fields, list):
            raise _SchemaError("a record needs a list of fields", path)
        found: dict[str, AvroType] = {}
        for i, field in enumerate(fields):
            if not isinstance(field, dict) or not _is_name(field.get("name")):
                raise _SchemaError("a field needs a name", f"{path}.fields[{i}]")
            name = field["name"]
            if name in found:
                raise _SchemaError(f"the field {name} is there twice", path)
            found[name] = self._below(field, "type", space, f"{path}.{name}", depth + 1)
        return list(found.items())


def _is_name(name: object) -> bool:
    """Whether it is one: wider than the specification's letters, digits and `_`, as
    what writes schemas takes any letters, `$` and `-`.

    No control characters, for it is told to people, and no brackets, which records have
    that `resolve.py` makes.
    """
    return isinstance(name, str) and name != "" and name.isprintable() and "(" not in name


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _name(written: dict[str, Any], space: str, path: str) -> str:
    name, own = written.get("name"), written.get("namespace", space)
    if not isinstance(name, str) or not isinstance(own, str):
        raise _SchemaError("a record, an enum and a fixed need a name", path)
    full = _full(name, own)
    if not all(map(_is_name, full.split("."))) or full in PRIMITIVES:
        raise _SchemaError(f"{full!r} is no name", path)
    return full


def _aliases(written: dict[str, Any], space: str) -> tuple[str, ...]:
    """The other full names of a record; what is no list of names is passed over."""
    aliases = written.get("aliases")
    return (
        tuple(_full(alias, space) for alias in aliases if isinstance(alias, str))
        if isinstance(aliases, list)
        else ()
    )


def _symbols(written: dict[str, Any], path: str) -> tuple[str, ...]:
    symbols = written.get("symbols")
    if not isinstance(symbols, list) or not all(map(_is_name, symbols)):
        raise _SchemaError("an enum needs a list of symbols, which are names", path)
    if len(set(symbols)) < len(symbols) or not symbols:
        raise _SchemaError("an enum's symbols are there once each, and at least one", path)
    return tuple(symbols)


_LOGICAL = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
}


_CONNECT = {
    ("int", "org.apache.kafka.connect.data.Date"): "date",
    ("int", "io.debezium.time.Date"): "date",
    ("int", "org.apache.kafka.connect.data.Time"): "time-millis",
    ("int", "io.debezium.time.Time"): "time-millis",
    ("long", "io.debezium.time.MicroTime"): "time-micros",
    ("long", "org.apache.kafka.connect.data.Timestamp"): "timestamp-millis",
    ("long", "io.debezium.time.Timestamp"): "timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "timestamp-micros",
    ("long", "io.debezium.time.NanoTimestamp"): "timestamp-nanos",
    ("string", "io.debezium.time.ZonedTimestamp"): ZONED,
    ("string", "io.debezium.time.IsoTimestamp"): ZONED,
}
"""What Kafka Connect and Debezium call it in `connect.name`, where there is no logical type."""


def _logical(written: dict[str, Any], kind: str, size: int | None) -> Logical | None:
    """The logical type; one that is unknown, or doesn't go with its type, is passed
    over, as the specification has it.
    """
    name = written.get("logicalType")
    if name is None:
        return _of_connect(written, kind)
    if name == "decimal" and kind in {"bytes", "fixed"}:
        precision, scale = written.get("precision"), written.get("scale", 0)
        if (
            type(precision) is not int
            or type(scale) is not int
            or not 0 <= scale <= precision
            or precision < 1
        ):
            return None
        most = math.floor((8 * size - 1) * math.log10(2)) if size else precision
        return Logical("decimal", precision, scale) if precision <= most else None
    if (name == "uuid" and (kind == "string" or size == 16)) or (name == "duration" and size == 12):
        return Logical(str(name))
    return Logical(name) if isinstance(name, str) and _LOGICAL.get(name) == kind else None


def _of_connect(written: dict[str, Any], kind: str) -> Logical | None:
    """What Kafka Connect says of a type."""
    name = written.get("connect.name")
    if kind != "bytes" or name != "org.apache.kafka.connect.data.Decimal":
        logical = _CONNECT.get((kind, name)) if isinstance(name, str) else None
        return None if logical is None else Logical(logical)
    parameters = written.get("connect.parameters")
    scale = str(parameters.get("scale")) if isinstance(parameters, dict) else ""
    return (
        Logical("decimal", _CONNECT_PRECISION, int(scale))
        if scale.isdecimal() and len(scale) < 4
        else None
    )
