"""What a row becomes: a message's key, value, headers and time.

Runs on executors, whole batches at a time; picklable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError
from windrow.ingest.registry.client import Registry
from windrow.ingest.schema.changes import DELETED
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.iso_times import WHAT, without_text
from windrow.ingest.sinks.kafka.places import PARTITION
from windrow.ingest.sinks.kafka.registered import Misfit, RegisteredPart
from windrow.ingest.sinks.kafka.texts import header_texts, objects

Format = Literal["json", "string", "raw"]

HEADER = "header:"
"""How the columns of an encoded batch begin that are headers."""

ENCODED = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),  # of the message that the row came from
        pa.field("topic", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("time", pa.int64(), nullable=False),
    ]
)
"""A batch of encoded rows, before its headers.

`topic` is null where there is one for all; `time` is in epoch milliseconds, negative
for the moment at which it is published.
"""

NOW = -1


class MessagePart(msgspec.Struct, frozen=True):
    """A message's key, or its value: which columns it has, and how they are written."""

    format: Format
    columns: tuple[str, ...]

    def encoded(self, batch: pa.RecordBatch) -> pa.Array:
        """One of these for each row; null only where the one column of `string` or `raw` is."""
        if self.format == "json":
            return objects({name: batch[name] for name in self.columns}).cast(pa.binary())
        return header_texts(batch[self.columns[0]])

    def misfit(self, batch: pa.RecordBatch) -> Misfit | None:
        """The rows with a date or time that has no text."""
        return _untold(batch, self.columns, numbers=self.format != "json")


def _untold(batch: pa.RecordBatch, columns: Iterable[str], *, numbers: bool) -> Misfit | None:
    """`numbers`: whether an instant that is the whole of a column is written as one, as
    in a header.
    """
    texts = {
        name: batch[name]
        for name in columns
        if not (numbers and pa.types.is_timestamp(batch[name].type))
    }
    found = without_text(texts)
    return None if found is None else (found[0], f"column {found[1]} {WHAT}")


AnyPart = MessagePart | RegisteredPart
"""A message's key, or its value, in any of the formats."""


def of_columns(part: AnyPart, names: Sequence[str]) -> AnyPart:
    """The same with columns of these names, if it names none itself."""
    return part if part.columns else msgspec.structs.replace(part, columns=tuple(names))


class MessageEncoder(msgspec.Struct, frozen=True):
    """A message of each row.

    `headers`: their names, and the column of each, but for the window's, which one
    `window_header` says of all.

    `attempt`: the header that says by which attempt a message was staged, if there is
    one: it isn't part of what two attempts must have in common. `time`: `message` takes
    the time of the message that the row came from, `published` none, all else is a
    column. `topic`: the column that says to which of the `topics` a row goes; None:
    there is one. `primary_key`: by which messages replace each other, if they do; then
    what deletes a row is a message without a value.
    """

    value: AnyPart
    key: AnyPart | None = None
    headers: Mapping[str, str] = {}
    window_header: str = "_window"
    attempt: str | None = None
    time: str = "message"
    topic: str | None = None
    topics: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()

    def strange(self, encoded: pa.RecordBatch) -> list[int]:
        """Which encoded rows are for a topic that they may not go to; no topic at all
        is one, too.
        """
        if self.topic is None:
            return []
        known = pc.is_in(encoded["topic"], value_set=pa.array(self.topics, pa.string()))
        return np.flatnonzero(~known.to_numpy(zero_copy_only=False)).tolist()

    def refuse_unfit(self, rows: pa.Schema) -> None:
        """Before anything is read: the rows have the columns that are named, and these
        can be written in their formats.

        Raises:
            SpecError: with those that aren't there, or that can't be.
        """
        named = {
            *self.value.columns,
            *(self.key.columns if self.key else ()),
            *self.headers.values(),
            self.topic,
        }
        named |= set() if self.time in {"message", "published"} else {self.time}
        missing = sorted({name for name in named if name is not None} - set(rows.names))
        if missing:
            what = f"The sink names columns that the rows don't have: {', '.join(missing)}"
            raise SpecError(what, "setup", f"They have {', '.join(rows.names)}.")
        if self.primary_key:
            PrimaryKey(self.primary_key).refuse_unfit(rows)
        for part in (self.key, self.value):
            if isinstance(part, RegisteredPart):
                part.schema_of(rows)

    def misfit(self, batch: pa.RecordBatch) -> Misfit | None:
        """The rows whose key, or else whose value or a header, its format has no
        message for; a delete has no value.
        """
        for part in (self.key, self.value):
            if part is None:
                continue
            written = np.arange(len(batch))
            if part is self.value and self.primary_key:
                written = np.flatnonzero(~batch[DELETED].to_numpy(zero_copy_only=False))
            found = part.misfit(
                batch if len(written) == len(batch) else batch.take(pa.array(written))
            )
            if found is not None:
                return written[found[0]], found[1]
        return _untold(batch, self.headers.values(), numbers=True)

    def untimed(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> Sequence[int]:
        """The rows with a time that no message can be given: Kafka takes none before
        1970, and librdkafka takes 0 for none.
        """
        if self.time == "published":
            return []
        rows: list[int] = pc.indices_nonzero(
            pc.less_equal(self._stamps(batch, messages), 0)
        ).to_pylist()
        return rows

    def registered(self, rows: pa.Schema, registry: Registry | None) -> MessageEncoder:
        """The same with the ids of its schemas, where a registry has them; see
        `RegisteredPart.registered`.

        `rows`: with the metadata's.
        """
        key, value = (
            (
                part.registered(rows, self.topics, registry)
                if isinstance(part, RegisteredPart)
                else part
            )
            for part in (self.key, self.value)
        )
        return msgspec.structs.replace(self, key=key, value=value)

    def refuse_unregistrable(self, rows: pa.Schema, registry: Registry | None) -> None:
        """See that `registered` would work; see `RegisteredPart.refuse_unregistrable`."""
        for part in (self.key, self.value):
            if isinstance(part, RegisteredPart):
                part.refuse_unregistrable(rows, self.topics, registry)

    @property
    def schema(self) -> pa.Schema:
        """The columns of an encoded batch."""
        return pa.schema(
            [*ENCODED, *(pa.field(f"{HEADER}{name}", pa.binary()) for name in self.headers)]
        )

    @property
    def own(self) -> tuple[str, ...]:
        """The columns of an encoded batch, and of one with partitions beside it, that
        two attempts at one row need not have in common.

        A message's time is one of them: the topic may set it, so nobody could hold it
        against what was published.
        """
        return PARTITION, "time", *(() if self.attempt is None else (f"{HEADER}{self.attempt}",))

    def encoded(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of rows (`batch`: all columns of the table, the metadata's among
        them) that came from messages.
        """
        n, value = batch.num_rows, self.value.encoded(batch)
        if self.primary_key:
            value = pc.if_else(batch[DELETED], pa.scalar(None, pa.binary()), value)
        columns = [
            messages["offset"],
            pa.nulls(n, pa.string()) if self.topic is None else batch[self.topic].cast(pa.string()),
            pa.nulls(n, pa.binary()) if self.key is None else self.key.encoded(batch),
            value,
            self._times(batch, messages),
            *(header_texts(batch[column]) for column in self.headers.values()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _times(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Array:
        if self.time == "published":
            return pa.repeat(pa.scalar(NOW, pa.int64()), batch.num_rows)
        return pc.fill_null(self._stamps(batch, messages), NOW)

    def _stamps(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Array:
        stamps = messages["timestamp"] if self.time == "message" else batch[self.time]
        return stamps.cast(pa.timestamp("ms", stamps.type.tz), safe=False).cast(pa.int64())
