"""A Kafka table: its topics, and the encoder of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import msgspec
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.client_properties import admin_properties, consumer_properties
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.registry.client import Registry
from windrow.ingest.schema.metadata_types import refuse_wrong
from windrow.ingest.sinks.kafka.control_records import ControlState
from windrow.ingest.sinks.kafka.control_topic import ControlTopic
from windrow.ingest.sinks.kafka.encoder import ORIGIN, MessageEncoder, further_headers
from windrow.ingest.sinks.kafka.options import KafkaOptions
from windrow.ingest.sinks.kafka.send import PublishTarget
from windrow.ingest.sinks.kafka.serializers import with_columns
from windrow.ingest.sinks.kafka.stage import StagedMessageFiles
from windrow.ingest.sinks.kafka.topics import SinkTopics
from windrow.ingest.sinks.kafka.transactions import TransactionalIds
from windrow.ingest.sinks.kit import ReceiptTable, RowLayout


class ClusterConnection(msgspec.Struct, frozen=True):
    """Connection to the sink's cluster.

    Attributes:
        servers: the bootstrap servers.
        client: the user's properties of the client.
        registry: the registry of the messages' schemas, if there is one.
    """

    servers: str
    client: Mapping[str, object] = {}
    registry: Registry | None = None


class KafkaTable(ReceiptTable):
    """The part that a Kafka table's sink, its commit and its verification share.

    Args:
        connection: the connection to the cluster.
        options: the table's options.
        schema: the columns of a row, without the metadata's; or a function that loads
            them, called at first use.
        metadata: the names of the metadata's columns.

    Raises:
        SpecError: the client properties can't be used, or two columns or two headers
            have the same name.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        options: KafkaOptions,
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
            SpecError: rows lack a column that the spec names, or a column can't be written
                in its format.
        """
        value = with_columns(self.options.value, self.schema.names)
        options = msgspec.structs.replace(self.options, value=value)
        encoder = MessageEncoder(options, self.metadata)
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
        """The cluster's addresses and the control topic; tables differ in at least one of them."""
        return (
            f"kafka:{','.join(sorted(_addresses(self.connection.servers)))}/{self.options.control}"
        )

    def is_at(self, identity: str) -> bool:
        """Returns whether the identity is this table's; a common address means the same cluster."""
        servers, _, control = identity.removeprefix("kafka:").partition("/")
        return control == self.options.control and not _addresses(servers).isdisjoint(
            _addresses(self.connection.servers)
        )

    def reading(self) -> AbstractContextManager[ControlState | None]:
        control = self.control.read()
        return nullcontext(None if control is None or control.is_new else control)

    def target(self) -> PublishTarget:
        """Asks the cluster for the target topics, and returns how to send messages now."""
        return PublishTarget(self.options, self.topics.targets(), self._admin)


def _addresses(servers: str) -> set[str]:
    """Splits a list of bootstrap servers into its addresses."""
    return {address.strip() for address in servers.split(",")}


def _refuse_two_headers(headers: Mapping[str, str], metadata: Mapping[str, str]) -> None:
    """Checks that no message gets two headers with the same name.

    Raises:
        SpecError: a header has the name of the origin's, or of a metadata column's header.
    """
    for name in headers:
        if name in {ORIGIN, *further_headers(metadata)}:
            raise SpecError(
                f"sink.headers has a header {name}, and each message has one of that name already",
                "spec",
                "Rename the header.",
            )
