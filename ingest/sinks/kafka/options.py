"""What a spec says of a Kafka table, without its rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pyarrow as pa

from windrow.ingest.kafka.transaction import Acks
from windrow.ingest.ports.sink import Delivered
from windrow.ingest.registry.client import Registry
from windrow.ingest.schema.changes import change_schema
from windrow.ingest.schema.load import FunctionReference
from windrow.ingest.settings.secrets import Secret
from windrow.ingest.sinks.kafka.encoder import AnyPart, MessagePart
from windrow.ingest.sinks.kafka.places import Partitioner


class Reach(msgspec.Struct, frozen=True):
    """How the sink's cluster is reached: its addresses, the user's properties, and the
    registry of its messages' schemas, if any.
    """

    servers: str
    client: Mapping[str, str | int | float | bool | Secret] = {}
    registry: Registry | None = None


class Options(msgspec.Struct, frozen=True):
    """What a spec says of a Kafka table.

    `topics`: those that messages go to; with several, `topic_column` says to which one a row goes.

    `value` and `key`: their formats and columns; an empty list of value columns means
    all of the row's own. `time`: see `encoder.MessageEncoder`. `function`: which one chooses
    partitions, where that is the partitioner. `acks`: who confirms messages, where
    `delivery` is none. `primary_key`: by which columns messages replace each other for
    who folds the topic; empty: they don't.
    """

    topics: tuple[str, ...]
    control: str
    staging: str
    topic_column: str | None = None
    value: AnyPart = MessagePart("json", ())
    key: AnyPart | None = None
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
        """The columns of what tasks are given, of such rows: with a primary key they
        are changes, rows and deletes.
        """
        return change_schema(rows, self.primary_key) if self.primary_key else rows


def addresses(servers: str) -> set[str]:
    """The addresses in a list of them."""
    return {address.strip() for address in servers.split(",")}
