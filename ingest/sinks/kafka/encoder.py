"""Makes a message from each row: its key, value, headers and time.

The encoder runs on executors, on whole batches. It is picklable.

A header of each message names the message's window and the place where its row was read:

    windrow.origin: PIPELINE/WINDOW/TOPIC/PARTITION/OFFSET/TIMESTAMP, as in
                    orders/2026-01-02T00:00:00Z/shop.orders/3/4711/1767312000001

The header is text in ASCII, and no part of it can contain a slash. The timestamp is that of
the source message, in epoch milliseconds. It is empty if that message had no timestamp, or a
timestamp outside the years 1 to 9999.

Topic, partition and offset would not be enough. A topic that is deleted and made again has the
same offsets again. And several pipelines may publish rows of one topic to one target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError
from windrow.ingest.model.plan import Window
from windrow.ingest.registry.client import Registry
from windrow.ingest.schema.metadata_arrays import columns
from windrow.ingest.sinks.kafka.header_values import header_texts
from windrow.ingest.sinks.kafka.options import KafkaOptions
from windrow.ingest.sinks.kafka.partitioners import PARTITION
from windrow.ingest.sinks.kafka.registry_serializer import Misfit, RegistrySerializer
from windrow.ingest.sinks.kafka.serializers import without_text
from windrow.ingest.sinks.kit import DELETED, PrimaryKey, concat_texts

ORIGIN = "windrow.origin"

_IN_ORIGIN = frozenset({"topic", "partition", "offset", "timestamp", "window"})
"""The metadata columns that the origin header already holds."""


def further_headers(metadata: Mapping[str, str]) -> dict[str, str]:
    """Returns the header names, each with its column, of metadata that the origin lacks."""
    return {column: column for name, column in metadata.items() if name not in _IN_ORIGIN}


class Origin(NamedTuple):
    """The window of a row, the place of its source message, and that message's timestamp.

    Attributes:
        pipeline: the pipeline's name.
        window: the window's key.
        topic: the topic that the row was read from.
        partition: the partition that the row was read from.
        offset: the offset of the source message.
        millis: the timestamp of the source message as text, in epoch milliseconds, or "".
    """

    pipeline: str
    window: str
    topic: str
    partition: int
    offset: int
    millis: str


def origins(messages: pa.RecordBatch, window: Window) -> pa.Array:
    """Makes the content of the origin header for the source messages of a window's rows."""
    (stamps,) = columns(["timestamp"], messages, "")
    return concat_texts(
        f"{window.pipeline}/{window.key}/",
        _text(messages["topic"]),
        "/",
        _text(messages["partition"]),
        "/",
        messages["offset"].cast(pa.string()),
        "/",
        pc.fill_null(stamps.cast(pa.int64()).cast(pa.string()), ""),
    ).cast(pa.binary())


def _text(column: pa.Array) -> pa.Array | str:
    """Returns a column as text. A column with a single value, the usual case, becomes one text."""
    if len(column) and pc.all(pc.equal(column, column[0])).as_py():
        return str(column[0].as_py())
    return column.cast(pa.string())


def origin_of(headers: Mapping[str, bytes | None]) -> Origin | None:
    """Reads a message's origin; returns None if the header is missing or isn't windrow's."""
    parts = (headers.get(ORIGIN) or b"").decode(errors="replace").split("/")
    try:
        pipeline, window, topic, partition, offset, millis = parts
        return Origin(pipeline, window, topic, int(partition), int(offset), millis)
    except ValueError:
        return None


HEADER = "header:"
"""Prefix of the columns of an encoded batch that are headers."""

ENCODED = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("time", pa.int64(), nullable=False),
        pa.field(f"{HEADER}{ORIGIN}", pa.binary()),
    ]
)
"""Columns of a batch of encoded messages, without further headers.

`topic` is null if there is only one target topic. `time` is in epoch milliseconds, or `NOW`.
"""

NOW = -1
"""Time of a message that gets its time when it is published."""


class MessageEncoder(msgspec.Struct, frozen=True):
    """Makes messages from rows.

    Attributes:
        options: the options of the table. The serializer of values has its column names.
        metadata: the name of each metadata column in the table.
    """

    options: KafkaOptions
    metadata: Mapping[str, str] = {}

    @property
    def headers(self) -> dict[str, str]:
        """Names of headers, each with its column, without the origin."""
        return {**further_headers(self.metadata), **self.options.headers}

    def find_misrouted(self, encoded: pa.RecordBatch) -> list[int]:
        """Returns the numbers of messages that name none of the target topics."""
        if self.options.topic_column is None:
            return []
        is_target = pc.is_in(encoded["topic"], value_set=pa.array(self.options.topics, pa.string()))
        return np.flatnonzero(~is_target.to_numpy(zero_copy_only=False)).tolist()

    def check_columns(self, rows: pa.Schema) -> None:
        """Checks that rows have all columns that the options name, and that formats can write them.

        Raises:
            SpecError: columns are missing, or can't be written.
        """
        named = {
            *self.options.value.columns,
            *(self.options.key.columns if self.options.key else ()),
            *self.headers.values(),
            self.options.topic_column,
        }
        named |= set() if self.options.time in {"message", "published"} else {self.options.time}
        missing = sorted({name for name in named if name is not None} - set(rows.names))
        if missing:
            raise SpecError(
                f"The sink names columns that rows don't have: {', '.join(missing)}",
                "setup",
                f"Their columns are {', '.join(rows.names)}.",
            )
        if self.options.primary_key:
            PrimaryKey(self.options.primary_key).refuse_unusable(rows)
        for serializer in (self.options.key, self.options.value):
            if isinstance(serializer, RegistrySerializer):
                serializer.schema_of(rows)

    def find_misfit(self, batch: pa.RecordBatch) -> Misfit | None:
        """Returns the rows whose key, value or headers can't be written in their formats.

        The value of a deleted row isn't written. Keys are checked first, then values, then
        headers. The rows of the first check that fails are returned.
        """
        for serializer in (self.options.key, self.options.value):
            if serializer is None:
                continue
            written = np.arange(len(batch))
            if serializer is self.options.value and self.options.primary_key:
                written = np.flatnonzero(~batch[DELETED].to_numpy(zero_copy_only=False))
            mismatch = serializer.misfit(
                batch if len(written) == len(batch) else batch.take(pa.array(written))
            )
            if mismatch is not None:
                return written[mismatch[0]], mismatch[1]
        return without_text(batch, self.headers.values(), numbers=True)

    def find_untimed(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> Sequence[int]:
        """Returns the numbers of rows whose time can't be a message's time.

        Kafka accepts no time before 1970, and to librdkafka 0 means no time.
        """
        if self.options.time == "published":
            return []
        rows: list[int] = pc.indices_nonzero(
            pc.less_equal(self._stamps(batch, messages), 0)
        ).to_pylist()
        return rows

    def registered(self, rows: pa.Schema, registry: Registry | None) -> MessageEncoder:
        """Returns the encoder with the ids of its schemas in the registry.

        See `RegistrySerializer.registered`.

        Args:
            rows: the columns of rows, including the metadata's.
            registry: the registry, if there is one.
        """
        key, value = (
            (
                serializer.registered(rows, self.options.topics, registry)
                if isinstance(serializer, RegistrySerializer)
                else serializer
            )
            for serializer in (self.options.key, self.options.value)
        )
        options = msgspec.structs.replace(self.options, key=key, value=value)
        return msgspec.structs.replace(self, options=options)

    def refuse_unregistrable(self, rows: pa.Schema, registry: Registry | None) -> None:
        """Checks that `registered` would work; see `RegistrySerializer.refuse_unregistrable`."""
        for serializer in (self.options.key, self.options.value):
            if isinstance(serializer, RegistrySerializer):
                serializer.refuse_unregistrable(rows, self.options.topics, registry)

    @property
    def schema(self) -> pa.Schema:
        """Columns of an encoded batch."""
        return pa.schema(
            [*ENCODED, *(pa.field(f"{HEADER}{name}", pa.binary()) for name in self.headers)]
        )

    @property
    def attempt_columns(self) -> tuple[str, ...]:
        """Columns of a staged batch that may differ between two attempts at the same row.

        A message's time is one of them: the topic may set it, so it can't be compared with
        the published message.
        """
        attempt_headers = (
            name for name, column in self.headers.items() if column == self.metadata.get("attempt")
        )
        return PARTITION, "time", *(f"{HEADER}{name}" for name in attempt_headers)

    def encode(
        self, batch: pa.RecordBatch, messages: pa.RecordBatch, window: Window
    ) -> pa.RecordBatch:
        """Makes the messages of rows.

        Args:
            batch: the rows, with the metadata's columns.
            messages: the messages that the rows came from.
            window: the window that the rows belong to.
        """
        n, value = batch.num_rows, self.options.value.encoded(batch)
        if self.options.primary_key:
            value = pc.if_else(batch[DELETED], pa.scalar(None, pa.binary()), value)
        columns = [
            pa.nulls(n, pa.string())
            if self.options.topic_column is None
            else batch[self.options.topic_column].cast(pa.string()),
            pa.nulls(n, pa.binary())
            if self.options.key is None
            else self.options.key.encoded(batch),
            value,
            self._times(batch, messages),
            origins(messages, window),
            *(header_texts(batch[column]) for column in self.headers.values()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _times(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Array:
        if self.options.time == "published":
            return pa.repeat(pa.scalar(NOW, pa.int64()), batch.num_rows)
        return pc.fill_null(self._stamps(batch, messages), NOW)

    def _stamps(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Array:
        stamps = (
            messages["timestamp"] if self.options.time == "message" else batch[self.options.time]
        )
        return stamps.cast(pa.timestamp("ms", stamps.type.tz), safe=False).cast(pa.int64())
