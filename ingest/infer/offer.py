"""A field of messages that may become a column, whatever told of it; and the schema's
text that says so.

Pure.

What can't be a column is left out, with a comment that says why: decoders pass over
fields that the schema doesn't name.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import TIMESTAMP
from windrow.ingest.schema.metadata import names_beyond_spark

LONGEST = 300
"""Characters of a comment."""

DEEPEST = 20
"""So many records and lists in one another still make a column."""

MOST_TYPES = 5_000
"""Of one schema so many types are looked at: a type that others use twice each is in a
page of text millions of times.
"""

_SCALARS: Mapping[pa.DataType, str] = {
    pa.bool_(): "pl.Boolean",
    pa.int8(): "pl.Int8",
    pa.int16(): "pl.Int16",
    pa.int32(): "pl.Int32",
    pa.int64(): "pl.Int64",
    pa.float32(): "pl.Float32",
    pa.float64(): "pl.Float64",
    pa.string(): "pl.String",
    pa.binary(): "pl.Binary",
    pa.date32(): "pl.Date",
    TIMESTAMP: 'pl.Datetime("us", "UTC")',
}


@dataclass(frozen=True)
class Guess:
    """A type; or None, and why there is none.

    `note`: what a reader should know of it. `epoch`: as of `schema.columns.Column`.
    """

    type: pa.DataType | None
    note: str = ""
    epoch: str | None = None


@dataclass(frozen=True)
class Offer:
    """A field by the name that it has in messages. `doc`: what its own schema says of it."""

    name: str
    guess: Guess
    nullable: bool
    doc: str = ""

    @property
    def usable(self) -> bool:
        """Whether it has a type."""
        return self.guess.type is not None


class Room:
    """How many types of one schema are still looked at."""

    def __init__(self) -> None:
        self._left = MOST_TYPES

    def refusal(self, depth: int) -> Guess | None:
        """Why one more type isn't looked at, so deep in others; None if it is."""
        self._left -= 1
        if depth > DEEPEST:
            return Guess(None, f"it lies more than {DEEPEST} levels deep")
        return (
            Guess(
                None,
                f"the schema has more than {MOST_TYPES:,} types, counted wherever they are used",
            )
            if self._left < 0
            else None
        )


def struct_of(parts: Iterable[tuple[str, Guess]]) -> Guess:
    """A struct of those parts that can be in one."""
    kept, notes, seen = [], [], dict[str, str]()
    for name, guess in parts:
        why = unusable(name, seen)
        inner = Guess(None, why) if why else nested(guess)
        if inner.note:
            notes.append(f"{name!a}: {inner.note}")
        if inner.type is not None:
            kept.append(pa.field(name, inner.type))
    if not kept:
        return Guess(None, "; ".join(notes) or "it has no fields")
    return Guess(pa.struct(kept), "; ".join(notes))


def list_of(items: Guess) -> Guess:
    """A list of such items."""
    inner = nested(items)
    return (
        Guess(None, f"of its items {inner.note}")
        if inner.type is None
        else Guess(pa.list_(inner.type), inner.note)
    )


def map_of(values: Guess) -> Guess:
    """A map of texts to such values."""
    inner = nested(values)
    return (
        Guess(None, f"of its values {inner.note}")
        if inner.type is None
        else Guess(pa.map_(pa.string(), inner.type), inner.note)
    )


def nested(guess: Guess) -> Guess:
    """A type as it can be inside another one: there nothing can say `map` or `epoch`."""
    if guess.type is not None and pa.types.is_map(guess.type):
        return Guess(None, "a map can only be a column of its own")
    return (
        Guess(pa.int64(), f"whole {guess.epoch} since 1970") if guess.epoch is not None else guess
    )


def unusable(name: str, seen: dict[str, str]) -> str:
    """Why a field of this name can't stand beside those that were seen; empty if it can."""
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


Refusal = Callable[["Offer"], str]
"""Why a field can't be a column of the table; empty if it can."""


def unfit_for_table(metadata: Mapping[str, str], *, delta: bool) -> Refusal:
    """By its name alone.

    `metadata`: the columns that windrow adds; `delta`: whether it is a Delta table,
    where Spark takes fewer names.
    """
    taken = {column.casefold() for column in metadata.values()}

    def refusal(offer: Offer) -> str:
        if offer.name.casefold() in taken:
            return (
                "one of windrow's own columns has this name: give that another one under `metadata`"
            )
        beyond = (
            list(names_beyond_spark([pa.field(offer.name, offer.guess.type or pa.null())]))
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


def unusable_beside(columns: Columns, refusal: Refusal) -> Refusal:
    """The same beside the columns that there are."""
    seen = {column.name.casefold(): column.name for column in columns.columns}
    return lambda offer: unusable(offer.name, dict(seen)) or refusal(offer)


def over_versions(newest: Sequence[Offer], older: Sequence[Sequence[Offer]]) -> list[Offer]:
    """The newest schema's fields; what isn't in each of the older ones, or may be null
    there, may be null.
    """
    certain = [{offer.name for offer in version if not offer.nullable} for version in older]
    return [
        replace(offer, nullable=offer.nullable or any(offer.name not in names for names in certain))
        for offer in newest
    ]


# --------------------------------------------------------------------------------------------------


def type_text(kind: pa.DataType) -> str:
    """A type as a schema's file has it: what `schema.dtypes.arrow_type` makes it of."""
    if pa.types.is_decimal(kind):
        return f"pl.Decimal({kind.precision}, {kind.scale})"
    if pa.types.is_struct(kind):
        return f"pl.Struct({{{', '.join(f'{_quoted(part.name)}: {type_text(part.type)}' for part in kind)}}})"  # noqa: E501
    if pa.types.is_map(kind):
        return f'pl.List(pl.Struct({{"key": pl.String, "value": {type_text(kind.item_type)}}}))'
    return f"pl.List({type_text(kind.value_type)})" if pa.types.is_list(kind) else _SCALARS[kind]


def metadata_text(guess: Guess) -> str:
    """The metadata that a field of this type needs in a schema; empty if it needs none."""
    if guess.type is not None and pa.types.is_map(guess.type):
        return '{"map": True}'
    return f'{{"epoch": "{guess.epoch}"}}' if guess.epoch else ""


@dataclass
class _Names:
    """Python's names for fields, each once."""

    reserved: frozenset[str]
    taken: set[str] = field(default_factory=set)

    def of(self, name: str) -> str:
        plain = (
            name.isascii()
            and name.isidentifier()
            and not keyword.iskeyword(name)
            and not name.startswith("_")
        )
        found = (
            name
            if plain and name not in self.reserved
            else "field_" + re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")
        )
        base, n = found, 1
        while found in self.taken or found in self.reserved:
            n += 1
            found = f"{base}_{n}"
        self.taken.add(found)
        return found


def usable_only(offers: Iterable[Offer], refusal: Refusal) -> list[Offer]:
    """The same; those that can't stand beside the others, or in the table at all, have
    no type, and say why.
    """
    seen = dict[str, str]()
    return [
        (
            replace(offer, guess=Guess(None, why))
            if (why := unusable(offer.name, seen) or (refusal(offer) if offer.usable else ""))
            else offer
        )
        for offer in offers
    ]


def class_lines(offers: Iterable[Offer], reserved: frozenset[str]) -> tuple[str, ...]:
    """The lines of the class, one for each field.

    `reserved`: names that a field of the class can't have.
    """
    names = _Names(reserved)
    return tuple(
        (
            f"# left out: {offer.name!a}: {_comment(offer.guess.note, offer.doc)}"
            if offer.guess.type is None
            else _line(names.of(offer.name), offer, offer.guess.type)
        )
        for offer in offers
    )


def _line(name: str, offer: Offer, kind: pa.DataType) -> str:
    metadata = metadata_text(offer.guess)
    said = [
        *([] if name == offer.name else [f"alias={_quoted(offer.name)}"]),
        *(["nullable=True"] if offer.nullable else []),
        *([f"metadata={metadata}"] if metadata else []),
    ]
    line = f"{name}: {type_text(kind)}" + (f" = pa.Field({', '.join(said)})" if said else "")
    comment = _comment(offer.guess.note, offer.doc)
    return f"{line}  # {comment}" if comment else line


def _comment(*parts: str) -> str:
    """On one line, whatever was said: what stands in a schema is other people's text."""
    text = " ".join(
        "".join(c if c.isprintable() else " " for c in "; ".join(filter(None, parts))).split()
    )
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def _quoted(name: str) -> str:
    """A printable name as the formatter would write it."""
    return json.dumps(name, ensure_ascii=False)


def schema_text(name: str, head: str, lines: Sequence[str]) -> str:
    """The schema's file: a class with these lines. `head`: of what, and from where."""
    return "\n".join(
        [*_head(head), f"class {name}(pa.DataFrameModel):", *(f"    {line}" for line in lines), ""]
    )


EXAMPLE = (
    "id: pl.Int64 = pa.Field(ge=1)  # a rule: messages that break it are dead letters",
    'at: pl.Datetime("us", "UTC")  # RFC 3339 text, such as 2026-01-01T00:00:00Z',
    "amount: pl.Decimal(12, 2) = pa.Field(nullable=True)  # may be null or missing",
)


def _head(head: str) -> Iterator[str]:
    yield from (
        f'"""{head}.',
        "",
        (
            "A message whose values are not exactly of these types is kept as a dead letter, with"
            " the reason (windrow dead show SPEC)."
        ),
        (
            "A column may get rules (pa.Field(ge=0)) and be nullable; money keeps each digit as"
            " pl.Decimal(12, 2). Before the first run"
        ),
        (
            "anything may be changed here; later nullable columns may be added, and sink.evolve"
            ' says what else."""'
        ),
        "",
        "import pandera.polars as pa",
        "import polars as pl",
        "",
        "",
    )
