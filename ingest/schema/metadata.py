"""The metadata columns: what a row says of the message it came from, beside its own columns. Names, Arrow types and order; pure.

A spec's `metadata` chooses among the names, those of Flink's Kafka table with a few of windrow's own, and says what the column is called.
Everything that names these columns takes that mapping, name -> column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.schema.messages import HEADERS

TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "ordinal": pa.int32(),  # which of its message's rows a row is, from 0; with the three before it, it names the row for ever
    "timestamp": pa.timestamp("us", tz="UTC"),  # null where the message has none, or one that no table can hold
    "timestamp-type": pa.string(),
    "headers": pa.map_(pa.string(), pa.binary()),  # of two with one key the last, as in Flink
    "header-list": HEADERS,  # all of them, in order
    "leader-epoch": pa.int32(),
    "key": pa.binary(),
    "value-size": pa.int64(),  # bytes; null for a tombstone
    "attempt": pa.string(),
    "window": pa.string(),  # the table's partition column; not in the files themselves
}
"""All names, in the order in which their columns stand, and what they hold."""

ALWAYS = ("topic", "partition", "offset", "window")
"""Receipts are verified against these, so no table goes without them. They alone are never null in the table's own words: a table that is
there already can take any other one later, and its older rows have nulls then."""

DEFAULT: Mapping[str, str] = {name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp", "window")}
"""The columns where a spec says nothing."""


def fields(metadata: Mapping[str, str]) -> list[pa.Field]:
    """The columns of a mapping as they stand in the table, in order, the window's last."""
    return [pa.field(metadata[name], kind, nullable=name not in ALWAYS) for name, kind in TYPES.items() if name in metadata]


def mistakes(metadata: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with a mapping: unknown names, missing ones, columns without a name or with the same."""
    yield from (f"metadata {name}: there is no such name; there are {', '.join(TYPES)}" for name in metadata if name not in TYPES)
    yield from (f"metadata {name} can't be left out: receipts are verified against it" for name in ALWAYS if name not in metadata)
    seen: dict[str, str] = {}
    for name, column in metadata.items():
        if not column or not column.isprintable():
            yield f"metadata {name}: {column!r} is not a name: it is empty or holds control characters"
        other = seen.setdefault(column.casefold(), name)
        if other != name:
            yield f"metadata {other} and {name} are both called {column} (case doesn't count)"


def clashes(columns: Iterable[str], metadata: Mapping[str, str]) -> Iterator[str]:
    """Which of the schema's columns have a metadata column's name."""
    taken = {column.casefold(): name for name, column in metadata.items()}
    for column in columns:
        name = taken.get(column.casefold())
        if name is not None:
            yield f"column {column} of the schema has the name of metadata {name} ({metadata[name]})"


def refuse_wrong(columns: Iterable[str], metadata: Mapping[str, str]) -> None:
    """Hold a mapping against itself and against the schema's columns.

    Raises:
        SpecError: with everything that is wrong, at once.
    """
    wrong = [*mistakes(metadata), *clashes(columns, metadata)]
    if wrong:
        do = "Give the field of the schema another alias, or the metadata column another name under metadata."
        raise SpecError("the metadata columns can't be as they are: " + "; ".join(wrong), "spec", do)


def names_beyond_spark(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """The names that Spark can't read in a Delta table without column mapping, with those that they lie in."""
    for field in fields:
        name, kind = f"{above}{field.name}", field.type
        if set(field.name) & set(" ,;{}()\n\t="):
            yield name
        while pa.types.is_list(kind) or pa.types.is_map(kind):
            kind = kind.value_type if pa.types.is_list(kind) else kind.item_type
        if pa.types.is_struct(kind):
            yield from names_beyond_spark(kind, f"{name}.")
