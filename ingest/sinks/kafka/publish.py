"""Where a window's messages go, and what sends them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.record_batch import UNPACKED_BYTES
from windrow.ingest.kafka.transaction import Acks, Sender, Sending, Transaction, Unsure
from windrow.ingest.kafka.wire_transaction import WireTransaction
from windrow.ingest.ports.sink import Delivered
from windrow.ingest.sinks.kafka.places import BY_KEY, Partitioner
from windrow.ingest.sinks.kafka.topics import Topic

_BATCH = 512 * 1024
_QUEUE = 64 * 1024
"""Kibibytes that wait to be sent, of each producer."""
QUEUED_MESSAGES = 10_000
"""Messages that do.

Each takes some allocations, which are the cheaper the sooner they are used again.
"""


class PublishTarget(msgspec.Struct, frozen=True):
    """Where messages go, and how.

    `control`: the topic of records; `only`: the one topic, None: a row says which;
    `metadata`: the names of the headers that say where a row was read; `whole_batches`:
    in record batches that are encoded here, by Kafka's own requests; else by librdkafka.
    """

    topics: Mapping[str, Topic]
    only: str | None
    control: str
    properties: Mapping[str, Value]
    timeout_ms: int
    partitioner: Partitioner
    metadata: Mapping[str, str]
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
            "queue.buffering.max.messages": QUEUED_MESSAGES,
        }
        if self.delivery == "none":
            return Unsure(own, self.acks, self.patience)
        if self.delivery == "at-least-once":
            return Sender(own, self.patience)
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
