"""Finds the delimiter of CSV lines, and guesses the types of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.csv.lines import Dialect, Lines, Piece
from windrow.ingest.formats.csv.strict import Read, read_as
from windrow.ingest.formats.json.values import EXACT
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.infer.candidates import Candidate, TypeGuess, unusable
from windrow.ingest.infer.documents import TYPES, enough, takes
from windrow.ingest.infer.proposal import KeyAndValue, Proposal, Setting, counted
from windrow.ingest.schema.columns import Column

DELIMITERS = (",", ";", "\t", "|")

_READS: Sequence[tuple[pa.DataType, Read]] = [
    (kind, read_as(Column("", kind, nullable=True), EXACT, Truncation())) for kind in TYPES
]


def of_lines(messages: Sequence[KeyAndValue], names: Sequence[str]) -> Proposal:
    """Proposes the columns of lines whose fields have these names, in order.

    Raises:
        SpecError: a name can't be a column's, or comes twice; no delimiter, or more than
            one, splits all lines into so many fields.
    """
    seen = dict[str, str]()
    for name in names:
        why = unusable(name, seen)
        if why:
            what = f"{name!a} in --columns can't be a column: {why}"
            raise SpecError(what, "spec", "Nothing was written. Give each field a name of its own.")
    texts = [
        message.value.decode(errors="replace") for message in messages if message.value is not None
    ]
    ways = {
        delimiter: rows
        for delimiter in DELIMITERS
        if (rows := _rows(texts, delimiter, len(names))) is not None
    }
    if not ways or not texts:
        what = (
            f"None of the delimiters , ; | and tab splits all of {counted(len(texts))} into"
            f" {len(names)} fields"
        )
        do = (
            "Nothing was written. Name all fields in their order with --columns, or write the spec"
            " by hand (windrow init)."
        )
        raise SpecError(what, "spec", do)
    if len(ways) > 1 and len(names) > 1:
        shown = " and ".join(repr(delimiter) for delimiter in ways)
        raise SpecError(
            f"The lines have {len(names)} fields by {shown}",
            "spec",
            "Nothing was written. Write the spec by hand (windrow init).",
        )
    delimiter, rows = next(iter(ways.items()))
    columns = list(zip(*rows, strict=True))
    empty = any(piece.bare == "" for row in rows for piece in row)
    candidates = tuple(
        _candidate(name, pieces) for name, pieces in zip(names, columns, strict=True)
    )
    decode = {"format": Setting("csv"), "delimiter": Setting(delimiter)}
    if empty:
        comment = "an empty field is null; in quotes it is an empty text"
        decode["null_literal"] = Setting("", comment)
    return Proposal(candidates, f"guessed from {counted(len(texts))}", decode)


def _rows(texts: Sequence[str], delimiter: str, fields: int) -> list[list[Piece]] | None:
    """The fields of the lines; None if the lines have another number of fields."""
    lines, rows = Lines(Dialect(delimiter)), []
    for text in texts:
        with suppress(RefusedValueError):
            rows.append(lines.pieces(text, fields))
    whole = [row for row in rows if len(row) == fields]
    return whole if enough(len(whole), len(texts)) else None


def _candidate(name: str, pieces: Sequence[Piece]) -> Candidate:
    """The first type that takes all of a field's texts."""
    texts = [piece.text for piece in pieces if piece.bare != ""]
    nullable = len(texts) < len(pieces)
    if not texts:
        return Candidate(
            name,
            TypeGuess(pa.string(), "only empty fields were sampled: set the type of their values"),
            nullable,
        )
    return Candidate(
        name,
        TypeGuess(next(kind for kind, read in _READS if all(takes(read, text) for text in texts))),
        nullable,
    )
