"""Gaps: ranges of offsets without visible messages, recorded in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

GAPS_MAX = 100
OFFSETS_MAX = 1_000_000


@dataclass
class Gaps:
    """The first gaps of two offsets and more.

    A gap of one offset is a transaction marker, or was compacted, and isn't recorded.
    `ranges`: the first offset of each gap and the first one after it. `expected`: the
    next offset if no gap follows.
    """

    expected: int
    ranges: list[tuple[int, int]] = field(default_factory=list)
    _offsets_left: int = OFFSETS_MAX

    def add_visible(self, offsets: npt.NDArray[np.int64]) -> None:
        """Adds the offsets of visible messages, ascending, none of them below `expected`."""
        last = int(offsets[-1])
        if last - self.expected != len(offsets) - 1:
            starts = np.concatenate(([self.expected], offsets[:-1] + 1))
            for i in np.flatnonzero(offsets - starts >= 2)[:GAPS_MAX]:
                self._keep(int(starts[i]), int(offsets[i]))
        self.expected = last + 1

    def add_end(self, stop: int) -> None:
        """Records that no more messages were seen before `stop`."""
        if stop - self.expected >= 2:
            self._keep(self.expected, stop)

    def add_skipped(self, start: int, stop: int) -> None:
        """Records that no messages were seen before `start`, and none exist up to `stop`."""
        self.add_end(start)
        self.expected = stop

    def _keep(self, start: int, stop: int) -> None:
        stop = min(stop, start + self._offsets_left)
        if len(self.ranges) < GAPS_MAX and start < stop:
            self.ranges.append((start, stop))
            self._offsets_left -= stop - start
