"""Where staged messages are published, and how: by which producer, and, where each is to be
reported, message by message.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import confluent_kafka as ck
import msgspec
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from windrow.ingest.errors import RefusedError
from windrow.ingest.kafka.delivery import Acks, Delivery
from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.record_batch import UNPACKED_BYTES
from windrow.ingest.kafka.transaction import Sender, Sending, Transaction, TransactionError, kind_of
from windrow.ingest.kafka.wire_transaction import WireTransaction
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.sink import Delivered
from windrow.ingest.sinks.kafka.control import OffsetSpan
from windrow.ingest.sinks.kafka.form import HEADER, NOW
from windrow.ingest.sinks.kafka.places import BY_KEY, PARTITION, Partitioner, partitions
from windrow.ingest.sinks.kafka.topics import Topic

_AGAIN_SECONDS = 0.1
_BATCH = 512 * 1024
_QUEUE = 64 * 1024
"""Kibibytes that wait to be sent, of each producer."""
_MOST = 10_000
"""Messages that do.

Each takes some allocations, which are the cheaper the sooner they are used again.
"""


class PublishTarget(msgspec.Struct, frozen=True):
    """Where messages go, and how.

    `control`: the topic of records; `only`: the one topic, None: a row says which;
    `whole_batches`: in batches that are encoded here, in transactions by Kafka's own
    requests; else message by message, by librdkafka.
    """

    topics: Mapping[str, Topic]
    only: str | None
    control: str
    properties: Mapping[str, Value]
    timeout_ms: int
    partitioner: Partitioner
    window_header: str
    patience: float
    delivery: Delivered = "exactly-once"
    acks: Acks = "1"
    whole_batches: bool = False

    def sender(self, name: str) -> Sending:
        """What sends one piece of work."""
        if self.whole_batches:
            return WireTransaction(self.properties, name, self.timeout_ms, self.patience)
        own: Mapping[str, Value] = {
            **self.properties,
            **({"partitioner": BY_KEY} if self.partitioner == "key-hash" else {}),
            "batch.size": self.batch_bytes,
            "queue.buffering.max.kbytes": _QUEUE,
            "queue.buffering.max.messages": _MOST,
        }
        if self.delivery != "exactly-once":
            return Delivery(own, self.acks if self.delivery == "none" else None, self.patience)
        # librdkafka takes no longer one
        socket = min(int(self.properties["socket.timeout.ms"]), self.timeout_ms)
        return Transaction(
            {**own, "transaction.timeout.ms": self.timeout_ms, "socket.timeout.ms": socket},
            name,
            self.patience,
        )

    @property
    def message_bytes(self) -> int:
        """What each of the topics takes at once, be it a message or a batch."""
        return min(topic.message_bytes for topic in self.topics.values())

    @property
    def unpacked_bytes(self) -> int:
        """What a whole batch may have before it is compressed: little enough for each
        topic, however its broker packs it.
        """
        return (
            self.batch_bytes
            if any(topic.packs_anew for topic in self.topics.values())
            else UNPACKED_BYTES
        )

    @property
    def batch_bytes(self) -> int:
        """Of a batch before it is compressed: so a message is refused only if it is too
        large by itself.
        """
        return max(1024, min(_BATCH, self.message_bytes // 2))

    @property
    def taken_back(self) -> str:
        """What becomes of the rest of a split of which one message can't be published."""
        return (
            "was taken back"
            if self.delivery == "exactly-once"
            else "may be in the topic already, and may come again"
        )


class Pump:
    """Sends one split's messages in an open transaction, and counts the reports on them.

    Used by one thread.
    """

    def __init__(
        self, target: PublishTarget, transaction: Sender, window: str, number: int, split: Split
    ) -> None:
        self._target, self._transaction, self._producer = target, transaction, transaction.producer
        self._window: list[tuple[str, bytes | None]] = [(target.window_header, window.encode())]
        self._number, self._split = number, split
        self._refused: tuple[KafkaError, str, int] | None = None
        self._sent = self._delivered = 0
        self._places: dict[tuple[str, int], tuple[int, int]] = {}

    def send(self, batches: Iterable[pa.RecordBatch]) -> None:
        """All messages, in their order.

        Raises:
            RefusedError: the topic doesn't take one; it is named by where it was read from.
            TransactionError: the transaction can't go on.
        """
        try:
            for batch in batches:
                self._send(batch)
        except (KafkaException, SystemError) as why:
            error = self._transaction.reason(why)
            raise TransactionError(kind_of(error), self._transaction.scrub(error)) from None

    def wait(self) -> tuple[OffsetSpan, ...]:
        """Where the messages are, once each was reported.

        Raises:
            RefusedError, TransactionError: as `send`.
            UnreachableError: the cluster takes longer than the transaction may.
        """
        deadline = time.monotonic() + self._target.timeout_ms / 1000
        try:
            while self._delivered < self._sent:
                self._producer.poll(_AGAIN_SECONDS)
                self._refuse_untaken()
                if time.monotonic() > deadline:
                    raise TransactionError(
                        "failed", f"{self._sent - self._delivered} messages are not written yet"
                    )
        except (KafkaException, SystemError) as why:
            error = self._transaction.reason(why)
            raise TransactionError(kind_of(error), self._transaction.scrub(error)) from None
        return tuple(OffsetSpan(*at, *ends) for at, ends in sorted(self._places.items()))

    def _send(self, batch: pa.RecordBatch) -> None:
        offsets, topics, keys, values, times = (
            batch[name].to_pylist() for name in ("offset", "topic", "key", "value", "time")
        )
        headers = self._headers(batch)
        chosen = (
            batch[PARTITION].to_pylist()
            if PARTITION in batch.schema.names
            else self._chosen(topics)
        )
        for at, offset in enumerate(offsets):
            topic = topics[at] or self._target.only or ""
            stamp = {} if times[at] == NOW else {"timestamp": times[at]}
            told = {"headers": headers[at], "on_delivery": partial(self._reported, offset), **stamp}
            self._produce(topic, values[at], keys[at], chosen[at], offset, told)

    def _headers(self, batch: pa.RecordBatch) -> Sequence[list[tuple[str, bytes | None]]]:
        names = [
            name.removeprefix(HEADER) for name in batch.schema.names if name.startswith(HEADER)
        ]
        columns = [batch[f"{HEADER}{name}"].to_pylist() for name in names]
        return (
            [[*zip(names, row, strict=True), *self._window] for row in zip(*columns, strict=True)]
            if names
            else [self._window] * len(batch)
        )

    def _chosen(self, topics: Sequence[str | None]) -> list[int]:
        """The partition of each."""
        how, split = self._target.partitioner, self._split
        counts = {name: topic.partitions for name, topic in self._target.topics.items()}
        first = self._sent
        if self._target.only is not None:
            count = counts[self._target.only]
            taken: list[int] = partitions(
                how, len(topics), first, self._number, split.partition, count
            ).tolist()
            return taken
        return [
            int(
                partitions(how, 1, first + at, self._number, split.partition, counts[name or ""])[0]
            )
            for at, name in enumerate(topics)
        ]

    def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        offset: int,
        told: Mapping[str, Any],
    ) -> None:
        while True:
            self._refuse_untaken()
            try:
                self._producer.produce(topic, value, key, partition, **told)
            except BufferError:
                self._producer.poll(_AGAIN_SECONDS)
                continue
            except KafkaException as why:
                if kind_of(why.args[0]) != "refused":
                    raise
                self._refused = (why.args[0], topic, offset)
                continue
            self._sent += 1
            if self._sent % 1000 == 0:
                self._producer.poll(0)
            return

    def _reported(self, offset: int, error: KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            if self._refused is None:
                self._refused = (error, str(message.topic()), offset)
            return
        self._delivered += 1
        at, where = (
            (str(message.topic()), int(message.partition() or 0)),
            int(message.offset() or 0),
        )
        first, last = self._places.get(at, (where, where))
        self._places[at] = (min(first, where), max(last, where))

    def _refuse_untaken(self) -> None:
        if self._refused is None:
            return
        error, topic, offset = self._refused
        if kind_of(error) != "refused":
            raise TransactionError(kind_of(error), self._transaction.scrub(error))
        what = (
            f"The topic {topic} doesn't take the message of a row: {self._transaction.scrub(error)}"
        )
        do = _WAYS_OUT.get(error.code(), "Fix that at the topic, or refuse such rows by a rule")
        raise RefusedError(
            what,
            "commit",
            f"Its split {self._target.taken_back}. {do}; then run the window again.",
            self._split.topic,
            self._split.partition,
            offset,
        )


_WAYS_OUT = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "Raise the topic's max.message.bytes, or refuse such rows by a rule"
    ),
    KafkaError.INVALID_TIMESTAMP: (
        "Raise the topic's message.timestamp.after.max.ms (or before.max.ms), or set"
        " sink.timestamp: published"
    ),
}
"""By the broker's code."""
