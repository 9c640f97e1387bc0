"""Arrow schema of a reader's batches.

A batch has messages of one topic-partition, in offset order.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HEADERS = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
)
"""Headers in order and with duplicates; an empty list if a message has none."""

MESSAGES = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),  # null where the message has none
        # one of `TIMESTAMP_TYPES`
        pa.field("timestamp_type", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("key", pa.binary()),  # null and empty differ
        pa.field("value", pa.binary()),  # null is a tombstone
        pa.field("headers", HEADERS, nullable=False),
        pa.field("leader_epoch", pa.int32()),
    ]
)

TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
"""Kafka's names of timestamp types, by librdkafka's number."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999Z.

As integers: pyarrow would load pandas at import to make scalars of them.
"""


def for_rows(messages: pa.RecordBatch, index: pa.Int64Array) -> pa.RecordBatch:
    """The message of each row, for the columns that a row has of its message.

    The values are a dictionary: one that became many rows is kept once.
    """
    value = messages.schema.get_field_index("value")
    columns = [
        pa.DictionaryArray.from_arrays(index, column) if i == value else column.take(index)
        for i, column in enumerate(messages.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, messages.schema.names)


def last_values(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """Value of each message's last header of a name; null if it has none."""
    entries, messages = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    named = np.flatnonzero(pc.equal(entries.field("key"), name).to_numpy(zero_copy_only=False))
    last = np.full(len(headers), -1, np.int64)
    last[messages[named]] = named  # of several headers the last one is assigned last
    return entries.field("value").take(pa.array(last, mask=last < 0))


def in_calendar(stamps: pa.Array) -> pa.Array:
    """Mask of timestamps (ms) that a datetime and a table hold: the years 1 to 9999.

    Kafka takes any 64-bit timestamp. The mask is null where the timestamp is.
    """
    millis = stamps.cast(pa.int64())
    return pc.and_(pc.greater_equal(millis, _FIRST_MS), pc.less_equal(millis, _LAST_MS))
