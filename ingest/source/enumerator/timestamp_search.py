"""Looks for labels in a topic-partition's timestamps, no further than needed.

Planning reads messages only here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import numpy.typing as npt

from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.ports.broker import Broker, OffsetAndEpoch, Stamps
from windrow.ingest.source.enumerator.label_cut import AHEAD, find_cuts

MOST_SCANNED = 2_000
"""A scan that has passed this many messages without an answer is a long one.

The timestamps of such a topic-partition are far out of order.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


UNSTAMPED = (
    "none of its messages has a timestamp, so nothing says which hour they belong to, and windows"
    " in time can't read it"
)
UNSTAMPED_WAY_OUT = (
    "Read it in micro-batches, by window.grid: batch; a pipeline keeps its grid, so one that has"
    " begun needs another id and table. Or let the broker stamp what is written from now on, by"
    " message.timestamp.type=LogAppendTime; the first window that reads it takes what lies before."
)


def of_seconds(begins: datetime | None) -> str:
    """Returns a hint if a log seems to be stamped in seconds instead of milliseconds, else "".

    Today's seconds, read as milliseconds, are in the first months of 1970.
    """
    if begins is None or begins.year > 1970:
        return ""
    return (
        f"its messages are stamped {begins:%Y-%m-%d}: are these seconds, not milliseconds?"
        " Windows later than that don't hold them"
    )


class ScanBudgetError(Exception):
    """The scan for one label would be long."""


class ScanRange(msgspec.Struct, frozen=True):
    """The part of a log to look at.

    Attributes:
        tp: the topic-partition.
        begin: the first offset to look at.
        end: the end of the log.
        limit: cuts are looked for below this offset. Messages between the limit and the
            end help to decide.
    """

    tp: TopicPartition
    begin: int
    end: int
    limit: int


@dataclass
class Look:
    """Reads timestamps from a broker.

    Attributes:
        broker: the cluster.
        progress: called with the number of messages read so far.
        looked: the number of messages read so far.
    """

    broker: Broker
    progress: Callable[[int], None]
    looked: int = field(default=0, init=False)

    def near(self, piece: ScanRange, label: int) -> list[OffsetAndEpoch]:
        """Returns the cut of one label (epoch milliseconds), if it lies below the limit.

        A cut beyond the limit has no meaning.

        Raises:
            ScanBudgetError: the cut isn't among the next MOST_SCANNED messages.
        """
        if piece.begin >= piece.limit:
            return []
        with closing(self._stamps(piece)) as chunks:
            return list(find_cuts(_patient(chunks), [label]))

    def through(self, piece: ScanRange, labels: Sequence[int]) -> list[OffsetAndEpoch]:
        """Returns the cuts of ascending labels in one pass, as far as they lie below the limit.

        If a label has no cut within MOST_SCANNED messages, Kafka is asked once for the first
        offset at or after it, and the pass goes on there. So the pass reads short pieces of a
        healthy topic-partition. If timestamps are far out of order, it reads the
        topic-partition from end to end, once.
        """
        cuts: list[OffsetAndEpoch] = []
        while len(cuts) < len(labels) and piece.begin < piece.limit:
            try:
                self._add_cuts(piece, labels, cuts)
            except _SeekError as seek:
                piece = msgspec.structs.replace(piece, begin=seek.target)
            else:
                break
        return cuts

    def is_unstamped(self, tp: TopicPartition, begin: int, end: int) -> bool:
        """Returns whether no visible message of [begin, end) has a timestamp."""
        with closing(self._stamps(ScanRange(tp, begin, end, end))) as chunks:
            return not any((chunk.timestamps >= 0).any() for chunk in chunks)

    def first_stamps(
        self, tp: TopicPartition, begin: int, end: int, count: int
    ) -> npt.NDArray[np.int64]:
        """Returns the timestamps of the first `count` visible messages of [begin, end)."""
        stamps = np.zeros(0, np.int64)
        if begin >= end:
            return stamps
        with closing(self._stamps(ScanRange(tp, begin, end, end))) as chunks:
            for chunk in chunks:
                stamps = np.concatenate([stamps, chunk.timestamps])[:count]
                if len(stamps) == count:
                    break
        return stamps

    def _add_cuts(
        self, piece: ScanRange, labels: Sequence[int], cuts: list[OffsetAndEpoch]
    ) -> None:
        """Appends each cut as soon as it is known, because the next label depends on it."""
        with closing(self._stamps(piece)) as chunks:
            for cut in find_cuts(
                self._until_seek(piece, chunks, labels, cuts), labels[len(cuts) :]
            ):
                cuts.append(cut)  # noqa: PERF402

    def _until_seek(
        self,
        piece: ScanRange,
        chunks: Iterable[Stamps],
        labels: Sequence[int],
        cuts: Sequence[OffsetAndEpoch],
    ) -> Iterator[Stamps]:
        """Yields chunks until a jump to the next label saves more than MOST_SCANNED offsets.

        Between two chunks, `cuts` has all cuts that the earlier chunks decide. Messages that
        the earlier chunks leave undecided come before the target of the jump, so they are
        before the label.

        Raises:
            _SeekError: the pass goes on at its target.
        """
        scanned, cut_count, has_asked = 0, len(cuts), False
        for chunk in chunks:
            if len(cuts) > cut_count:
                scanned, cut_count, has_asked = 0, len(cuts), False
            yield chunk
            scanned += len(chunk.offsets)
            if scanned >= MOST_SCANNED and len(cuts) == cut_count and not has_asked:
                has_asked = True
                moment = _EPOCH + timedelta(milliseconds=labels[cut_count])
                hit = self.broker.first_at_or_after([piece.tp], moment)[piece.tp]
                target = piece.end if hit is None else hit.offset
                if target > int(chunk.offsets[-1]) + MOST_SCANNED:
                    raise _SeekError(target)

    def _stamps(self, piece: ScanRange) -> Generator[Stamps, None, None]:
        """Yields chunks until all candidates below the limit can be decided.

        That needs the next messages beyond the limit. The yielded messages are counted.
        """
        beyond = 0
        chunks = self.broker.stamps(piece.tp, piece.begin, piece.end)
        try:
            for chunk in chunks:
                self.looked += len(chunk.offsets)
                self.progress(self.looked)
                yield chunk
                beyond += int(np.count_nonzero(chunk.offsets >= piece.limit))
                if beyond >= AHEAD:
                    return
        finally:
            # Only a generator holds a resource open.
            close = getattr(chunks, "close", None)
            if close is not None:
                close()


def without_timestamps(
    broker: Broker, ends: Mapping[TopicPartition, OffsetAndEpoch]
) -> list[TopicPartition]:
    """Returns the topic-partitions with visible messages but without any timestamp.

    Visible messages before Kafka's own answer for the earliest instant have no timestamp.

    Args:
        broker: the cluster.
        ends: the stable ends of the topic-partitions, asked before this call. Messages
            after them aren't examined.
    """
    hits = broker.first_at_or_after(list(ends), _EPOCH) if ends else {}
    starts = broker.log_starts(list(ends))
    look = Look(broker, lambda _: None)
    return [
        tp
        for tp, hit in hits.items()
        if (
            hit is None
            or (hit.offset > starts[tp] and look.is_unstamped(tp, hit.offset, ends[tp].offset))
        )
        and len(look.first_stamps(tp, starts[tp], ends[tp].offset, 1))
    ]


def _patient(chunks: Iterable[Stamps]) -> Iterator[Stamps]:
    """Yields chunks; raises ScanBudgetError after MOST_SCANNED messages."""
    passed = 0
    for chunk in chunks:
        yield chunk
        passed += len(chunk.offsets)
        if passed >= MOST_SCANNED:
            raise ScanBudgetError


class _SeekError(Exception):
    """The pass goes on at `target`."""

    def __init__(self, target: int) -> None:
        self.target = target
