"""Avro schemas: types that messages were written with, and their parser from JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import msgspec

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.shared.connect_types import CONNECT_DECIMAL, LOGICAL_TYPES
from windrow.ingest.model.writer_schema import MOST_CHARACTERS

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MOST_NESTED = 50
"""Deepest nesting of types that are written inside each other."""

_CONNECT_PRECISION = 64
"""Precision of a decimal for which Kafka Connect states only the scale."""

_DO = "Fix the Avro schema; nothing was read."

BIG_DECIMAL = "big-decimal"
"""Avro's logical type of bytes that hold the bytes of a decimal, and its scale."""


class Logical(msgspec.Struct, frozen=True):
    """Logical type.

    Attributes:
        name: the name.
        precision: the precision of a decimal; 0 for any other type.
        scale: the scale of a decimal; 0 for any other type.
    """

    name: str
    precision: int = 0
    scale: int = 0


class PrimitiveType(msgspec.Struct, frozen=True):
    """Primitive type, one of `PRIMITIVES`."""

    name: str
    logical: Logical | None = None


class FixedType(msgspec.Struct, frozen=True):
    """Type of values that always have the same number of bytes.

    Attributes:
        name: the full name.
        size: the number of bytes.
        logical: the logical type.
    """

    name: str
    size: int
    logical: Logical | None = None


class EnumType(msgspec.Struct, frozen=True):
    """Enum: a value is the number of one of its symbols."""

    name: str
    symbols: tuple[str, ...]


class ArrayType(msgspec.Struct, frozen=True):
    """Array of items of one type."""

    items: AvroType


class MapType(msgspec.Struct, frozen=True):
    """Map from strings to values of one type."""

    values: AvroType


class UnionType(msgspec.Struct, frozen=True):
    """Union: a value is the number of one of its types, then a value of that type."""

    branches: tuple[AvroType, ...]


class NamedReference(msgspec.Struct, frozen=True):
    """Reference to a record by its full name. Only a record can contain itself."""

    name: str


class RecordType(msgspec.Struct, frozen=True):
    """Record: a value is the values of its fields, in order.

    Attributes:
        name: the full name.
        fields: pairs of a field's name and type.
        aliases: the other full names.
    """

    name: str
    fields: tuple[tuple[str, AvroType], ...]
    aliases: tuple[str, ...] = ()


class AbsentType(msgspec.Struct, frozen=True):
    """Type of a field that only the columns have. It is always null, and has no bytes.

    A parsed schema doesn't have this type; `resolve.py` adds it.
    """


class RefusedType(msgspec.Struct, frozen=True):
    """Type of a union that can't become the column. A message with its value is refused.

    A parsed schema doesn't have this type; `resolve.py` adds it.

    Attributes:
        words: the description of the original type.
        reason: the dead letter's reason.
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
    | RefusedType
)
"""Any type. A record is a `NamedReference` to an item of `AvroSchema.records`."""


@dataclass(frozen=True)
class AvroSchema:
    """Schema of messages that are one record each.

    Attributes:
        root: the full name of the messages' record.
        records: all records, by full name.
        empty: the names of the records whose values have no bytes.
        recursive: the names of the records that contain themselves, at any depth.
    """

    root: str
    records: Mapping[str, RecordType]
    empty: frozenset[str]
    recursive: frozenset[str]

    @classmethod
    def of(cls, root: str, records: Mapping[str, RecordType]) -> AvroSchema:
        """Makes a schema of its records."""
        return cls(root, records, _empty_records(records), _recursive_records(records))

    @property
    def names(self) -> tuple[str, ...]:
        """Full names of the root record, with its aliases.

        The name is "" if the schema isn't a record.
        """
        return (self.root, *self.records[self.root].aliases)

    @property
    def fields(self) -> frozenset[str]:
        """Names of the root record's fields."""
        return frozenset(name for name, _ in self.records[self.root].fields)

    def is_empty(self, kind: AvroType) -> bool:
        """Returns whether values of a type have no bytes.

        A block of an array of such values may claim any number of items, even in a small
        message.
        """
        return _is_empty(kind, self.empty)


def parse_schema(
    text: str, origin: str, references: Sequence[str] = (), only: str | None = None
) -> AvroSchema:
    """Parses a schema from its JSON text, by the Avro specification 1.12.

    Args:
        text: the schema's JSON text.
        origin: the source of the text, for errors.
        references: the texts of the schemas whose names the text uses. A schema comes
            after the schemas that it uses.
        only: the field name for a schema that isn't a record. Such a schema is read as a
            record with this single field. If None, such a schema is refused.

    Raises:
        SpecError: the text isn't a schema of a record.
    """
    root = parse_root(text, origin, references, only)
    if isinstance(root, AvroSchema):
        return root
    raise SpecError(
        f"The Avro schema in {origin} is a union of records, but the columns come from the"
        " fields of one record",
        "spec",
        _DO,
    )


def parse_root(
    text: str, origin: str, references: Sequence[str] = (), only: str | None = None
) -> AvroSchema | list[AvroSchema | None]:
    """Parses a schema like `parse_schema`, but also takes a union of records.

    A union becomes a list with a schema for each record, and None for its null. The
    arguments are those of `parse_schema`.

    Raises:
        SpecError: the text is neither a schema of a record nor of a union of records.
    """
    if len(text) + sum(map(len, references)) > MOST_CHARACTERS:
        raise SpecError(
            f"The Avro schema in {origin} is longer than {MOST_CHARACTERS} characters", "spec", _DO
        )
    parser = _Parser()
    try:
        for reference in references:
            parser.type(json.loads(reference), "", "$", 0)
        root = parser.type(json.loads(text), "", "$", 0)
    except _SchemaError as error:
        raise SpecError(
            f"The Avro schema in {origin} can't be used: {error}", "spec", _DO
        ) from None
    except (ValueError, RecursionError) as error:
        raise SpecError(
            f"The Avro schema in {origin} isn't JSON: {type(error).__name__}: {error}",
            "spec",
            _DO,
        ) from None
    if isinstance(root, NamedReference):
        return AvroSchema.of(root.name, parser.records)
    branches = root.branches if isinstance(root, UnionType) else ()
    schemas = [
        AvroSchema.of(branch.name, parser.records) if isinstance(branch, NamedReference) else None
        for branch in branches
    ]
    if any(schemas) and all(
        schema is not None or branch == PrimitiveType("null")
        for schema, branch in zip(schemas, branches, strict=True)
    ):
        return schemas
    if only is None:
        raise SpecError(
            f"The Avro schema in {origin} isn't a record, but the columns come from the fields of"
            " a record",
            "spec",
            _DO,
        )
    return AvroSchema.of("", {**parser.records, "": RecordType("", ((only, root),))})


def _empty_records(records: Mapping[str, RecordType]) -> frozenset[str]:
    """Returns the names of the records whose values have no bytes.

    A record that contains itself isn't one of them, because its values would never end.
    """
    # Records whose other fields are empty, with the inner records not known to be empty.
    undecided = {
        name: {kind.name for _, kind in record.fields if isinstance(kind, NamedReference)}
        for name, record in records.items()
        if all(
            isinstance(kind, NamedReference) or _is_empty(kind, frozenset())
            for _, kind in record.fields
        )
    }
    return _removable(undecided)


def _recursive_records(records: Mapping[str, RecordType]) -> frozenset[str]:
    """Returns the names of the records that contain themselves.

    A record between two of them, which is in the one and contains the other, counts as well.
    """
    inner_names = {
        name: {inner_name for _, kind in record.fields for inner_name in _records_in(kind)}
        for name, record in records.items()
    }
    return frozenset(records) - _removable(inner_names) - _removable(_holders(inner_names))


def _records_in(kind: AvroType) -> Iterator[str]:
    if isinstance(kind, NamedReference):
        yield kind.name
    inner_types = (
        kind.branches
        if isinstance(kind, UnionType)
        else [kind.items]
        if isinstance(kind, ArrayType)
        else [kind.values]
        if isinstance(kind, MapType)
        else []
    )
    for inner_type in inner_types:
        yield from _records_in(inner_type)


def _holders(inner_names: Mapping[str, AbstractSet[str]]) -> dict[str, set[str]]:
    """Returns the names of the records that contain each record directly."""
    holders: dict[str, set[str]] = {name: set() for name in inner_names}
    for name, names in inner_names.items():
        for inner_name in names:
            holders.setdefault(inner_name, set()).add(name)
    return holders


def _removable(inner_names: Mapping[str, AbstractSet[str]]) -> frozenset[str]:
    """Returns the names that go if each name goes behind which none is left, again and again.

    Args:
        inner_names: the names behind each name.
    """
    left, holders = {name: {*names} for name, names in inner_names.items()}, _holders(inner_names)
    free_names = [name for name, names in left.items() if not names]
    removed: set[str] = set()
    while free_names:
        name = free_names.pop()
        removed.add(name)
        for holder in holders[name]:
            left[holder].discard(name)
            if not left[holder]:
                free_names.append(holder)
    return frozenset(removed)


def _is_empty(kind: AvroType, empty: frozenset[str]) -> bool:
    if isinstance(kind, NamedReference):
        return kind.name in empty
    return (
        isinstance(kind, AbsentType)
        or (isinstance(kind, PrimitiveType) and kind.name == "null")
        or (isinstance(kind, FixedType) and kind.size == 0)
    )


class _SchemaError(ValueError):
    """Mistake in a schema, with the path to it."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(f"{path}: {message}")


class _Parser:
    """Parses a schema and the schemas that it refers to; collects their records."""

    def __init__(self) -> None:
        self.records: dict[str, RecordType] = {}
        self._named: dict[str, AvroType] = {}

    def type(self, written: Any, space: str, path: str, depth: int) -> AvroType:
        """Parses a type.

        Args:
            written: the type's JSON.
            space: the namespace of names without a namespace.
            path: the path of the type, for errors.
            depth: the number of types around the type.
        """
        if depth > MOST_NESTED:
            raise _SchemaError(f"types are nested more than {MOST_NESTED} deep", path)
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
        raise _SchemaError("the type is missing", path)

    def _by_name(self, name: str, space: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return PrimitiveType(name)
        named_type = self._named.get(_full(name, space)) or self._named.get(name)
        if named_type is None:
            raise _SchemaError(f"no type {name!r} is defined before it is used", path)
        return named_type

    def _below(
        self, written: dict[str, Any], key: str, space: str, path: str, depth: int
    ) -> AvroType:
        if key not in written:
            raise _SchemaError(f"{key} is missing", path)
        return self.type(written[key], space, f"{path}.{key}", depth + 1)

    def _union(self, written: list[Any], space: str, path: str, depth: int) -> UnionType:
        branches = tuple(
            self.type(branch, space, f"{path}[{i}]", depth + 1) for i, branch in enumerate(written)
        )
        if not branches:
            raise _SchemaError("a union needs at least one type", path)
        if any(isinstance(branch, UnionType) for branch in branches):
            raise _SchemaError("a union can't contain a union", path)
        names = [
            branch.name if hasattr(branch, "name") else type(branch).__name__ for branch in branches
        ]
        repeated_names = [name for name, times in Counter(names).items() if times > 1]
        if repeated_names:
            raise _SchemaError(
                f"a union can't contain {repeated_names[0].removesuffix('Type').lower()} twice",
                path,
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
            definition: AvroType = FixedType(name, size, _logical(written, "fixed", size))
        elif kind == "enum":
            definition = EnumType(name, _symbols(written, path))
        else:
            definition = NamedReference(name)
        self._named[name] = definition
        if isinstance(definition, NamedReference):
            space = name.rpartition(".")[0]
            self.records[name] = RecordType(
                name, tuple(self._fields(written, space, path, depth)), _aliases(written, space)
            )
        return definition

    def _fields(
        self, written: dict[str, Any], space: str, path: str, depth: int
    ) -> list[tuple[str, AvroType]]:
        fields = written.get("fields")
        if not isinstance(fields, list):
            raise _SchemaError("a record needs a list of fields", path)
        parsed: dict[str, AvroType] = {}
        for i, field in enumerate(fields):
            if not isinstance(field, dict) or not _is_name(field.get("name")):
                raise _SchemaError("a field needs a name", f"{path}.fields[{i}]")
            name = field["name"]
            if name in parsed:
                raise _SchemaError(f"two fields are called {name}", path)
            parsed[name] = self._below(field, "type", space, f"{path}.{name}", depth + 1)
        return list(parsed.items())


def _is_name(name: object) -> bool:
    """Returns whether a value can be a name.

    The specification allows only ASCII letters, digits and `_`. Programs that write schemas
    also use other letters, `$` and `-`. Control characters are refused, because names are
    printed in errors. Brackets are refused, because `resolve.py` makes names with brackets.
    """
    return isinstance(name, str) and name != "" and name.isprintable() and "(" not in name


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _name(written: dict[str, Any], space: str, path: str) -> str:
    name, namespace = written.get("name"), written.get("namespace", space)
    if not isinstance(name, str) or not isinstance(namespace, str):
        raise _SchemaError("a record, an enum and a fixed need a name", path)
    full = _full(name, namespace)
    if not all(map(_is_name, full.split("."))) or full in PRIMITIVES:
        raise _SchemaError(f"{full!r} can't be a name", path)
    return full


def _aliases(written: dict[str, Any], space: str) -> tuple[str, ...]:
    """Returns the aliases of a record; ignores aliases that aren't a list of texts."""
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
        raise _SchemaError("an enum needs at least one symbol, and each symbol only once", path)
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
    BIG_DECIMAL: "bytes",
}
"""Avro type of each of these logical types."""


def _logical(written: dict[str, Any], kind: str, size: int | None) -> Logical | None:
    """Returns the logical type of a type.

    A logical type that is unknown, or that isn't allowed for the type, is ignored. The
    specification requires this.
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
        max_precision = math.floor((8 * size - 1) * math.log10(2)) if size else precision
        return Logical("decimal", precision, scale) if precision <= max_precision else None
    if (name == "uuid" and (kind == "string" or size == 16)) or (name == "duration" and size == 12):
        return Logical(str(name))
    return Logical(name) if isinstance(name, str) and _LOGICAL.get(name) == kind else None


def _of_connect(written: dict[str, Any], kind: str) -> Logical | None:
    """Returns the logical type that Kafka Connect or Debezium states as `connect.name`."""
    name = written.get("connect.name")
    if kind != "bytes" or name != CONNECT_DECIMAL:
        of_kind, logical = LOGICAL_TYPES.get(str(name), ("", None))
        return Logical(logical) if of_kind == kind and logical is not None else None
    parameters = written.get("connect.parameters")
    scale = str(parameters.get("scale")) if isinstance(parameters, dict) else ""
    return (
        Logical("decimal", _CONNECT_PRECISION, int(scale))
        if scale.isdecimal() and len(scale) < 4
        else None
    )
