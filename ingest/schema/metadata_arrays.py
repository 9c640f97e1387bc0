"""Metadata columns of a batch of messages, whole columns at a time.

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
"""Names that say which run wrote a row, and nothing about its message."""

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
    "value-size": lambda m: _sizes(m["value"]),
}


def in_files(names: Iterable[str]) -> list[str]:
    """Names whose columns are in a staged file, in their order.

    The window isn't: it is in the path of the file's folder.
    """
    requested_names = set(names) - {"window"}
    return [name for name in TYPES if name in requested_names]


def of_message(metadata: Mapping[str, str]) -> dict[str, str]:
    """Returns the metadata columns that come from the message, in their order.

    Those that say which run wrote the row are left out.
    """
    return {name: metadata[name] for name in TYPES if name in metadata and name not in _OF_RUNS}


def columns(names: Iterable[str], messages: pa.RecordBatch, attempt: str) -> list[pa.Array]:
    """One array for each name, in this order, as long as the batch.

    Each is of the type in `TYPES`, or of one that casts to it.
    """
    return [
        pa.repeat(attempt, messages.num_rows) if name == "attempt" else _OF_MESSAGES[name](messages)
        for name in names
    ]


def messages_of(stated: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Messages of some rows, as far as the rows' metadata columns, by name, have them.

    `columns` gives the same metadata columns again, except `ordinal` and `value-size`:
    they are computed from rows and values, which no metadata column has. Whatever
    isn't in the metadata columns is null.
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
    """Maps of headers as lists of headers."""
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
    """Columns of dead letters.

    First the whole messages, then the reasons (the columns of `REASONS`), then attempt,
    generation and pipeline.
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
    """Number of each row among those of its message.

    Relies on the rows of a message standing together: they are never in two batches.
    """
    offset_numbers = offsets.to_numpy()
    first = np.flatnonzero(np.diff(offset_numbers, prepend=offset_numbers[:1] - 1))
    counts = np.diff(first, append=len(offset_numbers))
    return pa.array(np.arange(len(offset_numbers)) - np.repeat(first, counts), pa.int32())


def _sizes(values: pa.Array) -> pa.Array:
    """Lengths of values.

    They may be in a dictionary (`ingest.schema.messages.for_rows`).
    """
    is_dictionary = isinstance(values, pa.DictionaryArray)
    return (
        pc.binary_length(values.dictionary).take(values.indices)
        if is_dictionary
        else pc.binary_length(values)
    )


def _timestamps(stamps: pa.Array) -> pa.Array:
    """Timestamps, null if they are outside the years 1 to 9999.

    Kafka takes any 64-bit timestamp, which must not block its window.
    """
    return pc.if_else(in_calendar(stamps), stamps, pa.scalar(None, stamps.type))


def last_headers(headers: pa.Array) -> pa.MapArray:
    """Lists of headers as maps; of equal keys in one message the last one counts.

    An empty map if a message has no headers.
    """
    entries, lists = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    keys = entries.field("key")
    codes = keys.dictionary_encode()
    pairs = lists.astype(np.int64) * max(len(codes.dictionary), 1) + codes.indices.to_numpy()
    if not np.diff(np.sort(pairs)).all():  # some message has a key twice
        last_indices = np.sort(len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1])
        entries, lists = entries.take(pa.array(last_indices)), lists[last_indices]
    ends = np.cumsum(np.bincount(lists, minlength=len(headers)))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    return pa.MapArray.from_arrays(offsets, entries.field("key"), entries.field("value"))
