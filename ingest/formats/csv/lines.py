"""Grammar of a line of CSV, and a parser that splits it into the texts of its fields.

    line    = field *(delimiter field) [LF | CR LF]
    field   = quoted | bare
    quoted  = quote *(any but quote and escape | quote quote | escape any) quote
    bare    = *(any but delimiter, CR, LF and escape | escape any),
              not beginning with a quote

After an escape, some letters stand for a control character, as in MySQL, PostgreSQL's `COPY`
and Hive. Any other character after an escape stands for itself.

The standard library's `csv` in strict mode reads all lines of this grammar as the same fields,
with three exceptions: an empty line, which is one empty field here; letters after an escape;
and fields above the library's limit of 131,072 characters.

The library also takes lines that aren't in this grammar. It takes any number of line breaks at
the end. If an escape ends the line, the library adds a line break after it. If the last field
has an escaped line break, the library may wait for another line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from windrow.ingest.errors import format_count
from windrow.ingest.formats.shared.refusal import RefusedValueError


class Dialect(msgspec.Struct, frozen=True):
    """Special characters, and the field that is null.

    Attributes:
        delimiter: the character between fields.
        quote: the character around quoted fields; None if fields can't be quoted.
        escape: the character before an escaped character; None if there are no escapes.
        null_literal: the bare field that is null; None if no field is null.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_literal: str | None = None


COMMAS = Dialect()

_CONTROLS = str.maketrans("0bfnrtvZ", "\0\b\f\n\r\t\v\x1a")
"""The control characters that letters after an escape stand for."""


class Piece(msgspec.Struct, frozen=True):
    """Field of a line.

    Attributes:
        text: the field's text, with quotes and escapes replaced.
        bare: the field as it is in the message, with its escapes; None if it is in quotes.
    """

    text: str
    bare: str | None


class Lines:
    """Splits lines into fields.

    Each character is read a bounded number of times, because no pattern backtracks.
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
        """Returns the fields of a line.

        Raises:
            RefusedValueError: the line isn't in the grammar, or it has more than
                `max_fields` fields.
        """
        return list(self.iterate(text, max_fields))

    def iterate(self, text: str, max_fields: int) -> Iterator[Piece]:
        """Yields the fields that `pieces` returns."""
        pos = 0
        for _ in range(max_fields):
            field = self._field.match(text, pos)
            if field is None:
                raise self._malformed_error(text, pos)
            yield self._piece(field)
            if field["delimiter"] is None:
                return
            pos = field.end()
        raise RefusedValueError(
            "field_count", f"Expected {format_count(max_fields, 'field')}, got more", ""
        )

    def _piece(self, field: re.Match[str]) -> Piece:
        """Makes a field, with doubled quotes and escapes replaced by their characters.

        A quote in a bare field has no special meaning.
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
    """Returns the character that an escaped character stands for."""
    return escaped[1].translate(_CONTROLS)
