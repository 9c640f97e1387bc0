"""The log of one topic-partition of the in-memory broker.

It uses no I/O and no clock. Its rules are Kafka's:

- A transaction ends with a marker, which has its own offset.
- The last stable offset is at most the first offset of the earliest open transaction.
- Offsets that compaction or retention emptied are never used again.
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
    """The state of a transaction.

    All its entries share this object, so that the end of the transaction decides them all at
    once.
    """

    status: Literal["open"] | Ended = "open"


class Entry(msgspec.Struct, frozen=True):
    """The content of one offset: a message, or a transaction's marker.

    Attributes:
        offset: the offset.
        timestamp: epoch milliseconds, or `NO_TIMESTAMP`.
        timestamp_type: librdkafka's number of the timestamp's type.
        epoch: the leader epoch.
        key: the message's key.
        value: the message's value.
        headers: the message's headers.
        transaction: the transaction that wrote it; None without a transaction.
        marker: True for a marker.
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
        """Whether a read_committed consumer sees it."""
        return not self.marker and (
            self.transaction is None or self.transaction.status == "committed"
        )

    @property
    def aborted(self) -> bool:
        """Whether it is a message of an aborted transaction, and no marker."""
        return (
            not self.marker
            and self.transaction is not None
            and self.transaction.status == "aborted"
        )


@dataclass
class PartitionLog:
    """The log of one topic-partition.

    Attributes:
        start: the first offset of the log.
        end: the high watermark.
        epoch: the current leader epoch.
        begun: the leader epochs after the first epoch, each with the offset at which it
            began.
        entries: the entries, by offset.
        highest: for each entry, the highest timestamp of this entry and all earlier entries.
            It never falls, so that bisection can find an instant.
        first_open: the first offset of each open transaction.
    """

    start: int = 0
    end: int = 0
    epoch: int = 0
    begun: list[tuple[int, int]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    highest: list[int] = field(default_factory=list)
    first_open: dict[TransactionState, int] = field(default_factory=dict)

    @property
    def stable_end(self) -> int:
        """The last stable offset: each message below it is committed or aborted."""
        return min(self.first_open.values(), default=self.end)

    def limit(self, isolation: Isolation) -> int:
        """Returns the offset at which a consumer of this isolation level stops.

        It is the last stable offset for read_committed, otherwise the high watermark.
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
        """Appends the marker that ends a transaction in this log; returns its offset."""
        del self.first_open[transaction]
        return self._append(
            Entry(self.end, timestamp, 1, self.epoch, transaction=transaction, marker=True)
        )

    def entries_between(self, start: int, stop: int, max_entries: int | None = None) -> list[Entry]:
        """Returns at most `max_entries` entries of [start, stop), markers and aborted included."""
        first, last = self._index(start), self._index(stop)
        return self.entries[first : last if max_entries is None else min(last, first + max_entries)]

    def first_at_or_after(self, timestamp: int, limit: int) -> Entry | None:
        """Returns the first entry with at least this timestamp; None if it isn't below `limit`.

        Kafka finds the entry in the whole log, and drops it if the isolation level doesn't
        see its offset. Later entries have higher offsets, so Kafka doesn't look at them.
        """
        index = bisect_left(self.highest, timestamp)
        return (
            self.entries[index]
            if index < len(self.entries) and self.entries[index].offset < limit
            else None
        )

    def end_of(self, epoch: int) -> int:
        """Returns the offset at which an epoch and all earlier epochs end.

        It is the answer of Kafka's OffsetForLeaderEpoch, and never below the log's start.
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
        """Moves the log's start up to `offset`, as retention and DeleteRecords do.

        Does nothing if the start is higher already.
        """
        if not 0 <= offset <= self.end:
            msg = f"can't delete before {offset}: the log ends at {self.end}"
            raise ValueError(msg)
        self.start = max(self.start, offset)
        self._keep(self.entries[self._index(self.start) :])

    def truncate(self, end: int) -> None:
        """Cuts the log off at `end`, as an unclean leader election does.

        Entries from `end` on are lost, their offsets are used again, and the leader epoch
        grows by one.
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

        Markers stay. All entries from the last decided entry on stay, because Kafka's cleaner
        doesn't touch them.
        """
        clean = self.entries_between(self.start, self.stable_end)[:-1]
        newest = {
            e.key: e.offset for e in self.entries_between(self.start, self.stable_end) if e.visible
        }
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
