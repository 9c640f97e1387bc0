"""The lag of a table, and the offsets that are published to a consumer group."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.admin.lag import Lag, PartitionLag, find_series, measure_lag
from windrow.ingest.errors import DataLossError, SpecError, UnreachableError
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.source import (
    AtTime,
    Earliest,
    Given,
    GroupOffsets,
    Latest,
    Partitions,
    Pattern,
    Source,
    Topics,
)
from windrow.ingest.ports.broker import Stamps
from windrow.ingest.runner.group_offsets import AlteredOffsets, alter_offsets
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.contracts.windows import ROWS, plan, receipt, window
from windrow.ingest.testing.partition_log import NO_TIMESTAMP
from windrow.ingest.testing.sink import MemorySink

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
ORDERS = Source(Topics(("orders",)))


def tp(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, partition)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def fill_broker(*lengths: int) -> MemoryBroker:
    """Returns a broker with so many messages in each partition of the topic orders.

    The message at offset n is one hour minus n seconds old.
    """
    broker = MemoryBroker()
    broker.create_topic("orders", partitions=len(lengths))
    for partition, length in enumerate(lengths):
        for n in range(length):
            broker.produce(tp(partition), b"{}", timestamp=ago(3600 - n))
    return broker


def cut(broker: MemoryBroker, *offsets: int, topic: str = "orders") -> Boundary:
    """Returns a boundary, frozen now at these offsets of partitions 0, 1 and so on."""
    info = broker.topic(topic)
    marks = [Mark(topic, p, offset, "settled") for p, offset in enumerate(offsets)]
    return Boundary.of(
        ago(0), broker.cluster_id(), [TopicSeen(topic, info.topic_id, info.partitions)], marks
    )


def unread_by_tp(measured: Lag) -> dict[TopicPartition, int]:
    return {TopicPartition(p.topic, p.partition): p.records for p in measured.partitions}


def test_lag_is_offsets_and_the_age_of_the_first_unread_message() -> None:
    """Lag is the number of unread offsets, and the age of the first unread message.

    In total, offsets are summed up, and the oldest message counts. Without new messages both
    are 0.
    """
    broker = fill_broker(10, 5, 0)
    measured = measure_lag(broker, ORDERS, cut(broker, 4, 5, 0), NOW)
    new = PartitionLag("orders", 0, start=4, end=10, records=6, seconds=3596.0, lost_offsets=0)
    read, idle = (
        PartitionLag("orders", p, offset, offset, records=0, seconds=0.0, lost_offsets=0)
        for p, offset in ((1, 5), (2, 0))
    )
    assert measured == Lag(
        records=6,
        seconds=3596.0,
        lost_offsets=0,
        lagging_partitions=1,
        partitions=(new, read, idle),
    )
    assert from_json(to_json(measured), Lag) == measured
    two = measure_lag(broker, ORDERS, cut(broker, 7, 1, 0), NOW)
    assert (two.records, two.seconds, two.lagging_partitions) == (7, 3599.0, 2)


def test_what_isnt_visible_has_no_age() -> None:
    """Unread offsets of aborted messages count as lag, but have no age.

    Messages of an open transaction have no age before it commits.
    """
    broker = fill_broker(1)
    doomed = broker.transaction()
    broker.produce(tp(0), b"{}", timestamp=ago(100), transaction=doomed)
    doomed.abort()
    undecided = broker.transaction()
    broker.produce(tp(0), b"{}", timestamp=ago(50), transaction=undecided)
    measured = measure_lag(broker, ORDERS, cut(broker, 1), NOW)
    assert (measured.records, measured.seconds) == (2, 0.0)
    assert (
        measure_lag(broker.with_isolation("read_uncommitted"), ORDERS, cut(broker, 1), NOW).seconds
        == 100.0
    )
    undecided.commit()
    assert measure_lag(broker, ORDERS, cut(broker, 1), NOW).seconds == 50.0


@pytest.mark.parametrize("stamp", [NO_TIMESTAMP, NOW + timedelta(days=365), 2**62])
def test_an_odd_timestamp_has_no_age(stamp: datetime | int) -> None:
    """A message without a timestamp, or with one in the future, has no age."""
    broker = fill_broker(0)
    broker.produce(tp(0), b"{}", timestamp=stamp)
    broker.produce(tp(0), b"{}", timestamp=ago(10))
    measured = measure_lag(broker, ORDERS, cut(broker, 0), NOW)
    assert (measured.records, measured.seconds) == (2, 0.0)


@pytest.mark.parametrize(
    ("start", "records"),
    [
        (None, 8),  # without a broker's lookup, a label's start is taken for the log start
        (Earliest(), 8),
        (Latest(), 0),
        (AtTime(ago(3600 - 6)), 4),
        (Given(((tp(0), 9),), "earliest"), 1),
        (Given(((tp(0), 1),), "earliest"), 8),  # deleted; the first window reports it
        (GroupOffsets("nobody"), 8),
    ],
)
def test_before_the_first_window_it_counts_from_where_the_source_starts(
    start: object, records: int
) -> None:
    """Before the first window, everything from the source's start on is unread.

    If the start isn't known without a run, the log's start counts.
    """
    broker = fill_broker(10)
    broker.delete_records(tp(0), 2)
    source = ORDERS if start is None else Source(Topics(("orders",)), start)  # type: ignore[arg-type]
    measured = measure_lag(broker, source, None, NOW)
    assert (measured.records, measured.lost_offsets) == (records, 0)


def test_a_new_topic_and_a_new_partition_count() -> None:
    """A partition that was added counts from 0, and a topic that joins from its future start."""
    broker = fill_broker(5)
    committed = cut(broker, 5)
    broker.add_partitions("orders", 2)
    broker.create_topic("other")
    for partition, seconds in ((tp(1), 9), (tp(0, "other"), 9), (tp(0, "other"), 0)):
        broker.produce(partition, b"{}", timestamp=ago(seconds))
    assert unread_by_tp(
        measure_lag(broker, Source(Pattern("o.*"), Earliest()), committed, NOW)
    ) == {
        tp(0): 0,
        tp(1): 1,
        tp(0, "other"): 2,
    }
    assert (
        unread_by_tp(measure_lag(broker, Source(Pattern("o.*"), Latest()), committed, NOW))[
            tp(0, "other")
        ]
        == 2
    )
    leaving_out = Source(Pattern("o.*"), Earliest(), joining="window")
    assert unread_by_tp(measure_lag(broker, leaving_out, committed, NOW))[tp(0, "other")] == 1
    assert unread_by_tp(measure_lag(broker, Source(Partitions((tp(1),))), committed, NOW)) == {
        tp(1): 1
    }


def test_a_topic_that_is_gone_is_no_reason_to_fail() -> None:
    """A topic that was deleted has no lag; a topic that never existed raises SpecError."""
    broker = fill_broker(5)
    broker.create_topic("gone")
    both = Boundary.of(
        ago(0),
        "memory",
        [*cut(broker, 2).topics, *cut(broker, 0, topic="gone").topics],
        [Mark("orders", 0, 2, "settled")],
    )
    broker.delete_topic("gone")
    assert unread_by_tp(measure_lag(broker, Source(Topics(("orders", "gone"))), both, NOW)) == {
        tp(0): 3
    }
    assert unread_by_tp(measure_lag(broker, Source(Topics(("gone",))), both, NOW)) == {}
    with pytest.raises(SpecError):
        measure_lag(broker, Source(Topics(("never",))), both, NOW)


def test_another_topic_of_the_same_name_is_wholly_unread() -> None:
    """After a topic was made again, or moved to another cluster, all its messages are unread.

    Offsets mean other messages there.
    """
    broker = fill_broker(3)
    committed = cut(broker, 3)
    broker.recreate_topic("orders")
    for _ in range(4):
        broker.produce(tp(0), b"{}")
    assert measure_lag(broker, ORDERS, committed, NOW).records == 4
    moved = Boundary.of(ago(0), "elsewhere", committed.topics, committed.marks)
    assert measure_lag(broker, ORDERS, moved, NOW).records == 4


def test_what_retention_took_is_lost_not_lag() -> None:
    """Messages that retention deleted count as lost offsets, not as lag."""
    broker = fill_broker(10, 3)
    committed = cut(broker, 4, 3)
    broker.delete_records(tp(0), 7)
    broker.truncate(tp(1), 1)
    measured = measure_lag(broker, ORDERS, committed, NOW)
    assert (measured.records, measured.lost_offsets, measured.seconds) == (3, 3, 3593.0)
    assert unread_by_tp(measured) == {tp(0): 3, tp(1): 0}


class Racing(MemoryBroker):
    """A broker whose retention deletes all messages before their timestamps are read."""

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        self.delete_records(tp, stop)
        return super().stamps(tp, start, stop)


class Counting(MemoryBroker):
    """A broker that counts the reads of timestamps that began and ended."""

    looks_begun = looks_ended = 0

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        self.looks_begun += 1
        try:
            yield from super().stamps(tp, start, stop)
        finally:
            self.looks_ended += 1


def test_retention_may_be_faster_than_the_look() -> None:
    """A message that is deleted while its age is asked has no age."""
    broker = Racing()
    broker.create_topic("orders")
    broker.produce(tp(0), b"{}", timestamp=ago(9))
    measured = measure_lag(broker, ORDERS, None, NOW)
    assert (measured.records, measured.seconds) == (1, 0.0)


def test_one_short_look_per_lagging_partition() -> None:
    """Timestamps are read only for partitions with lag, and only the first chunk of them."""
    broker = Counting()
    broker.create_topic("orders", partitions=3)
    for _ in range(2500):
        broker.produce(tp(1), b"{}", timestamp=ago(9))
    assert measure_lag(broker, ORDERS, None, NOW).records == 2500
    assert (broker.looks_begun, broker.looks_ended) == (1, 1)


class Away(MemoryBroker):
    def committed_offsets(self, group: str, tps: object) -> dict[TopicPartition, int | None]:
        raise UnreachableError("the cluster doesn't answer", "plan", "Try later.")


def test_a_cluster_that_is_away_is_told() -> None:
    """If the cluster doesn't answer, measuring raises UnreachableError.

    It is not mistaken for a group without offsets.
    """
    broker = Away()
    broker.create_topic("orders")
    with pytest.raises(UnreachableError):
        measure_lag(broker, Source(Topics(("orders",)), GroupOffsets("group")), None, NOW)


# --------------------------------------------------------------------------------------------------


def test_a_group_gets_a_window_s_end() -> None:
    """The group gets the boundary's offsets, without topics that are not read any more."""
    broker = fill_broker(5, 5)
    removed_mark = Mark("gone", 0, 3, "removed")
    committed = cut(broker, 4, 5)
    committed = Boundary.of(
        committed.label,
        "memory",
        [*committed.topics, TopicSeen("gone", "id", 1)],
        [*committed.marks, removed_mark],
    )
    assert alter_offsets(broker, "watchers", committed) == AlteredOffsets("watchers", 2, 0, ())
    assert broker.committed_offsets("watchers", [tp(0), tp(1), removed_mark.tp]) == {
        tp(0): 4,
        tp(1): 5,
        removed_mark.tp: None,
    }


def test_a_group_gets_no_offset_of_what_is_not_read_any_more() -> None:
    """A topic that exists but isn't read any more gets no offset.

    Its offset would stay, and look like a growing lag.
    """
    broker = fill_broker(5)
    let_go = broker.create_topic("let-go")
    committed = cut(broker, 4)
    topics = [*committed.topics, TopicSeen("let-go", let_go.topic_id, 1)]
    committed = Boundary.of(
        committed.label, "memory", topics, [*committed.marks, Mark("let-go", 0, 0, "removed")]
    )
    assert alter_offsets(broker, "watchers", committed) == AlteredOffsets("watchers", 1, 0, ())
    assert broker.committed_offsets("watchers", [TopicPartition("let-go", 0)]) == {
        TopicPartition("let-go", 0): None
    }


def test_altered_offsets_tell_what_did_not_work() -> None:
    """Each reason for which offsets were refused comes once, with their number and an example."""
    broker = fill_broker(5, 5)
    committed = cut(broker, 4, 5)
    broker.refuse_offsets("watchers", "its members are at work")
    assert alter_offsets(broker, "watchers", committed) == AlteredOffsets(
        "watchers", 0, 2, ("its members are at work (orders[0] and 1 more)",)
    )
    broker.refuse_offsets("watchers", None)
    broker.recreate_topic("orders")
    assert alter_offsets(broker, "watchers", committed) == AlteredOffsets("watchers", 0, 0, ()), (
        "offsets of the old topic mean nothing in the new one"
    )


class Broken(MemoryBroker):
    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str | None]:
        raise DataLossError("torn", "plan", "Look.")


def test_altering_offsets_never_raises() -> None:
    """Publishing offsets never raises, because the window is committed already."""
    broker = Broken()
    broker.create_topic("orders")
    assert alter_offsets(broker, "watchers", cut(broker, 0)) == AlteredOffsets(
        "watchers",
        0,
        1,
        ("DataLossError: torn (plan). Look. See `windrow help retention`. (orders[0])",),
    )


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)))
def test_series_of_windows_in_any_order(order: Sequence[int], absent: set[int]) -> None:
    """Each series of adjacent windows has its first and its last one, and the series are sorted.

    The receipts may be read in any order.
    """
    sink = MemorySink("orders", ROWS)
    numbers = [n for n in order if n not in absent]
    series = find_series(receipt(plan(sink, n), [], 0, "a") for n in numbers)
    assert [(first.window, last.window) for first, last in series] == [
        (window(first), window(last))
        for first in range(12)
        for last in range(first, 12)
        if {first - 1, last + 1} & set(numbers) == set()
        and set(range(first, last + 1)) <= set(numbers)
    ]


def test_a_long_series_is_read_in_little_memory() -> None:
    """Only the receipts at the ends of a series are kept while receipts are read."""
    sink = MemorySink("orders", ROWS)
    receipts = [receipt(plan(sink, n), [], 0, "a") for n in range(3)]
    references_before = sys.getrefcount(receipts[1])

    def read() -> Iterator[Receipt]:
        yield from receipts
        assert sys.getrefcount(receipts[1]) <= references_before + 1, "it is held"

    assert find_series(read()) == [(receipts[0], receipts[2])]
