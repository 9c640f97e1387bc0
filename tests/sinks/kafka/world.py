"""Kafka tables for tests, and a reader of their rows: a plain consumer reads the topics from
the first message to the last.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, cast

import confluent_kafka as ck
import pyarrow as pa

from tests.kafka.produce import create_topic, until_decided
from windrow.ingest.crashpoints import SPLIT_POINTS, CrashPoint
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.metadata_types import TYPES
from windrow.ingest.sinks.kafka.control_topic import poll_messages
from windrow.ingest.sinks.kafka.encoder import MessageEncoder
from windrow.ingest.sinks.kafka.header_values import from_header
from windrow.ingest.sinks.kafka.options import KafkaOptions
from windrow.ingest.sinks.kafka.serializers import Serializer
from windrow.ingest.sinks.kafka.sink import KafkaSink
from windrow.ingest.sinks.kafka.table import ClusterConnection
from windrow.ingest.sinks.kind import delta_dead_letters
from windrow.ingest.sinks.kit.columns.json_columns import parse_json
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.windows import ROWS, produced_messages
from windrow.ingest.testing.contracts.with_dead_letters import WithDeadLetters

SECONDS = 30.0
POINTS: tuple[CrashPoint, ...] = SPLIT_POINTS
BETWEEN: CrashPoint = "split.before"


class KafkaBoth(WithDeadLetters, KafkaSink):
    """A Kafka sink on real topics, with its dead letters."""

    def __init__(
        self,
        connection: ClusterConnection,
        options: KafkaOptions,
        schema: pa.Schema,
        metadata: Mapping[str, str] = DEFAULT,
    ) -> None:
        super().__init__(connection, options, schema, metadata)
        self.dead_letters = delta_dead_letters(options.staging)


def options_of(topic: str, staging: str, **more: Any) -> KafkaOptions:
    """Returns options of a table of one topic."""
    return KafkaOptions((topic,), f"{topic}.windrow", staging, **more)


def encoder_of(
    value: Serializer, topics: tuple[str, ...] = ("t",), staging: str = "", **more: Any
) -> MessageEncoder:
    """Returns the encoder of a table with these options, without metadata columns."""
    return MessageEncoder(KafkaOptions(topics, "t.windrow", staging, value=value, **more))


def create_location(bootstrap: str, staging: str, partitions: int = 2, **more: Any) -> str:
    """Makes a target topic, and returns the location of a table that isn't prepared."""
    return json.dumps(
        {
            "servers": bootstrap,
            "topic": create_topic(bootstrap, partitions),
            "staging": staging,
            "more": more,
        }
    )


def sink_at(location: str) -> Any:
    """Opens the table at a location, as another process does."""
    return open_sink(location, KafkaBoth)


def open_sink(location: str, kind: type[KafkaBoth], **more: Any) -> Any:
    """Opens the table at a location as a sink of this class, with more options."""
    options = json.loads(location)
    return kind(
        ClusterConnection(options["servers"]),
        options_of(options["topic"], options["staging"], **options["more"], **more),
        ROWS,
    )


def pieces(sink: Any) -> list[pa.Table]:
    """Reads all visible rows, one piece per target partition, window and source partition."""
    rows_by_piece: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for topic in sink.options.topics:
        for message in read_committed(sink.connection.servers, topic):
            row = row_of(sink, message)
            piece = tuple(row[sink.metadata[name]] for name in ("window", "topic", "partition"))
            rows_by_piece[topic, message.partition(), *piece].append(row)
    return [_table(sink, rows) for _, rows in sorted(rows_by_piece.items())]


Place = tuple[str, int, int]
"""Topic, partition and offset of a message that was read."""


def origin_of(message: ck.Message) -> tuple[Place, str]:
    """Returns the source place of a message's row, and its time, from the origin header."""
    _, _, topic, partition, offset, time = _origin(message)
    return (topic, int(partition), int(offset)), time


def _origin(message: ck.Message) -> list[str]:
    return (header(message, "windrow.origin") or b"").decode().split("/")


def header(message: ck.Message, name: str) -> bytes | None:
    """Returns the value of the only header with that name."""
    (octets,) = (value for key, value in message.headers() or () if key == name)
    return cast("bytes | None", octets)


def row_of(sink: Any, message: ck.Message) -> dict[str, Any]:
    """Turns a message into its row."""
    value, (position, time) = (
        parse_json(message.value() or b"{}", pa.struct(list(sink.schema))),
        origin_of(message),
    )
    row = dict(value)
    metadata: dict[str, Any] = dict(zip(("topic", "partition", "offset"), position, strict=True))
    metadata["timestamp"] = from_header(time.encode() or None, TYPES["timestamp"])
    metadata["window"] = _origin(message)[1]
    for name, column in sink.metadata.items():
        row[column] = (
            metadata[name]
            if name in metadata
            else from_header(header(message, column), TYPES[name])
        )
    return row


def _table(sink: Any, rows: list[dict[str, Any]]) -> pa.Table:
    kinds = [
        *sink.schema,
        *(pa.field(column, TYPES[name]) for name, column in sink.metadata.items()),
    ]
    return pa.table(
        {field.name: pa.array([row[field.name] for row in rows], field.type) for field in kinds}
    )


def read_committed(bootstrap: str, topic: str) -> Iterator[ck.Message]:
    """Reads every committed message of a topic, once no transaction is open in it."""
    until_decided(bootstrap, topic)
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 5,
            "log_level": 0,
        }
    )
    try:
        remaining = set(consumer.list_topics(topic, SECONDS).topics[topic].partitions)
        consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in remaining])
        while remaining:
            batch = poll_messages(consumer, SECONDS)
            if not batch:
                timeout_message = (
                    f"nothing came of {topic}, partitions {sorted(remaining)}, for {SECONDS} s"
                )
                raise TimeoutError(timeout_message)
            for message in batch:
                if message.error() is None:
                    yield message
                elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                    remaining.discard(message.partition())
                else:
                    raise ck.KafkaException(message.error())
    finally:
        consumer.close()


def report(location: str, numbers: range) -> Report:
    """Runs the checker on all windows of the table at a location."""
    sink = sink_at(location)
    receipts = [c.receipt for c in sink.receipts()]
    return check(
        produced_messages(numbers),
        pieces(sink),
        [sink.read_dead(r.window) for r in receipts],
        receipts,
        content="id",
    )
