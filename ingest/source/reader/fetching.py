"""The client under a cursor: assigned to one topic-partition, it hands over messages.

`librdkafka` implements it. Tests compare it with confluent-kafka's consumer, and give
cursors clients that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError

Event = tuple[KafkaError, int]
"""What a client reports between messages, with the offset that it carries; 0 where it has none."""

Hear = Callable[[KafkaError], None]
"""Is told the errors of the connection, while the client is polled."""

WAIT_SECONDS = 0.1
"""How long a poll waits for a first message.

For all that are wanted would be a stall at the end of the log.
"""


class Start(NamedTuple):
    """Where a client begins.

    `leader_epoch`: the cluster tells whether the log was cut off below the offset
    since; None: nobody knows.

    `doubtful`: the cluster must tell, for messages won't: those that came after a cut
    may be planned, too.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    doubtful: bool = False


@dataclass(frozen=True)
class Fetched:
    """What one poll brought.

    `count` messages lie below the stop. `position`: behind all that the client has
    passed, markers too; negative before the first message. `batches`: the messages as
    `MESSAGES` batches, made as they are taken: before the next poll, or never.
    """

    count: int
    position: int
    events: Sequence[Event]
    batches: Iterable[pa.RecordBatch]


class Last(NamedTuple):
    """The last message that a client handed over; of one that knows no leader epoch
    that is negative.
    """

    offset: int
    leader_epoch: int


def goes_on(last: Last | None, start: Start) -> bool:
    """Whether who reads from a start may go on right behind the last message, without
    asking the cluster about the start's leader epoch.

    It is asked whether the log was cut off below the start since it was frozen. What is
    written after a cut has a later epoch, so the message right before the start answers
    that, if it has none.
    """
    if last is None or last.offset + 1 != start.offset:
        return False
    return start.leader_epoch is None or 0 <= last.leader_epoch <= start.leader_epoch


class Fetcher(Protocol):
    """A client at work. Used by one thread, in the process that made it."""

    def begin(self, start: Start, hear: Hear) -> bool:
        """Begin another read, as a new client would: nothing of the one before is handed over.

        What was fetched ahead is, where the start is where the last read ended, and `goes_on`.

        Returns:
            False where it takes a new client: librdkafka has the cluster told of a
            start's leader epoch only as it first hears of leaders.

        Raises:
            KafkaException: the client can't be used any more.
        """

    def poll(self, wanted: int, stop: int) -> Fetched:
        """What is there now, at most `wanted` messages; if nothing is, wait a moment for some."""

    def close(self) -> None:
        """Give the client, its threads and its queue back."""


class Fetching(Protocol):
    """What makes clients of one kind."""

    def __call__(self, properties: Mapping[str, Any], start: Start, hear: Hear) -> Fetcher:
        """A client at its start.

        Raises:
            KafkaException: the properties can't be used.
        """
