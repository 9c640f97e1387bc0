"""Counts messages with fields that no column is for, and names the fields."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.ports.decoder import Decoded

MOST_MESSAGES, MOST_BYTES = 1_000, 1 << 20
"""How many messages of a split are looked at for the names, and how large they are together.

They are read a second time, slowly. The last one may be larger.
"""

MOST_FIELDS, LONGEST = 20, 100
"""The most fields that are named, and the most characters of a name."""

OTHERS = "others"
"""Stands for the fields that aren't named, and counts them in all messages together."""


@dataclass
class IgnoredFields:
    """The messages of a split that have fields that no column is for.

    `messages`: their number; `fields`: the first paths, each with the number of the messages
    that have it, of those that were looked at.
    """

    messages: int = 0
    fields: Counter[str] = field(default_factory=Counter)
    _looked: int = 0
    _bytes: int = 0

    def add(self, messages: pa.RecordBatch, decoded: Decoded) -> None:
        """Counts a batch of messages."""
        index = decoded.ignoring
        self.messages += len(index)
        room = MOST_MESSAGES - self._looked if self._bytes < MOST_BYTES else 0
        values = messages.column("value").take(pa.array(index[:room]))
        sizes = self._bytes + np.cumsum(pc.fill_null(pc.binary_length(values), 0).to_numpy())
        looked = index[:room][: 1 + np.searchsorted(sizes, MOST_BYTES)]
        self._looked += len(looked)
        self._bytes = int(sizes[len(looked) - 1]) if len(looked) else self._bytes
        for part in decoded.ignored if len(looked) else ():
            for position in np.flatnonzero(np.isin(part.index, looked)).tolist():
                for path in {path[:LONGEST]: None for path in part.fields(position)}:
                    named = path in self.fields or len(self.fields) < MOST_FIELDS
                    self.fields[path if named else OTHERS] += 1
