"""Fields of messages that may become columns, and guesses of their types."""

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
"""Limit of the characters of a comment, and of the values of an enum in a comment."""

DEEPEST = 20
"""Deepest nesting of records and lists in a column."""

MOST_DIGITS = 38
"""Largest number of digits of a decimal column."""

MOST_TYPES = 5_000
"""Limit of the types of a schema, counted at each use.

If each type uses the next type twice, a schema of one page has millions of uses.
"""


@dataclass(frozen=True)
class TypeGuess:
    """Guess of a field's column type.

    Attributes:
        type: the type; None if the field can't be a column.
        note: a comment on the type, or the reason why there is no type.
        epoch: the unit of timestamps that are numbers.
        omitted: pairs of the path of an inner field that the type lacks, and the reason.
        lenient: whether the type takes the field's values only with `coerce: lenient`.
    """

    type: pa.DataType | None
    note: str = ""
    epoch: str | None = None
    omitted: tuple[tuple[str, str], ...] = ()
    lenient: bool = False


@dataclass(frozen=True)
class Candidate:
    """Field of messages that may become a column.

    Attributes:
        name: the name.
        guess: the guess of its type.
        nullable: whether it may be null.
        doc: its comment in a schema.
        default: its value in messages whose schema lacks it, in Python's notation; "" if
            there is no default.
    """

    name: str
    guess: TypeGuess
    nullable: bool
    doc: str = ""
    default: str = ""

    @property
    def usable(self) -> bool:
        """Whether the field can be a column."""
        return self.guess.type is not None


@dataclass(frozen=True)
class Composite:
    """Type of a schema that consists of other types.

    Attributes:
        parts: the other types, in the schema's representation.
        make: makes the guess for this type from the guesses for its parts.
        name: the type's name, by which a type inside itself is found; "" if it has no name.
            None if the type adds no level of nesting.
    """

    parts: Sequence[Any]
    make: Callable[[Sequence[TypeGuess]], TypeGuess]
    name: str | None = ""


class SchemaTypes:
    """Column types for a schema's types. The number and the depth of types are bounded."""

    def __init__(self, opened: Callable[[Any], TypeGuess | Composite]) -> None:
        """Counts no type yet.

        Args:
            opened: returns the guess for a plain type, and a `Composite` for any other type.
        """
        self._opened, self._remaining_types = opened, MOST_TYPES

    def of(self, kind: Any, around: tuple[str, ...] = ()) -> TypeGuess:
        """Returns the guess for a type.

        Args:
            kind: the type, in the schema's representation.
            around: the names of the types that it is nested in.
        """
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
    """Returns the composite of a type with fields.

    Args:
        fields: pairs of a field's name and type.
        name: the type's name.
    """
    by_place = list(fields)
    names = [field for field, _ in by_place]
    return Composite(
        [kind for _, kind in by_place],
        lambda guesses: struct_of(zip(names, guesses, strict=True)),
        name,
    )


def array(items: Any) -> Composite:
    """Returns the composite of a type with items of one type."""
    return Composite([items], lambda guesses: list_of(guesses[0]))


def mapping(values: Any) -> Composite:
    """Returns the composite of a map from texts to values of one type."""
    return Composite([values], lambda guesses: map_of(guesses[0]))


def struct_of(parts: Iterable[tuple[str, TypeGuess]]) -> TypeGuess:
    """Returns a struct of the parts that can be fields of a struct; omits the others."""
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
    """Returns a list of items of a type."""
    return _wrap_type(items, "items", pa.list_)


def map_of(values: TypeGuess) -> TypeGuess:
    """Returns a map from texts to values of a type."""
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
    """Yields the paths of values in a document that a type doesn't keep.

    Args:
        kind: the type.
        value: the document, or a value inside it.
        path: the path of the value.
    """
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
    """Returns whether a double keeps all digits of a number, or of a number in a text.

    Returns True for NaN, and for a value that isn't a number.
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
    """Returns a JSON document with a value for each part of a type."""
    if pa.types.is_struct(kind):
        return {part.name: example(part.type) for part in kind}
    if pa.types.is_map(kind):
        return {"": example(kind.item_type)}
    return [example(kind.value_type)] if pa.types.is_list(kind) else _EXAMPLES.get(kind, 0)


def struct_type(candidates: Iterable[Candidate]) -> pa.DataType:
    """Returns the struct type of all usable candidates."""
    return pa.struct(
        [(candidate.name, candidate.guess.type) for candidate in candidates if candidate.usable]
    )


def omitted_fields(candidates: Iterable[Candidate]) -> dict[str, str]:
    """Returns why fields are in no column, by the fields' paths."""
    return {
        path: reason
        for candidate in candidates
        for path, reason in (
            *((f"{candidate.name}.{path}", reason) for path, reason in candidate.guess.omitted),
            *(() if candidate.usable else ((candidate.name, candidate.guess.note),)),
        )
    }


def free_name(name: str, candidates: Iterable[Candidate]) -> str:
    """Returns the name, with as many underscores as are needed to be free."""
    taken_names = {candidate.name.casefold() for candidate in candidates}
    return next(
        proposed_name for n in count() if (proposed_name := name + "_" * n) not in taken_names
    )


def add_passed_over(
    candidates: Sequence[Candidate], documents: Iterable[Any], reason: str
) -> list[Candidate]:
    """Adds the fields that documents have and candidates lack, as fields without a column.

    Args:
        candidates: the candidates.
        documents: the documents.
        reason: the reason why the added fields are no columns.
    """
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
    """Returns the decimal type; None if no column has so many digits."""
    fits = 1 <= digits <= MOST_DIGITS and 0 <= scale <= digits
    return pa.decimal128(digits, scale) if fits else None


OWN_SCALE = TypeGuess(
    None,
    "a decimal whose scale is in each message: use Decimal(38, N) with the scale that you want",
)


def nested(guess: TypeGuess) -> TypeGuess:
    """Returns a type as a part of another type.

    A map becomes a list of its entries. The unit of timestamps is dropped, because only a
    column can have it.
    """
    kind = guess.type
    if kind is not None and pa.types.is_map(kind):
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", kind.item_type)]))
    return replace(guess, type=kind, epoch=None)


def unusable_reason(name: str, name_by_lowercase: dict[str, str]) -> str:
    """Says why a field of this name can't be a column; returns "" if it can.

    Args:
        name: the field's name.
        name_by_lowercase: the names of the columns so far, by their lower-case names. The
            name is added to them.
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
"""Returns why a field can't be a column of the table; "" if it can."""


def table_refusal(metadata: Mapping[str, str], *, delta: bool) -> Refuses:
    """Returns a function that refuses names which the table can't have.

    Args:
        metadata: the table's metadata columns.
        delta: whether it is a Delta table, for which Spark allows fewer names.
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
    """Returns a function that refuses the same as `refusal`, and names of existing columns."""
    name_by_lowercase = {column.name.casefold(): column.name for column in columns.columns}
    return lambda candidate: (
        unusable_reason(candidate.name, dict(name_by_lowercase)) or refusal(candidate)
    )


def over_versions(
    newest: Sequence[Candidate], older: Sequence[Sequence[Candidate]]
) -> list[Candidate]:
    """Returns the newest schema's fields, made nullable by all versions.

    A field is nullable if any version allows null, or if an older version lacks the field
    and the field has no default. Fields that only older versions have become no columns.

    Args:
        newest: the fields of the newest version.
        older: the fields of each older version.
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
    """Removes the type of each candidate that can't be a column, and notes the reason."""
    name_by_lowercase, new_candidates = dict[str, str](), []
    for candidate in candidates:
        reason = unusable_reason(candidate.name, name_by_lowercase) or (
            refusal(candidate) if candidate.usable else ""
        )
        new_candidates.append(
            replace(candidate, guess=TypeGuess(None, reason)) if reason else candidate
        )
    return new_candidates
