"""Arrow arrays of the entries that a compiled pass wrote.

An entry is (node, index in its space) and a value of 64 bits. Entries are in the order of
the values in the messages. A wide decimal has two entries: the second one holds its upper
64 bits. The value of a string, list or map holds its length, times two, in the lower half.
The lowest bit and the upper half are for the format's own use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.shared.nodes import (
    BOOL,
    DECIMAL,
    FLOAT32,
    LIST,
    MAP,
    STRUCT,
    TEXT,
    WIDE,
    Node,
)
from windrow.ingest.native.calling import Compiled

ENTRIES_CODE = Compiled("windrow.ingest.formats.shared.entries")
"""The compiled functions of `entries.py`."""


_NUMPY = {pa.int8(): np.int8, pa.int16(): np.int16, pa.int32(): np.int32, pa.date32(): np.int32}
SPARE = 8
"""Spare bytes after the last string, because strings are copied eight bytes at a time."""

_APART = 72
"""Unused values between the values of two nodes.

The number of messages in a batch is often a power of two. Without a gap, the values of one
message would share the same few lines of the processor's cache, and evict each other.
"""

CopyTexts = Callable[
    [npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.uint8]],
    None,
]
"""Copies strings: called with (values, present, offsets, target).

String `i` goes to `target` at `offsets[i]`. `target` has eight spare bytes at its end.
"""


@dataclass(frozen=True)
class Gathered:
    """Values of all nodes.

    Attributes:
        copy_texts: copies the format's strings.
        counts: the number of values of each node of a space, by space.
        bases: the index in `values` and `present` at which each node's values begin. The
            upper halves of a node's wide decimals follow all lower halves.
        values: the values, 64 bits each.
        present: 1 for each value that is present, 0 for null.
        by_key: whether the entries of each map are sorted by their keys.
    """

    copy_texts: CopyTexts
    counts: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    present: npt.NDArray[np.uint8]
    by_key: bool = False

    @property
    def truncated(self) -> npt.NDArray[np.int64]:
        """Numbers of the rows that have a truncated timestamp.

        A pass marks such a row with the value 1 of the document's node.
        """
        return np.flatnonzero(self.values[self.bases[0] : self.bases[0] + self.counts[0]])

    @classmethod
    def of(
        cls,
        nodes: Sequence[Node],
        counts: npt.NDArray[np.int64],
        entries: npt.NDArray[np.int64],
        count: int,
        copy_texts: CopyTexts,
        defaults: Iterable[tuple[int, int]] = (),
        *,
        by_key: bool = False,
    ) -> Gathered:
        """Gathers the values of entries by node.

        Args:
            nodes: all nodes.
            counts: the number of values of each node of a space, by space.
            entries: the entries, two numbers each.
            count: the number of entries.
            copy_texts: copies the format's strings.
            defaults: pairs of a node's number and the value that it has where there is no
                entry.
            by_key: whether the entries of each map are sorted by their keys.
        """
        high_shifts = np.array(
            [int(counts[node.space]) if node.kind == WIDE else 0 for node in nodes]
        )
        bases = np.cumsum(
            [
                0,
                *(
                    int(counts[node.space]) + int(extra_words) + _APART
                    for node, extra_words in zip(nodes, high_shifts, strict=True)
                ),
            ]
        )
        values, present = np.zeros(bases[-1], np.int64), np.zeros(bases[-1], np.uint8)
        for number, value in defaults:
            (
                values[bases[number] : bases[number + 1]],
                present[bases[number] : bases[number + 1]],
            ) = (value, 1)
        ENTRIES_CODE.scatter(entries, count, high_shifts, bases, values, present)
        return cls(copy_texts, counts, bases[:-1], values, present, by_key)

    def array(self, node: Node) -> pa.Array:
        """Returns a node's array, with the arrays of its children."""
        n, base = int(self.counts[node.space]), int(self.bases[node.number])
        values, present = self.values[base : base + n], self.present[base : base + n]
        nulls = n - int(np.count_nonzero(present))
        valid = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
        if node.kind == STRUCT:
            return pa.Array.from_buffers(
                node.type,
                n,
                [valid],
                nulls,
                children=[self.array(child) for child in node.children],
            )
        if node.kind in {TEXT, LIST, MAP}:
            return self._lengths(node, values, present, valid, nulls)
        stored = _to_stored(node, values, self.values[base + n : base + 2 * n])
        return pa.Array.from_buffers(node.type, n, [valid, pa.py_buffer(stored)], nulls)

    def _lengths(
        self,
        node: Node,
        values: npt.NDArray[np.int64],
        present: npt.NDArray[np.uint8],
        valid: pa.Buffer | None,
        nulls: int,
    ) -> pa.Array:
        """Returns the array of strings, lists or maps."""
        offsets = np.empty(len(values) + 1, np.int32)
        ENTRIES_CODE.add_lengths(values, present, offsets)
        buffers = [valid, pa.py_buffer(offsets)]
        if node.kind == TEXT:
            target = np.empty(int(offsets[-1]) + SPARE, np.uint8)
            self.copy_texts(values, present, offsets, target)
            return pa.Array.from_buffers(
                node.type, len(values), [*buffers, pa.py_buffer(target[:-SPARE])], nulls
            )
        children = [self.array(child) for child in node.children]
        if node.kind == MAP:
            if self.by_key:
                children = _by_key(offsets, children)
            entry = pa.struct([node.type.key_field, node.type.item_field])
            children = [
                pa.Array.from_buffers(entry, len(children[0]), [None], 0, children=children)
            ]
        return pa.Array.from_buffers(node.type, len(values), buffers, nulls, children=children)


def _by_key(offsets: npt.NDArray[np.int32], entries: Sequence[pa.Array]) -> list[pa.Array]:
    """Returns the keys and values of maps, sorted within each map by the bytes of the keys."""
    maps = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = pc.sort_indices(
        pa.table([maps, entries[0]], ["map", "key"]), [("map", "ascending"), ("key", "ascending")]
    )
    return [entry.take(order) for entry in entries]


def _to_stored(
    node: Node, values: npt.NDArray[np.int64], high_words: npt.NDArray[np.int64]
) -> npt.NDArray[np.generic]:
    """Returns values in the layout that Arrow has in memory."""
    if node.kind in {DECIMAL, WIDE}:
        return np.stack([values, high_words if node.kind == WIDE else values >> 63], axis=1)
    if node.kind == BOOL:
        return np.packbits(values.astype(np.uint8), bitorder="little")
    if node.kind == FLOAT32:
        return values.view(np.float64).astype(np.float32)
    return values.astype(_NUMPY.get(node.type, np.int64), copy=False)
