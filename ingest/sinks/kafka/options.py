"""Options of a Kafka table, taken from its spec, for the driver and for tasks. Picklable."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import msgspec
import pyarrow as pa

from windrow.ingest.ports.sink import Delivered
from windrow.ingest.schema.row_changes import change_schema
from windrow.ingest.schema.user_code import FunctionReference
from windrow.ingest.sinks.kafka.serializers import PlainSerializer, Serializer

if TYPE_CHECKING:  # so that tasks don't load Kafka's client for it
    from windrow.ingest.kafka.producers import Acks

Partitioner = Literal["default", "key-hash", "fixed", "round-robin", "source", "function"]


class KafkaOptions(msgspec.Struct, frozen=True):
    """Options of a Kafka table.

    Attributes:
        topics: the target topics.
        control: the control topic.
        staging: the place of staged messages.
        topic_column: with several topics, the column that names the topic of a row.
        value: serializer of values; no columns means all columns of the row.
        key: serializer of keys; None: messages have no key.
        headers: names of headers, each with its column.
        time: "message" for the time of the message that the row came from, "published"
            for the time of publishing, or the name of a column.
        partitioner: how a message's partition is chosen.
        function: the function that chooses the partition, with `partitioner` "function".
        delivery: the delivery guarantee.
        acks: which brokers confirm a message, with `delivery` "none".
        atomic_window: True if a window is published in one transaction.
        prefix: the beginning of transactional ids.
        pool: see `transactions.TransactionalIds`.
        timeout: how long a transaction may take.
        primary_key: the columns by which a message replaces an earlier one; empty:
            messages don't replace each other. A deleted row is a message without a value.
    """

    topics: tuple[str, ...]
    control: str
    staging: str
    topic_column: str | None = None
    value: Serializer = PlainSerializer("json", ())
    key: Serializer | None = None
    headers: Mapping[str, str] = {}
    time: str = "message"
    partitioner: Partitioner = "default"
    function: FunctionReference | None = None
    delivery: Delivered = "exactly-once"
    acks: Acks = "1"
    atomic_window: bool = False
    prefix: str = "windrow.sink"
    pool: int = 64
    timeout: timedelta = timedelta(minutes=5)
    primary_key: tuple[str, ...] = ()

    def staged(self, rows: pa.Schema) -> pa.Schema:
        """Returns the columns that tasks stage; with a primary key, the columns of changes."""
        return change_schema(rows, self.primary_key) if self.primary_key else rows

    @property
    def only_topic(self) -> str | None:
        """The only target topic; None: a row names its topic."""
        return self.topics[0] if self.topic_column is None else None
