"""The header that says of each message which window it is of, and where its row was read.

    windrow.origin: PIPELINE/WINDOW/TOPIC/PARTITION/OFFSET/TIMESTAMP, as in
                    orders/2026-01-02T00:00:00Z/shop.orders/3/4711/1767312000001

It is text in ASCII, and no other part can have a slash. The timestamp is that of the message that
the row came from, in epoch milliseconds; it is empty if that message had none, or one outside the
years 1 to 9999.

A place alone would not do: a topic that is deleted and made again has the same offsets again, and
several pipelines may publish rows of one topic to one target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.model.plan import Window
from windrow.ingest.schema.metadata_arrays import columns
from windrow.ingest.sinks.text_concat import joined

ORIGIN = "windrow.origin"

IN_ORIGIN = frozenset({"topic", "partition", "offset", "timestamp", "window"})
"""The metadata columns that a message has by its origin."""


class Origin(NamedTuple):
    """The window of a row, the place of its message, and that message's timestamp, as text."""

    pipeline: str
    window: str
    topic: str
    partition: int
    offset: int
    millis: str


def origins(messages: pa.RecordBatch, window: Window) -> pa.Array:
    """Makes the header's content for the messages that rows of a window came from."""
    (stamps,) = columns(["timestamp"], messages, "")
    return joined(
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
    """Returns a column as text, or one text: nearly always a batch is of one topic-partition."""
    if len(column) and pc.all(pc.equal(column, column[0])).as_py():
        return str(column[0].as_py())
    return column.cast(pa.string())


def origin_of(headers: Mapping[str, bytes | None]) -> Origin | None:
    """Reads a message's origin; None if it has no such header, or one that isn't windrow's."""
    parts = (headers.get(ORIGIN) or b"").decode(errors="replace").split("/")
    try:
        pipeline, window, topic, partition, offset, millis = parts
        return Origin(pipeline, window, topic, int(partition), int(offset), millis)
    except ValueError:
        return None
