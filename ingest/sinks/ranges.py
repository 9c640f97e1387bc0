"""Sets of offsets, stored as few ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable

from windrow.ingest.model.plan import Covered


class Ranges:
    """The offsets of many windows, by topic id and partition."""

    def __init__(self) -> None:
        # start, stop, start, stop ... ascending: no two ranges touch
        self._edges: dict[tuple[str, int], list[int]] = defaultdict(list)

    def add(self, more: Iterable[Covered]) -> None:
        """Adds offsets."""
        for one in more:
            edges = self._edges[one.topic_id, one.partition]
            low, high = bisect_left(edges, one.start), bisect_right(edges, one.stop)
            edges[low:high] = [*([] if low % 2 else [one.start]), *([] if high % 2 else [one.stop])]

    def meets(self, asked: Iterable[Covered]) -> bool:
        """Returns whether any of these offsets is in the set."""
        for one in asked:
            edges = self._edges.get((one.topic_id, one.partition), [])
            after = bisect_right(edges, one.start)
            if after % 2 or (after < len(edges) and edges[after] < one.stop):
                return True
        return False

    def every(self) -> Iterable[Covered]:
        """All ranges."""
        for (topic_id, partition), edges in self._edges.items():
            for start, stop in zip(edges[::2], edges[1::2], strict=True):
                yield Covered(topic_id, partition, start, stop)
