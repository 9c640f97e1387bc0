"""The passes over messages that are sent: one hands each to librdkafka, one looks at reports.

Compiled, because they see every message.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from windrow.ingest.native.making import compiled, part, types
from windrow.ingest.native.pointers import byte_at, call32_at, call_at, int32_at

Ints = npt.NDArray[np.int64]

CALLS = ("produceva", "error_code", "error_destroy")
"""Functions of librdkafka, whose addresses the pass is told in this order."""

WORDS = 9
"""Of a rd_kafka_vu_t: what it is, then a union of 64 bytes."""

TOPIC, PARTITION, FLAGS, TIME, VALUE, KEY, HEADERS = range(7)
"""The places of a message's parts in the array of rd_kafka_vu_t; from the last one on
they are headers.
"""

DATA, ENDS, PRESENT, FIRST = range(4)
"""What is told of a column of bytes: the addresses of its bytes, of its offsets and of
its bitmap (0: nothing is null), and at which place of all three the batch begins.
"""

_INT = types.int64
_INTS = types.int64[::1]
_TABLE = types.int64[:, ::1]


@part
def _bytes_of(columns: Any, column: int, row: int, parts: Any, at: int) -> None:
    """Write the address and the size of a cell; the address is 0 where it is null, and
    else never.
    """
    place = columns[column, FIRST] + row
    bitmap = columns[column, PRESENT]
    parts[at], parts[at + 1] = 0, 0
    if bitmap == 0 or (byte_at(bitmap + (place >> 3)) >> (place & 7)) & 1:
        start: Any = int32_at(columns[column, ENDS] + 4 * place)
        end: Any = int32_at(columns[column, ENDS] + 4 * place + 4)
        parts[at], parts[at + 1] = max(columns[column, DATA] + start, 1), end - start


@compiled(_INT(_INTS, _INT, _INTS, _TABLE, _INTS, _INTS, _INTS, _INT, _INTS))
def produce(
    calls: Ints,
    client: int,
    parts: Ints,
    columns: Any,
    topics: Ints,
    partitions: Ints,
    times: Ints,
    first: int,
    failure: Ints,
) -> int:
    """Hand over the messages from `first` on, until one is not taken; the number of
    that one, or how many there are.

    Args:
        calls: see `CALLS`.
        client: the address of the producer.
        parts: `WORDS` for each part of a message, filled in but for what differs from
            message to message.
        columns: of value, key and each header that differs: see `DATA`.
        topics: of each message the address of its rd_kafka_topic_t.
        partitions: of each message its partition.
        times: of each message in epoch milliseconds, 0 for now.
        first: where to begin.
        failure: told why a message was not taken.
    """
    count, address = len(topics), parts.ctypes.data
    for row in range(first, count):
        parts[TOPIC * WORDS + 1] = topics[row]
        parts[PARTITION * WORDS + 1] = partitions[row]
        parts[TIME * WORDS + 1] = times[row]
        _bytes_of(columns, 0, row, parts, VALUE * WORDS + 1)
        _bytes_of(columns, 1, row, parts, KEY * WORDS + 1)
        for column in range(2, columns.shape[0]):
            _bytes_of(columns, column, row, parts, (HEADERS + column - 2) * WORDS + 2)
        error: Any = call_at(calls[0], (client, address, np.int64(len(parts) // WORDS)))
        if error != 0:
            failure[0] = call32_at(calls[1], (error,))
            call_at(calls[2], (error,))
            return row
    return count


@compiled(_INT(_INTS, _INT, _INT))
def next_failed(messages: Ints, count: int, first: int) -> int:
    """The number of the next message that was not written, or how many there are.

    Args:
        messages: the addresses of the reports' rd_kafka_message_t, which begin with the error.
        count: how many.
        first: where to begin.
    """
    for row in range(first, count):
        if int32_at(messages[row]) != 0:
            return row
    return count
