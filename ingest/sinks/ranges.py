"""Which offsets a table's committed windows hold, of all windows together; and a file that says so, for who hasn't read their receipts.

To refuse an overlap, a process would have to read the receipt of every window at its first commit. So now and then a commit names a file
of ranges as it names its receipt: by its content, in an application transaction. It is worked out from receipts and stands for the ones
that it lists, by their fingerprints; all others are read.

    missing, damaged, of a form that isn't known, or planted     it isn't what a commit named: receipts are read
    behind: windows were committed or replaced since,            their receipts are not in its list, and are read
    by an older windrow, too
    ahead: the table was set back, or its log made anew          it holds too much: a plan that meets it is held against the receipts
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from windrow.ingest.model.plan import Covered

_FORM = 1


class RangesFile(msgspec.Struct, frozen=True):
    """What is kept: the fingerprints of the receipts that were read, and per topic-partition start, stop, start, stop ..."""

    receipts: tuple[int, ...]
    ranges: tuple[tuple[str, int, tuple[int, ...]], ...]
    form: int = _FORM


class Ranges:
    """Offsets by topic id and partition, as few ranges as there can be."""

    def __init__(self) -> None:
        self._edges: dict[tuple[str, int], list[int]] = defaultdict(list)  # start, stop, start, stop ... ascending: no two ranges touch

    def add(self, more: Iterable[Covered]) -> None:
        """These offsets, too."""
        for one in more:
            edges = self._edges[one.topic_id, one.partition]
            low, high = bisect_left(edges, one.start), bisect_right(edges, one.stop)
            edges[low:high] = [*([] if low % 2 else [one.start]), *([] if high % 2 else [one.stop])]

    def meets(self, asked: Iterable[Covered]) -> bool:
        """Whether any of these offsets is held."""
        for one in asked:
            edges = self._edges.get((one.topic_id, one.partition), [])
            after = bisect_right(edges, one.start)
            if after % 2 or (after < len(edges) and edges[after] < one.stop):
                return True
        return False

    def every(self) -> Iterable[Covered]:
        """All of them."""
        for (topic_id, partition), edges in self._edges.items():
            for start, stop in zip(edges[::2], edges[1::2], strict=True):
                yield Covered(topic_id, partition, start, stop)


def written(ranges: Ranges, receipts: Iterable[int]) -> bytes:
    """What to keep of the ranges of these receipts."""
    edges: dict[tuple[str, int], list[int]] = defaultdict(list)
    for one in ranges.every():
        edges[one.topic_id, one.partition] += (one.start, one.stop)
    kept = RangesFile(tuple(sorted(receipts)), tuple((*tp, tuple(numbers)) for tp, numbers in sorted(edges.items())))
    return msgspec.msgpack.encode(kept)


def read(content: bytes) -> tuple[Sequence[int], list[Covered]] | None:
    """The receipts that a file stands for, and their ranges; None if it isn't of a form that is known."""
    try:
        kept = msgspec.msgpack.decode(content, type=RangesFile)
        pairs = [(tid, p, zip(edges[::2], edges[1::2], strict=True)) for tid, p, edges in kept.ranges]
        every = [Covered(tid, p, start, stop) for tid, p, both in pairs for start, stop in both]
    except (msgspec.DecodeError, ValueError):
        return None
    return (kept.receipts, every) if kept.form == _FORM else None
