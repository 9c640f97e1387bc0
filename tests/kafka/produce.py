"""Real topics in tests: creation, messages and deletion.

Names are unique, so that tests can share a broker.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import confluent_kafka as ck
import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.kafka.raw import send_stampless
from windrow.ingest.kafka.error_codes import RETRIABLE, UNKNOWN

_SECONDS = 30.0
NO_TIMESTAMP = -1

Headers = Sequence[tuple[str, bytes | None]]


class Put(msgspec.Struct, frozen=True):
    """A message to write.

    Attributes:
        value: the value; None: a tombstone.
        timestamp: epoch milliseconds, or `NO_TIMESTAMP`; None: the current time.
        partition: the partition.
        key: the key.
        headers: the headers.
    """

    value: bytes | None
    timestamp: int | None = None
    partition: int = 0
    key: bytes | None = None
    headers: Headers = ()


def create_topic(
    bootstrap: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    name: str | None = None,
) -> str:
    """Creates a topic and waits until its partitions have leaders.

    Its messages don't expire, and any timestamp is accepted, unless `config` says otherwise.

    Returns:
        The topic's name.
    """
    topic = name or f"t-{uuid.uuid4().hex[:12]}"
    settings = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)} | dict(
        config or {}
    )
    admin = _admin(bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(_SECONDS)
    ask_until(lambda: _leaders(admin, topic) == partitions, f"leaders of {topic}")
    return topic


def delete_topic(bootstrap: str, topic: str) -> None:
    """Deletes the topic and waits until it is gone."""
    admin = _admin(bootstrap)
    admin.delete_topics([topic])[topic].result(_SECONDS)
    ask_until(
        lambda: topic not in admin.list_topics(timeout=_SECONDS).topics, f"the end of {topic}"
    )
    forget()


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Adds partitions up to `total` and waits until all have leaders."""
    admin = _admin(bootstrap)
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(_SECONDS)
    ask_until(lambda: _leaders(admin, topic) == total, f"leaders of {topic}")
    forget()


def delete_records(bootstrap: str, topic: str, partition: int, limit: int) -> None:
    """Deletes all messages below the offset `limit`, as retention does."""
    admin = _admin(bootstrap)

    def is_deleted() -> bool:
        (done,) = admin.delete_records([TopicPartition(topic, partition, limit)]).values()
        try:
            done.result(_SECONDS)
        except KafkaException as error:
            # The controller has taken a new cleanup.policy before the partition's leader knows it.
            if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                raise
            return False
        return True

    ask_until(is_deleted, f"records of {topic} may be deleted")


def configure(bootstrap: str, topic: str, name: str, value: str) -> None:
    """Changes a setting of the topic and waits until the cluster reports it."""
    admin, entry = (
        _admin(bootstrap),
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET),
    )
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])]
    ).values()
    done.result(_SECONDS)

    def is_told() -> bool:
        (config,) = admin.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, topic)]
        ).values()
        return bool(config.result(_SECONDS)[name].value == value)

    ask_until(is_told, f"{name} of {topic}")


def high_watermark(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Returns the high watermark. Open transactions are included."""
    (end,) = _ends(bootstrap, topic, [partition], ck.IsolationLevel.READ_UNCOMMITTED)
    return end


def until_decided(bootstrap: str, topic: str) -> None:
    """Waits until no transaction of the topic is open."""
    ask_until(lambda: is_decided(bootstrap, topic), f"the transactions of {topic}")


def is_decided(bootstrap: str, topic: str) -> bool:
    """Returns whether no transaction of the topic is open."""
    partitions = list(_admin(bootstrap).list_topics(timeout=_SECONDS).topics[topic].partitions)
    # The high watermark is read first, so that new messages don't look undecided.
    end = _ends(bootstrap, topic, partitions, ck.IsolationLevel.READ_UNCOMMITTED)
    return _ends(bootstrap, topic, partitions, ck.IsolationLevel.READ_COMMITTED) >= end


def produce(
    bootstrap: str, topic: str, puts: Iterable[Put], client: Mapping[str, Any] | None = None
) -> None:
    """Writes plain messages in order for each partition, and waits for their acknowledgement.

    Args:
        bootstrap: the broker.
        topic: the topic.
        puts: the messages.
        client: further properties of the producer.
    """
    producer = _producer(bootstrap, tuple((client or {}).items()))
    for stampless, put_group in groupby(puts, lambda put: put.timestamp == NO_TIMESTAMP):
        if stampless:
            _send_stampless(bootstrap, topic, list(put_group))
        else:
            _send(producer, topic, put_group)


def _send_stampless(bootstrap: str, topic: str, puts: Sequence[Put]) -> None:
    """Writes batches of the newest format with the timestamp -1, as no client's producer can."""
    metadata = _admin(bootstrap).list_topics(timeout=_SECONDS)
    for partition in dict.fromkeys(put.partition for put in puts):
        leader = metadata.brokers[metadata.topics[topic].partitions[partition].leader]
        partition_messages = [(p.key, p.value, p.headers) for p in puts if p.partition == partition]
        send_stampless(f"{leader.host}:{leader.port}", topic, partition, partition_messages)


def transaction(bootstrap: str, topic: str, puts: Iterable[Put], *, commit: bool) -> None:
    """Writes one transaction and commits or aborts it.

    A marker follows the messages in each partition of the transaction.
    """
    opened = OpenTransaction(bootstrap, topic)
    opened.send(puts)
    if commit:
        opened.commit()
    else:
        opened.abort()


class OpenTransaction:
    """A transaction that stays open until it is committed or aborted.

    It holds back the last stable offset.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        """Begins the transaction without a message."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._touched: set[int] = set()
        self._producer = _idle[bootstrap].pop() if _idle[bootstrap] else _transactional(bootstrap)
        self._producer.begin_transaction()

    def send(self, puts: Iterable[Put]) -> None:
        """Writes messages to the log."""
        written = list(puts)
        self._touched |= {put.partition for put in written}
        _send(self._producer, self._topic, written)

    def commit(self) -> None:
        """Commits, and waits until the markers are in the log."""
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        """Aborts, and waits until the markers are in the log."""
        self._end(self._producer.abort_transaction)

    def _end(self, finish: Callable[[float], None]) -> None:
        """Ends the transaction and waits for its markers.

        Kafka answers when the decision is in its own log. The markers follow later.
        """
        ends_before = {p: high_watermark(self._bootstrap, self._topic, p) for p in self._touched}
        finish(_SECONDS)
        for partition, end in ends_before.items():
            ask_until(
                lambda p=partition, e=end: high_watermark(self._bootstrap, self._topic, p) > e,
                f"the marker in partition {partition}",
            )
        _idle[self._bootstrap].append(self._producer)


_idle: defaultdict[str, list[Producer]] = defaultdict(list)
"""Idle transactional producers. They are kept, because making one is slow."""


def forget() -> None:
    """Drops the kept producers, because they don't know that a topic or its log was changed."""
    _idle.clear()
    _producer.cache_clear()


def _transactional(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"tx-{uuid.uuid4().hex}",
            # The broker's default maximum, so that only the test ends a transaction.
            "transaction.timeout.ms": 900_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(_SECONDS)
    return producer


@lru_cache(maxsize=16)
def _producer(bootstrap: str, client: tuple[tuple[str, Any], ...]) -> Producer:
    return Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        | dict(client)
    )


@lru_cache(maxsize=4)
def _admin(bootstrap: str) -> AdminClient:
    """Returns a client that is kept, because its futures fail when it is collected."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _leaders(admin: AdminClient, topic: str) -> int:
    """Returns how many partitions of the topic have a leader.

    All topics are requested, because a request for one topic waits until it exists.
    """
    topic_metadata = admin.list_topics(timeout=_SECONDS).topics.get(topic)
    return (
        0
        if topic_metadata is None
        else sum(p.leader >= 0 for p in topic_metadata.partitions.values())
    )


def _ends(
    bootstrap: str, topic: str, partitions: Sequence[int], level: ck.IsolationLevel
) -> list[int]:
    """Returns the ends of a topic's logs, once each has a leader that answers."""
    specs, ends = {TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}, list[int]()

    def are_told() -> bool:
        answers = _admin(bootstrap).list_offsets(specs, isolation_level=level).values()
        ends[:] = [end.result(_SECONDS).offset for end in answers]
        return True

    ask_until(are_told, f"the ends of {topic}")
    return ends


def ask_until(true: Callable[[], bool], condition: str, seconds: float = _SECONDS) -> None:
    """Repeats a question to the cluster until the answer is true.

    Each question waits for its answer, so this doesn't spin. A transient error, such as a
    missing leader, counts as no answer.
    """
    deadline, error_text = time.monotonic() + seconds, ""
    while True:
        try:
            if true():
                return
        except KafkaException as error:
            if error.args[0].code() not in RETRIABLE | UNKNOWN:
                raise
            error_text = f": {error}"
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {condition}{error_text}"


def _send(producer: Producer, topic: str, puts: Iterable[Put]) -> None:
    failures: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for put in puts:
        stamp = {} if put.timestamp is None else {"timestamp": put.timestamp}
        while True:
            try:
                producer.produce(
                    topic,
                    put.value,
                    put.key,
                    put.partition,
                    headers=list(put.headers),
                    on_delivery=delivered,
                    **stamp,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    undelivered = producer.flush(60)
    assert not failures, failures[:3]
    assert undelivered == 0, f"{undelivered} messages not delivered"
