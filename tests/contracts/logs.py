"""Logs for the tests of contracts, on the in-memory broker and on real Kafka.

`Logs` also remembers the messages that a reader must see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.testing.broker import MemoryBroker, MemoryTransaction

T0 = 1_767_322_800_000
"""2026-01-02T03:00:00Z in epoch milliseconds, far below the wall clock, which stamps markers."""

DAY = 86_400_000
"""A day in milliseconds."""

UNSTAMPED = -1 - T0
"""The `timestamp` of a message that has none."""

Headers = tuple[tuple[str, bytes | None], ...]


def instant_at(milliseconds: int) -> datetime:
    """Returns the instant at some milliseconds after T0."""
    return datetime.fromtimestamp((T0 + milliseconds) / 1000, UTC)


@dataclass(frozen=True)
class Sent:
    """A message to send.

    Attributes:
        value: the value.
        key: the key.
        timestamp: milliseconds after T0.
        headers: the headers.
    """

    value: bytes | None = b"v"
    key: bytes | None = None
    timestamp: int = 0
    headers: Headers = ()


@dataclass(frozen=True)
class Seen:
    """A message as a reader must give it.

    Attributes:
        offset: the offset.
        value: the value.
        key: the key.
        timestamp: milliseconds since the epoch.
        headers: the headers.
    """

    offset: int
    value: bytes | None
    key: bytes | None
    timestamp: int
    headers: Headers


class OpenTransaction(Protocol):
    """A transaction that was begun."""

    def send(self, tp: TopicPartition, messages: Sequence[Sent]) -> None:
        """Writes messages; they are in the log when this returns."""

    def end(self, *, commit: bool) -> None:
        """Ends the transaction; its markers are in the log when this returns."""


class Cluster(Protocol):
    """A cluster, in memory or real."""

    def create(self, partitions: int, config: Mapping[str, str]) -> str:
        """Makes a topic in which nothing expires, and returns its name."""

    def send(self, tp: TopicPartition, messages: Sequence[Sent]) -> None:
        """Writes messages without a transaction, in order; they are in the log when
        this returns.
        """

    def begin(self, topic: str) -> OpenTransaction:
        """Begins a transaction on one topic."""

    def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """Deletes the records below an offset; the log starts there when this returns."""

    def compact(self, tp: TopicPartition, remaining: Sequence[int]) -> None:
        """Waits until only these offsets of the visible messages are left in the log."""

    def add_partitions(self, topic: str, total: int) -> None:
        """Adds partitions; the topic has `total` of them when this returns."""

    def recreate(self, topic: str, partitions: int) -> None:
        """Deletes the topic and makes an empty one of the same name, with another id."""

    def delete(self, topic: str) -> None:
        """Deletes the topic; it doesn't exist any more when this returns."""


class CuttableCluster(Cluster, Protocol):
    """A cluster whose logs can be cut off."""

    def cut(self, ends: Mapping[TopicPartition, int]) -> None:
        """Cuts each log off at its offset, and gives every log of the cluster a new leader.

        Args:
            ends: the new ends; at each of them, a call of `send` began.
        """


@dataclass
class Logs:
    """Writes to a cluster as its only writer, and remembers what each offset must hold.

    Attributes:
        cluster: the cluster.
        expected: the log of each topic-partition: a message, or None at an offset that no
            reader sees.
        aborted: the offsets of aborted or undecided messages.
    """

    cluster: Cluster
    expected: dict[TopicPartition, list[Seen | None]] = field(default_factory=dict)
    aborted: dict[TopicPartition, set[int]] = field(default_factory=dict)

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Makes a topic, and returns its name."""
        return self.cluster.create(partitions, config or {})

    def partition(self) -> TopicPartition:
        """Makes a topic, and returns its only partition."""
        return TopicPartition(self.topic(), 0)

    def compacted(self) -> TopicPartition:
        """Makes a topic that `compact` can compact, and returns its only partition."""
        config = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.0",
            "segment.ms": str(DAY // 2),
        }
        return TopicPartition(self.topic(1, config), 0)

    def send(self, tp: TopicPartition, *messages: Sent) -> None:
        """Writes messages without a transaction."""
        self.cluster.send(tp, messages)
        self.mirror(tp, messages, visible=True)

    def transaction(self, tp: TopicPartition, *messages: Sent, commit: bool) -> None:
        """Writes a transaction: messages and a marker."""
        running = self.cluster.begin(tp.topic)
        running.send(tp, messages)
        running.end(commit=commit)
        self.mirror(tp, messages, visible=commit)
        self.log_of(tp).append(None)

    @contextmanager
    def open_transaction(self, tp: TopicPartition, *messages: Sent) -> Iterator[None]:
        """Keeps a transaction open inside the block, and aborts it after the block."""
        running = self.cluster.begin(tp.topic)
        running.send(tp, messages)
        self.mirror(tp, messages, visible=False)
        try:
            yield
        finally:
            running.end(commit=False)
            self.log_of(tp).append(None)

    def compact(self, tp: TopicPartition) -> None:
        """Leaves only the newest message of each key; `tp` must come from `compacted`.

        Kafka's cleaner doesn't touch the newest segment. So a message with a timestamp one day
        later begins a new segment, and is its only message.
        """
        self.send(tp, Sent(key=b"a day later", timestamp=DAY))
        log = self.log_of(tp)
        newest = {m.key: m.offset for m in log if m is not None}
        self.expected[tp] = [
            m if m is not None and newest[m.key] == m.offset else None for m in log
        ]
        self.cluster.compact(tp, sorted(newest.values()))

    def end(self, tp: TopicPartition) -> int:
        """Returns the high watermark."""
        return len(self.log_of(tp))

    def visible_messages(self, tp: TopicPartition, start: int, stop: int) -> list[Seen]:
        """Returns the messages that a reader of [start, stop) must give."""
        return [message for message in self.log_of(tp)[start:stop] if message is not None]

    def aborted_in(self, tp: TopicPartition, start: int, stop: int) -> int:
        """Returns the number of aborted messages in [start, stop)."""
        return len(self.aborted.get(tp, set()) & set(range(start, stop)))

    def recreate(self, topic: str, partitions: int = 1) -> None:
        """Deletes the topic, and makes another one of the same name."""
        self.cluster.recreate(topic, partitions)
        self.expected = {tp: log for tp, log in self.expected.items() if tp.topic != topic}

    def cut(self, cluster: CuttableCluster, ends: Mapping[TopicPartition, int]) -> None:
        """Cuts the logs off at these offsets; they grow under a new leader afterwards."""
        cluster.cut(ends)
        for tp, end in ends.items():
            del self.log_of(tp)[end:]

    def log_of(self, tp: TopicPartition) -> list[Seen | None]:
        return self.expected.setdefault(tp, [])

    def mirror(self, tp: TopicPartition, messages: Sequence[Sent], *, visible: bool) -> None:
        log = self.log_of(tp)
        for m in messages:
            if not visible:
                self.aborted.setdefault(tp, set()).add(len(log))
            log.append(
                Seen(len(log), m.value, m.key, T0 + m.timestamp, m.headers) if visible else None
            )


@dataclass
class MemoryCluster:
    """The in-memory cluster.

    Attributes:
        broker: the broker in memory.
        names: how many topics were made; it numbers their names.
    """

    broker: MemoryBroker
    names: int = 0

    def create(self, partitions: int, config: Mapping[str, str]) -> str:
        self.names += 1
        append_time = config.get("message.timestamp.type") == "LogAppendTime"
        compacted = config.get("cleanup.policy") == "compact"
        retention = int(config.get("retention.ms", "-1"))
        name = f"topic-{self.names}"
        topic_retention = None if retention < 0 or compacted else retention
        return self.broker.create_topic(
            name,
            partitions,
            compacted=compacted,
            retention_ms=topic_retention,
            append_time=append_time,
            delete_retention_ms=int(config.get("delete.retention.ms", DAY)) if compacted else None,
        ).topic

    def send(
        self,
        tp: TopicPartition,
        messages: Sequence[Sent],
        transaction: MemoryTransaction | None = None,
    ) -> None:
        for m in messages:
            self.broker.produce(
                tp,
                m.value,
                key=m.key,
                timestamp=T0 + m.timestamp,
                headers=m.headers,
                transaction=transaction,
            )

    def begin(self, topic: str) -> OpenTransaction:
        return _MemoryTransaction(self, self.broker.transaction())

    def delete_before(self, tp: TopicPartition, offset: int) -> None:
        self.broker.delete_records(tp, offset)

    def compact(self, tp: TopicPartition, remaining: Sequence[int]) -> None:
        self.broker.compact(tp)

    def add_partitions(self, topic: str, total: int) -> None:
        self.broker.add_partitions(topic, total)

    def recreate(self, topic: str, partitions: int) -> None:
        self.broker.recreate_topic(topic, partitions)

    def delete(self, topic: str) -> None:
        self.broker.delete_topic(topic)

    def cut(self, ends: Mapping[TopicPartition, int]) -> None:
        topics = self.broker.topics(self.broker.names()).values()
        for tp in [TopicPartition(t.topic, p) for t in topics for p in range(t.partitions)]:
            if tp in ends:
                self.broker.truncate(tp, ends[tp])
            else:
                self.broker.elect(tp)


@dataclass
class _MemoryTransaction:
    cluster: MemoryCluster
    running: MemoryTransaction

    def send(self, tp: TopicPartition, messages: Sequence[Sent]) -> None:
        self.cluster.send(tp, messages, self.running)

    def end(self, *, commit: bool) -> None:
        self.running.commit() if commit else self.running.abort()
