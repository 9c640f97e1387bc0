"""The target of a window's messages, and the producer that sends them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.record_batch import UNPACKED_BYTES
from windrow.ingest.kafka.retry import PATIENCE_SECONDS
from windrow.ingest.kafka.transaction import (
    Acks,
    LibrdkafkaProducer,
    LibrdkafkaTransaction,
    MessageProducer,
    NonIdempotentProducer,
)
from windrow.ingest.kafka.wire_transaction import WireTransaction
from windrow.ingest.ports.sink import Delivered
from windrow.ingest.sinks.kafka.places import BY_KEY, Partitioner
from windrow.ingest.sinks.kafka.topics import Topic

_BATCH_BYTES = 512 * 1024
_QUEUE_KBYTES = 64 * 1024
"""Limit of the messages in the queue of a librdkafka producer, in kibibytes."""
QUEUED_MESSAGES = 10_000
"""Limit of their number.

Each message in the queue is a few allocations; with a short queue the same memory is
used again and stays in the processor's cache.
"""


class PublishTarget(msgspec.Struct, frozen=True):
    """Target of messages, and how they are sent.

    Attributes:
        topics: the target topics by name.
        only: the one target topic; None: a row names its topic.
        control: the control topic.
        properties: those of an AdminClient.
        timeout_ms: how long a transaction may take.
        partitioner: how a message's partition is chosen.
        metadata: names of the headers that say where a row was read.
        delivery: the delivery guarantee.
        acks: which brokers confirm a message, with `delivery` none.
        whole_batches: True if record batches are encoded here and sent by Kafka's own
            requests; False if librdkafka sends messages.
    """

    topics: Mapping[str, Topic]
    only: str | None
    control: str
    properties: Mapping[str, Value]
    timeout_ms: int
    partitioner: Partitioner
    metadata: Mapping[str, str]
    delivery: Delivered = "exactly-once"
    acks: Acks = "1"
    whole_batches: bool = False

    def producer(self, name: str) -> MessageProducer:
        """Makes the producer that has a transactional id, if there are transactions."""
        if self.whole_batches:
            return WireTransaction(self.properties, name, self.timeout_ms, PATIENCE_SECONDS)
        own: Mapping[str, Value] = {
            **self.properties,
            **({"partitioner": BY_KEY} if self.partitioner == "key-hash" else {}),
            "batch.size": self.batch_bytes,
            "queue.buffering.max.kbytes": _QUEUE_KBYTES,
            "queue.buffering.max.messages": QUEUED_MESSAGES,
        }
        if self.delivery == "none":
            return NonIdempotentProducer(own, self.acks, PATIENCE_SECONDS)
        if self.delivery == "at-least-once":
            return LibrdkafkaProducer(own, PATIENCE_SECONDS)
        # librdkafka takes no request timeout above that of the transaction.
        socket = min(int(self.properties["socket.timeout.ms"]), self.timeout_ms)
        return LibrdkafkaTransaction(
            {**own, "transaction.timeout.ms": self.timeout_ms, "socket.timeout.ms": socket},
            name,
            PATIENCE_SECONDS,
        )

    @property
    def message_bytes(self) -> int:
        """Limit of a message or of a batch that all target topics accept, in bytes."""
        return min(topic.message_bytes for topic in self.topics.values())

    @property
    def unpacked_bytes(self) -> int:
        """Limit of a batch that is encoded here, before it is compressed, in bytes.

        It is small enough for each topic, whichever compression its broker applies.
        """
        return (
            self.batch_bytes
            if any(topic.packs_anew for topic in self.topics.values())
            else UNPACKED_BYTES
        )

    @property
    def batch_bytes(self) -> int:
        """Limit of a librdkafka batch before it is compressed, in bytes.

        A topic refuses whole batches, so with this limit it refuses a batch only if one
        message alone is too large.
        """
        return max(1024, min(_BATCH_BYTES, self.message_bytes // 2))

    @property
    def taken_back(self) -> str:
        """For messages: the fate of a split that has a message which can't be published."""
        return (
            "was taken back"
            if self.delivery == "exactly-once"
            else "may be in the topic already, and may come again"
        )
