"""Scan of a range of one topic-partition for the messages' timestamps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import cast

import confluent_kafka as ck
import numpy as np
from confluent_kafka import KafkaError

from windrow.ingest.kafka.allowed_properties import Value
from windrow.ingest.kafka.error_codes import END, PASSING
from windrow.ingest.kafka.timeouts import IDLE_SECONDS, POLL_SECONDS
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.ports.broker import Stamps
from windrow.ingest.waiting import waiting_for

OnStall = Callable[[TopicPartition, int, int, KafkaError | None, float], None]
"""Raises the reason why a scan can't go on; returns if it can.

The arguments are the topic-partition, the scan's position, its stop, the client's error or
None, and the number of seconds without a message.
"""

_FIRST, _MOST = 64, 4096
"""Number of messages of the first chunk, and of the largest chunks."""

_LESS_AHEAD: Mapping[str, int] = MappingProxyType(
    {
        # most scans look at few messages; a long scan takes a little longer with this limit
        "fetch.message.max.bytes": 256 * 1024,
        # the time that the broker holds back an answer at the log's end, for which the next
        # scan waits
        "fetch.wait.max.ms": 1,
        "queued.min.messages": 1_000,
    }
)


def scan_properties(properties: Mapping[str, Value]) -> dict[str, Value]:
    """Returns properties of a consumer that fetches little ahead.

    A user's property that is lower still is kept.
    """
    return dict(properties) | {
        name: min(int(str(properties[name])), limit) for name, limit in _LESS_AHEAD.items()
    }


def scan(
    consumer: ck.Consumer, tp: TopicPartition, start: int, stop: int, on_stall: OnStall
) -> Iterator[Stamps]:
    """Reads the timestamps of the visible messages of [start, stop), in growing chunks.

    Most callers stop within the first chunk. The scan ends when the consumer's position
    reaches `stop`, not when a message does: the last offsets may be transaction markers,
    aborted messages, or compacted away. The consumer may have served another scan; the client
    drops the messages that it fetched for that earlier assignment.
    """
    consumer.assign([ck.TopicPartition(tp.topic, tp.partition, start)])
    position, size = start, _FIRST
    while position < stop:
        with waiting_for(f"the timestamps of {tp} from offset {position} on"):
            chunk, position = _chunk(consumer, tp, (start, position, stop), size, on_stall)
        if chunk.offsets.size:
            yield chunk
        size = min(2 * size, _MOST)


def _chunk(
    consumer: ck.Consumer,
    tp: TopicPartition,
    range_: tuple[int, int, int],
    size: int,
    on_stall: OnStall,
) -> tuple[Stamps, int]:
    """Reads at most `size` messages; returns them and the position after them.

    Args:
        consumer: the consumer that is assigned to the topic-partition.
        tp: the topic-partition.
        range_: the scan's start, its position, and its stop.
        size: the most messages.
        on_stall: raises the reason why the scan can't go on.
    """
    stamp_rows: list[tuple[int, int, int]] = []
    start, position, stop = range_
    moved, due = time.monotonic(), IDLE_SECONDS
    while position < stop and len(stamp_rows) < size:
        messages, previous_position, doubtful = (
            _take_messages(consumer, size - len(stamp_rows)),
            position,
            None,
        )
        for message in messages:
            if message.error() is not None:
                position = max(
                    position, _next_offset(consumer, tp, message, started=position > start)
                )
                doubtful = message if _is_unexpected(message) else doubtful
            elif (stamp := _stamp(message))[0] < stop:
                stamp_rows.append(stamp)
                position = stamp[0] + 1
            else:
                position = stop
        if not messages:
            position = max(position, _next_offset(consumer, tp, None, started=position > start))
        if position > previous_position:
            moved, due = time.monotonic(), IDLE_SECONDS
        quiet = time.monotonic() - moved
        if position < stop and (doubtful is not None or quiet >= due):
            on_stall(tp, position, stop, None if doubtful is None else doubtful.error(), quiet)
            due = 2 * quiet if quiet >= due else due
    return _stamps(stamp_rows), position


def _take_messages(consumer: ck.Consumer, max_messages: int) -> list[ck.Message]:
    """Returns at most `max_messages` messages that the client has; if it has none, the next one.

    `consume` with a timeout would wait until all of them have arrived.
    """
    fetched: list[ck.Message] = consumer.consume(max_messages, 0)
    if fetched:
        return fetched
    first = consumer.poll(POLL_SECONDS)
    return [] if first is None else [first]


def _is_unexpected(message: ck.Message) -> bool:
    """Returns whether this is an error that the client won't recover from by itself.

    An error that marks the end of the log counts too.
    """
    error = message.error()
    return error is not None and error.code() not in PASSING


def _next_offset(
    consumer: ck.Consumer, tp: TopicPartition, message: ck.Message | None, *, started: bool
) -> int:
    """Returns the next offset after invisible messages; negative: unknown.

    The client's own position may still be that of an earlier scan of the same
    topic-partition, until this scan has received a message.
    """
    error = None if message is None else message.error()
    if error is not None and error.code() == END:
        return cast("int", message.offset())  # type: ignore[union-attr]  # an error is a message's
    return (
        int(consumer.position([ck.TopicPartition(tp.topic, tp.partition)])[0].offset)
        if started
        else -1
    )


def _stamp(message: ck.Message) -> tuple[int, int, int]:
    kind, milliseconds = message.timestamp()
    epoch = message.leader_epoch()
    offset = cast("int", message.offset())  # never None if there is no error
    return (
        offset,
        -1 if kind == ck.TIMESTAMP_NOT_AVAILABLE else milliseconds,
        -1 if epoch is None else epoch,
    )


def _stamps(stamp_rows: list[tuple[int, int, int]]) -> Stamps:
    table = np.array(stamp_rows, dtype=np.int64).reshape(-1, 3)
    return Stamps(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].astype(np.int32))
