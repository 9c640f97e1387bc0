"""The target of a window's messages, and the producer that sends them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windrow.ingest.kafka.producers import (
    Acks,
    MessageProducer,
    NonIdempotentProducer,
    TransactionalProducer,
)
from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.retry import PATIENCE_SECONDS
from windrow.ingest.ports.sink import Delivered
from windrow.ingest.sinks.kafka.places import BY_KEY, Partitioner
from windrow.ingest.sinks.kafka.topics import Topic

_BATCH_BYTES = 512 * 1024
_QUEUE_KBYTES = 64 * 1024
"""Limit of the messages in the queue of a producer, in kibibytes."""
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

    def producer(self, name: str) -> MessageProducer:
        """Makes the producer that has a transactional id, if there are transactions."""
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
            return MessageProducer(own, PATIENCE_SECONDS)
        # librdkafka takes no request timeout above that of the transaction.
        socket = min(int(self.properties["socket.timeout.ms"]), self.timeout_ms)
        return TransactionalProducer(
            {**own, "transaction.timeout.ms": self.timeout_ms, "socket.timeout.ms": socket},
            name,
            PATIENCE_SECONDS,
        )

    @property
    def batch_bytes(self) -> int:
        """Limit of a batch of messages before it is compressed, in bytes.

        A topic refuses whole batches, so with this limit it refuses a batch only if one
        message alone is too large.
        """
        least = min(topic.message_bytes for topic in self.topics.values())
        return max(1024, min(_BATCH_BYTES, least // 2))

    @property
    def taken_back(self) -> str:
        """For messages: the fate of a split that has a message which can't be published."""
        return (
            "was taken back"
            if self.delivery == "exactly-once"
            else "may be in the topic already, and may come again"
        )
