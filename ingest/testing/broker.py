"""A Kafka cluster in memory, for tests, with the answers of a real cluster.

`MemoryBroker` is a `ports.broker.Broker`. It also has methods that write to its logs:

    broker = MemoryBroker()
    broker.create_topic("orders", partitions=2)
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    broker.produce(first, b"{}", timestamp=datetime(2026, 1, 2, tzinfo=UTC))
    with broker.transaction() as transaction:    # aborts if the block raises
        broker.produce(second, b"{}", transaction=transaction)
    reader = MemoryReader(broker)                # windrow.ingest.testing.reader
    dirty = broker.with_isolation("read_uncommitted")    # a view of the same cluster

The same contract suite runs on it and on real Kafka. Several threads of one process may use
it.
"""

from __future__ import annotations

import copy
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import NoReturn, Self

import msgspec
import numpy as np

from windrow.ingest.errors import DataLossError, SpecError, UnreachableError, format_count
from windrow.ingest.model.boundary import Mark, TopicPartition
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.broker import OffsetAndEpoch, Stamps, TopicInfo
from windrow.ingest.testing.partition_log import (
    NO_TIMESTAMP,
    Ended,
    Entry,
    Headers,
    PartitionLog,
    TransactionState,
)

_FIRST_CHUNK, _CHUNK = 64, 1000
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")
_WEEK_MS = 7 * 24 * 3600 * 1000
_NO_TIMESTAMP_TYPE, _CREATE_TIME, _APPEND_TIME = range(3)
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def wall_clock() -> int:
    """Returns the current time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def _milliseconds(moment: datetime) -> int:
    """Returns the first epoch millisecond at or after an instant."""
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


@dataclass
class _Topic:
    topic_id: str
    logs: list[PartitionLog]
    compacted: bool
    retention_ms: int | None
    append_time: bool
    delete_retention_ms: int | None


class MemoryBroker:
    """A cluster in memory, at the isolation level read_committed.

    Args:
        cluster_id: the cluster's id.
        clock: returns epoch milliseconds. It gives the timestamps of transaction markers, of
            messages in topics with append time, and of messages without a timestamp.
    """

    def __init__(self, cluster_id: str = "memory", clock: Callable[[], int] = wall_clock) -> None:
        self._cluster_id = cluster_id
        self._clock = clock
        self._isolation: Isolation = "read_committed"
        self._topics: dict[str, _Topic] = {}
        self._groups: dict[str, dict[TopicPartition, int]] = {}
        self._refusing: dict[str, str] = {}
        self._lock = threading.RLock()

    def with_isolation(self, isolation: Isolation) -> MemoryBroker:
        """Returns a view of this cluster at another isolation level, with the same logs."""
        view = copy.copy(self)  # topics, groups and the lock are shared
        view._isolation = isolation  # an attribute of this class  # noqa: SLF001
        return view

    # ----------------------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        return self._cluster_id

    def topic(self, name: str) -> TopicInfo:
        with self._lock:
            topic = self._topic(name)
            return TopicInfo(
                name,
                topic.topic_id,
                len(topic.logs),
                topic.compacted,
                topic.retention_ms,
                topic.append_time,
                topic.delete_retention_ms,
            )

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._topics.keys() - _INTERNAL)

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        with self._lock:
            return {name: self.topic(name) for name in names if name in self._topics}

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        with self._lock:
            return {tp: self._log(tp).start for tp in tps}

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        with self._lock:
            return {
                tp: OffsetAndEpoch(self._log(tp).limit(self._isolation), self._log(tp).epoch)
                for tp in tps
            }

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        with self._lock:
            return {tp: self._log(tp).end for tp in tps}

    def diverged_marks(self, marks: Sequence[Mark]) -> list[Mark]:
        return [
            m
            for m in marks
            if m.leader_epoch is not None and self.end_of_epoch(m.tp, m.leader_epoch) < m.offset
        ]

    def committed_offsets(
        self, group: str, tps: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        with self._lock:
            return {tp: self._groups.get(group, {}).get(tp) for tp in tps}

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str | None]:
        with self._lock:
            refused = {tp: self._refusing.get(group) or self._unknown(tp) for tp in offsets}
            self.commit_group(
                group, {tp: offset for tp, offset in offsets.items() if refused[tp] is None}
            )
            return refused

    def first_at_or_after(
        self, tps: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        with self._lock:
            logs = {tp: self._log(tp) for tp in tps}
            entries = {
                tp: log.first_at_or_after(_milliseconds(moment), log.limit(self._isolation))
                for tp, log in logs.items()
            }
            return {
                tp: None if e is None else OffsetAndEpoch(e.offset, e.epoch)
                for tp, e in entries.items()
            }

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """Yields timestamps of visible messages. The chunks grow, as with the real broker."""
        size = _FIRST_CHUNK
        while start < stop:
            entries, start = self.fetch(tp, start, stop, size)
            size = min(2 * size, _CHUNK)
            visible = [e for e in entries if not e.marker and (e.transaction is None or e.visible)]
            if visible:
                yield Stamps(
                    np.array([e.offset for e in visible], np.int64),
                    np.array([e.timestamp for e in visible], np.int64),
                    np.array([e.epoch for e in visible], np.int32),
                )

    def end_of_epoch(self, tp: TopicPartition, epoch: int) -> int:
        """Returns the offset at which a leader epoch and all earlier epochs end.

        It is for readers: a real consumer asks for it before it reads.
        """
        with self._lock:
            return self._log(tp).end_of(epoch)

    def fetch(
        self, tp: TopicPartition, start: int, stop: int, max_entries: int = _CHUNK
    ) -> tuple[list[Entry], int]:
        """Returns at most `max_entries` entries of [start, stop), and the offset to continue at.

        It is for readers, and returns all kinds of entries. With read_uncommitted, entries
        have no transaction, so that all messages are visible.

        Raises:
            DataLossError: `start` is below the log's start, or above its end.
            UnreachableError: `stop` is above the offset that the isolation level sees. A
                real consumer would wait for ever.
        """
        with self._lock:
            log = self._log(tp)
            if not log.start <= start <= log.end:
                _raise_data_loss(tp, start, log)
            limit = log.limit(self._isolation)
            if stop > limit:
                raise UnreachableError(
                    f"offsets up to {stop} were wanted, but only those below {limit} are decided",
                    "read",
                    "Wait for the open transaction to end, or for the messages.",
                    tp.topic,
                    tp.partition,
                    start,
                )
            entries = log.entries_between(start, stop, max_entries)
            if self._isolation == "read_uncommitted":
                entries = [msgspec.structs.replace(e, transaction=None) for e in entries]
            return entries, entries[-1].offset + 1 if len(entries) == max_entries else stop

    # ----------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        compacted: bool = False,
        retention_ms: int | None = _WEEK_MS,
        append_time: bool = False,
        delete_retention_ms: int | None = None,
    ) -> TopicInfo:
        """Creates a topic.

        Args:
            name: the topic's name.
            partitions: the number of its partitions.
            compacted: reported by `topic`, but nothing is compacted without `compact`.
            retention_ms: reported by `topic`, but no message expires.
            append_time: the broker's clock gives each message its timestamp.
            delete_retention_ms: reported by `topic`, without an effect.
        """
        with self._lock:
            if name in self._topics:
                msg = f"topic {name} exists already"
                raise ValueError(msg)
            topic_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            self._topics[name] = _Topic(
                topic_id,
                [PartitionLog() for _ in range(partitions)],
                compacted,
                retention_ms,
                append_time,
                delete_retention_ms,
            )
            return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic, and the offsets that groups committed for it.

        A topic that is created again under the same name has another id, and starts at offset
        0.
        """
        with self._lock:
            self._topic(name)
            del self._topics[name]
            for group, offsets in self._groups.items():
                self._groups[group] = {
                    tp: offset for tp, offset in offsets.items() if tp.topic != name
                }

    def recreate_topic(self, name: str, partitions: int = 1) -> TopicInfo:
        """Deletes a topic and creates it again with the same settings.

        The new topic is empty, and has another id.
        """
        with self._lock:
            old = self._topic(name)
            self.delete_topic(name)
            return self.create_topic(
                name,
                partitions,
                compacted=old.compacted,
                retention_ms=old.retention_ms,
                append_time=old.append_time,
                delete_retention_ms=old.delete_retention_ms,
            )

    def add_partitions(self, name: str, total: int) -> None:
        """Grows a topic to `total` partitions."""
        with self._lock:
            logs = self._topic(name).logs
            if total <= len(logs):
                msg = f"topic {name} has {format_count(len(logs), 'partition')} already"
                raise ValueError(msg)
            logs += [PartitionLog() for _ in range(total - len(logs))]

    def produce(
        self,
        tp: TopicPartition,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: datetime | int | None = None,
        headers: Headers = (),
        transaction: MemoryTransaction | None = None,
    ) -> int:
        """Appends a message; returns its offset.

        Args:
            tp: the topic-partition.
            value: the message's value.
            key: the message's key.
            timestamp: an aware datetime, epoch milliseconds, `NO_TIMESTAMP`, or None for
                now.
            headers: the message's headers.
            transaction: the open transaction that writes the message.
        """
        with self._lock:
            stamp, kind = self._stamp(timestamp, append_time=self._topic(tp.topic).append_time)
            state = None if transaction is None else transaction.state
            if state is not None and state.status != "open":
                msg = f"the transaction is {state.status} already"
                raise ValueError(msg)
            return self._log(tp).message(stamp, kind, key, value, tuple(headers), state)

    def transaction(self) -> MemoryTransaction:
        """Begins a transaction.

        As a context manager, it commits at the end of the block, and aborts after an exception.
        """
        return MemoryTransaction(self._end)

    def delete_records(self, tp: TopicPartition, offset: int) -> None:
        """Moves the log's start, as retention does."""
        with self._lock:
            self._log(tp).delete_before(offset)

    def compact(self, tp: TopicPartition) -> None:
        """Keeps the newest message of each key; removes aborted messages."""
        with self._lock:
            self._log(tp).compact()

    def remove(self, tp: TopicPartition, offsets: Collection[int]) -> None:
        """Removes exactly these offsets, which leaves gaps as compaction does."""
        with self._lock:
            self._log(tp).remove(offsets)

    def elect(self, tp: TopicPartition) -> int:
        """Elects a leader cleanly: nothing is lost, and the leader epoch grows by one."""
        with self._lock:
            return self._log(tp).elect()

    def truncate(self, tp: TopicPartition, end: int) -> None:
        """Elects a leader uncleanly: the log is cut off at `end`.

        The leader epoch grows by one.
        """
        with self._lock:
            self._log(tp).truncate(end)

    def commit_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets, as a consumer of the group does."""
        with self._lock:
            self._groups.setdefault(group, {}).update(offsets)

    def refuse_offsets(self, group: str, reason: str | None) -> None:
        """Makes `alter_offsets` of a group fail.

        With real Kafka it fails while consumers of the group are running.

        Args:
            group: the group.
            reason: the reason of the failure; None to let `alter_offsets` succeed again.
        """
        with self._lock:
            if reason is None:
                self._refusing.pop(group, None)
            else:
                self._refusing[group] = reason

    # ----------------------------------------------------------------------------------------------

    def _stamp(self, stamp: datetime | int | None, *, append_time: bool) -> tuple[int, int]:
        if append_time:
            return self._clock(), _APPEND_TIME
        if stamp == NO_TIMESTAMP:
            return NO_TIMESTAMP, _NO_TIMESTAMP_TYPE
        if stamp is None:
            return self._clock(), _CREATE_TIME
        return (stamp if isinstance(stamp, int) else _milliseconds(stamp)), _CREATE_TIME

    def _end(self, state: TransactionState, status: Ended) -> None:
        with self._lock:
            if state.status != "open":
                msg = f"the transaction is {state.status} already"
                raise ValueError(msg)
            state.status = status
            for log in [
                log
                for topic in self._topics.values()
                for log in topic.logs
                if state in log.first_open
            ]:
                log.mark(state, self._clock())

    def _unknown(self, tp: TopicPartition) -> str | None:
        exists = tp.topic in self._topics and tp.partition < len(self._topics[tp.topic].logs)
        return None if exists else "there is no such topic or partition"

    def _topic(self, name: str) -> _Topic:
        if name not in self._topics:
            raise SpecError(
                f"there is no topic {name} in cluster {self._cluster_id}",
                "plan",
                "Check the topic's name and the cluster.",
                name,
            )
        return self._topics[name]

    def _log(self, tp: TopicPartition) -> PartitionLog:
        logs = self._topic(tp.topic).logs
        if tp.partition >= len(logs):
            raise SpecError(
                f"topic {tp.topic} has {format_count(len(logs), 'partition')}",
                "plan",
                "Ask for a partition that exists.",
                tp.topic,
                tp.partition,
            )
        return logs[tp.partition]


def _raise_data_loss(tp: TopicPartition, start: int, log: PartitionLog) -> NoReturn:
    raise DataLossError(
        f"offset {start} is wanted, but the log holds {log.start} to {log.end}",
        "read",
        "Retention or truncation removed the messages; they can't be read any more.",
        tp.topic,
        tp.partition,
        start,
    )


class MemoryTransaction:
    """A transaction over topic-partitions of a `MemoryBroker`.

    Its end writes a marker to each topic-partition with its messages. The broker's clock gives
    the marker's timestamp.
    """

    def __init__(self, end: Callable[[TransactionState, Ended], None]) -> None:
        self.state = TransactionState()
        self._end = end

    def commit(self) -> None:
        """Commits the transaction: its messages become visible."""
        self._end(self.state, "committed")

    def abort(self) -> None:
        """Aborts the transaction: its messages stay invisible."""
        self._end(self.state, "aborted")

    def __enter__(self) -> Self:
        """Returns the transaction."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commits the transaction, or aborts it after an exception."""
        self._end(self.state, "committed" if kind is None else "aborted")
