"""Arrow arrays of what a compiled pass wrote.

It wrote entries: (node, index in its space) and value, in the order in which the
values came. The upper 64 bits of a wide decimal are the value of one more entry. The
lower half of a string's, list's or map's value is its length, times two, plus a bit of
the format's. The upper half is the format's, too.
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
_SPARE = 8
"""Bytes behind the last string, since strings are copied eight bytes at a time."""

_APART = 72
"""Values between those of two nodes.

A batch often has a power of two of messages. Without a gap, the values of one message
would lie in lines of memory that share the same few places of a processor's caches, and
push each other out.
"""

CopyTexts = Callable[
    [npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.uint8]],
    None,
]
"""Copies the strings of (values, present) to their (offsets) in (target).

`target` has room for eight bytes more.
"""


@dataclass(frozen=True)
class Gathered:
    """Values of all nodes: 64 bits each, and whether each is present.

    - `copy_texts`: copies the format's strings.
    - `counts`: how many values the nodes of each space have.
    - `bases`: where in `values` and `present` each node's values begin. The upper
      halves of a wide decimal lie behind all lower ones.
    - `by_key`: whether the entries of each map are sorted by their keys.
    """

    copy_texts: CopyTexts
    counts: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    present: npt.NDArray[np.uint8]
    by_key: bool = False

    @property
    def truncated(self) -> npt.NDArray[np.int64]:
        """Rows that have a truncated timestamp.

        A pass marks them by the value of the document's own node.
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
        """Brings entries to the places of their nodes.

        `defaults`: nodes that have a value where there is no entry, each with this
        value.
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
        """A node's array, with all arrays below it."""
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
        """The array of strings, lists or maps."""
        offsets = np.empty(len(values) + 1, np.int32)
        ENTRIES_CODE.add_lengths(values, present, offsets)
        buffers = [valid, pa.py_buffer(offsets)]
        if node.kind == TEXT:
            target = np.empty(int(offsets[-1]) + _SPARE, np.uint8)
            self.copy_texts(values, present, offsets, target)
            return pa.Array.from_buffers(
                node.type, len(values), [*buffers, pa.py_buffer(target[:-_SPARE])], nulls
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
    """Keys and values of maps, each map's sorted by the bytes of the keys."""
    maps = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = pc.sort_indices(
        pa.table([maps, entries[0]], ["map", "key"]), [("map", "ascending"), ("key", "ascending")]
    )
    return [entry.take(order) for entry in entries]


def _to_stored(
    node: Node, values: npt.NDArray[np.int64], high_words: npt.NDArray[np.int64]
) -> npt.NDArray[np.generic]:
    """Values as Arrow has them in memory."""
    if node.kind in {DECIMAL, WIDE}:
        return np.stack([values, high_words if node.kind == WIDE else values >> 63], axis=1)
    if node.kind == BOOL:
        return np.packbits(values.astype(np.uint8), bitorder="little")
    if node.kind == FLOAT32:
        return values.view(np.float64).astype(np.float32)
    return values.astype(_NUMPY.get(node.type, np.int64), copy=False)
