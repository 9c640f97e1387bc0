"""Fields of messages that may become columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from itertools import count
from typing import Any

import pyarrow as pa

from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import TIMESTAMP, map_type
from windrow.ingest.schema.metadata_types import names_beyond_spark

LONGEST = 300
"""Most characters of a comment, and most values of an enum in a comment."""

DEEPEST = 20
"""Deepest nesting of records and lists in a column."""

MOST_DIGITS = 38
"""Most digits of a decimal column."""

MOST_TYPES = 5_000
"""Most types of one schema, counted at each use.

Types that use each other twice make millions of a page of text.
"""


@dataclass(frozen=True)
class TypeGuess:
    """The type of a field.

    `type`: None if no column can have it; `note`: a comment on the type, or the reason
    why there is none; `epoch`: as in `schema.columns.Column`; `omitted`: the paths of
    the fields inside that the type lacks, each with the reason; `lenient`: whether it
    takes its values only with `coerce: lenient`.
    """

    type: pa.DataType | None
    note: str = ""
    epoch: str | None = None
    omitted: tuple[tuple[str, str], ...] = ()
    lenient: bool = False


@dataclass(frozen=True)
class Candidate:
    """A field of messages.

    `doc`: its comment in a schema; `default`: in Python's notation, the value of
    messages whose schema lacks the field; empty if there is none.
    """

    name: str
    guess: TypeGuess
    nullable: bool
    doc: str = ""
    default: str = ""

    @property
    def usable(self) -> bool:
        """Returns whether it can be a column."""
        return self.guess.type is not None


@dataclass(frozen=True)
class Composite:
    """A type of a schema that is made of other types of it.

    `parts`: these, in the schema's terms; `make`: makes the column's type of theirs;
    `name`: the type's name, by which a type that holds itself is noticed; None: the type
    adds no level of nesting.
    """

    parts: Sequence[Any]
    make: Callable[[Sequence[TypeGuess]], TypeGuess]
    name: str | None = ""


class SchemaTypes:
    """The column types of a schema's types, whose number and depth are bounded.

    `opened`: returns the column's type of a plain type, and of any other type the types
    that it is made of.
    """

    def __init__(self, opened: Callable[[Any], TypeGuess | Composite]) -> None:
        self._opened, self._remaining_types = opened, MOST_TYPES

    def of(self, kind: Any, around: tuple[str, ...] = ()) -> TypeGuess:
        """The column's type of a type. `around`: the names of the types that it lies in."""
        self._remaining_types -= 1
        if len(around) > DEEPEST:
            return TypeGuess(None, f"it lies more than {DEEPEST} levels deep")
        if self._remaining_types < 0:
            reason = (
                f"the schema has more than {MOST_TYPES:,} types, counted wherever they are used"
            )
            return TypeGuess(None, reason)
        opened_type = self._opened(kind)
        if isinstance(opened_type, TypeGuess):
            return opened_type
        if opened_type.name and opened_type.name in around:
            return TypeGuess(None, f"{opened_type.name} holds itself")
        inner_names = around if opened_type.name is None else (*around, opened_type.name)
        return opened_type.make([self.of(part, inner_names) for part in opened_type.parts])


def record(fields: Iterable[tuple[str, Any]], name: str = "") -> Composite:
    """A type with fields of these names and types."""
    by_place = list(fields)
    names = [field for field, _ in by_place]
    return Composite(
        [kind for _, kind in by_place],
        lambda guesses: struct_of(zip(names, guesses, strict=True)),
        name,
    )


def array(items: Any) -> Composite:
    """A type with items of a type."""
    return Composite([items], lambda guesses: list_of(guesses[0]))


def mapping(values: Any) -> Composite:
    """A type with values of a type, by texts."""
    return Composite([values], lambda guesses: map_of(guesses[0]))


def struct_of(parts: Iterable[tuple[str, TypeGuess]]) -> TypeGuess:
    """A struct of those parts that can be in one."""
    guess_by_name, notes, name_by_lowercase = dict[str, TypeGuess](), list[str](), dict[str, str]()
    omitted = list[tuple[str, str]]()
    for name, guess in parts:
        reason = unusable_reason(name, name_by_lowercase)
        inner = TypeGuess(None, reason) if reason else nested(guess)
        omitted += [(f"{name}.{path}", reason) for path, reason in inner.omitted]
        if inner.type is None:
            omitted.append((name, inner.note))
        else:
            guess_by_name[name] = inner
            notes += [f"{name!a}: {inner.note}"] * bool(inner.note)
    if not guess_by_name:
        reasons = "; ".join(f"{path!a}: {reason}" for path, reason in omitted)
        return TypeGuess(None, reasons or "it has no fields")
    kind = pa.struct([(name, inner.type) for name, inner in guess_by_name.items()])
    lenient = any(inner.lenient for inner in guess_by_name.values())
    return TypeGuess(kind, "; ".join(notes), None, tuple(omitted), lenient)


def list_of(items: TypeGuess) -> TypeGuess:
    """A list of items of a type."""
    return _wrap_type(items, "items", pa.list_)


def map_of(values: TypeGuess) -> TypeGuess:
    """A map of texts to values of a type."""
    return _wrap_type(values, "values", lambda kind: pa.map_(pa.string(), kind))


def _wrap_type(
    part: TypeGuess, part_name: str, make: Callable[[pa.DataType], pa.DataType]
) -> TypeGuess:
    inner = nested(part)
    return (
        TypeGuess(None, f"of its {part_name} {inner.note}")
        if inner.type is None
        else replace(inner, type=make(inner.type))
    )


def unmatched_paths(kind: pa.DataType, value: Any, path: str = "") -> Iterator[str]:
    """The paths in a document for which a type has no place."""
    entries = kind if pa.types.is_map(kind) else map_type(kind)
    if isinstance(value, dict) and pa.types.is_struct(kind):
        for name, inner in value.items():
            field_index, inner_path = kind.get_field_index(name), f"{path}.{name}".removeprefix(".")
            if field_index >= 0:
                yield from unmatched_paths(kind.field(field_index).type, inner, inner_path)
            elif inner is not None:
                yield inner_path
    elif isinstance(value, dict) and entries is not None:
        for inner in value.values():
            yield from unmatched_paths(entries.item_type, inner, path)
    elif isinstance(value, list) and pa.types.is_list(kind):
        for item in value:
            yield from unmatched_paths(kind.value_type, item, path)
    elif pa.types.is_float64(kind) and not is_double(value):
        yield path


def is_double(value: Any) -> bool:
    """Returns whether a double keeps all digits of a number, which may be written in a text.

    True of NaN, and of what is no number.
    """
    try:
        literal = Decimal(value.decode() if type(value) is bytes else str(value))
    except InvalidOperation:
        return True
    digits = "".join(map(str, literal.as_tuple().digits)).strip("0")
    return (
        not literal.is_finite()
        or Decimal(f"{float(literal):.{max(len(digits), 1) - 1}e}") == literal
    )


_EXAMPLES = {
    pa.string(): "",
    pa.bool_(): True,
    TIMESTAMP: "2026-01-05T00:00:00Z",
    pa.date32(): "2026-01-05",
}


def example(kind: pa.DataType) -> Any:
    """A JSON document that has everything of a type."""
    if pa.types.is_struct(kind):
        return {part.name: example(part.type) for part in kind}
    if pa.types.is_map(kind):
        return {"": example(kind.item_type)}
    return [example(kind.value_type)] if pa.types.is_list(kind) else _EXAMPLES.get(kind, 0)


def struct_type(candidates: Iterable[Candidate]) -> pa.DataType:
    """The type of the usable candidates together."""
    return pa.struct(
        [(candidate.name, candidate.guess.type) for candidate in candidates if candidate.usable]
    )


def omitted_fields(candidates: Iterable[Candidate]) -> dict[str, str]:
    """The paths of the fields that are in no column, each with the reason."""
    return {
        path: reason
        for candidate in candidates
        for path, reason in (
            *((f"{candidate.name}.{path}", reason) for path, reason in candidate.guess.omitted),
            *(() if candidate.usable else ((candidate.name, candidate.guess.note),)),
        )
    }


def free_name(name: str, candidates: Iterable[Candidate]) -> str:
    """The name, or one like it, that no candidate has."""
    taken_names = {candidate.name.casefold() for candidate in candidates}
    return next(
        proposed_name for n in count() if (proposed_name := name + "_" * n) not in taken_names
    )


def add_passed_over(
    candidates: Sequence[Candidate], documents: Iterable[Any], reason: str
) -> list[Candidate]:
    """Adds what the documents have and no candidate has, as left out."""
    kind, reason_by_path = struct_type(candidates), omitted_fields(candidates)
    paths = dict.fromkeys(
        path for document in documents for path in unmatched_paths(kind, document)
    )
    passed_over_candidates = [
        Candidate(path, TypeGuess(None, reason), True)
        for path in paths
        if path not in reason_by_path
    ]
    return [*candidates, *passed_over_candidates]


def decimal_of(digits: int, scale: int) -> pa.DataType | None:
    """The decimal type; None if no column has so many digits."""
    fits = 1 <= digits <= MOST_DIGITS and 0 <= scale <= digits
    return pa.decimal128(digits, scale) if fits else None


OWN_SCALE = TypeGuess(
    None,
    "a decimal whose scale is in each message: use Decimal(38, N) with the scale that you want",
)


def nested(guess: TypeGuess) -> TypeGuess:
    """A type as a part of another type, where a map is a list of its entries.

    Without the unit of its timestamps, which only a column can state.
    """
    kind = guess.type
    if kind is not None and pa.types.is_map(kind):
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", kind.item_type)]))
    return replace(guess, type=kind, epoch=None)


def unusable_reason(name: str, name_by_lowercase: dict[str, str]) -> str:
    """Says why a field of this name can't be a column beside others; empty if it can.

    `name_by_lowercase`: the columns' names, by their names in lower case; the name is added to
    them.
    """
    if not name or not name.isprintable():
        return "a column's name can't be empty, nor hold control characters"
    if name.startswith("^") and name.endswith("$"):
        return "pandera takes a name that begins with ^ and ends with $ for a pattern of names"
    existing_name = name_by_lowercase.setdefault(name.casefold(), "")
    if not existing_name:
        name_by_lowercase[name.casefold()] = name
        return ""
    return (
        "another field has this name"
        if existing_name == name
        else f"differs from {existing_name!a} by case only, and tables don't tell them apart"
    )


Refuses = Callable[["Candidate"], str]
"""Says why a field can't be a column of the table; empty if it can."""


def table_refusal(metadata: Mapping[str, str], *, delta: bool) -> Refuses:
    """Refuses names that the table can't have.

    `metadata`: the table's metadata columns; `delta`: whether it is a Delta table,
    where Spark takes fewer names.
    """
    reserved_names = {column.casefold() for column in metadata.values()}

    def refusal(candidate: Candidate) -> str:
        if candidate.name.casefold() in reserved_names:
            return "a metadata column of windrow has this name: rename that one under `metadata`"
        kind = candidate.guess.type or pa.null()
        refused_names = [*names_beyond_spark([pa.field(candidate.name, kind)])] if delta else []
        return (
            f"Spark can't read a Delta table with the name {refused_names[0]!a}: it holds a"
            " blank, or one"
            " of ,;{}()="
            if refused_names
            else ""
        )

    return refusal


def column_refusal(columns: Columns, refusal: Refuses) -> Refuses:
    """Refuses what `refusal` does, and the names of existing columns."""
    name_by_lowercase = {column.name.casefold(): column.name for column in columns.columns}
    return lambda candidate: (
        unusable_reason(candidate.name, dict(name_by_lowercase)) or refusal(candidate)
    )


def over_versions(
    newest: Sequence[Candidate], older: Sequence[Sequence[Candidate]]
) -> list[Candidate]:
    """The newest schema's fields, with nulls by all versions.

    A field that an older schema allows to be null, or lacks although it has no default, is
    nullable. What only older ones have is left out.
    """
    versions = [{candidate.name: candidate.nullable for candidate in version} for version in older]
    nullable = [
        replace(
            candidate,
            nullable=candidate.nullable
            or any(
                nullable_by_name.get(candidate.name, not candidate.default)
                for nullable_by_name in versions
            ),
            default=candidate.default
            if any(candidate.name not in nullable_by_name for nullable_by_name in versions)
            else "",
        )
        for candidate in newest
    ]
    return add_passed_over(
        nullable,
        (example(struct_type(version)) for version in older),
        "only older versions of the schema have it",
    )


def refuse_unusable(candidates: Iterable[Candidate], refusal: Refuses) -> list[Candidate]:
    """Replaces the type of candidates that can't be a column with the reason."""
    name_by_lowercase, new_candidates = dict[str, str](), []
    for candidate in candidates:
        reason = unusable_reason(candidate.name, name_by_lowercase) or (
            refusal(candidate) if candidate.usable else ""
        )
        new_candidates.append(
            replace(candidate, guess=TypeGuess(None, reason)) if reason else candidate
        )
    return new_candidates
