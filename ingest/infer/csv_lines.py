"""Search for the delimiter of CSV lines, and guesses of their fields' types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import pyarrow as pa

from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.formats.csv.lines import Dialect, Lines, Piece
from windrow.ingest.formats.csv.strict import read_as
from windrow.ingest.formats.shared.json_dialects import EXACT
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.infer.candidates import Candidate, TypeGuess
from windrow.ingest.infer.json_documents import TYPES, Scalars, is_decisive, scalar_type
from windrow.ingest.infer.proposal import KeyAndValue, Proposal, Setting
from windrow.ingest.schema.columns import Column

_NULL, _WRITER = "\\N", Dialect("\t")
_ESCAPED = Dialect("\t", None, "\\", _NULL)
DIALECTS = (Dialect(","), Dialect(";"), Dialect("\t", None), _WRITER, Dialect("|"))
"""Dialects that are tried.

Quotes around fields between tabs are part of the field, with two exceptions: the lines can't be
read otherwise, or all fields are in quotes and one has a doubled quote inside. Then a writer of
CSV made the lines. If a field is `\\N`, then MySQL, COPY or Hive wrote the lines, with escapes.
"""

_READS = Scalars(
    tuple(
        (kind, read_as(Column("", kind, nullable=True), EXACT, Truncation()))
        for kind in TYPES
        if kind != pa.string()
    )
)


def propose_lines(messages: Sequence[KeyAndValue], names: Sequence[str]) -> Proposal:
    """Proposes the columns of lines whose fields have these names, in order.

    Raises:
        SpecError: no delimiter, or more than one delimiter, splits the lines into this
            number of fields.
    """
    texts = [message.value for message in messages if message.value is not None]
    ways = dict[str, tuple[Dialect, list[list[Piece]]]]()
    for dialect in DIALECTS:
        rows = rows_in(texts, dialect, len(names))
        if is_decisive(len(rows), len(texts)) and len(rows) > len(
            ways.get(dialect.delimiter, (dialect, []))[1]
        ):
            ways[dialect.delimiter] = dialect, rows
    if not ways or not texts:
        raise SpecError(
            "None of the delimiters , ; | and tab splits all of"
            f" {format_count(len(texts), 'message')} into {format_count(len(names), 'field')}",
            "spec",
            "Nothing was written. Name all fields in their order with --columns, or write the spec"
            " by hand (windrow init).",
        )
    if len(ways) > 1 and len(names) > 1:
        shown_delimiters = " and ".join(repr(delimiter) for delimiter in ways)
        raise SpecError(
            f"The lines have {format_count(len(names), 'field')} by {shown_delimiters}",
            "spec",
            "Nothing was written. Write the spec by hand (windrow init).",
        )
    dialect, rows = next(iter(ways.values()))
    if dialect.delimiter == _WRITER.delimiter:
        dialect, rows = _between_tabs(texts, dialect, rows, len(names))
    head = [name.casefold() for name in names]
    fields = [row for row in rows if [piece.text.strip().casefold() for piece in row] != head]
    columns = list(zip(*(fields or rows), strict=True))
    empty = any(piece.bare == "" for row in rows for piece in row)
    candidates = tuple(
        _candidate(name, pieces, dialect.null_literal)
        for name, pieces in zip(names, columns, strict=True)
    )
    decode = {"format": Setting("csv"), "delimiter": Setting(dialect.delimiter)}
    if dialect.quote is None:
        decode["quote"] = Setting("none", "quotes belong to their fields")
    if dialect.escape is not None:
        decode["escape"] = Setting(dialect.escape, "as MySQL, COPY and Hive write lines")
        decode["null_literal"] = Setting(dialect.null_literal)
    elif empty:
        comment = "an empty field is null; in quotes it is an empty text"
        decode["null_literal"] = Setting("", comment)
    hint = "the line of the names is a dead letter where its texts fit no column's type, else a row"
    hints = (hint,) if len(fields) < len(rows) else ()
    sample = f"guessed from {format_count(len(texts), 'message')}"
    return Proposal(candidates, sample, decode, hints)


def _between_tabs(
    texts: Sequence[bytes], dialect: Dialect, rows: list[list[Piece]], fields: int
) -> tuple[Dialect, list[list[Piece]]]:
    """Chooses the dialect of lines with tabs: with quotes, with escapes, or `dialect`.

    Args:
        texts: the lines.
        dialect: the dialect that read most lines.
        rows: the rows that `dialect` read.
        fields: the number of fields of a line.

    Returns:
        The dialect, and the rows that it reads.
    """
    quoted, escaped = rows_in(texts, _WRITER, fields), rows_in(texts, _ESCAPED, fields)
    pieces = [piece for row in quoted for piece in row]
    all_quoted = len(quoted) == len(texts) and all(piece.bare is None for piece in pieces)
    if all_quoted and any('"' in piece.text for piece in pieces):
        return _WRITER, quoted
    nulls = any(piece.bare == _NULL for row in escaped for piece in row)
    return (_ESCAPED, escaped) if nulls and len(escaped) >= len(rows) else (dialect, rows)


def rows_in(values: Iterable[bytes | None], dialect: Dialect, fields: int) -> list[list[Piece]]:
    """Returns the fields of each line that has the given number of fields."""
    lines, rows = Lines(dialect), []
    for value in (value for value in values if value is not None):
        with suppress(RefusedValueError):
            rows.append(lines.pieces(value.decode(errors="replace"), fields))
    return [row for row in rows if len(row) == fields]


def _candidate(name: str, pieces: Sequence[Piece], null: str | None) -> Candidate:
    """Returns a field with the first type that takes all of its texts.

    Args:
        name: the field's name.
        pieces: the field of each line.
        null: the bare field that is null.
    """
    texts = [piece.text for piece in pieces if piece.bare is None or piece.bare not in {"", null}]
    nullable = len(texts) < len(pieces)
    if not texts:
        return Candidate(
            name,
            TypeGuess(pa.string(), "only empty fields were sampled: set the type of their values"),
            nullable,
        )
    guess = scalar_type(texts, _READS)
    return Candidate(name, guess if guess.type else TypeGuess(pa.string()), nullable)
