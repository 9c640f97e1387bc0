"""A piece of one topic-partition, read for its timestamps only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import cast

import confluent_kafka as ck
import numpy as np
from confluent_kafka import KafkaError

from windrow.ingest.kafka.codes import END, PASSING
from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.retry import POLL_SECONDS, QUIET_SECONDS
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.ports.broker import Stamps

Doubt = Callable[[TopicPartition, int, int, KafkaError | None, float], None]
"""Told where a scan stands, its stop, what the client said (None: nothing), and for how
many seconds nothing has come.

Raises why the scan can't go on; else it does.
"""

_FIRST, _MOST = 64, 4096

_MOST_AHEAD: Mapping[str, int] = MappingProxyType(
    {
        # most scans look at few messages; a long one takes a little longer for it
        "fetch.message.max.bytes": 256 * 1024,
        # what the broker still holds for the last scan, at the log's end, the next one
        # waits for
        "fetch.wait.max.ms": 1,
        "queued.min.messages": 1_000,
    }
)


def scanning(properties: Mapping[str, Value]) -> dict[str, Value]:
    """A consumer's properties, with which a scan fetches little ahead; a user who chose
    less gets less.
    """
    return dict(properties) | {
        name: min(int(properties[name]), most) for name, most in _MOST_AHEAD.items()
    }


def scan(
    consumer: ck.Consumer, tp: TopicPartition, start: int, stop: int, doubt: Doubt
) -> Iterator[Stamps]:
    """The visible messages of [start, stop), in chunks that grow from `_FIRST` to
    `_MOST`: most callers stop within the first.

    Ends when the position reaches `stop`, not when a message does: the last offsets may
    be markers, aborted, or compacted away. The consumer may have served another scan:
    the client drops what it had fetched for an earlier assignment.
    """
    consumer.assign([ck.TopicPartition(tp.topic, tp.partition, start)])
    position, size = start, _FIRST
    while position < stop:
        chunk, position = _chunk(consumer, tp, (start, position, stop), size, doubt)
        if chunk.offsets.size:
            yield chunk
        size = min(2 * size, _MOST)


def _chunk(
    consumer: ck.Consumer, tp: TopicPartition, place: tuple[int, int, int], size: int, doubt: Doubt
) -> tuple[Stamps, int]:
    """At most `size` messages, and the position after them.

    `place`: the scan's start, its position, its stop.
    """
    found: list[tuple[int, int, int]] = []
    start, position, stop = place
    moved, due = time.monotonic(), QUIET_SECONDS
    while position < stop and len(found) < size:
        taken, before, doubtful = _taken(consumer, size - len(found)), position, None
        for message in taken:
            if message.error() is not None:
                position = max(position, _passed(consumer, tp, message, started=position > start))
                doubtful = message if _doubtful(message) else doubtful
            elif (stamp := _stamp(message))[0] < stop:
                found.append(stamp)
                position = stamp[0] + 1
            else:
                position = stop
        if not taken:
            position = max(position, _passed(consumer, tp, None, started=position > start))
        if position > before:
            moved, due = time.monotonic(), QUIET_SECONDS
        quiet = time.monotonic() - moved
        if position < stop and (doubtful is not None or quiet >= due):
            doubt(tp, position, stop, None if doubtful is None else doubtful.error(), quiet)
            due = 2 * quiet if quiet >= due else due
    return _stamps(found), position


def _taken(consumer: ck.Consumer, most: int) -> list[ck.Message]:
    """What is there, at most so many; if nothing is, what comes first.

    Asked for several with a timeout, it waits for all of them.
    """
    there: list[ck.Message] = consumer.consume(most, 0)
    if there:
        return there
    first = consumer.poll(POLL_SECONDS)
    return [] if first is None else [first]


def _doubtful(message: ck.Message) -> bool:
    """Whether the client said something that will not pass by itself, as a broken
    connection will; or that the log ends here.
    """
    error = message.error()
    return error is not None and error.code() not in PASSING


def _passed(
    consumer: ck.Consumer, tp: TopicPartition, message: ck.Message | None, *, started: bool
) -> int:
    """The next offset, also over what is invisible, as far as it is known; negative: not at all.

    The client's own position is that of an earlier scan of the same topic-partition
    until something of this one was seen.
    """
    error = None if message is None else message.error()
    if error is not None and error.code() == END:
        return cast("int", message.offset())  # type: ignore[union-attr]  # there is a message where there is an error
    return (
        int(consumer.position([ck.TopicPartition(tp.topic, tp.partition)])[0].offset)
        if started
        else -1
    )


def _stamp(message: ck.Message) -> tuple[int, int, int]:
    kind, milliseconds = message.timestamp()
    epoch = message.leader_epoch()
    offset = cast("int", message.offset())  # there is one wherever there is no error
    return (
        offset,
        -1 if kind == ck.TIMESTAMP_NOT_AVAILABLE else milliseconds,
        -1 if epoch is None else epoch,
    )


def _stamps(found: list[tuple[int, int, int]]) -> Stamps:
    table = np.array(found, dtype=np.int64).reshape(-1, 3)
    return Stamps(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].astype(np.int32))
