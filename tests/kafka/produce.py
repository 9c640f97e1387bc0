"""What tests do to real topics: make them, write to them, delete from them.

Names are unique, so that tests share one broker.
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
from windrow.ingest.kafka.error_codes import AGAIN, UNKNOWN

_SECONDS = 30.0
NO_TIMESTAMP = -1

Headers = Sequence[tuple[str, bytes | None]]


class Put(msgspec.Struct, frozen=True):
    """A message to write.

    `timestamp` in epoch milliseconds, `NO_TIMESTAMP`, or None: now; `value` None: a
    tombstone.
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
    """A new topic in which nothing expires and any timestamp is taken (`config` on
    top), with leaders when this returns.

    Its name.
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
    """The topic is gone when this returns."""
    admin = _admin(bootstrap)
    admin.delete_topics([topic])[topic].result(_SECONDS)
    ask_until(
        lambda: topic not in admin.list_topics(timeout=_SECONDS).topics, f"the end of {topic}"
    )
    forget()


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """The topic has `total` partitions, with leaders, when this returns."""
    admin = _admin(bootstrap)
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(_SECONDS)
    ask_until(lambda: _leaders(admin, topic) == total, f"leaders of {topic}")
    forget()


def delete_records(bootstrap: str, topic: str, partition: int, limit: int) -> None:
    """Everything below offset `limit` is gone, as after retention."""
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
    """A setting of the topic, which the cluster tells when this returns."""
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
    """The end of the log, open transactions and all."""
    (end,) = _ends(bootstrap, topic, [partition], ck.IsolationLevel.READ_UNCOMMITTED)
    return end


def until_decided(bootstrap: str, topic: str) -> None:
    """No transaction of the topic is open when this returns."""
    ask_until(lambda: is_decided(bootstrap, topic), f"the transactions of {topic}")


def is_decided(bootstrap: str, topic: str) -> bool:
    """True if no transaction of the topic is open."""
    partitions = list(_admin(bootstrap).list_topics(timeout=_SECONDS).topics[topic].partitions)
    # the log's end first: what arrives in between isn't taken for undecided
    end = _ends(bootstrap, topic, partitions, ck.IsolationLevel.READ_UNCOMMITTED)
    return _ends(bootstrap, topic, partitions, ck.IsolationLevel.READ_COMMITTED) >= end


def produce(
    bootstrap: str, topic: str, puts: Iterable[Put], client: Mapping[str, Any] | None = None
) -> None:
    """Plain messages, acknowledged when this returns, in order per partition.

    `client`: properties of the producer on top.
    """
    producer = _producer(bootstrap, tuple((client or {}).items()))
    for stampless, put_group in groupby(puts, lambda put: put.timestamp == NO_TIMESTAMP):
        if stampless:
            _send_stampless(bootstrap, topic, list(put_group))
        else:
            _send(producer, topic, put_group)


def _send_stampless(bootstrap: str, topic: str, puts: Sequence[Put]) -> None:
    """Batches of the newest format whose timestamps are -1: no client's producer makes them."""
    metadata = _admin(bootstrap).list_topics(timeout=_SECONDS)
    for partition in dict.fromkeys(put.partition for put in puts):
        leader = metadata.brokers[metadata.topics[topic].partitions[partition].leader]
        partition_messages = [(p.key, p.value, p.headers) for p in puts if p.partition == partition]
        send_stampless(f"{leader.host}:{leader.port}", topic, partition, partition_messages)


def transaction(bootstrap: str, topic: str, puts: Iterable[Put], *, commit: bool) -> None:
    """One transaction, committed or aborted: one marker per partition that it touched
    follows its messages.
    """
    opened = OpenTransaction(bootstrap, topic)
    opened.send(puts)
    if commit:
        opened.commit()
    else:
        opened.abort()


class OpenTransaction:
    """A transaction that stays open until told: it holds the last stable offset back."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        """Begun; nothing is sent yet."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._touched: set[int] = set()
        self._producer = _idle[bootstrap].pop() if _idle[bootstrap] else _transactional(bootstrap)
        self._producer.begin_transaction()

    def send(self, puts: Iterable[Put]) -> None:
        """Written to the log when this returns, decided later."""
        written = list(puts)
        self._touched |= {put.partition for put in written}
        _send(self._producer, self._topic, written)

    def commit(self) -> None:
        """The markers are in the log when this returns."""
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        """The markers are in the log when this returns."""
        self._end(self._producer.abort_transaction)

    def _end(self, finish: Callable[[float], None]) -> None:
        """Kafka answers once the decision is in its own log; the markers follow."""
        ends_before = {p: high_watermark(self._bootstrap, self._topic, p) for p in self._touched}
        finish(_SECONDS)
        for partition, end in ends_before.items():
            ask_until(
                lambda p=partition, e=end: high_watermark(self._bootstrap, self._topic, p) > e,
                f"the marker in partition {partition}",
            )
        _idle[self._bootstrap].append(self._producer)


_idle: defaultdict[str, list[Producer]] = defaultdict(list)
"""Transactional producers between two transactions: making one costs more than all that
a test sends.
"""


def forget() -> None:
    """Producers that are kept don't know yet what became of a topic, or of its log."""
    _idle.clear()
    _producer.cache_clear()


def _transactional(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"tx-{uuid.uuid4().hex}",
            # the longest that a broker allows by default: a test says when a transaction ends
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
    """Held: its futures fail once it is collected."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _leaders(admin: AdminClient, topic: str) -> int:
    """Returns how many partitions of the topic have a leader; asked of the whole cluster,
    because asking for one topic waits for it to exist.
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
    """The ends of a topic's logs, once each has a leader that tells it."""
    specs, ends = {TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}, list[int]()

    def are_told() -> bool:
        answers = _admin(bootstrap).list_offsets(specs, isolation_level=level).values()
        ends[:] = [end.result(_SECONDS).offset for end in answers]
        return True

    ask_until(are_told, f"the ends of {topic}")
    return ends


def ask_until(true: Callable[[], bool], condition: str, seconds: float = _SECONDS) -> None:
    """Ask the cluster until it says so; each question waits for an answer, so this doesn't spin.

    An error that passes, as of a leader that isn't there yet, is no answer.
    """
    deadline, error_text = time.monotonic() + seconds, ""
    while True:
        try:
            if true():
                return
        except KafkaException as error:
            if error.args[0].code() not in AGAIN | UNKNOWN:
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
