"""Which offsets of a read held nothing visible, remembered in a bounded way, to look
into them later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

GAPS_MAX = 100
OFFSETS_MAX = 1_000_000


@dataclass
class Gaps:
    """The first gaps of two offsets and more.

    A gap of one offset is a transaction marker, or was compacted: not worth a look.

    `ranges`: from the first offset of each gap to the first one behind it. `expected`:
    the next offset if there were no gap.
    """

    expected: int
    ranges: list[tuple[int, int]] = field(default_factory=list)
    _offsets_left: int = OFFSETS_MAX

    def add_visible(self, offsets: npt.NDArray[np.int64]) -> None:
        """Take in the offsets of visible messages, ascending, the first of them at
        `expected` or later.
        """
        last = int(offsets[-1])
        if last - self.expected != len(offsets) - 1:
            starts = np.concatenate(([self.expected], offsets[:-1] + 1))
            for i in np.flatnonzero(offsets - starts >= 2)[:GAPS_MAX]:
                self._keep(int(starts[i]), int(offsets[i]))
        self.expected = last + 1

    def add_end(self, stop: int) -> None:
        """Take in that nothing more was seen before `stop`."""
        if stop - self.expected >= 2:
            self._keep(self.expected, stop)

    def add_skipped(self, start: int, stop: int) -> None:
        """Take in that nothing more was seen before `start`, and that what lies from
        there to `stop` is not in the log.
        """
        self.add_end(start)
        self.expected = stop

    def _keep(self, start: int, stop: int) -> None:
        stop = min(stop, start + self._offsets_left)
        if len(self.ranges) < GAPS_MAX and start < stop:
            self.ranges.append((start, stop))
            self._offsets_left -= stop - start
