"""The contract that every `ports.broker.Broker` keeps.

The module of an implementation's suite supplies the fixtures `broker`, `logs`, and `dirty`. The
fixture `dirty` is a broker for the same cluster at read_uncommitted.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import numpy as np
import pytest

from tests.contracts.logs import T0, UNSTAMPED, Logs, Sent, instant_at
from windrow.ingest.errors import DataLossError, SpecError, UnreachableError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.ports.broker import Broker


def read_stamps(broker: Broker, tp: TopicPartition, start: int, stop: int) -> list[tuple[int, int]]:
    """Returns the offset and timestamp of all stamps; timestamps are milliseconds after T0."""
    chunks = list(broker.stamps(tp, start, stop))
    assert all(len(c.offsets) == len(c.timestamps) == len(c.epochs) > 0 for c in chunks)
    assert all(
        c.offsets.dtype == np.int64
        and c.timestamps.dtype == np.int64
        and c.epochs.dtype == np.int32
        for c in chunks
    )
    return [
        (int(o), int(t) - T0) for c in chunks for o, t in zip(c.offsets, c.timestamps, strict=True)
    ]


def first(broker: Broker, tp: TopicPartition, milliseconds: int) -> int | None:
    """Returns the first offset at or after an instant, given in milliseconds after T0."""
    position = broker.first_at_or_after([tp], instant_at(milliseconds))[tp]
    return None if position is None else position.offset


def stable_end(broker: Broker, tp: TopicPartition) -> int:
    """Returns the last stable offset."""
    return broker.stable_ends([tp])[tp].offset


def three(*timestamps: int) -> Sequence[Sent]:
    """Returns messages with these timestamps."""
    return [Sent(b"%d" % t, timestamp=t) for t in timestamps]


def group() -> str:
    """Returns the name of a consumer group that doesn't exist."""
    return f"g-{uuid.uuid4().hex[:12]}"


class BrokerContract:
    """The promises of a broker; each test uses topics of its own."""

    def test_the_cluster_has_one_id(self, broker: Broker) -> None:
        """The cluster's id is a text, and stays the same."""
        assert broker.cluster_id()
        assert broker.cluster_id() == broker.cluster_id()

    def test_what_is_said_of_a_topic(self, broker: Broker, logs: Logs) -> None:
        """A topic's partitions, compaction and retention are reported.

        Without retention by time, the retention is None. For a compacted topic, the time for
        which Kafka keeps deletes is reported, too.
        """
        topic_info = broker.topic(logs.topic(3, {"retention.ms": "3600000"}))
        assert (topic_info.partitions, topic_info.compacted, topic_info.retention_ms) == (
            3,
            False,
            3_600_000,
        )
        compacted = broker.topic(
            logs.topic(
                1,
                {
                    "cleanup.policy": "compact",
                    "retention.ms": "3600000",
                    "delete.retention.ms": "1000",
                },
            )
        )
        assert (topic_info.delete_retention_ms, compacted.delete_retention_ms) == (None, 1000)
        assert (compacted.partitions, compacted.compacted, compacted.retention_ms) == (
            1,
            True,
            None,
        )
        assert broker.topic(logs.topic()).retention_ms is None

    def test_who_stamps_a_topics_messages_is_told(self, broker: Broker, logs: Logs) -> None:
        """`append_time` is True only for a topic whose broker stamps the messages."""
        assert not broker.topic(logs.topic()).append_time
        assert broker.topic(logs.topic(1, {"message.timestamp.type": "LogAppendTime"})).append_time

    def test_several_topics_in_one_question(self, broker: Broker, logs: Logs) -> None:
        """Several topics get the same answers as each topic alone.

        Topics that don't exist and invalid names are left out.
        """
        first_topic, second_topic = logs.topic(2), logs.topic(3, {"retention.ms": "3600000"})
        topic_infos = broker.topics(
            [second_topic, "no-such-topic", first_topic, "not a name", first_topic]
        )
        assert topic_infos == {
            first_topic: broker.topic(first_topic),
            second_topic: broker.topic(second_topic),
        }
        assert broker.topics(["no-such-topic"]) == broker.topics([]) == {}

    def test_the_names_of_all_topics(self, broker: Broker, logs: Logs) -> None:
        """The names of topics are sorted.

        A new topic is included. Deleted topics and Kafka's internal topics are not.
        """
        existing, deleted = logs.topic(), logs.topic()
        # a commit of offsets makes Kafka's internal topic
        broker.alter_offsets(group(), {TopicPartition(existing, 0): 0})
        logs.cluster.delete(deleted)
        names = broker.names()
        assert names == sorted(set(names))
        assert existing in names
        assert not {deleted, "__consumer_offsets", "__transaction_state"} & set(names)

    def test_an_unknown_topic_is_named(self, broker: Broker) -> None:
        """A topic that doesn't exist raises SpecError with its name."""
        with pytest.raises(SpecError) as refused:
            broker.topic("no-such-topic")
        assert refused.value.topic == "no-such-topic"

    def test_an_empty_topic(self, broker: Broker, logs: Logs) -> None:
        """An empty topic starts and ends at offset 0, has no stamps, and no message for any
        instant.

        A question about no topic-partitions has no answers.
        """
        tp = logs.partition()
        assert broker.log_starts([tp]) == {tp: 0}
        assert stable_end(broker, tp) == 0
        assert first(broker, tp, 0) is None
        assert read_stamps(broker, tp, 0, 0) == []
        assert (
            broker.log_starts([])
            == broker.stable_ends([])
            == broker.first_at_or_after([], instant_at(0))
            == broker.ends([])
            == {}
        )

    def test_many_partitions_in_one_question(self, broker: Broker, logs: Logs) -> None:
        """Each topic-partition gets its own answer, also across topics."""
        first_topic, second_topic = logs.topic(2), logs.topic(1)
        tps = [
            TopicPartition(first_topic, 0),
            TopicPartition(first_topic, 1),
            TopicPartition(second_topic, 0),
        ]
        for n, tp in enumerate(tps, 1):
            logs.send(tp, *three(*range(n)))
        assert {tp: p.offset for tp, p in broker.stable_ends(tps).items()} == dict(
            zip(tps, (1, 2, 3), strict=True)
        )
        assert broker.log_starts(tps) == dict.fromkeys(tps, 0)
        positions = broker.first_at_or_after(tps, instant_at(1))
        assert {tp: p and p.offset for tp, p in positions.items()} == dict(
            zip(tps, (None, 1, 1), strict=True)
        )

    def test_the_first_at_or_after_an_instant(self, broker: Broker, logs: Logs) -> None:
        """The answer is the lowest offset whose timestamp is at or after the instant; None
        without one.

        Timestamps may be in any order.
        """
        tp = logs.partition()
        logs.send(tp, *three(10, 5, 30, 20, 30))
        assert [first(broker, tp, t) for t in (-1, 10, 11, 30, 31)] == [0, 0, 2, 2, None]
        assert (
            broker.first_at_or_after(
                [tp], instant_at(11).replace(microsecond=instant_at(11).microsecond + 1)
            )[tp]
            is not None
        )
        instant = instant_at(10).replace(microsecond=instant_at(10).microsecond + 1)
        position = broker.first_at_or_after([tp], instant)[tp]
        assert position is not None
        assert position.offset == 2  # 10 ms is before an instant of 10.001 ms

    def test_messages_without_a_timestamp(self, broker: Broker, logs: Logs) -> None:
        """Messages without a timestamp are found for no instant.

        Later messages that have a timestamp are found.
        """
        tp, other_tp = logs.partition(), logs.partition()
        logs.send(tp, *three(UNSTAMPED, UNSTAMPED))
        assert [first(broker, tp, millis) for millis in (-T0, 0)] == [None, None]
        assert stable_end(broker, tp) == 2
        logs.send(tp, *three(5, UNSTAMPED, 3))
        assert [first(broker, tp, millis) for millis in (-T0, 4, 6)] == [2, 2, None]
        assert read_stamps(broker, tp, 0, 5) == [
            (0, UNSTAMPED),
            (1, UNSTAMPED),
            (2, 5),
            (3, UNSTAMPED),
            (4, 3),
        ]
        logs.transaction(other_tp, *three(5), commit=False)
        logs.send(other_tp, *three(UNSTAMPED))
        assert [first(broker, other_tp, millis) for millis in (-T0, 6)] == [0, 1]

    def test_an_instant_before_1970(self, broker: Broker, logs: Logs) -> None:
        """An instant before all timestamps of Kafka finds the first message.

        It is not mistaken for one of Kafka's negative codes.
        """
        tp = logs.partition()
        logs.send(tp, *three(0, 1))
        assert first(broker, tp, -T0 - 1) == 0
        assert first(broker, tp, -T0 - 2) == 0

    def test_a_marker_takes_an_offset_and_carries_the_wall_clock(
        self, broker: Broker, logs: Logs
    ) -> None:
        """A transaction marker takes an offset, and carries the wall clock as its timestamp.

        In a log of old messages, a lookup of a later instant finds the marker. Stamps don't
        include it.
        """
        tp = logs.partition()
        logs.transaction(tp, *three(0, 1), commit=True)
        logs.send(tp, *three(2))
        assert stable_end(broker, tp) == 4
        assert first(broker, tp, 1) == 1
        assert first(broker, tp, 2) == 2  # the marker, which is before the message with timestamp 2
        assert first(broker, tp, 3) == 2
        assert read_stamps(broker, tp, 0, 4) == [(0, 0), (1, 1), (3, 2)]

    def test_an_aborted_message_answers_too(self, broker: Broker, logs: Logs) -> None:
        """A lookup by instant finds messages of aborted transactions; stamps don't include them."""
        tp = logs.partition()
        logs.send(tp, *three(0))
        logs.transaction(tp, *three(50, 60), commit=False)
        logs.send(tp, *three(50))
        assert first(broker, tp, 50) == 1
        assert read_stamps(broker, tp, 0, 5) == [(0, 0), (4, 50)]
        assert stable_end(broker, tp) == 5

    def test_an_open_transaction_holds_the_end_back(self, broker: Broker, logs: Logs) -> None:
        """The last stable offset stops at the first message of an open transaction.

        No lookup by instant finds that message or a later one.
        """
        tp = logs.partition()
        logs.send(tp, *three(0))
        with logs.open_transaction(tp, *three(10)):
            logs.send(tp, *three(20))
            assert stable_end(broker, tp) == 1
            assert first(broker, tp, 0) == 0
            assert first(broker, tp, 10) is None
            assert first(broker, tp, 15) is None
            assert read_stamps(broker, tp, 0, 1) == [(0, 0)]
            with pytest.raises(UnreachableError):
                read_stamps(broker, tp, 0, 3)
        assert stable_end(broker, tp) == logs.end(tp) == 4
        assert first(broker, tp, 15) == 2
        assert read_stamps(broker, tp, 0, 4) == [(0, 0), (2, 20)]

    def test_the_logs_end_beside_the_stable_one(
        self, broker: Broker, dirty: Broker, logs: Logs
    ) -> None:
        """`ends` are the high watermarks at any isolation level, also with an open transaction."""
        open_tp, quiet_tp = logs.partition(), logs.partition()
        logs.send(open_tp, *three(0))
        logs.send(quiet_tp, *three(0, 1))
        with logs.open_transaction(open_tp, *three(1, 2)):
            assert (
                broker.ends([open_tp, quiet_tp])
                == dirty.ends([open_tp, quiet_tp])
                == {
                    open_tp: 3,
                    quiet_tp: 2,
                }
            )
            assert [stable_end(broker, open_tp), stable_end(broker, quiet_tp)] == [1, 2]
        assert broker.ends([open_tp]) == {open_tp: 4}

    def test_read_uncommitted_sees_what_is_not_decided(self, dirty: Broker, logs: Logs) -> None:
        """At read_uncommitted, the stable end is the high watermark.

        Messages of an open transaction have stamps, and lookups by instant find them.
        """
        tp = logs.partition()
        logs.send(tp, *three(0))
        with logs.open_transaction(tp, *three(10)):
            logs.send(tp, *three(20))
            assert stable_end(dirty, tp) == 3
            assert [first(dirty, tp, t) for t in (0, 10, 15, 21)] == [0, 1, 2, None]
            assert read_stamps(dirty, tp, 0, 3) == [(0, 0), (1, 10), (2, 20)]
            with pytest.raises(UnreachableError):
                read_stamps(dirty, tp, 0, 4)
        assert read_stamps(dirty, tp, 0, 4) == [(0, 0), (1, 10), (2, 20)]

    def test_read_uncommitted_sees_aborted_messages_and_no_markers(
        self, broker: Broker, dirty: Broker, logs: Logs
    ) -> None:
        """At read_uncommitted, aborted messages have stamps.

        Markers have no stamps, but lookups by instant find them.
        """
        tp = logs.partition()
        logs.transaction(tp, *three(0, 1), commit=False)
        logs.transaction(tp, *three(2), commit=True)
        assert read_stamps(dirty, tp, 0, 5) == [(0, 0), (1, 1), (3, 2)]
        assert read_stamps(broker, tp, 0, 5) == [(3, 2)]
        assert [first(dirty, tp, t) for t in (1, 2)] == [1, 2]
        assert stable_end(dirty, tp) == stable_end(broker, tp) == 5

    def test_a_group_has_the_offsets_that_it_got(self, broker: Broker, logs: Logs) -> None:
        """A group has the offsets that were published to it last, also if they went back.

        A group that doesn't exist is made. A topic-partition without a committed offset has
        None.
        """
        topic, watchers = logs.topic(2), group()
        first_tp, second_tp = TopicPartition(topic, 0), TopicPartition(topic, 1)
        logs.send(first_tp, *three(*range(9)))
        assert broker.committed_offsets(watchers, [first_tp, second_tp]) == {
            first_tp: None,
            second_tp: None,
        }
        assert broker.alter_offsets(watchers, {first_tp: 7}) == {first_tp: None}
        assert broker.committed_offsets(watchers, [second_tp, first_tp]) == {
            first_tp: 7,
            second_tp: None,
        }
        assert broker.alter_offsets(watchers, {first_tp: 4, second_tp: 0}) == {
            first_tp: None,
            second_tp: None,
        }
        assert broker.committed_offsets(watchers, [first_tp, second_tp, first_tp]) == {
            first_tp: 4,
            second_tp: 0,
        }
        assert broker.committed_offsets(group(), [first_tp]) == {first_tp: None}
        assert broker.committed_offsets(watchers, []) == broker.alter_offsets(watchers, {}) == {}

    def test_offsets_that_a_group_refuses_are_told_by_topic_partition(
        self, broker: Broker, logs: Logs
    ) -> None:
        """A topic-partition that doesn't exist gets a reason, and the others are still committed.

        A question about its committed offset returns None, without an error.
        """
        tp, watchers = logs.partition(), group()
        beyond, missing_tp = TopicPartition(tp.topic, 1), TopicPartition("no-such-topic", 0)
        reasons = broker.alter_offsets(watchers, {beyond: 1, tp: 0, missing_tp: 1})
        assert reasons.keys() == {tp, beyond, missing_tp}
        assert [reasons[tp], bool(reasons[beyond]), bool(reasons[missing_tp])] == [None, True, True]
        assert broker.committed_offsets(watchers, [tp, beyond, missing_tp]) == {
            tp: 0,
            beyond: None,
            missing_tp: None,
        }

    def test_deleted_records(self, broker: Broker, logs: Logs) -> None:
        """Deleted records move the log's start.

        Lookups don't find the deleted records. Stamps from a deleted offset raise DataLossError
        with the place.
        """
        tp = logs.partition()
        logs.send(tp, *three(0, 10, 20, 30))
        logs.cluster.delete_before(tp, 2)
        assert broker.log_starts([tp]) == {tp: 2}
        assert stable_end(broker, tp) == 4
        assert first(broker, tp, 0) == 2
        assert read_stamps(broker, tp, 2, 4) == [(2, 20), (3, 30)]
        with pytest.raises(DataLossError) as error:
            read_stamps(broker, tp, 1, 4)
        assert (error.value.topic, error.value.partition, error.value.offset) == (tp.topic, 0, 1)

    def test_all_records_deleted(self, broker: Broker, logs: Logs) -> None:
        """A log without records starts at its end."""
        tp = logs.partition()
        logs.send(tp, *three(0, 10))
        logs.cluster.delete_before(tp, 2)
        assert broker.log_starts([tp]) == {tp: 2}
        assert stable_end(broker, tp) == 2
        assert first(broker, tp, 0) is None

    def test_added_partitions(self, broker: Broker, logs: Logs) -> None:
        """An added partition is empty, and the topic's id stays."""
        topic = logs.topic()
        logs.send(TopicPartition(topic, 0), *three(0))
        original = broker.topic(topic)
        logs.cluster.add_partitions(topic, 2)
        grown = broker.topic(topic)
        assert (grown.topic_id, grown.partitions) == (original.topic_id, 2)
        ends = broker.stable_ends([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        assert [p.offset for p in ends.values()] == [1, 0]

    def test_a_recreated_topic_is_another(self, broker: Broker, logs: Logs) -> None:
        """A topic that was made again has another id, and offsets from 0."""
        tp = logs.partition()
        logs.send(tp, *three(0, 1))
        old_id = broker.topic(tp.topic).topic_id
        logs.recreate(tp.topic)
        assert broker.topic(tp.topic).topic_id != old_id
        assert stable_end(broker, tp) == 0

    def test_stamps_of_any_range(self, broker: Broker, logs: Logs) -> None:
        """Stamps of any range are exactly its visible messages.

        The range may begin or end at a marker or in an aborted transaction. A range of markers
        has no stamps.
        """
        tp = logs.partition()
        logs.send(tp, *three(0, 1))
        logs.transaction(tp, *three(2, 3, 4), commit=False)
        logs.transaction(tp, *three(5), commit=True)
        end = logs.end(tp)
        for start in range(end):
            for stop in range(start, end + 1):
                assert read_stamps(broker, tp, start, stop) == [
                    (m.offset, m.timestamp - T0) for m in logs.visible_messages(tp, start, stop)
                ]

    def test_stamps_are_lazy_and_may_be_left(self, broker: Broker, logs: Logs) -> None:
        """Chunks of stamps have at most a few thousand messages, and the caller may stop early."""
        tp = logs.partition()
        logs.send(tp, *three(*range(12_000)))
        stamps = broker.stamps(tp, 0, 12_000)
        chunk = next(iter(stamps))
        assert 0 < len(chunk.offsets) <= 5_000
        stamps.close()  # type: ignore[attr-defined]  # iterators of this port are generators
        assert len(read_stamps(broker, tp, 0, 12_000)) == 12_000

    def test_leader_epochs_are_told(self, broker: Broker, logs: Logs) -> None:
        """Positions and stamps carry the leader epoch if the cluster has one."""
        tp = logs.partition()
        logs.send(tp, *three(0))
        epoch = broker.stable_ends([tp])[tp].leader_epoch
        assert epoch is not None
        position = broker.first_at_or_after([tp], instant_at(0))[tp]
        assert position is not None
        assert position.leader_epoch == epoch
        assert [list(c.epochs) for c in broker.stamps(tp, 0, 1)] == [[epoch]]
