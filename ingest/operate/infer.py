"""What columns a topic's messages seem to have: a schema's text from a sample of documents. Pure.

A value's type is the first of `_SCALARS` whose strict conversion takes every sampled value, so what is guessed is what the decoder will
take. What no one type takes is left out, with a comment that says why: the decoder ignores fields that the schema doesn't name.
"""

from __future__ import annotations

import json
import keyword
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ingest.decode.json.values import Convert, converter, integer
from ingest.decode.shared.refusal import RefusedValueError

COMMON = 0.98
"""From `MANY` values on, a type that so large a share of them has is the column's; messages with another are refused."""

MANY = 100

MOST_FIELDS = 200
"""An object with more different keys has data for keys."""

DEEPEST = 20
"""So many objects and arrays in one another still make a column."""

LONGEST = 300
"""Characters of a comment."""

_SCALARS: tuple[tuple[str, Convert], ...] = (
    ("pl.Boolean", converter(pa.bool_())),
    ("pl.Int64", converter(pa.int64())),
    ("pl.Float64", converter(pa.float64())),
    ('pl.Datetime("us", "UTC")', converter(pa.timestamp("us", tz="UTC"))),
    ("pl.Date", converter(pa.date32())),
    ("pl.String", converter(pa.string())),
    ("pl.Decimal(38, 0)", converter(pa.decimal128(38, 0))),
    ("pl.Decimal(38, 9)", converter(pa.decimal128(38, 9))),
)


@dataclass(frozen=True)
class Guess:
    """A type as it is written; or None, and why there is none. `note`: what a reader should know of it."""

    type: str | None
    note: str = ""


@dataclass(frozen=True)
class Guessed:
    """What a topic seems to hold. `columns`: lines of the class, comments among them; `named`: how many are columns."""

    documents: int
    columns: tuple[str, ...] = ()
    named: int = 0


@dataclass
class _Names:
    """Python's names for fields, each once."""

    reserved: frozenset[str]
    taken: set[str] = field(default_factory=set)

    def of(self, name: str) -> str:
        plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
        found = name if plain and name not in self.reserved else "field_" + re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")
        base, n = found, 1
        while found in self.taken or found in self.reserved:
            n += 1
            found = f"{base}_{n}"
        self.taken.add(found)
        return found


def document(value: bytes) -> dict[str, Any] | None:
    """A message as a JSON object, its numbers as literals; None if it is none."""
    try:
        found = json.loads(value.decode(), parse_int=integer, parse_float=str.encode, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _no_constant(_: str) -> None:
    raise ValueError


def guess_columns(documents: Sequence[Mapping[str, Any]], reserved: frozenset[str], clashes: Callable[[str], bool]) -> Guessed:
    """The columns of some documents.

    Args:
        documents: as `document` gives them.
        reserved: names that a field of the class can't have.
        clashes: whether a column of this name can't stand beside those that windrow adds.
    """
    names, lines, named, seen = _Names(reserved), [], 0, dict[str, str]()
    values: dict[str, list[Any]] = {}
    for one in documents:
        for key, value in one.items():
            values.setdefault(key, []).append(value)
    for key, found in values.items():
        why = _unusable(key, seen) or ("one of windrow's own columns has this name: see `metadata`" if clashes(key) else "")
        guess = Guess(None, why) if why else guess_type(found)
        if guess.type is None:
            lines.append(f"# left out: {key!a}: {_short(guess.note)}")
            continue
        nullable = len(found) < len(documents) or None in found
        lines.append(_line(names.of(key), key, guess, nullable=nullable))
        named += 1
    return Guessed(len(documents), tuple(lines), named)


def _line(name: str, key: str, guess: Guess, *, nullable: bool) -> str:
    said = [*([] if name == key else [f"alias={_quoted(key)}"]), *(["nullable=True"] if nullable else [])]
    line = f"{name}: {guess.type}" + (f" = pa.Field({', '.join(said)})" if said else "")
    return f"{line}  # {_short(guess.note)}" if guess.note else line


def _quoted(name: str) -> str:
    """A printable name as the formatter would write it."""
    return json.dumps(name, ensure_ascii=False)


def _short(note: str) -> str:
    return note if len(note) <= LONGEST else f"{note[:LONGEST]} ..."


def _unusable(key: str, seen: dict[str, str]) -> str:
    """Why a field of this name can't be a column beside those that were seen; empty if it can."""
    if not key or not key.isprintable():
        return "a column's name holds neither nothing nor control characters"
    other = seen.setdefault(key.casefold(), key)
    return "" if other == key else f"differs from {other!r} by case only, and tables don't tell them apart"


def guess_type(values: Sequence[Any], depth: int = 0) -> Guess:
    """The type of a place in documents, from what stood there; `depth`: how many objects and arrays it lies in."""
    present = [v for v in values if v is not None]
    if not present:
        return Guess("pl.String", "only null was seen: say what it will be")
    shapes = Counter(map(_shape, present))
    shape, count = shapes.most_common(1)[0]
    if not _enough(count, len(present)):
        return Guess(None, f"no type takes both {' and '.join(sorted(shapes))}")
    if depth >= DEEPEST:
        return Guess(None, f"it lies more than {DEEPEST} levels deep")
    mine = [v for v in present if _shape(v) == shape]
    guess = _struct(mine, depth + 1) if shape == "objects" else _list(mine, depth + 1) if shape == "arrays" else _scalar(mine)
    return guess if count == len(present) else _rare(guess, len(present) - count, len(present))


def _shape(value: object) -> str:
    return "objects" if isinstance(value, dict) else "arrays" if isinstance(value, list) else "plain values"


def _enough(mine: int, every: int) -> bool:
    return mine == every or (every >= MANY and mine >= COMMON * every)


def _rare(guess: Guess, others: int, every: int) -> Guess:
    note = f"{others} of {every} sampled values are of another type, and refused"
    return guess if guess.type is None else Guess(guess.type, "; ".join(filter(None, [guess.note, note])))


def _scalar(values: Sequence[Any]) -> Guess:
    best, most = "", 0
    for name, convert in _SCALARS:
        fitting = sum(_takes(convert, v) for v in values)
        if fitting == len(values):
            return Guess(name)
        if fitting > most:
            best, most = name, fitting
    if _enough(most, len(values)):
        return _rare(Guess(best), len(values) - most, len(values))
    return Guess(None, "no type takes all of its values")


def _takes(convert: Convert, value: Any) -> bool:
    try:
        convert(value, "$")
    except RefusedValueError:
        return False
    return True


def _list(values: Sequence[Sequence[Any]], depth: int) -> Guess:
    items = [item for value in values for item in value]
    inner = guess_type(items, depth)
    if inner.type is None:
        return Guess(None, f"of its items {inner.note}")
    note = inner.note if items else "only empty lists were seen: say what they will hold"
    return Guess(f"pl.List({inner.type})", note)


def _struct(values: Sequence[Mapping[str, Any]], depth: int) -> Guess:
    fields: dict[str, list[Any]] = {}
    for value in values:
        for key, inner in value.items():
            fields.setdefault(key, []).append(inner)
    if len(fields) > MOST_FIELDS:
        return Guess(None, f"its {len(fields)} different keys look like data: see metadata map in ingest/schema/columns.py")
    written, notes, seen = [], [], dict[str, str]()
    for key, found in fields.items():
        why = _unusable(key, seen)
        guess = Guess(None, why) if why else guess_type(found, depth)
        if guess.note:
            notes.append(f"{key!a}: {guess.note}")
        if guess.type is not None:
            written.append(f"{_quoted(key)}: {guess.type}")
    if not written:
        return Guess(None, "; ".join(notes) or "only objects without fields were seen")
    return Guess(f"pl.Struct({{{', '.join(written)}}})", "; ".join(notes))


def schema_text(name: str, of: str, guessed: Guessed) -> str:
    """The schema's file: a class with the columns; an example's where nothing could be guessed."""
    head = f"guessed from {guessed.documents:,} messages: change what you know better" if guessed.named else "an example: put your own here"
    columns = guessed.columns if guessed.named else (*guessed.columns, *EXAMPLE)
    return "\n".join([*_head(of, head), f"class {name}(pa.DataFrameModel):", *(f"    {line}" for line in columns), ""])


EXAMPLE = (
    "id: pl.Int64 = pa.Field(ge=1)  # a rule: messages that break it are dead letters",
    'at: pl.Datetime("us", "UTC")  # RFC 3339 text, such as 2026-01-01T00:00:00Z',
    "amount: pl.Decimal(12, 2) = pa.Field(nullable=True)  # may be null or missing",
)  # fmt: skip


def _head(of: str, head: str) -> Iterator[str]:
    yield from (
        f'"""The columns of {of}, {head}.',
        "",
        "A message whose values are not exactly of these types is kept as a dead letter, with the reason (windrow dead show SPEC).",
        "A column may get rules (pa.Field(ge=0)) and be nullable; money keeps each digit as pl.Decimal(12, 2). Before the first run",
        'anything may be changed here; later nullable columns may be added, and sink.evolve says what else."""',
        "",
        "import pandera.polars as pa",
        "import polars as pl",
        "",
        "",
    )
