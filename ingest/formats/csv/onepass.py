"""The fast way: one compiled pass from the bytes of many lines into Arrow's arrays.

What isn't certain is left to `strict.py`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from windrow.ingest.formats.csv.fields import fields_of
from windrow.ingest.formats.csv.lines import Dialect, Lines, Piece
from windrow.ingest.formats.json.values import EXACT, Reading
from windrow.ingest.formats.shared.batch_decoder import Taken
from windrow.ingest.formats.shared.buffers import octets_of
from windrow.ingest.formats.shared.gather import Gathered
from windrow.ingest.formats.shared.nodes import EPOCH, INSTANT, WIDE, nodes_of
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.native.calling import Compiled
from windrow.ingest.schema.columns import Columns

PASS, TEXTS = (
    Compiled("windrow.ingest.formats.csv.scan"),
    Compiled("windrow.ingest.formats.csv.texts"),
)
"""The compiled functions."""

_ASCII = 128
_NOTHING = -1


class CsvPass:
    """The pass for some columns and a dialect.

    Not for several threads at once. It takes nothing by characters that aren't ASCII.
    """

    def __init__(self, columns: Columns, dialect: Dialect, reading: Reading = EXACT) -> None:
        self._nodes = nodes_of(columns, reading.unit(None), reading.clock())
        self._fields = fields_of(self._nodes[1:], columns.finer)
        self._width = sum(
            2 if node.kind in {WIDE, EPOCH, INSTANT} else 1 for node in self._nodes[1:]
        )
        special = [
            _NOTHING if c is None else ord(c)
            for c in (dialect.delimiter, dialect.quote, dialect.escape)
        ]
        self._special = special if max(special) < _ASCII else None
        self._quote = special[1]
        self._null = _bare_null(dialect)
        self._state = np.zeros(2, np.int64)

    def decode(self, messages: pa.BinaryArray) -> Taken:
        """What is certain of the messages. A null is not taken."""
        data, begins, ends = octets_of(messages, null=-1)
        mask = np.zeros(len(messages), np.uint8)
        tape = np.empty(2 * self._width * len(messages), np.int64)
        self._state[:] = 0
        if self._special is not None:
            null = np.frombuffer(self._null or b"", np.uint8)
            told = (
                *self._special,
                null,
                self._null is not None,
                self._fields,
                len(self._nodes) - 1,
            )
            PASS.scan(data, begins, ends, *told, self._state, tape, mask)
        entries, rows = map(int, self._state)
        gathered = Gathered.of(
            self._nodes,
            np.array([rows]),
            tape,
            entries,
            partial(TEXTS.copy_texts, data, self._quote),
        )
        return Taken(
            mask.view(np.bool_),
            [gathered.array(node) for node in self._nodes[0].children],
            gathered.truncated,
        )


def _bare_null(dialect: Dialect) -> bytes | None:
    """What a field that is null looks like in a message; None where no bare field can."""
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
