"""One compiled pass from the bytes of many messages to Arrow arrays.

Messages of which the pass isn't certain are left to the format's strict decoder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.shared.arrow_arrays import ENTRIES_CODE, Gathered
from windrow.ingest.formats.shared.batch_decoder import Taken
from windrow.ingest.formats.shared.buffers import octets_of
from windrow.ingest.formats.shared.nodes import Node
from windrow.ingest.native.calling import Compiled

ENTRIES, SPACES = range(2)
"""First places of every pass's state: entries; spaces of the nodes."""

TAKEN, IGNORING = 1, 3
"""What a pass notes of a message that is a row: without fields that no column is for, and with
such fields."""

KEPT = 1 << 20
"""The most entries, and the most places in the table of keys, whose memory is kept.

The next batch uses it again. Memory beyond that, which a large message took, is given back.
"""


class OnePass(ABC):
    """Pass of a format for some columns. Not for several threads at once.

    It keeps its numbers in `state`, since a compiled function can't change a number of
    its caller's. From `items` on are the counts of the items of each space; behind them
    are two more numbers a space for the format.
    """

    def __init__(
        self,
        nodes: list[Node],
        items: int,
        code: Compiled,
        texts: Compiled,
        *copying: Any,
        null: int = 0,
        defaults: Sequence[tuple[int, int]] = (),
        by_key: bool = False,
    ) -> None:
        """Makes a pass.

        Args:
            nodes: those of the columns.
            items: the place in the state where the counts of items begin.
            code: the compiled functions of the format.
            texts: those with the function `copy_texts`, which copies strings.
            copying: its arguments behind the messages' bytes, before those of
                `CopyTexts`.
            null: the length of a null among the messages.
            defaults: as in `Gathered.of`.
            by_key: as in `Gathered.of`.
        """
        self._nodes = nodes
        self._items = items
        self._spaces = 1 + max(node.inner for node in nodes)
        self._code, self._texts, self._copying = code, texts, copying
        self._null = null
        self._defaults = defaults
        self._by_key = by_key
        self.state = np.zeros(items + 3 * self._spaces, np.int64)
        self.state[SPACES] = self._spaces
        self.entries = self.keys = np.zeros(0, np.int64)

    def ready(self) -> bool:
        ready = self._code.ready()  # if it isn't, the other begins to be made beside it
        return ENTRIES_CODE.ready() and ready

    def decode(self, messages: pa.BinaryArray, skip: int = 0) -> Taken:
        data, begins, ends = octets_of(messages, skip, null=self._null)
        longest = int((ends - begins).max(initial=0))
        size = int(ends[-1] - begins[0]) if len(ends) else 0
        # memory costs nothing until something is written to it
        room, keys = (
            2 * self._most_entries(size, len(messages)),
            2 * self._room_for_keys(longest),
        )
        if len(self.entries) < room:
            self.entries = np.empty(room, np.int64)
        if len(self.keys) < keys:
            self.keys = np.zeros(keys, np.int64)
        mask = np.zeros(len(messages), np.uint8)
        state, items = self.state, slice(self._items, self._items + self._spaces)
        state[ENTRIES], state[items] = 0, 0
        self._scan(data, begins, ends, longest, mask)
        written = int(state[ENTRIES])
        gathered = Gathered.of(
            self._nodes,
            state[items].copy(),
            self.entries,
            written,
            partial(self._texts.copy_texts, data, *self._copying),
            self._defaults,
            by_key=self._by_key,
        )
        if written > KEPT:
            self.entries = np.zeros(0, np.int64)
        if len(self.keys) > 2 * KEPT:
            self.keys = np.zeros(0, np.int64)
        return Taken(
            mask > 0,
            [gathered.array(node) for node in self._nodes[0].children],
            gathered.truncated,
            np.flatnonzero(mask == IGNORING),
        )

    @abstractmethod
    def _scan(
        self,
        data: npt.NDArray[np.uint8],
        begins: npt.NDArray[np.int32],
        ends: npt.NDArray[np.int32],
        longest: int,
        mask: npt.NDArray[np.uint8],
    ) -> None:
        """Runs the compiled scanner: it writes the entries, and to `mask` what it took.

        That is `TAKEN` or `IGNORING`.
        """

    @abstractmethod
    def _most_entries(self, size: int, messages: int) -> int:
        """Most entries for so many messages of so many bytes in all."""

    def _room_for_keys(self, _longest: int) -> int:
        """Places in the table of keys for a message of so many bytes."""
        return 0


def room_for_keys(length: int) -> int:
    """Places in a table for the keys in so many bytes.

    A power of two, and at least as large as the number of bytes.
    """
    room = 64
    while room < length:
        room *= 2
    return room
