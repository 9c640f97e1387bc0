"""Compiled passes over the messages that librdkafka hands over.

The first pass looks at each message, the others copy the messages' bytes to Arrow's
buffers. The passes are compiled, because they handle every message without a Python
object. Addresses and sizes are int64 throughout. Functions of librdkafka are called by the
addresses in `calls`, in the order of `CALLS`. The addresses differ between processes, so
none is compiled in.
"""

from __future__ import annotations

from typing import Any

from windrow.ingest.native.compiling import cgutils, compiled, intrinsic, part, types
from windrow.ingest.native.pointers import byte_at, call32_at, call_at, int32_at, int64_at
from windrow.ingest.source.reader.fields import (
    BYTES,
    DUE,
    ERR,
    EVENTS,
    HEADER_COUNT,
    HEADER_NAMES_SIZE,
    HEADER_VALUES_SIZE,
    HEADERS,
    KEY,
    KEY_SIZE,
    LARGEST,
    LEADER_EPOCH,
    NUMBER,
    OFFSET,
    PARTITION,
    STOP,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    TOPIC_SEEN,
    VALUE,
    VALUE_SIZE,
    WRONG,
    Ints,
)

_utils: Any = cgutils  # has no types
_ROWS = types.int64[:, ::1]
_INTS = types.int64[::1]
_INT32S = types.int32[::1]
_BYTES = types.uint8[::1]
_INT = types.int64


def _copying(_typing: Any, target: Any, source: Any, size: Any) -> Any:
    def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target_pointer, source_pointer = (
            builder.inttoptr(address, _utils.voidptr_t) for address in arguments[:2]
        )
        _utils.raw_memcpy(builder, target_pointer, source_pointer, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(target, source, size), build


_copy: Any = intrinsic(_copying)


@part
def _text_size(address: int) -> int:
    """Returns the size of a text that ends with a zero byte."""
    size = 0
    while byte_at(address + size) != 0:
        size += 1
    return size


@part
def _look_at_headers(calls: Ints, message: int, rows: Ints, n: int, scratch: int) -> None:
    """Writes the fields of a message's headers.

    Headers that librdkafka can't read count as none, as in confluent-kafka.
    """
    count = names = values = 0
    if call32_at(calls[2], (message, scratch)) == 0:
        rows[HEADERS, n] = headers = int64_at(scratch)
        count = call_at(calls[3], (headers,))
        for index in range(count):
            call32_at(calls[4], (headers, index, scratch, scratch + 8, scratch + 16))
            names += _text_size(int64_at(scratch))
            values += int64_at(scratch + 16)
    rows[HEADER_COUNT, n], rows[HEADER_NAMES_SIZE, n], rows[HEADER_VALUES_SIZE, n] = (
        count,
        names,
        values,
    )


@compiled(_INT(_INTS, _INTS, _INT, _ROWS, _INTS, _INTS))
def look(calls: Ints, messages: Ints, count: int, rows: Ints, state: Ints, scratch: Ints) -> int:
    """Checks `count` messages of one topic-partition, and fills in rows for them.

    Returns the number of rows. The layout of rd_kafka_message_t is part of librdkafka's
    interface: err at byte 0, rkt 8, partition 16, payload 24, len 32, key 40, key_len 48,
    offset 56. The pass refuses messages with impossible values.

    Args:
        calls: see `CALLS`.
        messages: the addresses of the messages.
        count: the number of `messages`.
        rows: `FIELDS` arrays, each as long as `messages`; filled.
        state: `STATE` words. The pass reads these:

            - `ERR`: the error code of a message to read (0 except in a test).
            - `TOPIC`: the address of the topic; 0 if it is not known.
            - `PARTITION`: the partition's number.
            - `DUE`: the lowest offset that the first message may have.
            - `STOP`: the first offset that is left out.

            The pass writes these:

            - `DUE`: the offset after the last message.
            - `EVENTS`: the number of events among the messages.
            - `WRONG`: 1 if a message is impossible. Then no other result is valid.
            - `TOPIC_SEEN`: the address of the first message's topic; 0 without messages.
            - `BYTES`: the size of keys, values and headers of the rows.
        scratch: `SCRATCH` words.
    """
    row_count, answer_address = 0, scratch.ctypes.data
    state[EVENTS:] = 0
    for n in range(count):
        message = messages[n]
        if int32_at(message) != state[ERR]:
            state[EVENTS] += 1
            continue
        topic, offset = int64_at(message + 8), int64_at(message + 56)
        value, value_size, key, key_size = (
            int64_at(message + 24),
            int64_at(message + 32),
            int64_at(message + 40),
            int64_at(message + 48),
        )
        if state[TOPIC_SEEN] == 0:
            state[TOPIC_SEEN] = topic
        fits = 0 <= value_size <= LARGEST and 0 <= key_size <= LARGEST
        fits = fits and (value != 0 or value_size == 0) and (key != 0 or key_size == 0)
        if (
            not fits
            or topic != (state[TOPIC] or state[TOPIC_SEEN])
            or int32_at(message + 16) != state[PARTITION]
            or offset < state[DUE]
        ):
            state[WRONG] = 1
            return 0
        state[DUE] = offset + 1
        if offset < state[STOP]:
            rows[NUMBER, row_count], rows[OFFSET, row_count] = n, offset
            (
                rows[VALUE, row_count],
                rows[VALUE_SIZE, row_count],
                rows[KEY, row_count],
                rows[KEY_SIZE, row_count],
            ) = (
                value,
                value_size,
                key,
                key_size,
            )
            rows[TIMESTAMP, row_count] = call_at(calls[0], (message, answer_address))
            rows[TIMESTAMP_TYPE, row_count] = int32_at(answer_address)
            rows[LEADER_EPOCH, row_count] = call32_at(calls[1], (message,))
            _look_at_headers(calls, message, rows, row_count, answer_address)
            state[BYTES] += (
                value_size
                + key_size
                + rows[HEADER_NAMES_SIZE, row_count]
                + rows[HEADER_VALUES_SIZE, row_count]
            )
            row_count += 1
    return row_count


@compiled(types.void(_INTS, _INTS, _ROWS, _INT, _INT, _INT, _INT))
def move(
    calls: Ints, messages: Ints, rows: Ints, first: int, end: int, keys: int, values: int
) -> None:
    """Copies keys and values of some rows to two addresses, and destroys the messages.

    The keys are copied one after the other, and so are the values. The address of a
    destroyed message becomes 0.
    """
    for n in range(first, end):
        if rows[KEY_SIZE, n]:
            _copy(keys, rows[KEY, n], rows[KEY_SIZE, n])
            keys += rows[KEY_SIZE, n]
        if rows[VALUE_SIZE, n]:
            _copy(values, rows[VALUE, n], rows[VALUE_SIZE, n])
            values += rows[VALUE_SIZE, n]
        if calls[5]:
            call_at(calls[5], (messages[rows[NUMBER, n]],))
            messages[rows[NUMBER, n]] = 0


@compiled(types.void(_INTS, _ROWS, _INT, _INT, _INT32S, _INT, _INT32S, _INT, _BYTES, _INTS))
def copy_headers(
    calls: Ints,
    rows: Ints,
    first: int,
    end: int,
    name_ends: Any,
    names: int,
    value_ends: Any,
    values: int,
    present: Any,
    scratch: Ints,
) -> None:
    """Copies the headers of some rows; their messages must not be destroyed yet.

    Args:
        calls: see `CALLS`.
        rows: the rows that `look` filled.
        first: the first row.
        end: the row after the last one.
        name_ends: filled with the end of each name; its length is the number of headers + 1.
        names: the address to copy the names to.
        value_ends: filled with the end of each value; the same length as `name_ends`.
        values: the address to copy the values to.
        present: filled with 0 for a null value, else 1.
        scratch: `SCRATCH` words.
    """
    answer_address, name_end, value_end, header_index = scratch.ctypes.data, 0, 0, 0
    for n in range(first, end):
        for header in range(rows[HEADER_COUNT, n]):
            call32_at(
                calls[4],
                (rows[HEADERS, n], header, answer_address, answer_address + 8, answer_address + 16),
            )
            name, value, size = (
                int64_at(answer_address),
                int64_at(answer_address + 8),
                int64_at(answer_address + 16),
            )
            length = _text_size(name)
            _copy(names + name_end, name, length)
            if size:
                _copy(values + value_end, value, size)
            name_end, value_end = name_end + length, value_end + size
            present[header_index] = value != 0
            header_index += 1
            name_ends[header_index], value_ends[header_index] = name_end, value_end


@compiled(types.void(_INTS, _INTS, _INT))
def release(calls: Ints, messages: Ints, count: int) -> None:
    """Destroys those of the first `count` messages that aren't destroyed yet."""
    for n in range(count):
        if messages[n] != 0:
            call_at(calls[5], (messages[n],))
            messages[n] = 0
