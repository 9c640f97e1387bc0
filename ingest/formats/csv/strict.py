"""Strict decoder of one line of CSV.

It splits the line by the grammar in `lines.py`, and reads each field as its column's type. It
refuses a line with a precise reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import format_count
from windrow.ingest.formats.csv.lines import Dialect, Lines, Piece
from windrow.ingest.formats.json.values import converter, number_in
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation, text_of
from windrow.ingest.formats.shared.rest_text import RestText
from windrow.ingest.schema.columns import Column, Columns

_BOOLEANS = {"true": True, "false": False}

Read = Callable[[str, str], Any]
"""Converts a field's text to a Python object that pyarrow takes for the column's type.

It is called with the text and the field's path. It raises `RefusedValueError` if it refuses
the text.
"""


class StrictLine:
    """Decodes one line at a time."""

    def __init__(self, columns: Columns, dialect: Dialect, reading: Reading = EXACT) -> None:
        self.truncation = Truncation(columns.finer)
        keeps = reading.unknown == "keep"
        self._rest_index, columns = columns.split_rest(keeps_unknown=keeps)
        self._columns: list[tuple[Column, Read]] = [
            (column, read_as(column, reading, self.truncation)) for column in columns.columns
        ]
        self._lines = Lines(dialect)
        self._null = dialect.null_literal

    def decode(self, message: bytes) -> list[Any]:
        """Returns the values of the columns, in order, as Python objects for pyarrow.

        Raises:
            RefusedValueError: the line isn't a row.
        """
        pieces, rest = self._split(message)
        if len(pieces) < len(self._columns):
            raise RefusedValueError(
                "field_count",
                f"Expected {format_count(len(self._columns), 'field')}, got {len(pieces)}",
                "",
            )
        row = [
            self._value(piece, column, read)
            for piece, (column, read) in zip(pieces, self._columns, strict=True)
        ]
        self.truncation.ignored = rest is not None
        if self._rest_index is not None:
            row.insert(self._rest_index, rest)
        return row

    def ignored_fields(self, message: bytes) -> tuple[str, ...]:
        """Returns the numbers of the fields behind the columns, which a row keeps."""
        return tuple(json.loads(self._split(message)[1] or "{}"))

    def _split(self, message: bytes) -> tuple[list[Piece], str | None]:
        """Returns the fields of the columns, and the text of those behind them."""
        text, count = text_of(message, "CSV"), len(self._columns)
        if self._rest_index is None:
            return self._lines.pieces(text, count), None
        pieces, rest = self._lines.iterate(text, len(text) + 1), RestText(len(message))
        of_columns = list(islice(pieces, count))
        for number, piece in enumerate(pieces, count + 1):
            value = None if self._is_null(piece) else piece.text
            rest.add(f'"{number}":{json.dumps(value, ensure_ascii=False)}')
        return of_columns, rest.text

    def _is_null(self, piece: Piece) -> bool:
        return piece.bare is not None and piece.bare == self._null

    def _value(self, piece: Piece, column: Column, read: Read) -> Any:
        path = f"$.{column.name}"
        if not self._is_null(piece):
            return read(piece.text, path)
        if not column.nullable:
            raise RefusedValueError("missing", "Expected a value, got null", path)
        return None


def read_as(column: Column, reading: Reading, truncation: Truncation) -> Read:
    """Returns the function that reads a column's fields.

    Integers, floats and timestamps that are numbers must be in JSON's grammar of numbers. A
    boolean is `true` or `false`. Any other field is read like a JSON string with its text.
    """
    kind, epoch = column.type, reading.unit(column.epoch, column.zone)
    convert = converter(kind, epoch, reading, truncation, column.zone)
    if (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or (pa.types.is_timestamp(kind) and epoch is not None)
    ):
        return lambda text, path: convert(number_in(text, path), path)
    return _boolean if pa.types.is_boolean(kind) else convert


def _boolean(text: str, path: str) -> bool:
    if text not in _BOOLEANS:
        raise RefusedValueError("wrong_format", "Expected true or false", path)
    return _BOOLEANS[text]
