"""Fields of messages that may become columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.metadata_fields import names_beyond_spark

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
    why there is none; `epoch`: as in `schema.columns.Column`.
    """

    type: pa.DataType | None
    note: str = ""
    epoch: str | None = None


@dataclass(frozen=True)
class Candidate:
    """A field of messages. `doc`: its comment in a schema."""

    name: str
    guess: TypeGuess
    nullable: bool
    doc: str = ""

    @property
    def usable(self) -> bool:
        """Returns whether it can be a column."""
        return self.guess.type is not None


class TypeBudget:
    """Bounds the types of one schema that are read, and their depth."""

    def __init__(self) -> None:
        self._left = MOST_TYPES

    def refusal(self, depth: int) -> TypeGuess | None:
        """Counts one more type; returns the reason if it is not read, else None."""
        self._left -= 1
        if depth > DEEPEST:
            return TypeGuess(None, f"it lies more than {DEEPEST} levels deep")
        return (
            TypeGuess(
                None,
                f"the schema has more than {MOST_TYPES:,} types, counted wherever they are used",
            )
            if self._left < 0
            else None
        )


def struct_of(parts: Iterable[tuple[str, TypeGuess]]) -> TypeGuess:
    """A struct of those parts that can be in one."""
    kept, notes, seen = [], [], dict[str, str]()
    for name, guess in parts:
        why = unusable(name, seen)
        inner = TypeGuess(None, why) if why else nested(guess)
        if inner.note:
            notes.append(f"{name!a}: {inner.note}")
        if inner.type is not None:
            kept.append(pa.field(name, inner.type))
    if not kept:
        return TypeGuess(None, "; ".join(notes) or "it has no fields")
    return TypeGuess(pa.struct(kept), "; ".join(notes))


def list_of(items: TypeGuess) -> TypeGuess:
    """A list of items of a type."""
    inner = nested(items)
    return (
        TypeGuess(None, f"of its items {inner.note}")
        if inner.type is None
        else TypeGuess(pa.list_(inner.type), inner.note)
    )


def map_of(values: TypeGuess) -> TypeGuess:
    """A map of texts to values of a type."""
    inner = nested(values)
    return (
        TypeGuess(None, f"of its values {inner.note}")
        if inner.type is None
        else TypeGuess(pa.map_(pa.string(), inner.type), inner.note)
    )


def decimal_of(digits: int, scale: int) -> pa.DataType | None:
    """The decimal type; None if no column has so many digits."""
    fits = 1 <= digits <= MOST_DIGITS and 0 <= scale <= digits
    return pa.decimal128(digits, scale) if fits else None


OWN_SCALE = TypeGuess(
    None,
    "a decimal whose scale is in each message: use Decimal(38, N) with the scale that you want",
)


def nested(guess: TypeGuess) -> TypeGuess:
    """A type as a part of another type, which can't have the metadata `map` or `epoch`."""
    if guess.type is not None and pa.types.is_map(guess.type):
        return TypeGuess(None, "a map can only be a column of its own")
    return (
        TypeGuess(pa.int64(), f"whole {guess.epoch} since 1970")
        if guess.epoch is not None
        else guess
    )


def unusable(name: str, seen: dict[str, str]) -> str:
    """Says why a field of this name can't be a column, too; empty if it can.

    `seen`: the columns' names, by their names in lower case; the name is added to them.
    """
    if not name or not name.isprintable():
        return "a column's name can't be empty, nor hold control characters"
    if name.startswith("^") and name.endswith("$"):
        return "pandera takes a name that begins with ^ and ends with $ for a pattern of names"
    other = seen.setdefault(name.casefold(), "")
    if not other:
        seen[name.casefold()] = name
        return ""
    return (
        "another field has this name"
        if other == name
        else f"differs from {other!a} by case only, and tables don't tell them apart"
    )


Refuses = Callable[["Candidate"], str]
"""Says why a field can't be a column of the table; empty if it can."""


def table_refusal(metadata: Mapping[str, str], *, delta: bool) -> Refuses:
    """Refuses names that the table can't have.

    `metadata`: the table's metadata columns; `delta`: whether it is a Delta table,
    where Spark takes fewer names.
    """
    taken = {column.casefold() for column in metadata.values()}

    def refusal(candidate: Candidate) -> str:
        if candidate.name.casefold() in taken:
            return "a metadata column of windrow has this name: rename that one under `metadata`"
        beyond = (
            list(names_beyond_spark([pa.field(candidate.name, candidate.guess.type or pa.null())]))
            if delta
            else []
        )
        return (
            f"Spark can't read a Delta table with the name {beyond[0]!a}: it holds a blank, or one"
            " of ,;{}()="
            if beyond
            else ""
        )

    return refusal


def column_refusal(columns: Columns, refusal: Refuses) -> Refuses:
    """Refuses what `refusal` does, and the names of existing columns."""
    seen = {column.name.casefold(): column.name for column in columns.columns}
    return lambda candidate: unusable(candidate.name, dict(seen)) or refusal(candidate)


def over_versions(
    newest: Sequence[Candidate], older: Sequence[Sequence[Candidate]]
) -> list[Candidate]:
    """The newest schema's fields, with nulls by all versions.

    A field that an older schema lacks, or allows to be null, is nullable.
    """
    certain = [
        {candidate.name for candidate in version if not candidate.nullable} for version in older
    ]
    return [
        replace(
            candidate,
            nullable=candidate.nullable or any(candidate.name not in names for names in certain),
        )
        for candidate in newest
    ]


def refuse_unusable(candidates: Iterable[Candidate], refusal: Refuses) -> list[Candidate]:
    """Replaces the type of candidates that can't be a column with the reason."""
    seen = dict[str, str]()
    return [
        (
            replace(candidate, guess=TypeGuess(None, why))
            if (
                why := unusable(candidate.name, seen)
                or (refusal(candidate) if candidate.usable else "")
            )
            else candidate
        )
        for candidate in candidates
    ]
