"""Searches by timestamp: they read no further than needed, and stop at a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from tests.source.enumerator.logs import write
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.ports.broker import OffsetAndEpoch, Stamps
from windrow.ingest.source.enumerator.timestamp_search import (
    Look,
    ScanBudgetError,
    ScanRange,
    without_timestamps,
)
from windrow.ingest.testing.broker import MemoryBroker

TP = TopicPartition("t", 0)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def limit_scans_to_forty_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits a search to forty messages without an answer."""
    monkeypatch.setattr("windrow.ingest.source.enumerator.timestamp_search.MOST_SCANNED", 40)


class Log(MemoryBroker):
    """A log whose offsets are indices, in chunks of ten.

    `hits` has Kafka's answers, an offset by timestamp; by default, they are computed. The log
    records the chunks that were read, the times that were asked for, and the reads that were
    closed. It keeps a reference to each read, so garbage collection doesn't close it.
    """

    def __init__(
        self, stamps: Sequence[int], hits: dict[int, int] | None = None, chunk: int = 10
    ) -> None:
        super().__init__()
        self.all = np.array(stamps, np.int64)
        self.hits = hits
        self.chunk = chunk
        self.reads: list[Iterator[Stamps]] = []
        self.chunk_starts: list[int] = []
        self.asked_instants: list[datetime] = []
        self.closed = 0

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """Returns the chunks of [start, stop)."""
        assert tp == TP
        self.reads.append(self.chunks(start, stop))
        return self.reads[-1]

    def chunks(self, start: int, stop: int) -> Iterator[Stamps]:
        """Yields the chunks of one read."""
        try:
            for chunk_start in range(start, stop, self.chunk):
                self.chunk_starts.append(chunk_start)
                offsets = np.arange(
                    chunk_start, min(chunk_start + self.chunk, stop), dtype=np.int64
                )
                yield Stamps(offsets, self.all[offsets], np.full(len(offsets), 3, np.int32))
        finally:
            self.closed += 1

    def first_at_or_after(
        self, tps: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """Returns Kafka's answer: by default the right one, None if no message is so late."""
        assert list(tps) == [TP]
        self.asked_instants.append(moment)
        label = (moment - EPOCH) // timedelta(milliseconds=1)
        if self.hits is not None:
            return {TP: OffsetAndEpoch(self.hits[label], 0)}
        later = np.flatnonzero(self.all >= label)
        return {TP: OffsetAndEpoch(int(later[0]), 0) if len(later) else None}


def whole_log(log: Log, begin: int = 0, limit: int | None = None) -> ScanRange:
    """Returns the range from `begin` to the log's end."""
    end = len(log.all)
    return ScanRange(TP, begin, end, end if limit is None else limit)


def look_at(log: Log) -> tuple[Look, list[int]]:
    """Returns a search, and its progress."""
    progress: list[int] = []
    return Look(log, progress.append), progress


def test_near_is_one_short_read() -> None:
    """A near search reads only the chunks with the first twenty messages, closes the read, and
    reports each chunk.
    """
    log = Log([0] * 5 + [9] * 60)
    look, progress = look_at(log)
    assert look.near(whole_log(log, 5), 9) == [OffsetAndEpoch(5, 3)]
    assert (log.chunk_starts, log.closed, progress, look.looked) == ([5, 15], 1, [10, 20], 20)


@pytest.mark.parametrize("begin", [7, 8])
def test_near_asks_nothing_where_no_cut_can_be(begin: int) -> None:
    """A near search that begins at the limit or after it reads nothing."""
    log = Log([9] * 30)
    look, progress = look_at(log)
    assert look.near(whole_log(log, begin, 7), 9) == []
    assert (log.chunk_starts, progress) == ([], [])


@pytest.mark.parametrize(("below", "gives_up"), [(11, False), (20, False), (21, True), (70, True)])
def test_near_gives_up_where_it_gets_far(below: int, gives_up: bool) -> None:
    """A near search gives up after forty messages that don't decide.

    A message is an answer only if nineteen messages after it have been read, too.
    """
    log = Log([0] * below + [9] * 60)
    look, _ = look_at(log)
    if gives_up:
        with pytest.raises(ScanBudgetError):
            look.near(whole_log(log), 9)
    else:
        assert look.near(whole_log(log), 9) == [OffsetAndEpoch(below, 3)]
    assert (log.chunk_starts[-1], log.closed) == (30, 1)


@pytest.mark.parametrize(("chunk", "last"), [(13, 39), (39, 39), (40, 0), (1, 39)])
def test_near_is_patient_for_forty_messages(chunk: int, last: int) -> None:
    """A near search gives up after exactly forty messages; the chunk with the fortieth is still
    searched.
    """
    log = Log([0] * 20 + [9] * 100, chunk=chunk)
    look, _ = look_at(log)
    assert look.near(whole_log(log), 9) == [OffsetAndEpoch(20, 3)]
    assert (log.chunk_starts[-1], log.closed) == (last, 1)


def test_no_more_is_read_beyond_the_limit_than_helps_to_decide() -> None:
    """A search reads twenty messages after the limit. A cut found there doesn't count."""
    log = Log([0] * 38 + [9] + [0] * 80)
    look, _ = look_at(log)
    assert look.through(whole_log(log, 0, 39), [9]) == []
    assert log.chunk_starts == [0, 10, 20, 30, 40, 50]
    assert log.closed == 1


def test_a_limit_at_a_chunks_end_needs_twenty_more() -> None:
    """The message at the limit is the first of those twenty."""
    log = Log([0] * 100)
    look, _ = look_at(log)
    look.through(whole_log(log, 0, 20), [9])
    assert log.chunk_starts == [0, 10, 20, 30]


def test_twenty_messages_at_or_beyond_the_limit_are_read() -> None:
    """Exactly twenty messages after the limit are read, because the last candidate is right
    below the limit.
    """
    log = Log([0] * 29 + [9] + [0] * 70, chunk=1)
    look, _ = look_at(log)
    assert look.through(whole_log(log, 20, 30), [9]) == []
    assert log.chunk_starts == list(range(20, 50))


def test_through_answers_labels_in_one_pass() -> None:
    """One pass answers all labels that the log reaches."""
    log = Log([1] * 10 + [2] * 10 + [3] * 30)
    look, _ = look_at(log)
    assert [cut.offset for cut in look.through(whole_log(log), [1, 2, 3, 4])] == [0, 10, 20]
    assert log.chunk_starts == [0, 10, 20, 30, 40]


def test_through_leaps_over_what_is_known_to_lie_before() -> None:
    """After forty messages without an answer Kafka is asked once.

    If its offset is more than forty further, the search goes on there.
    """
    log = Log([1] * 200 + [2] * 40)
    look, _ = look_at(log)
    assert look.through(whole_log(log), [2]) == [OffsetAndEpoch(200, 3)]
    assert log.chunk_starts == [0, 10, 20, 30, 200, 210]
    assert log.asked_instants == [EPOCH + timedelta(milliseconds=2)]
    assert (log.closed, look.looked) == (2, 60)


@pytest.mark.parametrize(
    ("stamps", "labels", "expected_starts"),
    [
        ([1] * 200 + [2] * 40, [2], [0, 13, 26, 39, 200, 213]),
        ([1] * 13 + [2] * 200 + [3] * 40, [1, 3], [0, 13, 26, 39, 52, 65, 213, 226]),
    ],
)
def test_a_leap_needs_forty_messages_without_an_answer(
    stamps: list[int], labels: list[int], expected_starts: list[int]
) -> None:
    """Kafka is asked only after forty messages without an answer, not 39, from the start or
    from an answer on.
    """
    log = Log(stamps, chunk=13)
    look, _ = look_at(log)
    look.through(whole_log(log), labels)
    assert log.chunk_starts == expected_starts


@pytest.mark.parametrize(("target", "leaps"), [(79, False), (80, True)])
def test_a_leap_must_be_worth_it(target: int, leaps: bool) -> None:
    """A search leaps only if Kafka's offset is more than forty after the last offset.

    It asks once either way.
    """
    log = Log([1] * 100 + [2] * 40, {2: target})
    look, _ = look_at(log)
    assert look.through(whole_log(log), [2]) == [OffsetAndEpoch(100, 3)]
    assert (40 in log.chunk_starts) == (not leaps)
    assert len(log.asked_instants) == 1


def test_a_leap_to_no_message_ends_the_look() -> None:
    """If Kafka knows no message so late, the search ends."""
    log = Log([1] * 200)
    look, _ = look_at(log)
    assert look.through(whole_log(log), [1, 9]) == [OffsetAndEpoch(0, 3)]
    assert log.chunk_starts[-1] < 100
    assert len(log.asked_instants) == 1


def test_patience_begins_anew_with_each_answer() -> None:
    """The forty messages count from the last cut. For the next label Kafka is asked again."""
    log = Log([1] * 30 + [2] * 130 + [3] * 30)
    look, _ = look_at(log)
    assert [cut.offset for cut in look.through(whole_log(log), [1, 2, 3])] == [0, 30, 160]
    assert log.asked_instants == [EPOCH + timedelta(milliseconds=3)]
    log = Log([1] * 200 + [2] * 200 + [3] * 30)
    look, _ = look_at(log)
    assert [cut.offset for cut in look.through(whole_log(log), [2, 3])] == [200, 400]
    assert log.asked_instants == [EPOCH + timedelta(milliseconds=n) for n in (2, 3)]


def test_through_asks_nothing_where_no_cut_can_be() -> None:
    """A search at the limit, or without labels, reads nothing."""
    log = Log([9] * 30)
    look, _ = look_at(log)
    assert look.through(whole_log(log, 7, 7), [9]) == []
    assert look.through(whole_log(log), []) == []
    assert log.chunk_starts == []


@pytest.mark.parametrize(
    ("begin", "end", "count", "expected", "chunks"),
    [
        (2, 40, 3, [2, 3, 4], 1),
        (2, 40, 12, list(range(2, 14)), 2),
        (2, 40, 10, list(range(2, 12)), 1),
        (38, 40, 5, [38, 39], 1),
    ],
)
def test_the_first_stamps(
    begin: int, end: int, count: int, expected: list[int], chunks: int
) -> None:
    """The first timestamps are read in as few chunks as possible, and the read is closed."""
    log = Log(range(40))
    look, _ = look_at(log)
    assert look.first_stamps(TP, begin, end, count).tolist() == expected
    assert (len(log.chunk_starts), log.closed) == (chunks, 1)


def test_of_nothing_there_are_no_stamps() -> None:
    """Timestamps of an empty range are empty, and nothing is read."""
    log = Log(range(40))
    look, _ = look_at(log)
    for end in (5, 4):
        assert look.first_stamps(TP, 5, end, 3).tolist() == []
    assert (log.chunk_starts, log.reads) == ([], [])


def test_stamps_are_whole_numbers() -> None:
    """Timestamps are 64-bit integers; a float would hold only 53 bits."""
    log = Log([2**62 + 1])
    look, _ = look_at(log)
    assert look.first_stamps(TP, 0, 1, 3).tolist() == [2**62 + 1]
    assert look.first_stamps(TP, 0, 0, 3).dtype == np.int64


def test_logs_without_timestamps_are_found() -> None:
    """A log is without timestamps if no visible message has one.

    Markers and aborted messages don't count. A log without visible messages isn't one.
    """
    broker = MemoryBroker()
    broker.create_topic("t", 7)
    logs = [
        [(-1, "plain"), (-1, "plain")],
        [(-1, "committed")],
        [(-1, "plain"), (5, "aborted"), (-1, "plain")],
        [(-1, "committed"), (5, "plain"), (-1, "plain")],
        [(5, "plain"), (-1, "plain")],
        [(-1, "aborted")],
        [],
    ]
    tps = [TopicPartition("t", p) for p in range(len(logs))]
    for tp, events in zip(tps, logs, strict=True):
        write(broker, tp, events)
    assert without_timestamps(broker, broker.stable_ends(tps)) == tps[:3]
    assert without_timestamps(broker, {}) == []


def test_a_log_without_timestamps_is_not_read_to_its_end() -> None:
    """Kafka's answer says that a log has no timestamps, so only the existence of a message is
    checked.
    """

    class Counting(MemoryBroker):
        reads = 0

        def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
            self.reads += 1
            return super().stamps(tp, start, stop)

    broker = Counting()
    broker.create_topic("t", 1)
    write(broker, TP, [(-1, "plain")] * 3)
    assert (without_timestamps(broker, broker.stable_ends([TP])), broker.reads) == ([TP], 1)


def test_any_iterator_of_chunks_will_do() -> None:
    """A read that can't be closed is accepted."""

    class Plain(Log):
        def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
            return map(lambda chunk: chunk, list(super().stamps(tp, start, stop)))  # noqa: C417

    log = Plain([9] * 30)
    look, _ = look_at(log)
    assert look.near(whole_log(log), 9) == [OffsetAndEpoch(0, 3)]
