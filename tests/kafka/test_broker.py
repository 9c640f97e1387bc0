"""Behaviour of real clusters. The promises of the broker in memory are in tests/contracts."""

from __future__ import annotations

import logging
import uuid
from datetime import UTC, datetime, timedelta

import confluent_kafka as ck
import numpy as np
import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.counted import counted_broker
from tests.kafka.produce import (
    OpenTransaction,
    Put,
    add_partitions,
    ask_until,
    create_topic,
    delete_records,
    delete_topic,
    high_watermark,
    produce,
    transaction,
)
from windrow.ingest.errors import DataLossError, SpecError, UnreachableError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.ports.broker import Stamps

OLD = 1_600_000_000_000
"""September 2020 in milliseconds, which is long before any marker is written."""

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def broker(kafka: str) -> KafkaBroker:
    return KafkaBroker(kafka, {})


def instant(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def old(count: int, first: int = 0, partition: int = 0) -> list[Put]:
    return [Put(b"v", OLD + first + i, partition) for i in range(count)]


def join_chunks(chunks: list[Stamps]) -> list[tuple[int, int]]:
    return [(int(o), int(t)) for c in chunks for o, t in zip(c.offsets, c.timestamps, strict=True)]


def test_identity_survives_everything_but_a_new_topic(kafka: str, broker: KafkaBroker) -> None:
    """Each client sees the same cluster id and topic id, and a recreated topic has another id."""
    topic = create_topic(kafka, 2)
    first = broker.topic(topic)
    assert broker.cluster_id() == KafkaBroker(kafka, {}).cluster_id() != ""
    assert KafkaBroker(kafka, {}).topic(topic) == first
    delete_topic(kafka, topic)
    create_topic(kafka, 3, name=topic)
    second = broker.topic(topic)
    assert second.topic_id != first.topic_id
    assert (first.partitions, second.partitions) == (2, 3)


@pytest.mark.parametrize(
    ("config", "compacted", "retention"),
    [
        ({"retention.ms": "-1"}, False, None),
        ({"retention.ms": "3600000"}, False, 3_600_000),
        ({"cleanup.policy": "compact", "retention.ms": "3600000"}, True, None),
        ({"cleanup.policy": "compact,delete", "retention.ms": "3600000"}, True, 3_600_000),
    ],
)
def test_settings_of_a_topic(
    kafka: str, broker: KafkaBroker, config: dict[str, str], compacted: bool, retention: int | None
) -> None:
    """Compaction and retention are read from the topic. Without expiry the retention is None."""
    info = broker.topic(create_topic(kafka, config=config))
    assert (info.compacted, info.retention_ms) == (compacted, retention)


def test_deleted_records_move_the_log_start(kafka: str, broker: KafkaBroker) -> None:
    """Deleted records move the log's start.

    Reading timestamps below the start raises DataLossError with both offsets.
    """
    topic = create_topic(kafka)
    tp = TopicPartition(topic, 0)
    produce(kafka, topic, old(10))
    delete_records(kafka, topic, 0, 4)
    assert broker.log_starts([tp]) == {tp: 4}
    with pytest.raises(DataLossError, match="4") as caught:
        list(broker.stamps(tp, 3, 10))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 3)
    assert [o for o, _ in join_chunks(list(broker.stamps(tp, 4, 10)))] == [4, 5, 6, 7, 8, 9]


def test_an_open_transaction_holds_the_stable_end_back(kafka: str, broker: KafkaBroker) -> None:
    """The stable end is the last stable offset, not the high watermark.

    It moves on after the transaction is decided.
    """
    topic = create_topic(kafka)
    tp = TopicPartition(topic, 0)
    produce(kafka, topic, old(3))
    opened = OpenTransaction(kafka, topic)
    opened.send(old(5, 10))
    assert broker.stable_ends([tp])[tp].offset == 3
    assert high_watermark(kafka, topic) == 8
    assert broker.first_at_or_after([tp], instant(OLD + 10))[tp] is None
    with pytest.raises(UnreachableError, match="decided up to 3"):
        list(broker.stamps(tp, 0, 8))
    opened.commit()
    end = broker.stable_ends([tp])[tp]
    assert (end.offset, end.leader_epoch) == (9, 0)


def test_first_at_or_after_names_a_marker_or_nothing(kafka: str, broker: KafkaBroker) -> None:
    """`first_at_or_after` may return the marker of a transaction with old messages.

    It does so for any later instant until now. After the marker it returns None.
    """
    topic = create_topic(kafka, 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    transaction(kafka, topic, old(4), commit=True)
    position_by_tp = broker.first_at_or_after([first, second], instant(OLD + 2))
    assert position_by_tp[first] is not None
    assert (position_by_tp[first].offset, position_by_tp[second]) == (2, None)
    marker = broker.first_at_or_after([first], instant(OLD + 1_000_000))[first]
    assert marker is not None
    assert marker.offset == 4
    assert broker.first_at_or_after([first, second], datetime(2200, 1, 1, tzinfo=UTC)) == {
        first: None,
        second: None,
    }


def test_first_at_or_after_rounds_up_and_takes_early_instants(
    kafka: str, broker: KafkaBroker
) -> None:
    """An instant is rounded up to milliseconds. One before 1970 means the log's start."""
    topic = create_topic(kafka)
    tp = TopicPartition(topic, 0)
    produce(kafka, topic, old(4))
    just_after = broker.first_at_or_after([tp], instant(OLD + 1) + timedelta(microseconds=1))[tp]
    ancient = broker.first_at_or_after([tp], instant(-1))[tp]
    assert just_after is not None
    assert ancient is not None
    assert (just_after.offset, ancient.offset) == (2, 0)


def test_stamps_over_markers_and_aborted_messages(kafka: str, broker: KafkaBroker) -> None:
    """Timestamps are read of visible messages only, with their leader epochs.

    A range of invisible messages ends empty at its stop.
    """
    topic = create_topic(kafka)
    tp = TopicPartition(topic, 0)
    produce(kafka, topic, old(3))  # offsets 0 to 2
    transaction(kafka, topic, old(2, 100), commit=False)  # offsets 3 and 4, marker 5
    transaction(kafka, topic, old(2, 200), commit=True)  # offsets 6 and 7, marker 8
    transaction(kafka, topic, old(3, 300), commit=False)  # offsets 9 to 11, marker 12
    chunks = list(broker.stamps(tp, 0, 13))
    assert join_chunks(chunks) == [
        (0, OLD),
        (1, OLD + 1),
        (2, OLD + 2),
        (6, OLD + 200),
        (7, OLD + 201),
    ]
    assert [(c.offsets.dtype, c.timestamps.dtype, c.epochs.dtype) for c in chunks] == [
        (np.int64, np.int64, np.int32)
    ] * len(chunks)
    assert {int(e) for c in chunks for e in c.epochs} == {0}
    assert join_chunks(list(broker.stamps(tp, 2, 7))) == [(2, OLD + 2), (6, OLD + 200)]
    for start, stop in ((3, 6), (8, 9), (8, 13), (9, 11), (12, 13), (4, 4)):
        assert list(broker.stamps(tp, start, stop)) == []


def test_stamps_end_at_a_stop_that_lies_in_a_gap_with_more_behind_it(
    kafka: str, broker: KafkaBroker
) -> None:
    """A message after the stop ends the scan and isn't a part of it."""
    topic = create_topic(kafka)
    tp = TopicPartition(topic, 0)
    transaction(kafka, topic, old(2), commit=True)  # offsets 0 and 1, marker 2
    transaction(kafka, topic, old(2), commit=False)  # offsets 3 and 4, marker 5
    produce(kafka, topic, old(2, 50))  # offsets 6 and 7
    assert [o for o, _ in join_chunks(list(broker.stamps(tp, 1, 4)))] == [1]
    assert [o for o, _ in join_chunks(list(broker.stamps(tp, 2, 6)))] == []
    assert [o for o, _ in join_chunks(list(broker.stamps(tp, 2, 7)))] == [6]


def test_stamps_over_a_compacted_log(kafka: str, broker: KafkaBroker) -> None:
    """Offsets that compaction removed are gaps and no data loss, also at the ends of the range."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    topic = create_topic(kafka, config=config)
    tp = TopicPartition(topic, 0)
    produce(kafka, topic, [Put(b"v", None, 0, b"k%d" % (i % 2)) for i in range(10)])

    def is_compacted() -> bool:
        # Each message rolls the segment. The cleaner runs at its own time.
        produce(kafka, topic, [Put(b"v", None, 0, b"other")])
        return [o for o, _ in join_chunks(list(broker.stamps(tp, 0, 10)))] == [8, 9]

    ask_until(is_compacted, "the cleaner")
    assert join_chunks(list(broker.stamps(tp, 2, 6))) == []


def test_chunks_grow_to_a_bound(kafka: str, broker: KafkaBroker) -> None:
    """The first chunk is small, because most callers need no more."""
    topic = create_topic(kafka)
    produce(kafka, topic, old(20_000))
    sizes = [c.offsets.size for c in broker.stamps(TopicPartition(topic, 0), 0, 20_000)]
    assert sizes[0] == 64
    assert max(sizes) <= 4096
    assert sum(sizes) == 20_000


def test_a_partition_that_was_added_since_is_found(kafka: str, broker: KafkaBroker) -> None:
    """A new partition is found, because no answer comes from the client's cached metadata."""
    topic = create_topic(kafka)
    broker.stable_ends([TopicPartition(topic, 0)])
    add_partitions(kafka, topic, 3)
    produce(kafka, topic, old(2, partition=2))
    tps = [TopicPartition(topic, p) for p in range(3)]
    assert {tp.partition: p.offset for tp, p in broker.stable_ends(tps).items()} == {
        0: 0,
        1: 0,
        2: 2,
    }
    assert broker.topic(topic).partitions == 3


def test_an_unknown_topic_or_partition_is_a_spec_error(kafka: str, broker: KafkaBroker) -> None:
    """A request about an unknown topic or partition raises SpecError with its name.

    It creates nothing.
    """
    missing, beyond = TopicPartition("no-such-topic", 0), TopicPartition(create_topic(kafka), 1)
    for ask in (
        lambda: broker.topic("no-such-topic"),
        lambda: broker.stable_ends([missing]),
        lambda: list(broker.stamps(missing, 0, 1)),
    ):
        with pytest.raises(SpecError, match="no such topic") as caught:
            ask()
        assert caught.value.topic == "no-such-topic"
        assert "source.topic" in caught.value.advice
    with pytest.raises(SpecError, match="has 1 partition") as caught:
        broker.stable_ends([TopicPartition(beyond.topic, 0), beyond])
    assert (caught.value.topic, caught.value.partition) == (beyond.topic, 1)
    with pytest.raises(SpecError, match="topic's name"):
        broker.topic("not a name")


def test_many_topics_cost_no_more_requests_than_one(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of requests doesn't depend on the number of topics.

    Without topics there is none.
    """
    topics = [create_topic(kafka, 2) for _ in range(3)]
    tps = [TopicPartition(topic, p) for topic in topics for p in (0, 1)]
    broker, calls = counted_broker(kafka, monkeypatch)
    broker.stable_ends(tps)  # Requests are repeated only until each leader has answered once.
    calls.clear()
    assert len(broker.topics(topics)) == 3
    assert calls == ["describe_topics", "describe_configs"]
    calls.clear()
    assert len(broker.stable_ends(tps)) == 6
    assert calls == ["describe_topics", "list_offsets"]
    calls.clear()
    nothing: list[TopicPartition] = []
    assert (
        broker.log_starts(nothing)
        == broker.stable_ends(nothing)
        == broker.ends(nothing)
        == broker.topics([])
        == {}
    )
    assert (
        broker.first_at_or_after(nothing, instant(0))
        == broker.committed_offsets("g", nothing)
        == broker.alter_offsets("g", {})
        == {}
    )
    assert calls == []


def test_only_kafkas_own_topics_are_internal(kafka: str, broker: KafkaBroker) -> None:
    """Only topics that Kafka marks as internal are left out.

    Another topic whose name begins with two underscores isn't.
    """
    own_topic = create_topic(kafka, name=f"__{uuid.uuid4().hex[:8]}")
    transaction(kafka, own_topic, old(1), commit=True)  # makes __transaction_state
    names = broker.names()
    assert own_topic in names
    assert "__transaction_state" not in names
    assert "__transaction_state" in broker.topics(["__transaction_state"])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_consumers_refuses_offsets(
    kafka: str, broker: KafkaBroker, protocol: str
) -> None:
    """A group with consumers refuses offsets, with a reason for each topic-partition.

    The consumers' committed offsets are kept. Without consumers the offsets are accepted.
    """
    tp, group = TopicPartition(create_topic(kafka), 0), f"g-{uuid.uuid4().hex[:8]}"
    produce(kafka, tp.topic, old(3))
    consumer = ck.Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([tp.topic])
        assert consumer.poll(60) is not None
        consumer.commit(offsets=[ck.TopicPartition(tp.topic, 0, 2)], asynchronous=False)
        assert "has active consumers" in (broker.alter_offsets(group, {tp: 1})[tp] or "")
        assert broker.committed_offsets(group, [tp]) == {tp: 2}
    finally:
        consumer.close()
    assert broker.alter_offsets(group, {tp: 1}) == {tp: None}
    assert broker.committed_offsets(group, [tp]) == {tp: 1}


def test_asking_for_a_groups_offsets_makes_no_group(
    kafka: str, broker: KafkaBroker, admin: AdminClient
) -> None:
    """A request for a group's offsets doesn't create the group, but altered offsets do."""
    tp, asked_group, altered_group = (
        TopicPartition(create_topic(kafka), 0),
        f"g-{uuid.uuid4().hex[:8]}",
        f"g-{uuid.uuid4().hex[:8]}",
    )
    broker.committed_offsets(asked_group, [tp])
    broker.alter_offsets(altered_group, {tp: 0})
    groups = {g.group_id for g in admin.list_consumer_groups().result(30).valid}
    assert altered_group in groups
    assert asked_group not in groups


def test_a_refused_login_is_told_at_once_and_without_the_password(
    kafka: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused login raises SpecError before the timeout.

    The password is in no text and no log.
    """
    secret = "canary-5e11"
    user = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "bob",
        "sasl.password": secret,
    }
    log = logging.getLogger("windrow.librdkafka")
    log.addHandler(caplog.handler)
    try:
        with pytest.raises(SpecError, match="refused the login") as caught:
            KafkaBroker(kafka, user, patience_seconds=60).cluster_id()
    finally:
        log.removeHandler(caplog.handler)
    assert "sasl." in caught.value.advice
    assert secret not in f"{caught.value!s}{caught.value!r}{caplog.text}"
