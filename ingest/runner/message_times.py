"""The times of a split's messages, counted by the windows that they belong to.

A message's time is the broker's timestamp. With `window.event_time` it is the least value of that
column in the message's rows, and the broker's timestamp if no row has a value: a dead letter, a
message without a row, a row with null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.model.receipt import SplitCounts
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.messages import MESSAGES, in_calendar

_STAMP = MESSAGES.field("timestamp").type
_Longs = npt.NDArray[np.int64]


class LateBins(msgspec.Struct, frozen=True):
    """The bounds in time of a window and of the windows before it.

    Attributes:
        edges: the starts of these windows in epoch milliseconds, ascending. The last two are
            the window's own start and end.
        keys: the key of the window that starts at each edge, except for the last edge.
        event_time: the column with the messages' times; None: the broker's timestamps.
    """

    edges: tuple[int, ...]
    keys: tuple[str, ...]
    event_time: str | None = None


@dataclass
class MessageTimes:
    """The counts of a split's messages by time.

    Attributes:
        late_bins: the bounds that times are compared with; None for a micro-batch.
        earliest: the least time of a message.
        latest: the greatest time.
        latest_event: the greatest event time before the window's end.
        late_stamps: the number of messages that the broker stamped before the window's start.
            It is counted only with event times.
        bins: the numbers of messages: before the first edge of `late_bins`, between each two
            edges, after the last edge.
    """

    late_bins: LateBins | None
    earliest: datetime | None = None
    latest: datetime | None = None
    latest_event: datetime | None = None
    late_stamps: int = 0
    bins: _Longs = field(init=False)

    def __post_init__(self) -> None:
        edges = () if self.late_bins is None else self.late_bins.edges
        self._edges = np.asarray(edges, np.int64)
        self.bins = np.zeros(len(edges) + 1, np.int64)

    @classmethod
    def from_counts(cls, counts: SplitCounts, late_bins: LateBins) -> MessageTimes:
        """Returns the times of a split's earlier generation, to which messages can be added."""
        times = cls(
            late_bins,
            counts.min_timestamp,
            counts.max_timestamp,
            counts.latest_event,
            counts.late_stamps or 0,
        )
        late = dict(counts.late_by)
        times.bins[1:-2] = [late.get(key, 0) for key in late_bins.keys[:-1]]
        times.bins[0], times.bins[-1] = counts.late - times.bins[1:-2].sum(), counts.early
        return times

    def add(self, messages: pa.RecordBatch, decoded: Decoded) -> None:
        """Counts a batch of messages."""
        stamps = messages.column("timestamp")
        if self.late_bins is None or self.late_bins.event_time is None:
            self._count(stamps)
            return
        index, events = least_times(decoded, self.late_bins.event_time)
        by_stamp = np.ones(len(stamps), bool)
        by_stamp[index] = False
        self.late_stamps += int(np.count_nonzero(_millis(stamps) < self._edges[-2]))
        self._count(stamps.filter(pa.array(by_stamp)))
        self._count_events(events)

    def recount_accepted(self, messages: pa.RecordBatch, decoded: Decoded) -> None:
        """Counts accepted dead letters by their event times instead of their timestamps."""
        if self.late_bins is not None and self.late_bins.event_time is not None:
            index, events = least_times(decoded, self.late_bins.event_time)
            self.bins -= self._count_by_bin(messages.column("timestamp").take(pa.array(index)))
            self._count_events(events)

    def _count_events(self, events: _Longs) -> None:
        times = pa.array(events, pa.int64()).cast(_STAMP)
        self._count(times)
        inside = times.filter(pa.array(events < self._edges[-1]))
        self.latest_event = max(filter(None, (self.latest_event, _bounds(inside)[1])), default=None)

    def _count(self, times: pa.Array) -> None:
        least, greatest = _bounds(times)
        self.earliest = min(filter(None, (self.earliest, least)), default=None)
        self.latest = max(filter(None, (self.latest, greatest)), default=None)
        self.bins += self._count_by_bin(times)

    def _count_by_bin(self, times: pa.Array) -> _Longs:
        if not len(self._edges):
            return np.zeros(1, np.int64)
        numbers = np.searchsorted(self._edges, _millis(times), side="right")
        return np.bincount(numbers, minlength=len(self.bins))

    def figures(self) -> Mapping[str, Any]:
        """Returns the fields of `SplitCounts` about time.

        Messages that are older than all windows of `late_bins` count for the first window.
        """
        figures: dict[str, Any] = {"min_timestamp": self.earliest, "max_timestamp": self.latest}
        if self.late_bins is None:
            return figures
        # [older than the first edge, in the first window, ..., in the window right before
        # this window]
        late_counts = self.bins[:-2].copy()
        late = int(late_counts.sum())
        if len(late_counts) > 1:
            late_counts[1] += late_counts[0]
        late_by = zip(self.late_bins.keys[:-1], late_counts[1:].tolist(), strict=True)
        figures |= {
            "late": late,
            "early": int(self.bins[-1]),
            "late_by": tuple((key, n) for key, n in late_by if n),
        }
        if self.late_bins.event_time is not None:
            figures |= {"late_stamps": self.late_stamps, "latest_event": self.latest_event}
        return figures


def least_times(decoded: Decoded, column: str) -> tuple[_Longs, _Longs]:
    """Returns the messages with a value in a column, and the least value of each.

    The values are in epoch milliseconds, rounded down: edges of windows have no smaller parts.
    """
    times = decoded.rows.column(column)
    index = decoded.row_index.filter(times.is_valid()).to_numpy()
    first = np.flatnonzero(np.diff(index, prepend=-1))
    least = np.minimum.reduceat(times.drop_null().cast(pa.int64()).to_numpy(), first)
    return index[first], least // 1_000


def _millis(stamps: pa.Array) -> _Longs:
    return cast("_Longs", stamps.drop_null().cast(pa.int64()).to_numpy())


def _bounds(stamps: pa.Array) -> tuple[datetime | None, datetime | None]:
    """Returns the least and the greatest timestamp of the years 1 to 9999."""
    least, greatest = pc.min_max(stamps.filter(in_calendar(stamps))).values()
    return least.as_py(), greatest.as_py()
