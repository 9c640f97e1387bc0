"""A Kafka table: its options, its topics, and the encoder of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import cached_property

import msgspec
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.client_properties import admin_properties, consumer_properties
from windrow.ingest.kafka.producers import Acks
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.sink import (
    Capabilities,
    Delivered,
)
from windrow.ingest.registry.client import Registry
from windrow.ingest.schema.metadata_types import refuse_wrong
from windrow.ingest.schema.row_changes import change_schema
from windrow.ingest.schema.user_code import FunctionReference
from windrow.ingest.settings.secrets import Secret
from windrow.ingest.sinks.kafka.control_topic import ControlTopic
from windrow.ingest.sinks.kafka.encoder import (
    IN_ORIGIN,
    ORIGIN,
    MessageEncoder,
    PlainSerializer,
    Serializer,
    with_columns,
)
from windrow.ingest.sinks.kafka.partitioners import Partitioner
from windrow.ingest.sinks.kafka.send import PublishTarget
from windrow.ingest.sinks.kafka.stage import StagedMessageFiles
from windrow.ingest.sinks.kafka.topics import SinkTopics
from windrow.ingest.sinks.kafka.transactions import TransactionalIds
from windrow.ingest.sinks.kit import ReceiptState, ReceiptTable, RowLayout


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
        pool: see `transactions.TransactionalIds`.
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
    pool: int = 64
    timeout: timedelta = timedelta(minutes=5)
    primary_key: tuple[str, ...] = ()

    def staged(self, rows: pa.Schema) -> pa.Schema:
        """Returns the columns that tasks stage: with a primary key, those of changes."""
        return change_schema(rows, self.primary_key) if self.primary_key else rows


class KafkaTable(ReceiptTable):
    """What the sink of a Kafka table, its commit and its verification have in common.

    Args:
        connection: the connection to the cluster.
        options: the table's options.
        schema: the columns of a row, without the metadata's; or a function that loads
            them, called when they are needed first.
        metadata: the names of the metadata's columns.

    Raises:
        SpecError: the client properties can't be used, or a metadata column's or a
            header's name is taken.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        options: Options,
        schema: pa.Schema | Callable[[], pa.Schema],
        metadata: Mapping[str, str] = DEFAULT,
    ) -> None:
        refuse_wrong(schema.names if isinstance(schema, pa.Schema) else (), metadata)
        _refuse_two_headers(options.headers, metadata)
        self.connection, self.options, self.metadata = connection, options, dict(metadata)
        self.capabilities = Capabilities(
            "window" if options.atomic_window else "split",
            replaces=False,
            mode="changes" if options.primary_key else "append",
            delivery=options.delivery,
        )
        self._load = schema
        self._admin = admin_properties(connection.servers, connection.client)
        consumer = consumer_properties(connection.servers, connection.client)
        self.topics = SinkTopics(connection.servers, self._admin, options.topics, options.control)
        self.control = ControlTopic(options.control, self.topics, self._admin, consumer)
        self.files = StagedMessageFiles(options.staging)
        self.ids = TransactionalIds(options.prefix, options.control, options.pool)

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a row, without the metadata's."""
        loaded = self._load() if callable(self._load) else self._load
        refuse_wrong(loaded.names, self.metadata)
        return loaded

    @cached_property
    def encoder(self) -> MessageEncoder:
        """The encoder of rows.

        Raises:
            SpecError: rows don't have a column that the spec names, or it can't be
                written in its format.
        """
        options = self.options
        encoder = MessageEncoder(
            with_columns(options.value, self.schema.names),
            options.key,
            {**_further_headers(self.metadata), **options.headers},
            self.metadata.get("attempt"),
            options.time,
            options.topic_column,
            options.topics,
            options.primary_key,
        )
        encoder.check_columns(self.columns)
        return encoder

    @property
    def columns(self) -> pa.Schema:
        """Columns of a row, with the metadata's."""
        return RowLayout(self.schema, self.metadata, "").schema.append(
            pa.field(self.metadata["window"], pa.string())
        )

    @property
    def identity(self) -> str:
        """The cluster and the control topic: tables differ in one of them."""
        return (
            f"kafka:{','.join(sorted(_addresses(self.connection.servers)))}/{self.options.control}"
        )

    def is_at(self, identity: str) -> bool:
        """Returns whether it names this table; one address in common means the same cluster."""
        servers, _, control = identity.removeprefix("kafka:").partition("/")
        return control == self.options.control and not _addresses(servers).isdisjoint(
            _addresses(self.connection.servers)
        )

    def reading(self) -> AbstractContextManager[ReceiptState | None]:
        control = self.control.read()
        return nullcontext(None if control is None or control.is_new else control)

    def target(self) -> PublishTarget:
        """Asks the cluster for the target topics, and returns how messages are sent now."""
        options = self.options
        return PublishTarget(
            self.topics.targets(),
            options.topics[0] if options.topic_column is None else None,
            options.control,
            self._admin,
            options.timeout // timedelta(milliseconds=1),
            options.partitioner,
            options.delivery,
            options.acks,
        )


def _addresses(servers: str) -> set[str]:
    """Splits a list of bootstrap servers into its addresses."""
    return {address.strip() for address in servers.split(",")}


def _further_headers(metadata: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers, each with its column, of metadata that no origin says."""
    return {column: column for name, column in metadata.items() if name not in IN_ORIGIN}


def _refuse_two_headers(headers: Mapping[str, str], metadata: Mapping[str, str]) -> None:
    """Checks that no message gets two headers of one name.

    Raises:
        SpecError: a header has the name of the origin's, or of a metadata column's header.
    """
    for name in headers:
        if name in {ORIGIN, *_further_headers(metadata)}:
            raise SpecError(
                f"sink.headers has a header {name}, and each message has one of that name already",
                "spec",
                "Rename the header.",
            )
