"""The fast way: one compiled pass from the bytes of many messages into Arrow's arrays.

What isn't certain is left to `strict.py`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.json.layout import PASS, tables_of
from windrow.ingest.formats.json.state import ENTRIES, ITEMS, SPARE, fresh_state, room_for_keys
from windrow.ingest.formats.json.strict import Unknown
from windrow.ingest.formats.json.values import EXACT, Reading
from windrow.ingest.formats.shared.batch_decoder import Taken
from windrow.ingest.formats.shared.buffers import octets_of
from windrow.ingest.formats.shared.gather import Gathered
from windrow.ingest.formats.shared.nodes import EPOCH, WIDE, nodes_of
from windrow.ingest.native.calling import Compiled
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import map_type

TEXTS = Compiled("windrow.ingest.formats.json.texts")
"""The compiled functions that copy strings."""

_KEPT = 1 << 20
"""Entries of the tape, and of the table of keys, whose memory stays for the next batch;
what a large message takes is given back.
"""


class OnePass:
    """The pass for some columns. Not for several threads at once."""

    def __init__(self, columns: Columns, unknown: Unknown, reading: Reading = EXACT) -> None:
        self._nodes = nodes_of(columns)
        self._tables = tables_of(self._nodes, reading, columns.finer)
        self._spaces = 1 + max(node.inner for node in self._nodes)
        self._others = unknown == "ignore"
        self._required = sum(node.required for node in self._nodes)
        self._widest = 2 if any(node.kind in {WIDE, EPOCH} for node in self._nodes) else 1
        # an object may stand for the list: each key has three entries
        if any(map_type(node.type) is not None for node in self._nodes):
            self._widest = 3
        self._state = fresh_state(self._spaces)
        self._tape = self._keys = np.zeros(0, np.int64)

    def decode(self, messages: pa.BinaryArray) -> Taken:
        """What is certain of the messages. A null is not taken."""
        return self.behind(messages, 0)

    def behind(self, messages: pa.BinaryArray, skip: int) -> Taken:
        """The same of what lies behind so many bytes, which each of them has."""
        data, begins, ends = octets_of(messages, skip)
        longest, size = (
            int((ends - begins).max(initial=0)),
            (int(ends[-1] - begins[0]) if len(ends) else 0),
        )
        self._reserve(longest, size)
        names, room = _with_room(self._tables.names, longest)
        mask = np.zeros(len(messages), np.uint8)
        tables, state, tape = self._tables.numbers, self._state, self._tape
        state[ENTRIES], state[SPARE], state[ITEMS : ITEMS + self._spaces] = (
            0,
            len(self._tables.names),
            0,
        )
        PASS.scan(
            data,
            begins,
            ends,
            names,
            room,
            self._others,
            self._required,
            tables,
            state,
            tape,
            self._keys,
            mask,
        )
        counts = state[ITEMS : ITEMS + self._spaces].copy()
        gathered = Gathered.of(
            self._nodes, counts, tape, int(state[ENTRIES]), partial(TEXTS.copy_texts, data)
        )
        if state[ENTRIES] > _KEPT:
            self._tape = np.zeros(0, np.int64)
        if len(self._keys) > 2 * _KEPT:
            self._keys = np.zeros(0, np.int64)
        return Taken(
            mask.view(np.bool_),
            [gathered.array(node) for node in self._nodes[0].children],
            gathered.truncated,
        )

    def _reserve(self, longest: int, size: int) -> None:
        """Room for what so many bytes may hold: a value takes two of them at least, a
        key of an object with its value five.

        Memory that nothing is written to costs nothing.
        """
        entries = 2 * self._widest * (size // 2 + 1)
        if len(self._tape) < entries:
            self._tape = np.empty(entries, np.int64)
        keys = 2 * room_for_keys(longest)
        if len(self._keys) < keys:
            self._keys = np.zeros(keys, np.int64)


def _with_room(names: bytes, longest: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The bytes of all names with room for one more behind them, to read and to write."""
    room = np.zeros(len(names) + longest + 8, np.uint8)
    room[: len(names)] = np.frombuffer(names, np.uint8)
    read = room.view()
    read.setflags(write=False)
    return read, room
