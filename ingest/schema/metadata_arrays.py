"""Metadata columns of a batch of messages, as Arrow arrays.

They are the same for every sink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.messages import HEADERS, MESSAGES, in_calendar
from windrow.ingest.schema.metadata_types import TYPES

_OF_RUNS = ("attempt", "window")
"""Metadata that describes the run that wrote a row, not the row's message."""

_OF_MESSAGES: dict[str, Callable[[pa.RecordBatch], pa.Array]] = {
    "topic": lambda m: m["topic"],
    "partition": lambda m: m["partition"],
    "offset": lambda m: m["offset"],
    "ordinal": lambda m: _ordinals(m["offset"]),
    "timestamp": lambda m: _timestamps(m["timestamp"]),
    "timestamp-type": lambda m: m["timestamp_type"],
    "headers": lambda m: last_headers(m["headers"]),
    "header-list": lambda m: m["headers"],
    "leader-epoch": lambda m: m["leader_epoch"],
    "key": lambda m: m["key"],
    "value": lambda m: _values(m["value"], m["offset"]),
    "value-size": lambda m: _sizes(m["value"]),
}


def in_files(names: Iterable[str]) -> list[str]:
    """Returns the metadata that has a column in a staged file, in the table's order.

    The window has no column there, because it is in the path of the file's folder.
    """
    requested_names = set(names) - {"window"}
    return [name for name in TYPES if name in requested_names]


def of_message(metadata: Mapping[str, str]) -> dict[str, str]:
    """Returns the metadata columns that come from the message, in the table's order.

    Columns that describe the run are left out.
    """
    return {name: metadata[name] for name in TYPES if name in metadata and name not in _OF_RUNS}


def columns(names: Iterable[str], messages: pa.RecordBatch, attempt: str) -> list[pa.Array]:
    """Returns an array for each name of metadata, in this order, as long as the batch.

    An array has the type in `TYPES`, or a type that casts to it.
    """
    return [
        pa.repeat(attempt, messages.num_rows) if name == "attempt" else _OF_MESSAGES[name](messages)
        for name in names
    ]


def messages_of(stated: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Rebuilds the messages of some rows from the rows' metadata columns.

    A part of a message that no metadata column has is null. `columns` returns the same
    metadata columns for the rebuilt messages, except `ordinal` and `value-size`. They are
    computed from rows and values, which may be in no metadata column.

    Args:
        stated: the metadata columns by name.
    """
    array_by_name = {
        **stated,
        "timestamp_type": stated.get("timestamp-type"),
        "leader_epoch": stated.get("leader-epoch"),
    }
    array_by_name["headers"] = (
        stated["header-list"]
        if "header-list" in stated
        else _to_header_lists(stated.get("headers"))
    )
    rows = len(stated["offset"])
    arrays = [
        pa.nulls(rows, f.type)
        if (array := array_by_name.get(f.name)) is None
        else array.cast(f.type)
        for f in MESSAGES
    ]
    return pa.RecordBatch.from_arrays(arrays, MESSAGES.names)


def _to_header_lists(headers: pa.MapArray | None) -> pa.Array | None:
    """Converts maps of headers to lists of headers."""
    return None if headers is None else pa.ListArray.from_arrays(headers.offsets, _entries(headers))


def _entries(headers: pa.MapArray) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        [headers.keys, headers.items], fields=list(HEADERS.value_type)
    )


def dead_columns(
    messages: pa.RecordBatch,
    reason_columns: Iterable[pa.Array],
    attempt: str,
    generation: int,
    pipeline: str,
) -> list[pa.Array]:
    """Returns the columns of dead letters.

    First come the default metadata columns, then the other parts of the messages, then the
    reasons (the columns of `REASONS`). Last are the attempt, the generation and the pipeline.
    """
    message_columns = [
        messages[c] for c in ("timestamp_type", "key", "value", "headers", "leader_epoch")
    ]
    same = [
        pa.repeat(v, messages.num_rows)
        for v in (attempt, pa.scalar(generation, pa.int32()), pipeline)
    ]
    return [
        *columns(in_files(DEFAULT), messages, attempt),
        *message_columns,
        *reason_columns,
        *same,
    ]


def _ordinals(offsets: pa.Array) -> pa.Int32Array:
    """Returns the number of each row among the rows of its message.

    The rows of a message must be contiguous, and all in this batch.
    """
    offset_numbers = offsets.to_numpy()
    first = np.flatnonzero(np.diff(offset_numbers, prepend=offset_numbers[:1] - 1))
    counts = np.diff(first, append=len(offset_numbers))
    return pa.array(np.arange(len(offset_numbers)) - np.repeat(first, counts), pa.int32())


def _values(values: pa.Array, offsets: pa.Array) -> pa.Array:
    """Returns the value of each message in its first row, and null in its others.

    A value in each of the rows that it became would make a table of any size of one message.
    """
    if not isinstance(values, pa.DictionaryArray):
        return values
    others = _ordinals(offsets).to_numpy() > 0
    return values.dictionary.take(pa.array(values.indices.to_numpy(), mask=others))


def _sizes(values: pa.Array) -> pa.Array:
    """Returns the lengths of values.

    The values may be a dictionary, see `ingest.schema.messages.for_rows`.
    """
    is_dictionary = isinstance(values, pa.DictionaryArray)
    return (
        pc.binary_length(values.dictionary).take(values.indices)
        if is_dictionary
        else pc.binary_length(values)
    )


def _timestamps(stamps: pa.Array) -> pa.Array:
    """Returns the timestamps, with null for each outside the years 1 to 9999.

    Kafka takes any 64-bit timestamp, so such a timestamp must not block its window.
    """
    return pc.if_else(in_calendar(stamps), stamps, pa.scalar(None, stamps.type))


def last_headers(headers: pa.Array) -> pa.MapArray:
    """Converts lists of headers to maps; the last of several headers with the same key counts.

    A message without headers has an empty map.
    """
    entries, lists = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    keys = entries.field("key")
    codes = keys.dictionary_encode()
    pairs = lists.astype(np.int64) * max(len(codes.dictionary), 1) + codes.indices.to_numpy()
    if not np.diff(np.sort(pairs)).all():  # A message has a key twice.
        last_indices = np.sort(len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1])
        entries, lists = entries.take(pa.array(last_indices)), lists[last_indices]
    ends = np.cumsum(np.bincount(lists, minlength=len(headers)))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    return pa.MapArray.from_arrays(offsets, entries.field("key"), entries.field("value"))
