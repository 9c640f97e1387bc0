"""The fast way within bounds of memory and of effort. What it can't take within them is the strict way's: no message is refused here.

- DuckDB parses a message several times in one statement, to 16 bytes a value each time, and a value may be two characters: so long messages
  never go to it, and the others in pieces.
- Whatever the engine raises (most likely that its memory is full), the piece is halved, until the message that it was about is alone.
- Where it takes few messages it only costs time: then it is asked about the first messages of each batch only, until it takes more again.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.json.fast import Fast, Taken
from ingest.decode.json.strict import Unknown
from ingest.schema.columns import Columns

LONGEST_MESSAGE = 128 << 10
"""Bytes of the longest message that goes to the engine. For longer ones the strict way is hardly slower."""
PIECE = 4 << 20
"""Bytes that go to the engine at once; times 64 they are below its `memory_limit`."""
PROBE = 512
"""Messages that are tried where the ones before were mostly not taken."""
WORTH = 1 / 3
"""The share of taken messages below which the strict way alone is faster."""
MOST_FAILURES = 40
"""In one batch; enough to find two messages among 65,536. An engine that always fails costs no more than this."""


class Bounded:
    """The fast way for batches of any size and any content. Not for several threads at once."""

    def __init__(self, columns: Columns, unknown: Unknown) -> None:
        self._columns = columns
        self._unknown: Unknown = unknown
        self._engine: Fast | None = None
        self._worth = True
        self._failures = 0

    def decode(self, text: pa.StringArray) -> Taken:
        """As `Fast.decode`; raises nothing that has to do with a message."""
        lengths = pc.fill_null(pc.binary_length(text), 0).to_numpy()
        if lengths.max(initial=0) > LONGEST_MESSAGE:
            short = lengths <= LONGEST_MESSAGE
            text, lengths = pc.if_else(pa.array(short), text, pa.scalar(None, pa.string())), np.where(short, lengths, 0)
        ends = np.cumsum(lengths, dtype=np.int64)
        parts, at, self._failures = [], 0, 0
        while at < len(text) and (self._worth or at == 0):
            before = int(ends[at - 1]) if at else 0
            stop = int(np.searchsorted(ends, before + PIECE, side="right"))
            piece = text.slice(at, (stop if self._worth else min(stop, PROBE)) - at)
            taken = self._piece(piece)
            self._worth = self._still_worth(piece, taken)
            parts += taken
            at += len(piece)
        return _joined([*parts, self._nothing(len(text) - at)])

    def _piece(self, text: pa.StringArray) -> list[Taken]:
        """The piece in one go, or by halves if that fails, or nothing of it."""
        if self._failures >= MOST_FAILURES:
            return [self._nothing(len(text))]
        try:
            if self._engine is None:
                self._engine = Fast(self._columns, self._unknown)
            return [self._engine.decode(text)]
        except Exception:  # noqa: BLE001  # whatever it is: the strict way judges the messages, and an engine after an error isn't trusted
            self._engine = None
            self._failures += 1
        if len(text) == 1:
            return [self._nothing(1)]
        half = len(text) // 2
        return self._piece(text.slice(0, half)) + self._piece(text.slice(half))

    def _still_worth(self, piece: pa.StringArray, taken: list[Taken]) -> bool:
        """Whether to go on with the engine; a few messages say nothing."""
        tried = len(piece) - piece.null_count
        return self._worth if tried < PROBE // 2 else sum(part.mask.true_count for part in taken) >= WORTH * tried

    def _nothing(self, n: int) -> Taken:
        return Taken(pa.array(np.zeros(n, np.bool_)), [pa.nulls(n, f.type) for f in self._columns.arrow_schema])


def _joined(parts: list[Taken]) -> Taken:
    """The parts in their order as one."""
    parts = [p for p in parts if len(p.mask)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    columns = [pa.concat_arrays(c) for c in zip(*(p.columns for p in parts), strict=True)]
    return Taken(pa.concat_arrays([p.mask for p in parts]), columns)
