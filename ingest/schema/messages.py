"""Arrow schema of the batches of messages that a reader returns.

A batch has messages of a single topic-partition, in the order of their offsets.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HEADERS = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
)
"""Type of a message's headers, in order and with duplicates.

The list is empty if a message has no headers.
"""

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
"""0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999Z, in milliseconds since 1970.

They are integers, because pyarrow loads pandas to make scalars of datetimes.
"""


def for_rows(messages: pa.RecordBatch, index: pa.Int64Array) -> pa.RecordBatch:
    """Returns the message of each row.

    The values are a dictionary, so that the value of a message with many rows is kept once.

    Args:
        messages: the messages.
        index: the number of each row's message.
    """
    value = messages.schema.get_field_index("value")
    columns = [
        pa.DictionaryArray.from_arrays(index, column) if i == value else column.take(index)
        for i, column in enumerate(messages.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, messages.schema.names)


def last_values(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """Returns the value of each message's last header with a name; null without such a header."""
    entries, messages = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    named = np.flatnonzero(pc.equal(entries.field("key"), name).to_numpy(zero_copy_only=False))
    last = np.full(len(headers), -1, np.int64)
    last[messages[named]] = named  # The last of several headers is assigned last.
    return entries.field("value").take(pa.array(last, mask=last < 0))


def in_calendar(stamps: pa.Array) -> pa.Array:
    """Returns a mask of the timestamps (in ms) that are in the years 1 to 9999.

    A datetime and a table only hold these years, but Kafka takes any 64-bit timestamp. The
    mask is null where the timestamp is null.
    """
    millis = stamps.cast(pa.int64())
    return pc.and_(pc.greater_equal(millis, _FIRST_MS), pc.less_equal(millis, _LAST_MS))
