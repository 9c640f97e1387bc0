"""CSV decoder: a compiled pass for most lines, a strict decoder for every other line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from windrow.ingest.formats.csv.lines import COMMAS, Dialect, Lines, Piece
from windrow.ingest.formats.csv.strict import StrictLine
from windrow.ingest.formats.row_decoder import DecodeValues, refuse_columns
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading
from windrow.ingest.formats.shared.nodes import EPOCH, INSTANT, WIDE, bounds_of, nodes_of
from windrow.ingest.formats.shared.onepass import OnePass
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.native.calling import Compiled
from windrow.ingest.schema.columns import Columns

PASS = Compiled("windrow.ingest.formats.csv.scan")
"""Compiled functions of CSV."""

WIDTH = 4
KIND, LOW, HIGH, REQUIRED = range(WIDTH)
"""Places of a column's numbers.

- `KIND`: the kind of its node, see `shared.nodes`.
- `LOW`, `HIGH`: the numbers of `shared.nodes.bounds_of`.
- `REQUIRED`: 1 if null is refused.
"""
ROWS = 2
"""Place of the number of rows in the pass's state."""


@dataclass(frozen=True)
class CsvEncoding:
    """Encoding of a row as one line, whose fields are the columns in their order.

    Attributes:
        dialect: the special characters.
        reading: the rules for timestamps.
    """

    dialect: Dialect = COMMAS
    reading: Reading = EXACT

    def now(self) -> Self:
        return self

    def check(self, columns: Columns) -> None:
        unusable_columns = [
            f"{column.name} is {column.type}"
            for column in columns.columns
            if pa.types.is_nested(column.type) or pa.types.is_binary(column.type)
        ]
        refuse_columns(
            unusable_columns,
            "CSV, whose fields are single values and no bytes",
            "Take String, and take it apart after the table",
        )

    def open(self, columns: Columns) -> DecodeValues:
        return csv_batch_decoder(columns, self.dialect, self.reading).decode


def csv_batch_decoder(columns: Columns, dialect: Dialect, reading: Reading = EXACT) -> BatchDecoder:
    """Makes a decoder for batches of lines."""
    fast, strict = CsvPass(columns, dialect, reading), StrictLine(columns, dialect, reading)
    return BatchDecoder(columns.arrow_schema, fast, strict)


class CsvPass(OnePass):
    """Compiled pass for some columns and a dialect. The dialect's characters are ASCII."""

    def __init__(self, columns: Columns, dialect: Dialect, reading: Reading = EXACT) -> None:
        keeps = reading.unknown == "keep"
        self.null_index, columns = columns.split_rest(keeps_unknown=keeps)
        nodes = nodes_of(columns, reading.unit(None), reading.clock())
        special_characters = [
            -1 if c is None else ord(c) for c in (dialect.delimiter, dialect.quote, dialect.escape)
        ]
        super().__init__(nodes, ROWS, PASS, PASS, special_characters[1], null=-1)
        fields = [(node.kind, *bounds_of(node, columns.finer), node.required) for node in nodes[1:]]
        self._width = sum(2 if node.kind in {WIDE, EPOCH, INSTANT} else 1 for node in nodes[1:])
        null = _bare_null(dialect)
        self._scan_arguments = (
            *special_characters,
            np.frombuffer(null or b"", np.uint8),
            null is not None,
            np.array(fields, np.int64).ravel(),
            len(fields),
        )

    def _scan(self, data: Any, begins: Any, ends: Any, _longest: int, mask: Any) -> None:
        PASS.scan(data, begins, ends, *self._scan_arguments, self.state, self.entries, mask)

    def _most_entries(self, _size: int, messages: int) -> int:
        return self._width * messages


def _bare_null(dialect: Dialect) -> bytes | None:
    """Returns the bytes of a bare field that is null; None if no bare field can be null."""
    if dialect.null_literal is None:
        return None
    try:
        pieces = Lines(dialect).pieces(dialect.null_literal, 1)
    except RefusedValueError:
        return None
    return (
        dialect.null_literal.encode()
        if pieces == [Piece(pieces[0].text, dialect.null_literal)]
        else None
    )
