"""A fetcher that uses confluent-kafka's own consumer, with one Python object per message.

It is slow, and the compiled fetcher is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from windrow.ingest.kafka.client_properties import LOG
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.source.reader.batches import (
    UNREADABLE_HEADERS,
    HeaderList,
    columns_to_batch,
    headers_to_array,
)
from windrow.ingest.source.reader.fetching import (
    WAIT_SECONDS,
    Fetched,
    LastMessage,
    OnError,
    Start,
    can_continue,
)

_AT_ONCE = 2000  # few enough messages for the CPU's cache


class ConfluentFetcher:
    """A fetcher by confluent-kafka; see `fetching.Fetcher`."""

    def __init__(self, properties: Mapping[str, Any], start: Start, on_error: OnError) -> None:
        self._on_error = on_error
        self._consumer = Consumer({**properties, "error_cb": self._error, "logger": LOG})
        self._assign(start)

    def begin(self, start: Start, on_error: OnError) -> bool:
        self._on_error = on_error
        if self._tp == TopicPartition(start.topic, start.partition) and can_continue(
            self._last, start
        ):
            return True
        if not start.doubtful:
            self._assign(start)
        return not start.doubtful

    def _assign(self, start: Start) -> None:
        self._tp, self._begun = TopicPartition(start.topic, start.partition), False
        self._last: LastMessage | None = None
        epoch: dict[str, Any] = (
            {} if start.leader_epoch is None else {"leader_epoch": start.leader_epoch}
        )
        self._consumer.assign([KafkaPartition(start.topic, start.partition, start.offset, **epoch)])

    def poll(self, max_messages: int, stop: int) -> Fetched:
        """Fetches messages; see `fetching.Fetcher.poll`.

        `consume(n, timeout)` with a timeout would wait for all n messages, and large ones would
        exceed the queue's limit.
        """
        messages = self._consumer.consume(min(max_messages, _AT_ONCE), 0) or self._consumer.consume(
            1, WAIT_SECONDS
        )
        events = []
        if any(map(Message.error, messages)):
            events = [(error, _offset(m)) for m in messages if (error := m.error()) is not None]
            messages = [m for m in messages if m.error() is None]
        self._last = None if events else _last(messages) or self._last
        next_offset = self._consumer.position([KafkaPartition(self._tp.topic, self._tp.partition)])[
            0
        ].offset
        # otherwise the position may be that of the read before
        self._begun = self._begun or bool(messages or events) or next_offset < 0
        position = (
            max(next_offset, _offset(messages[-1]) + 1)
            if messages
            else next_offset
            if self._begun
            else -1
        )
        if messages and _offset(messages[-1]) >= stop:
            messages = [m for m in messages if _offset(m) < stop]
        return Fetched(len(messages), position, events, self._batch(messages))

    def close(self) -> None:
        self._consumer.close()

    def _error(self, error: KafkaError) -> None:
        self._on_error(error)

    def _batch(self, messages: list[Message]) -> Iterator[pa.RecordBatch]:
        if messages:
            yield to_batch(self._tp, messages)


def _last(messages: list[Message]) -> LastMessage | None:
    """Returns offset and leader epoch of the last message."""
    if not messages:
        return None
    epoch = messages[-1].leader_epoch()
    return LastMessage(_offset(messages[-1]), -1 if epoch is None else epoch)


def _offset(message: Message) -> int:
    """Returns the offset; 0 for an event without one."""
    return message.offset() or 0


def to_batch(tp: TopicPartition, messages: Sequence[Message]) -> pa.RecordBatch:
    """Returns a `MESSAGES` batch of at least one message without errors, all of one
    topic-partition.
    """
    count = len(messages)
    pairs = list(map(Message.timestamp, messages))
    types = np.fromiter([kind for kind, _ in pairs], np.int8, count)
    return columns_to_batch(
        tp,
        np.fromiter(map(Message.offset, messages), np.int64, count),
        np.fromiter([stamp for _, stamp in pairs], np.int64, count),
        types,
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        headers_to_array(_headers_of(messages)),
        pa.array(list(map(Message.leader_epoch, messages)), pa.int32()),
    )


def _headers_of(messages: Sequence[Message]) -> list[HeaderList | None]:
    """Returns the headers of each message; a mark if a name isn't UTF-8, which confluent-kafka
    can't decode.

    Such a message must not block the window. No message is asked twice: the second call returns
    the partly built headers, and using them crashes.
    """
    headers: list[HeaderList | None] = []
    answers = map(Message.headers, messages)
    while len(headers) < len(messages):
        try:
            headers.extend(cast("Iterator[HeaderList | None]", answers))  # up to the one that fails
        except (SystemError, UnicodeDecodeError):
            headers.append(UNREADABLE_HEADERS)
    return headers
