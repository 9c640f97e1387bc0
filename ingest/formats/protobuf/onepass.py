"""The fast way: one compiled pass from the bytes of many messages into Arrow's arrays.

What isn't certain is left to Protobuf's library.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.ingest.formats.protobuf.state import ENTRIES, ITEMS, SPACES, room_for_keys
from windrow.ingest.formats.protobuf.tables import field_tables
from windrow.ingest.formats.shared.batch_decoder import Taken
from windrow.ingest.formats.shared.buffers import octets_of
from windrow.ingest.formats.shared.gather import Gathered
from windrow.ingest.formats.shared.nodes import WIDE
from windrow.ingest.native.calling import Compiled
from windrow.ingest.schema.columns import Columns

PASS, TEXTS = (
    Compiled("windrow.ingest.formats.protobuf.scan"),
    Compiled("windrow.ingest.formats.shared.texts"),
)
"""The compiled functions."""

FREE, SHARE = 1 << 20, 32
"""What the items of any message may cost, and how much more for each of its bytes."""
_KEPT = 1 << 20
"""Entries of the tape, and of the table of keys, whose memory stays for the next batch;
what a large message takes is given back.
"""


class ProtobufPass:
    """The pass for a type and columns. Not for several threads at once."""

    def __init__(self, kind: Any, columns: Columns) -> None:
        self._tables = field_tables(kind, columns)
        self._symbols = np.frombuffer(self._tables.symbols, np.uint8)
        self._state = np.zeros(ITEMS + 3 * self._tables.spaces, np.int64)
        self._state[SPACES] = self._tables.spaces
        self._tape = self._keys = np.zeros(0, np.int64)
        self._widest = 2 if any(node.kind == WIDE for node in self._tables.nodes) else 1

    def decode(self, messages: pa.BinaryArray) -> Taken:
        """What is certain of the messages. A null is not taken."""
        return self.behind(messages, 0)

    def behind(self, messages: pa.BinaryArray, skip: int) -> Taken:
        """The same of what lies behind so many bytes, which each of them has."""
        data, begins, ends = octets_of(messages, skip, null=-1)
        self._reserve(
            int((ends - begins).max(initial=0)), int(ends[-1] - begins[0]) if len(ends) else 0
        )
        mask = np.zeros(len(messages), np.uint8)
        tables, state = self._tables, self._state
        state[ENTRIES], state[ITEMS : ITEMS + tables.spaces] = 0, 0
        PASS.scan(
            data,
            begins,
            ends,
            tables.root,
            tables.kids,
            FREE,
            SHARE,
            tables.numbers,
            state,
            self._tape,
            self._keys,
            mask,
        )
        counts, entries = state[ITEMS : ITEMS + tables.spaces].copy(), int(state[ENTRIES])
        copy_texts = partial(TEXTS.copy_texts, data, self._symbols)
        gathered = Gathered.of(
            tables.nodes, counts, self._tape, entries, copy_texts, tables.defaults, by_key=True
        )
        if entries > _KEPT:
            self._tape = np.zeros(0, np.int64)
        if len(self._keys) > 2 * _KEPT:
            self._keys = np.zeros(0, np.int64)
        return Taken(
            mask.view(np.bool_),
            [gathered.array(node) for node in tables.nodes[0].children],
            gathered.truncated,
        )

    def _reserve(self, longest: int, size: int) -> None:
        """Room for what so many bytes may hold: an item has one at least, any other
        value two, as has a list that grows.
        """
        entries = 2 * (self._widest * size + size + 2)
        if len(self._tape) < entries:
            self._tape = np.empty(entries, np.int64)
        keys = 2 * room_for_keys(longest) if self._tables.keyed else 0
        if len(self._keys) < keys:
            self._keys = np.zeros(keys, np.int64)
