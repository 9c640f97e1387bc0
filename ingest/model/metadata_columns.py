"""The metadata columns: what a row says about the message that it came from.

This is the only list of them. A spec's `metadata` chooses some by name and says what
each column is called; the names are those of Flink's Kafka table and a few of windrow's
own. Every function that needs these columns takes that mapping, name -> column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec


class MetadataColumn(msgspec.Struct, frozen=True):
    """A metadata column: its type and its content, as `docs/settings.md` describes it.

    `needed` says why every table must have the column; None if a table can do without
    it.
    """

    type: Literal["string", "binary", "int32", "int64", "timestamp", "map", "headers"]
    holds: str
    needed: str | None = None


METADATA: Mapping[str, MetadataColumn] = {
    "topic": MetadataColumn(
        "string", "the topic of the row's message", "receipts are verified against it"
    ),
    "partition": MetadataColumn(
        "int32", "the message's partition in the topic", "receipts are verified against it"
    ),
    "offset": MetadataColumn(
        "int64", "the message's offset in the partition", "receipts are verified against it"
    ),
    "ordinal": MetadataColumn(
        "int32",
        "the number of the row among the rows of its message, from 0; if a message may become"
        " several rows, it identifies a row together with topic, partition and offset",
    ),
    "timestamp": MetadataColumn(
        "timestamp",
        "the message's timestamp; null if it has none, or one outside the years 1 to 9999",
    ),
    "timestamp-type": MetadataColumn(
        "string",
        "`CreateTime` if the producer set the timestamp, `LogAppendTime` if the broker did,"
        " `NoTimestampType` if it has none",
    ),
    "headers": MetadataColumn(
        "map", "the message's headers as a map; if a key comes twice, the last one, as in Flink"
    ),
    "header-list": MetadataColumn("headers", "all of the message's headers, in order"),
    "leader-epoch": MetadataColumn(
        "int32", "the leader epoch in which the message was appended to the log"
    ),
    "key": MetadataColumn("binary", "the message's key, as bytes"),
    "value-size": MetadataColumn(
        "int64", "the length of the message's value in bytes; null for a tombstone"
    ),
    "attempt": MetadataColumn("string", "the id of the attempt that wrote the row"),
    "window": MetadataColumn(
        "string",
        "the window that the row belongs to; the table's partition column",
        "windows are verified and replaced by it",
    ),
}
"""All metadata columns by name, in the order of a table's columns.

The window's column is not in the files themselves.
"""

ALWAYS = tuple(name for name, column in METADATA.items() if column.needed)
"""The metadata columns that every table has.

Only these are declared as not nullable: any other one can be added to an existing
table, and is null in its older rows.
"""

DEFAULT: Mapping[str, str] = {
    name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp", "window")
}
"""The metadata columns of a spec that doesn't choose any."""
