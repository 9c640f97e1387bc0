"""Compiled passes over messages. They are compiled because they visit each message.

`produce` hands messages to librdkafka, and `next_failed` searches its delivery reports.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from windrow.ingest.native.compiling import compiled, part, types
from windrow.ingest.native.pointers import byte_at, call32_at, call_at, int32_at
from windrow.ingest.sinks.kafka.fields import HEADERS, KEY, PARTITION, TIME, TOPIC, VALUE, WORDS

Ints = npt.NDArray[np.int64]

DATA, ENDS, PRESENT, FIRST = range(4)
"""Description of a byte column for a compiled pass.

`DATA`, `ENDS` and `PRESENT` are the addresses of the bytes, of the offsets and of the validity
bitmap (0: no value is null). `FIRST` is the position of the batch's first value in the column.
"""

_INT = types.int64
_INTS = types.int64[::1]
_TABLE = types.int64[:, ::1]


@part
def _bytes_of(columns: Any, column: int, row: int, arguments: Any, position: int) -> None:
    """Writes address and size of a value; the address is 0 only if the value is null."""
    value_index = columns[column, FIRST] + row
    bitmap = columns[column, PRESENT]
    arguments[position], arguments[position + 1] = 0, 0
    if bitmap == 0 or (byte_at(bitmap + (value_index >> 3)) >> (value_index & 7)) & 1:
        start: Any = int32_at(columns[column, ENDS] + 4 * value_index)
        end: Any = int32_at(columns[column, ENDS] + 4 * value_index + 4)
        arguments[position], arguments[position + 1] = (
            max(columns[column, DATA] + start, 1),
            end - start,
        )


@compiled(_INT(_INTS, _INT, _INTS, _TABLE, _INTS, _INTS, _INTS, _INT, _INTS))
def produce(
    calls: Ints,
    client: int,
    arguments: Ints,
    columns: Any,
    topics: Ints,
    partitions: Ints,
    times: Ints,
    first: int,
    failure: Ints,
) -> int:
    """Hands messages to librdkafka until librdkafka refuses one.

    Returns the number of the refused message, or the number of messages if all were taken.

    Args:
        calls: the addresses of `CALLS`.
        client: the address of the producer.
        arguments: `WORDS` for each argument of rd_kafka_produceva. The pass fills in the
            arguments that differ between messages; the others are filled in already.
        columns: the columns of values, keys and headers; see `DATA`.
        topics: the address of each message's rd_kafka_topic_t.
        partitions: each message's partition.
        times: each message's time in epoch milliseconds, 0 for now.
        first: number of the first message to send.
        failure: receives the error code of the refused message.
    """
    count, address = len(topics), arguments.ctypes.data
    for row in range(first, count):
        arguments[TOPIC * WORDS + 1] = topics[row]
        arguments[PARTITION * WORDS + 1] = partitions[row]
        arguments[TIME * WORDS + 1] = times[row]
        _bytes_of(columns, 0, row, arguments, VALUE * WORDS + 1)
        _bytes_of(columns, 1, row, arguments, KEY * WORDS + 1)
        for column in range(2, columns.shape[0]):
            _bytes_of(columns, column, row, arguments, (HEADERS + column - 2) * WORDS + 2)
        error: Any = call_at(calls[0], (client, address, np.int64(len(arguments) // WORDS)))
        if error != 0:
            failure[0] = call32_at(calls[1], (error,))
            call_at(calls[2], (error,))
            return row
    return count


@compiled(_INT(_INTS, _INT, _INT))
def next_failed(messages: Ints, count: int, first: int) -> int:
    """Returns the number of the next failed report, or `count` if there is none.

    Args:
        messages: the addresses of the reports' rd_kafka_message_t, which begin with the
            error code.
        count: number of reports.
        first: number of the first report to check.
    """
    for row in range(first, count):
        if int32_at(messages[row]) != 0:
            return row
    return count
