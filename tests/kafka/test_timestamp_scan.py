"""Scans of a real log, in sequence with one consumer."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import cast

import confluent_kafka as ck
import numpy as np
import pytest

from tests.forked import fork
from tests.kafka.counted import counted_broker, with_consumers
from tests.kafka.produce import (
    OpenTransaction,
    Put,
    add_partitions,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    transaction,
)
from tests.warm import SERVER
from windrow.ingest.errors import DataLossError, SpecError, UnreachableError
from windrow.ingest.kafka.allowed_properties import Value
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.shared_clients import CLIENTS
from windrow.ingest.kafka.timestamp_scan import scan, scan_properties
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.source import Isolation

OLD = 1_600_000_000_000
MANY = 20_000
"""More messages of `SIZE` bytes than one fetch of a scan returns."""
SIZE = 100

pytestmark = pytest.mark.broker


def puts(count: int, first: int = 0, partition: int = 0) -> list[Put]:
    return [Put(b"v" * SIZE, OLD + first + i, partition) for i in range(count)]


def scan_stamps(
    broker: KafkaBroker, tp: TopicPartition, start: int, stop: int
) -> list[tuple[int, int]]:
    """Returns offsets, and milliseconds since OLD."""
    return [
        (int(o), int(t) - OLD)
        for c in broker.stamps(tp, start, stop)
        for o, t in zip(c.offsets, c.timestamps, strict=True)
    ]


def threads() -> int:
    """Returns the number of the clients' threads in this process."""
    count = 0
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # The thread may have ended.
            count += path.read_text().startswith("rdk:")
    return count


@pytest.fixture
def broker_and_consumers(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[KafkaBroker, list[ck.Consumer]]:
    """A broker with its own client, and the consumers that it makes."""
    return with_consumers(kafka, monkeypatch)


@pytest.fixture
def broker(broker_and_consumers: tuple[KafkaBroker, list[ck.Consumer]]) -> KafkaBroker:
    return broker_and_consumers[0]


@pytest.fixture
def consumers(broker_and_consumers: tuple[KafkaBroker, list[ck.Consumer]]) -> list[ck.Consumer]:
    """The consumers that the broker has made."""
    return broker_and_consumers[1]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_scan_sees_nothing_of_the_one_before(kafka: str, isolation: Isolation) -> None:
    """A scan isn't affected by the scan before it.

    The scans have any ranges and topic-partitions, in any order, and are read to the end or
    left early.
    """
    topics = [create_topic(kafka, 2), create_topic(kafka)]
    tps = [TopicPartition(topics[0], 0), TopicPartition(topics[0], 1), TopicPartition(topics[1], 0)]
    produce(kafka, topics[0], puts(3_000))
    for n in range(20):
        transaction(kafka, topics[0], puts(30, 100_000 + 100 * n, 1), commit=bool(n % 3))
    produce(kafka, topics[1], puts(500, 200_000))
    ends = {tp: end.offset for tp, end in KafkaBroker(kafka, {}).stable_ends(tps).items()}
    stamps_by_tp = {
        tp: scan_stamps(KafkaBroker(kafka, {}, isolation=isolation), tp, 0, end)
        for tp, end in ends.items()
    }
    broker, rng = KafkaBroker(kafka, {}, isolation=isolation), random.Random(7)
    for _ in range(400):
        tp = rng.choice(tps)
        start = rng.randrange(ends[tp])
        stop = rng.choice([ends[tp], min(ends[tp], start + rng.randrange(1, 200))])
        expected_stamps = [stamp for stamp in stamps_by_tp[tp] if start <= stamp[0] < stop]
        if rng.random() < 0.5:
            assert scan_stamps(broker, tp, start, stop) == expected_stamps, (tp, start, stop)
        else:
            chunk = next(iter(broker.stamps(tp, start, stop)), None)
            assert (0 if chunk is None else chunk.offsets.size) == min(64, len(expected_stamps)), (
                tp,
                start,
                stop,
            )
            assert chunk is None or list(chunk.offsets) == [
                offset for offset, _ in expected_stamps[:64]
            ], (
                tp,
                start,
                stop,
            )


def test_scans_one_after_another_are_one_consumer(
    kafka: str, broker: KafkaBroker, consumers: list[ck.Consumer]
) -> None:
    """Sequential scans of several topic-partitions share one consumer and add no thread."""
    topic = create_topic(kafka, 3)
    produce(kafka, topic, [put for p in range(3) for put in puts(300, 0, p)])
    gc.collect()
    for p in range(3):
        assert len(scan_stamps(broker, TopicPartition(topic, p), 0, 300)) == 300
    first = threads()
    for n in range(30):
        assert len(scan_stamps(broker, TopicPartition(topic, n % 3), n, 300)) == 300 - n
    # Some connections are made late, so a few more threads are allowed, but not one for each
    # scan.
    assert threads() < first + 10
    assert len(consumers) == 1


def test_a_scan_asks_nothing_before_it_reads(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan asks for the log's start and end only if it can't go on."""
    # A new consumer may need longer to connect than a scan may be idle.
    monkeypatch.setattr("windrow.ingest.kafka.timestamp_scan.IDLE_SECONDS", 60.0)
    tp = TopicPartition(create_topic(kafka), 0)
    produce(kafka, tp.topic, puts(10))
    broker, calls = counted_broker(kafka, monkeypatch)
    assert len(scan_stamps(broker, tp, 0, 10)) == 10
    assert calls == []
    with pytest.raises(UnreachableError, match="decided up to 10") as caught:
        scan_stamps(broker, tp, 0, 11)
    assert calls == ["describe_topics", "list_offsets"]
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (tp.topic, 0, 10)


def test_two_scans_at_the_same_time(
    kafka: str, broker: KafkaBroker, consumers: list[ck.Consumer]
) -> None:
    """Two concurrent scans each see all their messages, also of the same topic-partition."""
    tp = TopicPartition(create_topic(kafka), 0)
    produce(kafka, tp.topic, puts(1_000))
    first_scan, second_scan = broker.stamps(tp, 0, 1_000), broker.stamps(tp, 500, 1_000)
    offsets_seen: list[list[int]] = [[], []]
    for a, b in zip(first_scan, second_scan, strict=False):
        offsets_seen[0] += a.offsets.tolist()
        offsets_seen[1] += b.offsets.tolist()
    offsets_seen[0] += [int(o) for chunk in first_scan for o in chunk.offsets]
    assert offsets_seen[1] == list(range(500, 1_000))
    assert offsets_seen[0] == sorted(set(offsets_seen[0]))
    assert len(consumers) == 2
    assert len(scan_stamps(broker, tp, 0, 1_000)) == 1_000
    assert len(consumers) == 2


def test_a_scan_after_one_that_failed(
    kafka: str, broker: KafkaBroker, consumers: list[ck.Consumer]
) -> None:
    """A scan after a failed one reports its own error, and the failed consumer isn't used again."""
    tp = TopicPartition(create_topic(kafka), 0)
    produce(kafka, tp.topic, puts(20))
    delete_records(kafka, tp.topic, 0, 5)
    for _ in range(2):
        with pytest.raises(DataLossError, match="starts at 5"):
            scan_stamps(broker, tp, 3, 20)
        with pytest.raises(UnreachableError, match="decided up to 20"):
            scan_stamps(broker, tp, 30, 40)
    assert [offset for offset, _ in scan_stamps(broker, tp, 5, 20)] == list(range(5, 20))
    assert len(consumers) == 5


def test_records_deleted_during_a_scan_are_data_loss(kafka: str, broker: KafkaBroker) -> None:
    """A scan that reaches deleted records raises DataLossError, and never skips them silently."""
    tp = TopicPartition(create_topic(kafka), 0)
    produce(kafka, tp.topic, puts(MANY))
    chunks = broker.stamps(tp, 0, MANY)
    assert next(chunks).offsets.size == 64
    delete_records(kafka, tp.topic, 0, MANY - 1)
    rest: list[int] = []
    with pytest.raises(DataLossError, match=f"starts at {MANY - 1}") as caught:
        rest.extend(int(o) for chunk in chunks for o in chunk.offsets)
    assert rest == list(range(64, 64 + len(rest)))
    assert 64 + len(rest) <= (caught.value.offset or 0) < MANY - 1


def test_a_transaction_decided_during_a_scan_is_seen(kafka: str, broker: KafkaBroker) -> None:
    """A scan sees messages of a transaction that is decided during the scan.

    An end of the log below the stop is an error only while it stays there.
    """
    tp = TopicPartition(create_topic(kafka), 0)
    produce(kafka, tp.topic, puts(100))
    opened = OpenTransaction(kafka, tp.topic)
    opened.send(puts(5, 100))
    chunks = broker.stamps(tp, 0, 105)
    assert next(chunks).offsets.size == 64
    opened.commit()
    assert np.concatenate([chunk.offsets for chunk in chunks]).tolist() == list(range(64, 105))


def test_a_topic_that_has_changed_since_the_last_scan(
    kafka: str, broker: KafkaBroker, consumers: list[ck.Consumer]
) -> None:
    """The kept consumer reads a new partition and a recreated topic.

    This holds even if the old topic ended earlier.
    """
    topic = create_topic(kafka)
    produce(kafka, topic, puts(30))
    assert len(scan_stamps(broker, TopicPartition(topic, 0), 0, 30)) == 30
    add_partitions(kafka, topic, 2)
    produce(kafka, topic, puts(10, 500, 1))
    assert scan_stamps(broker, TopicPartition(topic, 1), 0, 10) == [(i, 500 + i) for i in range(10)]
    delete_topic(kafka, topic)
    create_topic(kafka, name=topic)
    produce(kafka, topic, puts(60, 1_000))
    assert scan_stamps(broker, TopicPartition(topic, 0), 40, 60) == [
        (i, 1_000 + i) for i in range(40, 60)
    ]
    assert len(consumers) == 1
    with pytest.raises(SpecError, match="has 1 partition"):
        scan_stamps(broker, TopicPartition(topic, 1), 0, 10)


def test_clients_that_are_closed_leave_no_thread(kafka: str) -> None:
    """Closed clients leave no thread, even if a scan was open.

    Their threads end after their last broker is gone. The test's process has no other clients.
    """
    tp = TopicPartition(create_topic(kafka), 0)
    produce(kafka, tp.topic, puts(100))
    process = SERVER.Process(target=_open_and_close, args=(kafka, tp))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def _open_and_close(kafka: str, tp: TopicPartition) -> None:
    assert threads() == 0
    broker = KafkaBroker(kafka, {})
    assert len(scan_stamps(broker, tp, 0, 100)) == 100
    open_scan = broker.stamps(tp, 0, 100)
    next(open_scan)
    assert threads() > 0
    CLIENTS.close()
    del broker, open_scan
    gc.collect()
    deadline = time.monotonic() + 30
    while threads():  # Linux lists a joined thread for a moment longer.
        assert time.monotonic() < deadline, "threads are left"


def test_a_forked_process_scans_for_itself(kafka: str, broker: KafkaBroker) -> None:
    """A forked child neither uses nor waits for its parent's idle consumer and open scan.

    One of three children must succeed. A child that is forked while a thread of a C library
    holds a lock waits for it forever. A child that waited for its parent's threads would fail
    each time.
    """
    tp = TopicPartition(create_topic(kafka), 0)
    produce(kafka, tp.topic, puts(1_000))
    opened = broker.stamps(tp, 0, 1_000)
    count = next(opened).offsets.size
    assert len(scan_stamps(broker, tp, 0, 100)) == 100
    brokers = [broker]

    def child() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        assert len(scan_stamps(brokers[0], tp, 100, 200)) == 100
        opened.close()  # type: ignore[attr-defined]  # a generator
        brokers.clear()
        os._exit(7)

    codes = []
    while 7 not in codes and len(codes) < 3:
        process = fork(child)
        process.join(60)
        codes.append(process.exitcode)
    assert codes[-1] == 7, codes
    assert count + sum(chunk.offsets.size for chunk in opened) == 1_000
    assert len(scan_stamps(broker, tp, 0, 100)) == 100


def test_a_user_who_fetches_less_than_a_scan_would_gets_less() -> None:
    """A scan's own limits don't raise a user's lower limits."""
    chosen: dict[str, Value] = {
        "fetch.message.max.bytes": 1_000,
        "fetch.wait.max.ms": 100,
        "queued.min.messages": 100_000,
        "client.id": "x",
    }
    assert scan_properties(chosen) == chosen | {
        "fetch.wait.max.ms": 1,
        "queued.min.messages": 1_000,
    }


class _Message:
    """A message without an error."""

    def __init__(self, offset: int) -> None:
        self.offset, self.leader_epoch, self.error = lambda: offset, lambda: 0, lambda: None
        self.timestamp = lambda: (ck.TIMESTAMP_CREATE_TIME, OLD + offset)


def test_what_is_there_is_taken_at_once() -> None:
    """A chunk of thousands of messages is one call of the client, without waiting."""
    remaining, calls = [_Message(offset) for offset in range(3_010)], list[str]()

    class Consumer:
        def assign(self, _: object) -> None: ...

        def consume(self, max_messages: int, seconds: float) -> list[_Message]:
            assert seconds == 0
            calls.append("consume")
            messages, remaining[:] = remaining[:max_messages], remaining[max_messages:]
            return messages

        def poll(self, _: float) -> None:
            raise AssertionError

    def doubt(*_: object) -> None:
        raise AssertionError

    chunks = list(scan(cast("ck.Consumer", Consumer()), TopicPartition("t", 0), 0, 3_000, doubt))
    assert [offset for chunk in chunks for offset in chunk.offsets.tolist()] == list(range(3_000))
    assert len(calls) == len(chunks) == 6  # 64, 128, ... 2,048


def test_the_position_of_an_earlier_scan_is_not_this_ones() -> None:
    """The position of an earlier scan doesn't end a scan.

    The client may report it until it has stopped the earlier scan of the same topic-partition.
    """

    class Consumer:
        def __init__(self) -> None:
            self.coming = [None, _Message(0), _Message(1)]

        def assign(self, _: object) -> None: ...

        def position(self, tps: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
            return [ck.TopicPartition(tps[0].topic, tps[0].partition, 110)]

        def consume(self, *_: object) -> list[_Message]:
            return []

        def poll(self, _: float) -> _Message | None:
            return self.coming.pop(0)

    def doubt(*_: object) -> None:
        raise AssertionError

    chunks = list(scan(cast("ck.Consumer", Consumer()), TopicPartition("t", 0), 0, 2, doubt))
    assert [chunk.offsets.tolist() for chunk in chunks] == [[0, 1]]
