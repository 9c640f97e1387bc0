"""Grammar of a line: takes it apart into the texts of its fields.

    line    = field *(delimiter field) [LF | CR LF]
    field   = quoted | bare
    quoted  = quote *(any but quote and escape | quote quote | escape any) quote
    bare    = *(any but delimiter, CR, LF and escape | escape any),
              not beginning with a quote

Behind an escape some letters mean a character of control, as for MySQL, PostgreSQL's
`COPY` and Hive; any other character means itself.

The standard library's `csv`, where it is strict, takes all lines of this grammar, with
the same fields. The exceptions are an empty line, which is one empty field here,
letters behind an escape, and fields beyond the library's limit of 131,072 characters.
The library also takes any number of line breaks at the end. It makes up a line break
behind an escape that ends the line. And if the last field has an escaped line break, it may
wait for another line.
"""

from __future__ import annotations

import re

import msgspec

from windrow.ingest.errors import counted
from windrow.ingest.formats.shared.refusal import RefusedValueError


class Dialect(msgspec.Struct, frozen=True):
    """Characters with a meaning, one each, and the bare field that is null.

    None: no character has this meaning, or no field is null.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_literal: str | None = None


COMMAS = Dialect()

_CONTROLS = str.maketrans("0bfnrtvZ", "\0\b\f\n\r\t\v\x1a")
"""The characters that letters behind an escape mean."""


class Piece(msgspec.Struct, frozen=True):
    """One field of a line.

    `bare`: the field as it is in the message, with its escapes; None if it is in
    quotes.
    """

    text: str
    bare: str | None


class Lines:
    """Takes lines apart.

    Each character is read a bounded number of times: no pattern goes back for another
    try.
    """

    def __init__(self, dialect: Dialect) -> None:
        delimiter, quote, escape = (
            re.escape(c) if c else "" for c in (dialect.delimiter, dialect.quote, dialect.escape)
        )
        escaped = rf"|{escape}." if escape else ""
        bare = rf"(?P<bare>(?:[^{delimiter}{escape}\r\n]++{escaped})*+)"
        quoted = rf"{quote}(?P<quoted>(?:[^{quote}{escape}]++|{quote}{quote}{escaped})*+){quote}"
        end = rf"(?:(?P<delimiter>{delimiter})|(?:\r?\n)?\Z)"
        self._quote = dialect.quote
        self._quoted = re.compile(quoted, re.DOTALL) if quote else None
        self._field = re.compile(
            rf"(?:{quoted}|(?!{quote}){bare}){end}" if quote else rf"{bare}{end}", re.DOTALL
        )
        self._in_quoted = re.compile(rf"[{quote}{escape}](.)" if quote else "(?!)(.)", re.DOTALL)
        self._in_bare = re.compile(rf"{escape}(.)" if escape else "(?!)(.)", re.DOTALL)

    def pieces(self, text: str, max_fields: int) -> list[Piece]:
        """Fields of a line, which may have at most `max_fields`.

        Raises:
            RefusedValueError: the line isn't by the grammar, or it has more fields.
        """
        pieces: list[Piece] = []
        pos = 0
        while len(pieces) < max_fields:
            field = self._field.match(text, pos)
            if field is None:
                raise self._malformed_error(text, pos)
            pieces.append(self._piece(field))
            if field["delimiter"] is None:
                return pieces
            pos = field.end()
        raise RefusedValueError(
            "field_count", f"Expected {counted(max_fields, 'field')}, got more", ""
        )

    def _piece(self, field: re.Match[str]) -> Piece:
        """Replaces doubled quotes and escapes by the characters that they mean.

        In a bare field a quote is a character like any other.
        """
        quoted = None if self._quoted is None else field["quoted"]
        if quoted is None:
            return Piece(self._in_bare.sub(_meaning, field["bare"]), field["bare"])
        return Piece(self._in_quoted.sub(_meaning, quoted), None)

    def _malformed_error(self, text: str, pos: int) -> RefusedValueError:
        problem = "a line break, or an escape with nothing behind it"
        if self._quoted is not None and text.startswith(str(self._quote), pos):
            closed = self._quoted.match(text, pos)
            problem = (
                "a quote that is never closed"
                if closed is None
                else "something other than a delimiter behind a closing quote"
            )
        return RefusedValueError(
            "not_csv",
            f"CSV is malformed: {problem} in the field that begins at character {pos}",
            "",
        )


def _meaning(escaped: re.Match[str]) -> str:
    """Returns what the character behind an escape means."""
    return escaped[1].translate(_CONTROLS)
