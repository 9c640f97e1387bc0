"""Compiled pass from the bytes of many messages to Arrow arrays.

The pass leaves messages that it isn't certain about to the format's strict decoder.
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
"""Places in the state of every pass: the number of entries, and the number of spaces."""

TAKEN, IGNORING = 1, 3
"""Verdicts of a pass on a message that is a row.

- `TAKEN`: each field of the message has a column.
- `IGNORING`: the message has fields that no column is for.
"""

KEPT = 1 << 20
"""Largest number of entries, and of places in the table of keys, whose memory is kept.

The next batch reuses kept memory. If a large message needed more, its memory is freed.
"""


class OnePass(ABC):
    """Pass of a format for some columns. Only one thread may use it at a time.

    It keeps its numbers in the array `state`, because a compiled function can't change a
    number of its caller. From the index `items` on, `state` has the number of items of each
    space. After them it has two more numbers for each space, for the format's own use.
    """

    null_index: int | None = None
    """Index of the column of what no column is for, if the taken rows have nothing to keep."""

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
            nodes: the nodes of the columns.
            items: the index in the state where the counts of items begin.
            code: the compiled functions of the format.
            texts: the compiled functions with `copy_texts`, which copies strings.
            copying: arguments of `copy_texts` between the messages' bytes and the
                arguments of `CopyTexts`.
            null: the length of a null message; -1 distinguishes it from an empty message.
            defaults: pairs of a node's number and the value that it has without an entry.
            by_key: whether the entries of each map are sorted by their keys.
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
        # Both are asked, so that both begin to compile at the same time.
        ready = self._code.ready()
        return ENTRIES_CODE.ready() and ready

    def decode(self, messages: pa.BinaryArray, skip: int = 0) -> Taken:
        data, begins, ends = octets_of(messages, skip, null=self._null)
        longest = int((ends - begins).max(initial=0))
        size = int(ends[-1] - begins[0]) if len(ends) else 0
        # np.empty and np.zeros only reserve address space until memory is written to.
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
        columns = [gathered.array(node) for node in self._nodes[0].children]
        if self.null_index is not None:
            columns.insert(self.null_index, pa.nulls(np.count_nonzero(mask), pa.string()))
        return Taken(
            mask > 0,
            columns,
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
        """Runs the compiled scanner, which writes the entries and the verdicts.

        Args:
            data: the bytes of all messages.
            begins: the index at which each message begins.
            ends: the index at which each message ends.
            longest: the bytes of the longest message.
            mask: the verdicts: 0, `TAKEN` or `IGNORING` for each message; written.
        """

    @abstractmethod
    def _most_entries(self, size: int, messages: int) -> int:
        """Returns the largest possible number of entries.

        Args:
            size: the bytes of all messages.
            messages: the number of messages.
        """

    def _room_for_keys(self, _longest: int) -> int:
        """Returns the places in the table of keys that the longest message needs."""
        return 0


def room_for_keys(length: int) -> int:
    """Returns the number of places in a table for the keys in `length` bytes.

    It is a power of two, and at least `length`.
    """
    room = 64
    while room < length:
        room *= 2
    return room
