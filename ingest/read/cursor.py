"""One consumer, assigned to one range of one topic-partition: gives messages and knows where it stands.

Why the end is a position and not a message: transaction markers, aborted messages and compaction leave offsets that no consumer ever sees.
The last of the range may be one of them, so a reader that waits for it waits for ever (the stop rule is that of Flink's partition reader).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from ingest.errors import DataLossError, RefusedError
from ingest.model import Split
from ingest.read.codes import DENIED, END, GONE, LOST, PASSING
from ingest.read.identity import LOG, denied, said, unreachable

_AT_ONCE = 2000  # messages of one call: they stay in the cache while their columns are built
_WAIT_SECONDS = 0.1
_QUESTION_SECONDS = 5.0


class Cursor:
    """Reads [start, stop). `check` asks for the topic's identity again when something is missing that should be there."""

    def __init__(self, properties: Mapping[str, Any], split: Split, stall_seconds: float, check: Callable[[], None]) -> None:
        self._split = split
        self._properties = properties
        self._stall_seconds = stall_seconds
        self._check = check
        self._heard: KafkaError | None = None
        self._quiet_since: float | None = None
        self.position = split.start
        self._consumer = Consumer({**properties, "error_cb": self._hear, "logger": LOG})
        self._consumer.assign([_place(split)])

    def messages(self) -> Iterator[list[Message]]:
        """The visible messages of the range, a few thousand at a time, never an empty list."""
        while self.position < self._split.stop:
            found = self._poll()
            if found:
                yield found

    def close(self) -> None:
        """Give the consumer, its threads and its queue back."""
        self._consumer.close()

    def _poll(self) -> list[Message]:
        """What is there now; if nothing is, wait a moment for one message.

        `consume(n, timeout)` with a timeout would wait for all n messages: at the tail that is a stall, and with large messages it gathers
        more than the queue's bound.
        """
        wanted = min(_AT_ONCE, self._split.stop - self.position)
        messages = self._consumer.consume(wanted, 0) or self._consumer.consume(1, _WAIT_SECONDS)
        passed = 0
        if any(map(Message.error, messages)):
            passed = max(self._event(error, _offset(m)) for m in messages if (error := m.error()) is not None)
            messages = [m for m in messages if m.error() is None]
        self._advance(messages, passed)
        if messages and _offset(messages[-1]) >= self._split.stop:
            messages = [m for m in messages if _offset(m) < self._split.stop]
        return messages

    def _advance(self, messages: list[Message], passed: int) -> None:
        here = self._consumer.position([KafkaPartition(self._split.topic, self._split.partition)])[0].offset
        last = _offset(messages[-1]) + 1 if messages else 0
        moved = max(self.position, here, last, passed)  # `here` is negative before the first message
        if messages or moved > self.position:
            self.position, self._quiet_since = moved, None
        elif self._quiet_since is None:
            self._quiet_since = time.monotonic()
        elif time.monotonic() - self._quiet_since > self._stall_seconds:
            self._stalled()

    def _event(self, error: KafkaError, offset: int) -> int:
        """What an event says: how far the log was passed, or an error that ends the read.

        The end-of-partition event moves the position only by the offset that it carries, and that only after all before it was delivered:
        behind a batch that compaction emptied no message will ever come, and the consumer's own position stays before it.
        """
        code = error.code()
        if code == END:
            return offset
        if code in LOST:
            self._check()
            raise self._lost(error)
        if code in DENIED:
            raise denied(self._split, self._said(error))
        if code in GONE:
            self._check()
        elif code not in PASSING:
            do = "Look at the topic at this place with Kafka's own tools; nothing was committed."
            what = f"the client could not read on: {self._said(error)}"
            raise RefusedError(what, "read", do, self._split.topic, self._split.partition, self.position)
        return 0

    def _hear(self, error: KafkaError) -> None:
        """Errors of the connection; librdkafka goes on trying."""
        self._heard = error

    def _said(self, error: KafkaError) -> str:
        return said(error, self._properties)

    def _log_range(self) -> tuple[int, int] | None:
        try:
            place = KafkaPartition(self._split.topic, self._split.partition)
            found: tuple[int, int] | None = self._consumer.get_watermark_offsets(place, timeout=_QUESTION_SECONDS, cached=False)
        except KafkaException:
            return None
        return found

    def _lost(self, error: KafkaError) -> DataLossError:
        log = self._log_range()
        there = self._said(error) if log is None else f"the log holds {log[0]} to {log[1]}"
        do = "Retention or truncation removed these messages: restore the topic, or leave this window out and run later ones."
        split = self._split
        what = f"offsets from {self.position} to {split.stop} are wanted, but {there}"
        return DataLossError(what, "read", do, split.topic, split.partition, self.position)

    def _stalled(self) -> None:
        """Nothing for the stall limit: say why, as far as that can be known."""
        if self._heard is not None and self._heard.code() in DENIED:
            raise denied(self._split, self._said(self._heard))
        self._check()
        log = self._log_range()
        seen = "" if log is None else f"; the log ends at {log[1]}, and an open transaction may hold it back"
        heard = "" if self._heard is None else f"; the last that was heard: {self._said(self._heard)}"
        what = f"nothing came for {self._stall_seconds:g} s before offset {self._split.stop} was reached{seen}{heard}"
        raise unreachable(self._split, what, self.position)


def _place(split: Split) -> KafkaPartition:
    """Where to begin. The leader epoch lets the cluster say that the log was truncated since the plan was made."""
    if split.leader_epoch is None:
        return KafkaPartition(split.topic, split.partition, split.start)
    return KafkaPartition(split.topic, split.partition, split.start, leader_epoch=split.leader_epoch)


def _offset(message: Message) -> int:
    """The offset; 0 for an event that has none."""
    return message.offset() or 0
