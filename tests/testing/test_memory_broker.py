"""The in-memory broker and its reader keep the contracts of Kafka's.

These tests also cover operations that Kafka doesn't offer.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.broker_contract import BrokerContract
from tests.contracts.logs import Logs, MemoryCluster
from tests.contracts.reader_contract import ReaderContract
from tests.contracts.reading import batches_of, gathered
from tests.profiles import examples
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.partition_log import NO_TIMESTAMP
from windrow.ingest.testing.reader import MemoryReader

TP = TopicPartition("t", 0)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def dirty(broker: MemoryBroker) -> MemoryBroker:
    return broker.with_isolation("read_uncommitted")


@pytest.fixture
def logs(broker: MemoryBroker) -> Logs:
    return Logs(MemoryCluster(broker))


class TestMemoryBroker(BrokerContract):
    """The contract of brokers, in memory."""


class TestMemoryReader(ReaderContract):
    """The contract of readers, in memory."""

    def make(self, broker: Broker, plan: ReadPlan, **bounds: int) -> Reader:
        assert isinstance(broker, MemoryBroker)
        return MemoryReader(broker, plan, **bounds)

    def dirty(self, broker: Broker, plan: ReadPlan) -> Reader:
        assert isinstance(broker, MemoryBroker)
        return MemoryReader(broker.with_isolation("read_uncommitted"), plan)


def offsets(broker: MemoryBroker, start: int, stop: int) -> list[int]:
    """Returns the offsets that a reader gives for a range."""
    return [
        o
        for b in batches_of(MemoryReader(broker, rows_max=3), Split("t", 0, start, stop))
        for o in b.column("offset").to_pylist()
    ]


@pytest.fixture
def topic(broker: MemoryBroker) -> MemoryBroker:
    broker.create_topic("t")
    return broker


def test_compaction_keeps_the_newest_of_each_key(topic: MemoryBroker) -> None:
    """Compaction leaves gaps for older messages of a key and for aborted ones.

    Markers and the last entry stay. No offset is used again.
    """
    for key in (b"a", b"b", b"a"):
        topic.produce(TP, b"v", key=key)
    aborted = topic.transaction()
    topic.produce(TP, b"v", key=b"b", transaction=aborted)
    aborted.abort()
    topic.produce(TP, b"v", key=b"a")
    topic.compact(TP)
    assert offsets(topic, 0, 6) == [1, 5]
    assert topic.produce(TP, b"v") == 6
    assert [e.offset for e in topic.fetch(TP, 0, 7)[0]] == [1, 4, 5, 6]


def test_compaction_stops_at_an_open_transaction(topic: MemoryBroker) -> None:
    """Compaction doesn't clean messages after an open transaction."""
    topic.produce(TP, b"v", key=b"a")
    with topic.transaction() as running:
        topic.produce(TP, b"v", key=b"a", transaction=running)
        topic.produce(TP, b"v", key=b"a")
        topic.compact(TP)
    assert offsets(topic, 0, 4) == [0, 1, 2]


def test_a_transaction_ends_once(topic: MemoryBroker) -> None:
    """A transaction ends once: an exception in its block aborts it, and later calls fail."""
    failed = topic.transaction()
    topic.produce(TP, b"v", transaction=failed)
    with pytest.raises(KeyError), failed:
        raise KeyError
    assert offsets(topic, 0, 2) == []
    for late_call in (
        failed.commit,
        failed.abort,
        lambda: topic.produce(TP, b"v", transaction=failed),
    ):
        with pytest.raises(ValueError, match="aborted already"):
            late_call()


def test_a_message_without_a_timestamp(topic: MemoryBroker) -> None:
    """A message without a timestamp has a null timestamp without a type, and no search by time
    finds it.
    """
    topic.produce(TP, b"v", timestamp=NO_TIMESTAMP)
    (batch,) = batches_of(MemoryReader(topic), Split("t", 0, 0, 1))
    assert batch.column("timestamp").to_pylist() == [None]
    assert batch.column("timestamp_type").to_pylist() == ["NoTimestampType"]


def test_a_change_of_leader_shows_in_later_messages(topic: MemoryBroker) -> None:
    """A new leader has a higher epoch, and messages keep the epoch in which they were written."""
    topic.produce(TP, b"v")
    assert topic.elect(TP) == 1
    topic.produce(TP, b"v")
    (chunk,) = topic.stamps(TP, 0, 2)
    assert chunk.epochs.tolist() == [0, 1]
    assert topic.stable_ends([TP])[TP].leader_epoch == 1


def test_an_unclean_change_of_leader_loses_the_end(topic: MemoryBroker) -> None:
    """An unclean election loses messages from the new end on, with their transactions.

    Their offsets are used again in the next epoch.
    """
    topic.produce(TP, b"v")
    running = topic.transaction()
    topic.produce(TP, b"lost", transaction=running)
    topic.truncate(TP, 1)
    assert topic.ends([TP]) == {TP: 1}
    assert topic.stable_ends([TP])[TP].leader_epoch == 1
    assert topic.produce(TP, b"w") == 1
    running.commit()  # its messages are lost, so there is no marker
    assert [(e.value, e.epoch) for e in topic.fetch(TP, 0, topic.ends([TP])[TP])[0]] == [
        (b"v", 0),
        (b"w", 1),
    ]
    with pytest.raises(ValueError, match="can't truncate"):
        topic.truncate(TP, 3)


def test_two_isolation_levels_are_one_cluster(topic: MemoryBroker) -> None:
    """Both isolation levels show the same cluster.

    With read_uncommitted no message counts as undecided or aborted.
    """
    dirty = topic.with_isolation("read_uncommitted")
    running = topic.transaction()
    dirty.produce(TP, b"v", transaction=running)
    assert [(e.value, e.visible, e.aborted) for e in dirty.fetch(TP, 0, 1)[0]] == [
        (b"v", True, False)
    ]
    running.abort()
    assert [(e.visible, e.aborted) for e in dirty.fetch(TP, 0, 2)[0]] == [
        (True, False),
        (False, False),
    ]
    assert [
        (e.visible, e.aborted) for e in dirty.with_isolation("read_committed").fetch(TP, 0, 2)[0]
    ] == [
        (False, True),
        (False, False),
    ]
    topic.create_topic("later")
    topic.commit_group("g", {TP: 1})
    assert dirty.names() == ["later", "t"]
    assert dirty.committed_offsets("g", [TP]) == {TP: 1}


def test_offsets_that_a_group_refuses_are_told(topic: MemoryBroker) -> None:
    """A group that refuses offsets keeps its old ones until it accepts again.

    Other groups aren't affected.
    """
    topic.commit_group("g", {TP: 1})
    topic.refuse_offsets("g", "consumers are at work in the group")
    assert topic.alter_offsets("g", {TP: 2}) == {TP: "consumers are at work in the group"}
    assert topic.alter_offsets("h", {TP: 2}) == {TP: None}
    assert topic.committed_offsets("g", [TP]) == {TP: 1}
    topic.refuse_offsets("g", None)
    assert topic.alter_offsets("g", {TP: 2}) == {TP: None}


def test_internal_topics_are_not_among_the_names(topic: MemoryBroker) -> None:
    """Kafka's internal topics aren't listed; other topics with two underscores are."""
    topic.create_topic("__consumer_offsets")
    topic.create_topic("__mine")
    assert topic.names() == ["__mine", "t"]


def test_a_deleted_topics_offsets_are_forgotten(topic: MemoryBroker) -> None:
    """A topic made again has no committed offsets."""
    topic.commit_group("g", {TP: 1})
    topic.recreate_topic("t")
    assert topic.committed_offsets("g", [TP]) == {TP: None}


def test_the_clock_stamps_markers() -> None:
    """A marker has the broker's clock as its timestamp, whatever the timestamps of its messages."""
    broker = MemoryBroker(clock=lambda: 777)
    broker.create_topic("t")
    with broker.transaction() as running:
        broker.produce(TP, b"v", timestamp=5, transaction=running)
    assert [(e.timestamp, e.marker) for e in broker.fetch(TP, 0, 2)[0]] == [(5, False), (777, True)]


def lay(broker: MemoryBroker, seed: int) -> None:
    """Writes a random log of data, markers, aborted runs, interleaved transactions, retention
    and gaps.
    """
    draw = random.Random(seed)
    running: list[object] = []
    for _ in range(draw.randrange(1, 60)):
        choice = draw.randrange(8)
        if choice < 3:
            broker.produce(TP, b"%d" % draw.randrange(99), key=b"%d" % draw.randrange(3))
        elif choice == 3 and len(running) < 3:
            running.append(broker.transaction())
        elif choice < 6 and running:
            broker.produce(TP, b"t", key=b"t", transaction=draw.choice(running))
        elif choice == 6 and running:
            last = running.pop(draw.randrange(len(running)))
            last.commit() if draw.random() < 0.5 else last.abort()
        elif choice == 7 and draw.random() < 0.3:
            broker.compact(TP)
    for last in running:
        last.commit() if draw.random() < 0.5 else last.abort()
    end = broker.stable_ends([TP])[TP].offset
    broker.remove(TP, [o for o in range(end) if draw.random() < 0.2])
    broker.delete_records(TP, draw.randrange(end // 3 + 1))


@settings(max_examples=examples(200))
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.floats(0, 1), max_size=6))
def test_splits_of_any_layout_join_up_to_the_visible_log(seed: int, cuts: list[float]) -> None:
    """The splits of a random log, cut anywhere, give exactly its visible messages, once and in
    order.

    The summaries add up.
    """
    broker = MemoryBroker()
    broker.create_topic("t")
    lay(broker, seed)
    start, end = broker.log_starts([TP])[TP], broker.stable_ends([TP])[TP].offset
    entries = broker.fetch(TP, start, end, 10_000)[0]
    visible = [e.offset for e in entries if e.visible]
    edges = sorted({start, end, *(start + round(cut * (end - start)) for cut in cuts)})
    reader, given_offsets, read, aborted = MemoryReader(broker, rows_max=5), [], 0, 0
    for low, high in pairwise(edges):
        batches, summary = gathered(reader, Split("t", 0, low, high))
        given_offsets += [o for b in batches for o in b.column("offset").to_pylist()]
        read += summary.read
        aborted += summary.aborted
    assert given_offsets == visible
    assert [int(o) for chunk in broker.stamps(TP, start, end) for o in chunk.offsets] == visible
    assert (read, aborted) == (len(visible), sum(e.aborted for e in entries))


def test_an_instant_is_found_in_what_is_left(broker: MemoryBroker) -> None:
    """After retention, compaction and truncation, a search by time gives the first match among
    the remaining messages.

    This holds also if timestamps fall.
    """
    broker.create_topic("t")
    stamps = [90, 10, 50, 20, 70, 30, 60]
    for stamp in stamps:
        broker.produce(TP, b"{}", timestamp=stamp)
    remaining = dict(enumerate(stamps))
    cuts = (
        lambda: broker.delete_records(TP, 1),
        lambda: broker.remove(TP, [2]),
        lambda: broker.truncate(TP, 6),
    )
    for cut, removed in zip(cuts, (0, 2, 6), strict=True):
        cut()
        del remaining[removed]
        for label in range(0, 100, 5):
            position = broker.first_at_or_after([TP], EPOCH + timedelta(milliseconds=label))[TP]
            assert (None if position is None else position.offset) == next(
                (o for o, stamp in remaining.items() if stamp >= label), None
            )


def test_where_the_messages_of_a_leader_epoch_end(topic: MemoryBroker) -> None:
    """The end of a leader epoch is the start of the next one, or the log's end for the newest.

    It is never below the log's start.
    """
    for _ in range(6):
        topic.produce(TP, b"v")
    begun = topic.ends([TP])[TP]
    topic.elect(TP)
    topic.elect(TP)
    topic.produce(TP, b"v")
    assert [topic.end_of_epoch(TP, epoch) for epoch in (0, 1, 2, 3)] == [
        begun,
        begun,
        begun + 1,
        begun + 1,
    ]
    topic.truncate(TP, begun - 2)
    assert [topic.end_of_epoch(TP, epoch) for epoch in (0, 1, 2, 3)] == [begun - 2] * 4
    topic.produce(TP, b"v")
    assert [topic.end_of_epoch(TP, epoch) for epoch in (2, 3)] == [begun - 2, begun - 1]
    topic.delete_records(TP, begun - 1)
    assert topic.end_of_epoch(TP, 0) == begun - 1
