"""A piece of one topic-partition, read for its timestamps only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import cast

import confluent_kafka as ck
import numpy as np
from confluent_kafka import KafkaError

from ingest.broker.codes import PASSING
from ingest.model import TopicPartition
from ingest.ports import Stamps

Failed = Callable[[TopicPartition, int, KafkaError | None], Exception]
"""The error to raise, from where the scan stands and what the client said; None: nothing arrived for too long."""

_FIRST, _MOST = 64, 4096
_POLL_SECONDS = 0.05


def scan(consumer: ck.Consumer, tp: TopicPartition, start: int, stop: int, patience: float, failed: Failed) -> Iterator[Stamps]:
    """The visible messages of [start, stop), in chunks that grow from `_FIRST` to `_MOST`: most callers stop within the first.

    Ends when the position reaches `stop`, not when a message does: the last offsets may be markers, aborted, or compacted away.
    """
    consumer.assign([ck.TopicPartition(tp.topic, tp.partition, start)])
    position, size = start, _FIRST
    while position < stop:
        chunk, position = _chunk(consumer, tp, position, stop, size, patience, failed)
        if chunk.offsets.size:
            yield chunk
        size = min(2 * size, _MOST)


def _chunk(
    consumer: ck.Consumer, tp: TopicPartition, start: int, stop: int, size: int, patience: float, failed: Failed
) -> tuple[Stamps, int]:
    """At most `size` messages, and the position after them."""
    found: list[tuple[int, int, int]] = []
    position, heard = start, time.monotonic()
    while position < stop and len(found) < size:
        message = consumer.poll(_POLL_SECONDS)
        before = position
        if message is None or message.error() is not None:
            _check(message, tp, position, failed)
            position = max(position, _stands_at(consumer, tp))
        else:
            stamp = _stamp(message)
            position = stamp[0] + 1
            if stamp[0] < stop:
                found.append(stamp)
        if position > before:
            heard = time.monotonic()
        elif time.monotonic() - heard > patience:
            raise failed(tp, position, None)
    return _stamps(found), position


def _check(message: ck.Message | None, tp: TopicPartition, position: int, failed: Failed) -> None:
    """Raise what will not pass by itself; the end of the log and a broken connection will."""
    error = None if message is None else message.error()
    if error is not None and error.code() not in PASSING:
        raise failed(tp, position, error)


def _stands_at(consumer: ck.Consumer, tp: TopicPartition) -> int:
    """The next offset, also over what is invisible; negative until something was consumed."""
    return int(consumer.position([ck.TopicPartition(tp.topic, tp.partition)])[0].offset)


def _stamp(message: ck.Message) -> tuple[int, int, int]:
    kind, milliseconds = message.timestamp()
    epoch = message.leader_epoch()
    offset = cast("int", message.offset())  # there is one wherever there is no error
    return offset, -1 if kind == ck.TIMESTAMP_NOT_AVAILABLE else milliseconds, -1 if epoch is None else epoch


def _stamps(found: list[tuple[int, int, int]]) -> Stamps:
    table = np.array(found, dtype=np.int64).reshape(-1, 3)
    return Stamps(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].astype(np.int32))
