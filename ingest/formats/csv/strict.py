"""Strict decoder of one line.

Takes the line apart by the grammar, and reads each field exactly as its column's type;
or refuses the line with a precise reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import format_count
from windrow.ingest.formats.csv.lines import Dialect, Lines, Piece
from windrow.ingest.formats.json.values import converter, number_in
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation, text_of
from windrow.ingest.schema.columns import Column, Columns

_BOOLEANS = {"true": True, "false": False}

Read = Callable[[str, str], Any]
"""Reads a field's text, at a path, as pyarrow takes it for the column's type.

Raises `RefusedValueError`.
"""


class StrictLine:
    """Decodes one line at a time."""

    def __init__(self, columns: Columns, dialect: Dialect, reading: Reading = EXACT) -> None:
        self.truncation = Truncation(columns.finer)
        self._columns: list[tuple[Column, Read]] = [
            (column, read_as(column, reading, self.truncation)) for column in columns.columns
        ]
        self._lines = Lines(dialect)
        self._null = dialect.null_literal

    def decode(self, message: bytes) -> list[Any]:
        """Values of the columns, in order, as pyarrow takes them.

        Raises:
            RefusedValueError: with the reason.
        """
        pieces = self._lines.pieces(text_of(message, "CSV"), len(self._columns))
        if len(pieces) < len(self._columns):
            raise RefusedValueError(
                "field_count",
                f"Expected {format_count(len(self._columns), 'field')}, got {len(pieces)}",
                "",
            )
        return [
            self._value(piece, column, read)
            for piece, (column, read) in zip(pieces, self._columns, strict=True)
        ]

    @staticmethod
    def ignored_fields(_message: bytes) -> tuple[str, ...]:
        """None: a line with more fields than columns is no row."""
        return ()

    def _value(self, piece: Piece, column: Column, read: Read) -> Any:
        path = f"$.{column.name}"
        if piece.bare is None or piece.bare != self._null:
            return read(piece.text, path)
        if not column.nullable:
            raise RefusedValueError("missing", "Expected a value, got null", path)
        return None


def read_as(column: Column, reading: Reading, truncation: Truncation) -> Read:
    """Returns the function that reads a column's fields.

    Numbers are by JSON's grammar of numbers. The rest is read as JSON's number or
    string would be.
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
