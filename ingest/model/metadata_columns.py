"""The metadata columns, which describe the message that a row comes from.

There is no other list of them. A spec's `metadata` chooses some of these names and names
the column for each. The names are those of Flink's Kafka table, and a few of windrow's own.
Each function that needs the metadata columns takes that mapping, name -> column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec


class MetadataColumn(msgspec.Struct, frozen=True):
    """A metadata column.

    Attributes:
        type: the type of its values.
        holds: its content, in words that `docs/settings.md` shows.
        needed: why every table must have the column; None if a table can do without it.
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
    "value": MetadataColumn(
        "binary",
        "the message's value, as bytes, also what the schema doesn't name; only the first row of a"
        " message has it; null for a tombstone",
    ),
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

The window's column is not in the data files: it is the partition column.
"""

ALWAYS = tuple(name for name, column in METADATA.items() if column.needed)
"""The metadata columns that every table has.

Only they are declared as not nullable. Any other metadata column can be added to an
existing table, whose older rows have null there.
"""

DEFAULT: Mapping[str, str] = {
    name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp", "window")
}
"""The metadata columns of a spec that doesn't choose any."""
