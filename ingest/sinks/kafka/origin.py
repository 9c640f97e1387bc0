"""The header that says of each message where its row was read.

    windrow.origin: TOPIC/PARTITION/OFFSET/TIMESTAMP, as in shop.orders/3/4711/1767312000001

It is text in ASCII. The timestamp is that of the message that the row came from, in epoch
milliseconds; it is empty if that message had none, or one outside the years 1 to 9999. No
topic has a name with a slash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.schema.metadata_arrays import columns
from windrow.ingest.sinks.joining import joined

ORIGIN = "windrow.origin"

IN_ORIGIN = frozenset({"topic", "partition", "offset", "timestamp", "window"})
"""The metadata columns that a message has by its origin: a window is a range of offsets."""


class Origin(NamedTuple):
    """Where a row was read: its message's place, and the message's timestamp, as text."""

    topic: str
    partition: int
    offset: int
    millis: str


def origins(messages: pa.RecordBatch) -> pa.Array:
    """Makes the header's content for the messages that rows came from."""
    (stamps,) = columns(["timestamp"], messages, "")
    return joined(
        _text(messages["topic"]),
        "/",
        _text(messages["partition"]),
        "/",
        messages["offset"].cast(pa.string()),
        "/",
        pc.fill_null(stamps.cast(pa.int64()).cast(pa.string()), ""),
    ).cast(pa.binary())


def _text(column: pa.Array) -> pa.Array | str:
    """Returns a column as text, or one text: nearly always a batch is of one topic-partition."""
    if len(column) and pc.all(pc.equal(column, column[0])).as_py():
        return str(column[0].as_py())
    return column.cast(pa.string())


def origin_of(headers: Mapping[str, bytes | None]) -> Origin | None:
    """Reads a message's origin; None if it has no such header, or one that isn't windrow's."""
    parts = (headers.get(ORIGIN) or b"").decode(errors="replace").split("/")
    try:
        topic, partition, offset, millis = parts
        return Origin(topic, int(partition), int(offset), millis)
    except ValueError:
        return None
