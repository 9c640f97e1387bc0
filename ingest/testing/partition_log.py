"""The log of one topic-partition of the in-memory broker.

No I/O, no clock. The rules are Kafka's own: a transaction ends in a marker that takes
an offset of its own; the last stable offset is at most the first offset of the earliest
open transaction; offsets that compaction or retention emptied are never given again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter
from typing import Literal

import msgspec

from windrow.ingest.model.source import Isolation

NO_TIMESTAMP = -1
Ended = Literal["committed", "aborted"]
Headers = tuple[tuple[str, bytes | None], ...]


class TransactionState(msgspec.Struct, eq=False):
    """The state of a transaction, shared by all entries that it wrote.

    So its end decides all of them at once.
    """

    status: Literal["open"] | Ended = "open"


class Entry(msgspec.Struct, frozen=True):
    """The content of one offset: a message, or a transaction's marker.

    `timestamp` is in epoch milliseconds, or `NO_TIMESTAMP`; its type is librdkafka's
    number.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    epoch: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    transaction: TransactionState | None = None
    marker: bool = False

    @property
    def visible(self) -> bool:
        """True if a read_committed consumer sees it."""
        return not self.marker and (
            self.transaction is None or self.transaction.status == "committed"
        )

    @property
    def aborted(self) -> bool:
        """True if it is a message, not a marker, of an aborted transaction."""
        return (
            not self.marker
            and self.transaction is not None
            and self.transaction.status == "aborted"
        )


@dataclass
class PartitionLog:
    """The log of one topic-partition. `end` is the high watermark."""

    start: int = 0
    end: int = 0
    epoch: int = 0
    begun: list[tuple[int, int]] = field(default_factory=list)
    """The leader epochs after the first one, each with the offset at which it began."""
    entries: list[Entry] = field(default_factory=list)
    highest: list[int] = field(default_factory=list)
    """For each entry the highest timestamp up to there.

    It only rises, so that an instant can be found by bisection.
    """
    first_open: dict[TransactionState, int] = field(default_factory=dict)

    @property
    def stable_end(self) -> int:
        """The last stable offset: every message below is committed or aborted."""
        return min(self.first_open.values(), default=self.end)

    def limit(self, isolation: Isolation) -> int:
        """The offset at which a consumer of this isolation level stops.

        It is the last stable offset, or the high watermark.
        """
        return self.stable_end if isolation == "read_committed" else self.end

    def message(
        self,
        timestamp: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        transaction: TransactionState | None,
    ) -> int:
        """Appends a message; returns its offset."""
        if transaction is not None:
            self.first_open.setdefault(transaction, self.end)
        return self._append(
            Entry(self.end, timestamp, timestamp_type, self.epoch, key, value, headers, transaction)
        )

    def mark(self, transaction: TransactionState, timestamp: int) -> int:
        """Appends the marker that ends a transaction here; returns its offset."""
        del self.first_open[transaction]
        return self._append(
            Entry(self.end, timestamp, 1, self.epoch, transaction=transaction, marker=True)
        )

    def between(self, start: int, stop: int, max_entries: int | None = None) -> list[Entry]:
        """The entries of [start, stop), markers and aborted messages too; at most `max_entries`."""
        first, last = self._index(start), self._index(stop)
        return self.entries[first : last if max_entries is None else min(last, first + max_entries)]

    def first_at_or_after(self, timestamp: int, limit: int) -> Entry | None:
        """The first entry with at least this timestamp, if it lies below the limit.

        Kafka looks the entry up in the whole log, and drops it if it lies beyond the
        offset that the isolation level may see. It doesn't look further, because all
        later entries lie beyond too.
        """
        index = bisect_left(self.highest, timestamp)
        return (
            self.entries[index]
            if index < len(self.entries) and self.entries[index].offset < limit
            else None
        )

    def end_of(self, epoch: int) -> int:
        """Kafka's OffsetForLeaderEpoch: the end of this epoch and of earlier ones.

        It is never below the log's start.
        """
        return max(
            self.start, next((first for later, first in self.begun if later > epoch), self.end)
        )

    def elect(self) -> int:
        """Begins a new leader epoch at the log's end; returns it."""
        self.epoch += 1
        self.begun.append((self.epoch, self.end))
        return self.epoch

    def delete_before(self, offset: int) -> None:
        """Moves the log's start to `offset`, unless it is further on already.

        Retention and a deletion of records do that.
        """
        if not 0 <= offset <= self.end:
            msg = f"can't delete before {offset}: the log ends at {self.end}"
            raise ValueError(msg)
        self.start = max(self.start, offset)
        self._keep(self.entries[self._index(self.start) :])

    def truncate(self, end: int) -> None:
        """Cuts the log off at `end`, as an unclean leader election does.

        Entries from there on are lost, their offsets are given again, and the epoch
        grows.
        """
        if not self.start <= end <= self.end:
            msg = f"can't truncate to {end}: the log holds {self.start} to {self.end}"
            raise ValueError(msg)
        self._keep(self.entries[: self._index(end)])
        self.first_open = {
            transaction: first for transaction, first in self.first_open.items() if first < end
        }
        self.end = end
        self.begun = [(epoch, first) for epoch, first in self.begun if first < end]
        self.elect()

    def remove(self, offsets: Collection[int]) -> None:
        """Removes these offsets, as compaction does."""
        removed = set(offsets)
        self._keep([e for e in self.entries if e.offset not in removed])

    def compact(self) -> None:
        """Keeps the newest message of each key; removes aborted messages.

        Markers stay, and so does everything from the last decided entry on, which
        Kafka's cleaner doesn't touch.
        """
        clean = self.between(self.start, self.stable_end)[:-1]
        newest = {e.key: e.offset for e in self.between(self.start, self.stable_end) if e.visible}
        self.remove(
            [e.offset for e in clean if e.aborted or (e.visible and e.offset != newest[e.key])]
        )

    def _keep(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.highest = list(accumulate((e.timestamp for e in entries), max))

    def _append(self, entry: Entry) -> int:
        self.entries.append(entry)
        self.highest.append(
            max(entry.timestamp, self.highest[-1]) if self.highest else entry.timestamp
        )
        self.end += 1
        return entry.offset

    def _index(self, offset: int) -> int:
        return bisect_left(self.entries, offset, key=attrgetter("offset"))
