"""The fast way: one compiled pass from the bytes of many messages into Arrow's arrays.

What isn't certain is left to `strict.py`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from windrow.ingest.formats.avro.fit import FREE, SHARE
from windrow.ingest.formats.avro.program import program_of
from windrow.ingest.formats.avro.schema import AvroSchema
from windrow.ingest.formats.avro.state import ENTRIES, ITEMS, SPACES, room_for_keys
from windrow.ingest.formats.shared.batch_decoder import Taken
from windrow.ingest.formats.shared.buffers import octets_of
from windrow.ingest.formats.shared.gather import Gathered
from windrow.ingest.native.calling import Compiled
from windrow.ingest.schema.columns import Columns

PASS, TEXTS = (
    Compiled("windrow.ingest.formats.avro.scan"),
    Compiled("windrow.ingest.formats.shared.texts"),
)
"""The compiled functions."""

_KEPT = 1 << 20
"""Entries of the tape, and of the table of keys, whose memory stays for the next batch;
what a large message takes is given back.
"""


class AvroPass:
    """The pass for a schema and columns. Not for several threads at once."""

    def __init__(self, schema: AvroSchema, columns: Columns) -> None:
        self._program = program_of(schema, columns)
        self._symbols = np.frombuffer(self._program.symbols, np.uint8)
        self._state = np.zeros(ITEMS + 2 * self._program.spaces, np.int64)
        self._state[SPACES] = self._program.spaces
        self._tape = self._keys = np.zeros(0, np.int64)

    def decode(self, messages: pa.BinaryArray) -> Taken:
        """What is certain of the messages. A null is not taken."""
        return self.behind(messages, 0)

    def behind(self, messages: pa.BinaryArray, skip: int) -> Taken:
        """The same of what lies behind so many bytes, which each of them has."""
        data, begins, ends = octets_of(messages, skip)
        self._reserve(
            int((ends - begins).max(initial=0)), int(ends[-1] - begins[0]) if len(ends) else 0
        )
        mask = np.zeros(len(messages), np.uint8)
        program, state = self._program, self._state
        state[ENTRIES], state[ITEMS : ITEMS + program.spaces] = 0, 0
        PASS.scan(
            data,
            begins,
            ends,
            program.begin,
            FREE,
            SHARE,
            program.numbers,
            state,
            self._tape,
            self._keys,
            mask,
        )
        counts, entries = state[ITEMS : ITEMS + program.spaces].copy(), int(state[ENTRIES])
        gathered = Gathered.of(
            program.nodes,
            counts,
            self._tape,
            entries,
            partial(TEXTS.copy_texts, data, self._symbols),
        )
        if entries > _KEPT:
            self._tape = np.zeros(0, np.int64)
        if len(self._keys) > 2 * _KEPT:
            self._keys = np.zeros(0, np.int64)
        return Taken(
            mask.view(np.bool_),
            [gathered.array(node) for node in program.nodes[0].children],
            gathered.truncated,
        )

    def _reserve(self, longest: int, size: int) -> None:
        """Room for what so many bytes may hold: a value has one of them at least.

        Memory that nothing is written to costs nothing.
        """
        entries = 2 * (size + 1) * (2 + self._program.nested)
        if len(self._tape) < entries:
            self._tape = np.empty(entries, np.int64)
        keys = 2 * room_for_keys(longest) if self._program.keyed else 0
        if len(self._keys) < keys:
            self._keys = np.zeros(keys, np.int64)
