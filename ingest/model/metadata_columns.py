"""The metadata columns: what a row says about the message that it came from.

This is the only list of them. A spec's `metadata` chooses some by name and says what
each column is called; the names are those of Flink's Kafka table and a few of windrow's
own. Every function that needs these columns takes that mapping, name -> column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class MetadataColumn(NamedTuple):
    """A metadata column: its type and its content, as `docs/settings.md` describes it.

    `needed` says why every table must have the column; None if a table can do without
    it.
    """

    type: Literal["string", "binary", "int32", "int64", "timestamp", "map", "headers"]
    holds: str
    needed: str | None = None


METADATA: Mapping[str, MetadataColumn] = {
    "topic": MetadataColumn("string", "the message's topic", "receipts are verified against it"),
    "partition": MetadataColumn("int32", "its partition", "receipts are verified against it"),
    "offset": MetadataColumn("int64", "its offset", "receipts are verified against it"),
    "ordinal": MetadataColumn(
        "int32",
        "which of its message's rows the row is, from 0; with the three above it names a row, where"
        " a message may become several",
    ),
    "timestamp": MetadataColumn(
        "timestamp",
        "when it was made, or appended to the log; null where it has no timestamp, or one outside"
        " the years 1 to 9999",
    ),
    "timestamp-type": MetadataColumn("string", "which of the two `timestamp` is"),
    "headers": MetadataColumn(
        "map", "its headers as a map; of two with one key the last, as in Flink"
    ),
    "header-list": MetadataColumn("headers", "all its headers, in order"),
    "leader-epoch": MetadataColumn("int32", "under which leader epoch it was appended"),
    "key": MetadataColumn("binary", "its key, as bytes"),
    "value-size": MetadataColumn("int64", "how many bytes its value has; null for a tombstone"),
    "attempt": MetadataColumn("string", "which run's try at the window wrote the row"),
    "window": MetadataColumn(
        "string",
        "which window the row belongs to; the table's partition column",
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
