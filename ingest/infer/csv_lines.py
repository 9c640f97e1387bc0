"""Finds the delimiter of CSV lines, and guesses the types of their fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.csv.lines import Dialect, Lines, Piece
from windrow.ingest.formats.csv.strict import read_as
from windrow.ingest.formats.shared.json_dialects import EXACT
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.infer.candidates import Candidate, TypeGuess
from windrow.ingest.infer.json_documents import TYPES, Scalars, enough, scalar_type
from windrow.ingest.infer.proposal import KeyAndValue, Proposal, Setting, counted
from windrow.ingest.schema.columns import Column

DIALECTS = (Dialect(","), Dialect(";"), Dialect("\t", None), Dialect("\t"), Dialect("|"))
"""The ways of reading lines that are tried.

Fields between tabs have quotes only if lines can't be read otherwise.
"""

_READS = Scalars(
    tuple(
        (kind, read_as(Column("", kind, nullable=True), EXACT, Truncation()))
        for kind in TYPES
        if kind != pa.string()
    )
)


def of_lines(messages: Sequence[KeyAndValue], names: Sequence[str]) -> Proposal:
    """Proposes the columns of lines whose fields have these names, in order.

    Raises:
        SpecError: no delimiter, or more than one, splits all lines into so many fields.
    """
    texts = [message.value for message in messages if message.value is not None]
    ways = dict[str, tuple[Dialect, list[list[Piece]]]]()
    for dialect in DIALECTS:
        rows = rows_in(texts, dialect, len(names))
        if enough(len(rows), len(texts)) and len(rows) > len(
            ways.get(dialect.delimiter, (dialect, []))[1]
        ):
            ways[dialect.delimiter] = dialect, rows
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
    dialect, rows = next(iter(ways.values()))
    head = [name.casefold() for name in names]
    fields = [row for row in rows if [piece.text.strip().casefold() for piece in row] != head]
    columns = list(zip(*(fields or rows), strict=True))
    empty = any(piece.bare == "" for row in rows for piece in row)
    candidates = tuple(
        _candidate(name, pieces) for name, pieces in zip(names, columns, strict=True)
    )
    decode = {"format": Setting("csv"), "delimiter": Setting(dialect.delimiter)}
    if dialect.quote is None:
        decode["quote"] = Setting("none", "quotes belong to their fields")
    if empty:
        comment = "an empty field is null; in quotes it is an empty text"
        decode["null_literal"] = Setting("", comment)
    told = "the line of the names is a dead letter where its texts fit no column's type, else a row"
    hints = (told,) if len(fields) < len(rows) else ()
    return Proposal(candidates, f"guessed from {counted(len(texts))}", decode, hints)


def rows_in(values: Iterable[bytes | None], dialect: Dialect, fields: int) -> list[list[Piece]]:
    """The fields of the lines that have so many."""
    lines, rows = Lines(dialect), []
    for value in (value for value in values if value is not None):
        with suppress(RefusedValueError):
            rows.append(lines.pieces(value.decode(errors="replace"), fields))
    return [row for row in rows if len(row) == fields]


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
    guess = scalar_type(texts, _READS)
    return Candidate(name, guess if guess.type else TypeGuess(pa.string()), nullable)
