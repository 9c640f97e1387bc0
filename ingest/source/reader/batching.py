"""Small batches to batches of a bounded size: gather up to the bounds, then give away.

The memory of a read is that of its bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass
class Gatherer:
    """Gathers rows up to `rows_max` and `bytes_max` (keys, values and headers).

    A single message larger than that is a batch of its own.
    """

    rows_max: int
    bytes_max: int
    _pieces: list[pa.RecordBatch] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0

    def add(self, batch: pa.RecordBatch, ends: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Take a batch in; what became full. `ends` are the bytes up to and with each row."""
        first = 0
        while first < batch.num_rows:
            before = int(ends[first - 1]) if first else 0
            fitting = (
                int(np.searchsorted(ends, before + self.bytes_max - self._bytes, side="right"))
                - first
            )
            taken = min(fitting, self.rows_max - self._rows, batch.num_rows - first)
            if taken == 0 and not self._pieces:
                taken = 1
            if taken:
                self._pieces.append(batch.slice(first, taken))
                self._rows += taken
                self._bytes += int(ends[first + taken - 1]) - before
                first += taken
            if first < batch.num_rows or self._rows == self.rows_max:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is gathered so far, if anything."""
        if self._pieces:
            whole = pa.concat_batches(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
            self._pieces, self._rows, self._bytes = [], 0, 0
            yield whole
