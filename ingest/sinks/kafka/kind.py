"""The Kafka sink's section of a spec.

Kafka's client is loaded only when a sink is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.paths import absolute
from windrow.ingest.settings.values import (
    Count,
    Default,
    Duration,
    FunctionName,
    Section,
    Text,
    TopicName,
    Values,
    WrittenTopicName,
    must,
    names_in,
    section_of,
)
from windrow.ingest.sinks.kit import (
    KeyColumns,
    OnClusterSection,
    PrimaryKey,
    Rows,
    StoragePlace,
    key_conflicts,
)

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink
    from windrow.ingest.sinks.kafka.serializers import Serializer

_REGISTERED = ("avro-confluent", "protobuf-confluent")
"""Formats with a schema in a registry."""
_TIMEOUT_MAX = timedelta(minutes=15)
"""Kafka's default for transaction.max.timeout.ms."""


def _acks(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_full_name = must(
    re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*").fullmatch,
    "be a name as in shop.Order: letters, digits and _, no digit first, with points between",
)


class _SerializerSection(Section):
    """Settings that a message's key and value share."""

    format: Literal["json", "avro-confluent", "protobuf-confluent", "string", "raw"] = Field(
        default="json",
        description=(
            "How it is written: as an object with a member for each column (`json`), as a record or"
            " a Protobuf message with a field for each, after the id of its schema in a registry"
            " (`avro-confluent`, `protobuf-confluent`), as the text of one column (`string`), or as"
            " the bytes of one column (`raw`)."
        ),
    )
    record_name: Annotated[
        Annotated[Text, _full_name] | None,
        Values("a full name"),
        Default("`windrow.Value`, of a key `windrow.Key`"),
    ] = Field(
        default=None,
        description=(
            "With a registry: the full name of the record, or of Protobuf's message, in its schema,"
            " as in `shop.Order`."
        ),
    )
    subject_name_strategy: Annotated[
        Literal["topic", "record", "topic_record"] | None,
        Values("`topic`, `record`, `topic_record`"),
        Default("`topic`"),
    ] = Field(
        default=None,
        description=(
            "With a registry: the subject of the schema: TOPIC-value (of a key TOPIC-key), RECORD,"
            " or TOPIC-RECORD."
        ),
    )
    auto_register: Annotated[bool | None, Values("`true`, `false`"), Default("`true`")] = Field(
        default=None,
        description=(
            "With a registry: whether the schema is registered if the registry doesn't have it. If"
            " `false`, a window is refused until somebody else has registered it."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields conflicts between the format, the columns and the registry's settings."""
        columns = names_in(written.get("columns"))
        if written.get("format", "json") in {"string", "raw"} and len(columns) != 1:
            yield ("columns",), f"must name one column: {written['format']} writes one"
        if len(set(columns)) < len(columns):
            yield ("columns",), "names a column twice"
        of_registry = written.get("format") in _REGISTERED
        for name in ("record_name", "subject_name_strategy", "auto_register"):
            if written.get(name) is not None and not of_registry:
                yield (name,), f"goes with format: {' or '.join(_REGISTERED)}"
        if (
            of_registry
            and written.get("subject_name_strategy") in {"record", "topic_record"}
            and written.get("record_name") is None
        ):
            yield ("record_name",), "is missing: the strategy's subjects are named after records"


class MessageKeySection(_SerializerSection):
    """A message's key."""

    columns: Annotated[tuple[Text, ...], Field(min_length=1), Values("a list of columns")] = Field(
        description="The columns that are written."
    )


class MessageValueSection(_SerializerSection):
    """A message's value."""

    columns: Annotated[
        Annotated[tuple[Text, ...], Field(min_length=1)] | None,
        Values("a list of columns"),
        Default("all of the row's own"),
    ] = Field(default=None, description="The columns that are written.")


class KafkaSection(OnClusterSection):
    """A topic, or several, with a control topic for the receipts."""

    kind: Literal["kafka"]
    topic: Annotated[
        WrittenTopicName | None, Values("a name"), Default("none, as goes with `topics`")
    ] = Field(
        default=None,
        description=(
            "The topic of all messages. It must exist: only you know how many partitions it"
            " should have."
        ),
    )
    topics: Annotated[
        Annotated[tuple[WrittenTopicName, ...], Field(min_length=1)] | None,
        Values("a list of names"),
        Default("none"),
    ] = Field(
        default=None,
        description=(
            "The topics of messages, instead of `topic`: `topic_column` names the one of each row."
        ),
    )
    topic_column: Annotated[
        Text | None, Values("a column"), Default("none, as goes with `topic`")
    ] = Field(
        default=None,
        description=(
            "The column that names a row's topic. A row whose topic isn't in `topics` is a dead"
            " letter."
        ),
    )
    control_topic: Annotated[TopicName | None, Values("a name"), Default("`<topic>.windrow`")] = (
        Field(
            default=None,
            description=(
                "The compacted topic with the receipts. It is created if it doesn't exist and the"
                " client may create it. Must be set with `topics`."
            ),
        )
    )
    staging: StoragePlace = Field(
        description=(
            "Where tasks keep messages until their window is published. A relative path begins at"
            " the file's folder."
        )
    )
    key_: MessageKeySection | None = Field(
        default=None,
        alias="key",
        description=(
            "A message's key. Without it, messages have none, or with `mode: upsert` the columns of"
            " `primary_key` as JSON."
        ),
    )
    value: MessageValueSection = Field(
        default=MessageValueSection(), description="A message's value."
    )
    mode: Literal["append", "upsert"] = Field(
        default="append",
        description=(
            "Whether a message is one more (`append`), or replaces the earlier messages with the"
            " same key (`upsert`). With `upsert` a delete is a message without a value, and a"
            " reader that keeps the last message of each key has the table; it needs"
            " `atomic_window`."
        ),
    )
    primary_key: KeyColumns = None
    headers: Annotated[Mapping[Text, Text], Values("`{HEADER: COLUMN}`")] = Field(
        default_factory=dict,
        description=(
            "Headers from columns, metadata columns too, besides `windrow.origin`, which every"
            " message has. No header may be called so, nor like the header of a metadata column."
        ),
    )
    timestamp: Annotated[Text, Values("`message`, `published`, a column")] = Field(
        default="message",
        description=(
            "A message's time: that of the message its row came from, the time of publishing, or a"
            " column's."
        ),
    )
    partitioner: Literal["default", "key-hash", "fixed", "round-robin", "source", "function"] = (
        Field(
            default="default",
            description=(
                "How a message's partition is chosen: by its key as Java's clients do, and any"
                " partition without a key (`default`); the same, and `key` must be set"
                " (`key-hash`); one partition for each split (`fixed`); one after the other"
                " (`round-robin`); the partition that the row was read from, modulo the number of"
                " partitions (`source`); by `partition_function` (`function`)."
            ),
        )
    )
    partition_function: Annotated[
        FunctionName | None,
        Default("none, as goes with the other partitioners"),
    ] = Field(
        default=None,
        description=(
            "Called with the keys, the rows and the number of partitions of their topic; returns"
            " the partition of each row."
        ),
    )
    delivery_guarantee: Literal["none", "at-least-once", "exactly-once"] = Field(
        default="exactly-once",
        description=(
            "How each message of a window is published: once, by transactions (`exactly-once`);"
            " confirmed by all replicas before the receipt is written, so that messages of a run"
            " that died are published again by the next one (`at-least-once`); sent, without"
            " looking at the answer (`none`)."
        ),
    )
    acks: Annotated[
        Literal["0", "1", "all"] | None,
        BeforeValidator(_acks),
        Values("`0`, `1`, `all`"),
        Default("`1`"),
    ] = Field(
        default=None,
        description=(
            "Which brokers confirm a message, with `delivery_guarantee: none`: none, the leader, or"
            " all replicas."
        ),
    )
    atomic_window: bool = Field(
        default=False,
        description=(
            "Publishes a window in one transaction, so that readers see all of it or nothing."
            " Without it readers see it split by split, and `transaction_timeout` doesn't limit a"
            " long window."
        ),
    )
    transactional_id_prefix: Annotated[
        Text,
        must(re.compile(r"[A-Za-z0-9._-]{1,60}").fullmatch, "be 1 to 60 of a-z A-Z 0-9 . _ -"),
        Values("1 to 60 of `a-z A-Z 0-9 . _ -`"),
    ] = Field(
        default="windrow.sink",
        description="How transactional ids begin; rights can be granted by this prefix.",
    )
    transactional_id_pool: Annotated[Count, Field(le=10_000)] = Field(
        default=64,
        description=(
            "The number of sets of transactional ids that windows share: Kafka keeps each id in"
            " memory for a week."
        ),
    )
    transaction_timeout: Annotated[
        Duration,
        must(lambda value: timedelta(seconds=1) <= value <= _TIMEOUT_MAX, "be 1s to 15m"),
        Values("`1s` to `15m`"),
    ] = Field(
        default=timedelta(minutes=5),
        description=(
            "How long one transaction may take, and how long readers wait behind the open"
            " transaction of a run that died."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields conflicts between the topics, and between other settings."""
        yield from super().conflicts(written)
        topics = names_in(written.get("topics"))
        if (written.get("topic") is None) == (written.get("topics") is None):
            yield ("topic",), "exactly one of topic and topics says where messages go"
        if (written.get("topics") is None) != (written.get("topic_column") is None):
            yield ("topic_column",), "goes with topics: the column says to which of them a row goes"
        if written.get("topics") is not None and written.get("control_topic") is None:
            yield ("control_topic",), "is missing: with several topics it has no name by itself"
        if len(set(topics)) < len(topics):
            yield ("topics",), "names a topic twice"
        if written.get("control_topic") in {written.get("topic"), *topics} - {None}:
            yield ("control_topic",), "must be a topic of its own: it is compacted"
        if written.get("value") is not None and section_of(written, "value").get("format") in {
            "string",
            "raw",
        }:
            columns = names_in(section_of(written, "value").get("columns"))
            if not columns:
                yield ("value", "columns"), "must name one column: string and raw write one"

        yield from _partitioner_conflicts(written)
        yield from _guarantee_conflicts(written)
        yield from _keyed_conflicts(written)

    @property
    def in_order(self) -> bool:
        """True if readers take the last message of each key, so windows must be in order."""
        return self.primary_key is not None

    @property
    def expiry_obstacle(self) -> str:
        return "the topic's retention removes its messages"

    @property
    def key(self) -> PrimaryKey | None:
        return None if self.primary_key is None else PrimaryKey(self.primary_key)

    @property
    def control(self) -> str:
        """Name of the control topic."""
        return self.control_topic or f"{self.topic}.windrow"

    def location(self, folder: Path) -> str:
        del folder
        return self.topic or ", ".join(self.topics or ())

    def make(self, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        from windrow.ingest.errors import SpecError
        from windrow.ingest.registry.settings import registry_of
        from windrow.ingest.schema.user_code import FunctionReference
        from windrow.ingest.sinks.kafka.options import KafkaOptions
        from windrow.ingest.sinks.kafka.serializers import PlainSerializer
        from windrow.ingest.sinks.kafka.sink import KafkaSink
        from windrow.ingest.sinks.kafka.table import ClusterConnection
        from windrow.ingest.sinks.kit import Place

        if self.bootstrap_servers is None:
            raise SpecError(
                "The sink names no cluster",
                "spec",
                "Name one by sink.cluster or sink.bootstrap_servers.",
            )
        if "attempt" in metadata and not self.atomic_window:
            raise SpecError(
                "metadata.attempt can't be kept where a window is published split by split: its"
                " messages may be of two attempts",
                "spec",
                "Leave it out, or set sink.atomic_window.",
            )
        options = KafkaOptions(
            topics=self.topics or (str(self.topic),),
            control=self.control,
            staging=Place.normalized(absolute(self.staging, folder)).uri,
            topic_column=self.topic_column,
            value=_serializer("value", self.value, self.value.columns or ()),
            key=(
                _serializer("key", self.key_, self.key_.columns)
                if self.key_ is not None
                else PlainSerializer("json", self.primary_key)
                if self.primary_key
                else None
            ),
            headers=dict(self.headers),
            time=self.timestamp,
            partitioner=self.partitioner,
            function=(
                None
                if self.partition_function is None
                else FunctionReference(self.partition_function, folder)
            ),
            delivery=self.delivery_guarantee,
            acks=self.acks or "1",
            atomic_window=self.atomic_window,
            prefix=self.transactional_id_prefix,
            pool=self.transactional_id_pool,
            timeout=self.transaction_timeout,
            primary_key=self.primary_key or (),
        )
        registry = None if self.registry is None else registry_of(self.registry, folder, "sink")
        return KafkaSink(
            ClusterConnection(self.bootstrap_servers, dict(self.client), registry),
            options,
            rows,
            metadata,
        )

    def dead_place(self, folder: Path) -> str:
        return f"{absolute(self.staging, folder)}_dead"

    def dead_letters(self, folder: Path) -> DeadLetters:
        """Makes a Delta table next to the staged messages (`<staging>_dead`)."""
        from windrow.ingest.sinks.kit import delta_dead_letters

        return delta_dead_letters(absolute(self.staging, folder))


def _partitioner_conflicts(written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
    partitioner = written.get("partitioner")
    if partitioner == "key-hash" and written.get("key") is None and written.get("mode") != "upsert":
        yield ("key",), "is missing: partitioner key-hash goes by it"
    if (partitioner == "function") != (written.get("partition_function") is not None):
        yield ("partition_function",), "goes with partitioner: function, and that with it"


def _guarantee_conflicts(written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
    guarantee = written.get("delivery_guarantee", "exactly-once")
    if guarantee != "exactly-once":
        for name in (
            "atomic_window",
            "transactional_id_prefix",
            "transactional_id_pool",
            "transaction_timeout",
        ):
            if written.get(name) is not None and written[name] is not False:
                yield (
                    (name,),
                    (
                        f"goes with delivery_guarantee: exactly-once, for with {guarantee} there"
                        " are no transactions"
                    ),
                )
    if guarantee != "none" and written.get("acks") is not None:
        yield (
            ("acks",),
            f"goes with delivery_guarantee: none; with {guarantee} all replicas confirm",
        )


def _keyed_conflicts(written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
    """Yields the conflicts with `mode: upsert`.

    All messages of a key must be in one partition, in the order in which they were read.
    """
    yield from key_conflicts(written)
    if written.get("mode") != "upsert":
        return
    columns, named = names_in(written.get("primary_key")), section_of(written, "key").get("columns")
    if named is not None and names_in(named) != columns:
        yield (
            ("key", "columns"),
            "must be those of primary_key: messages with one key replace each other",
        )
    if written.get("atomic_window") is not True:
        yield (
            ("atomic_window",),
            (
                "must be true with mode upsert: else the splits of a window could be published out"
                " of order"
            ),
        )
    if written.get("partitioner", "default") not in {"default", "key-hash"}:
        yield ("partitioner",), "goes with mode append: with upsert the key chooses the partition"
    if written.get("topic_column") is not None and written["topic_column"] not in columns:
        yield (
            ("topic_column",),
            "must be a column of primary_key with mode upsert: what deletes has no others",
        )


def _serializer(
    part: Literal["key", "value"], section: _SerializerSection, columns: tuple[str, ...]
) -> Serializer:
    from windrow.ingest.registry.client import Subjects
    from windrow.ingest.sinks.kafka.registry_serializer import RegistrySerializer
    from windrow.ingest.sinks.kafka.serializers import PlainSerializer

    match section.format:
        case "json" | "string" | "raw":
            return PlainSerializer(section.format, columns)
        case "avro-confluent" | "protobuf-confluent":
            record = section.record_name or f"windrow.{part.capitalize()}"
            return RegistrySerializer(
                section.format,
                columns,
                record,
                Subjects(section.subject_name_strategy or "topic", (record,), part),
                register=section.auto_register is not False,
            )
