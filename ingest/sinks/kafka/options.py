"""Options of a Kafka table, from its spec, without the columns of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pyarrow as pa

from windrow.ingest.kafka.producers import Acks
from windrow.ingest.ports.sink import Delivered
from windrow.ingest.registry.client import Registry
from windrow.ingest.schema.changes import change_schema
from windrow.ingest.schema.load import FunctionReference
from windrow.ingest.settings.secrets import Secret
from windrow.ingest.sinks.kafka.encoder import PlainSerializer, Serializer
from windrow.ingest.sinks.kafka.places import Partitioner


class ClusterConnection(msgspec.Struct, frozen=True):
    """Connection to the sink's cluster.

    Attributes:
        servers: the bootstrap servers.
        client: the user's properties of the client.
        registry: the registry of the messages' schemas, if there is one.
    """

    servers: str
    client: Mapping[str, str | int | float | bool | Secret] = {}
    registry: Registry | None = None


class Options(msgspec.Struct, frozen=True):
    """Options of a Kafka table.

    Attributes:
        topics: the target topics.
        control: the control topic.
        staging: the place of staged messages.
        topic_column: with several topics, the column that names the topic of a row.
        value: serializer of values; no columns means all columns of the row.
        key: serializer of keys; None: messages have no key.
        headers: names of headers, each with its column.
        time: see `encoder.MessageEncoder`.
        partitioner: how a message's partition is chosen.
        function: the function that chooses it, with `partitioner` function.
        delivery: the delivery guarantee.
        acks: which brokers confirm a message, with `delivery` none.
        atomic_window: True if a window is published in one transaction.
        prefix: how transactional ids begin.
        lanes: see `ids.TransactionalIds`.
        timeout: how long a transaction may take.
        primary_key: the columns by which a message replaces an earlier one; empty:
            messages don't replace each other.
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
    lanes: int = 64
    timeout: timedelta = timedelta(minutes=5)
    primary_key: tuple[str, ...] = ()

    def staged(self, rows: pa.Schema) -> pa.Schema:
        """Returns the columns that tasks stage: with a primary key, those of changes."""
        return change_schema(rows, self.primary_key) if self.primary_key else rows


def addresses(servers: str) -> set[str]:
    """Splits a list of bootstrap servers into its addresses."""
    return {address.strip() for address in servers.split(",")}
