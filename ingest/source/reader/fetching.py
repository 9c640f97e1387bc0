"""The interface of the client of a cursor, which fetches messages of one topic-partition.

`librdkafka` implements it. Tests compare it with confluent-kafka's consumer, and test
cursors with clients that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from confluent_kafka import KafkaError

Event = tuple[KafkaError, int]
"""An event or error among the messages, and the offset that it carries (0 without one)."""

OnError = Callable[[KafkaError], None]
"""Called with errors of the connection, while the client is polled."""

WAIT_SECONDS = 0.1
"""The time that a poll waits for a first message.

A poll that waited for all wanted messages would stall at the end of the log.
"""


class Start(msgspec.Struct, frozen=True):
    """The offset at which a client begins to read.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        offset: the offset to begin at.
        leader_epoch: lets the cluster detect that the log was cut off below the offset
            since; None: the epoch is unknown.
        doubtful: True if the messages can't show a cut-off, because messages written after
            it may be planned too. Then the cluster must be asked.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    doubtful: bool = False


@dataclass(frozen=True)
class Fetched:
    """The result of one poll.

    Attributes:
        count: the number of messages below the stop.
        position: the offset after everything that the client has passed, transaction
            markers included; negative before the first message.
        events: the events and errors among the messages.
        batches: the messages as `MESSAGES` batches. A batch is made when it is taken, which
            must be before the next poll.
    """

    count: int
    position: int
    events: Sequence[Event]
    batches: Iterable[pa.RecordBatch]


class LastMessage(msgspec.Struct, frozen=True):
    """The last message that a client handed over.

    Attributes:
        offset: the message's offset.
        leader_epoch: negative if the message has none.
    """

    offset: int
    leader_epoch: int


def can_continue(last: LastMessage | None, start: Start) -> bool:
    """Returns whether a read may continue after the last message without asking the cluster.

    The cluster would be asked whether the log was cut off below the start, since the start
    was frozen. Messages that are written after a cut-off have a later epoch. So the message
    right before the start gives the answer, if its epoch isn't later than the start's.
    """
    if last is None or last.offset + 1 != start.offset:
        return False
    return start.leader_epoch is None or 0 <= last.leader_epoch <= start.leader_epoch


class Fetcher(Protocol):
    """A client that is assigned to an offset.

    It is used by one thread, in the process that made it.
    """

    def begin(self, start: Start, on_error: OnError) -> bool:
        """Begins another read, as a new client would.

        No message of the read before is handed over. Messages that were fetched ahead
        are used if the read starts where the last read ended and `can_continue` is true.

        Returns:
            False if a new client is needed: librdkafka checks a start's leader epoch only
                when it first learns of the topic's leaders.

        Raises:
            KafkaException: the client can't be used any more.
        """

    def poll(self, max_messages: int, stop: int) -> Fetched:
        """Returns at most `max_messages` messages that have arrived.

        If none have arrived, it waits up to WAIT_SECONDS for a first one.
        """

    def close(self) -> None:
        """Closes the client, its threads and its queue."""


Fetching = Callable[[Mapping[str, Any], Start, OnError], Fetcher]
"""Makes a client at its start; raises KafkaException for properties that can't be used."""
