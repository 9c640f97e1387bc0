"""The interface of the client under a cursor: it fetches messages of one topic-partition.

`librdkafka` implements it. Tests compare it with confluent-kafka's consumer, and give
cursors clients that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from confluent_kafka import KafkaError

Event = tuple[KafkaError, int]
"""An event or error among the messages, with the offset that it carries; 0 without one."""

OnError = Callable[[KafkaError], None]
"""Called with errors of the connection, while the client is polled."""

WAIT_SECONDS = 0.1
"""The time that a poll waits for a first message.

To wait for all wanted messages would be a stall at the end of the log.
"""


class Start(msgspec.Struct, frozen=True):
    """The offset at which a client begins to read.

    With `leader_epoch` the cluster tells if the log was cut off below the offset since;
    None: the epoch is unknown. `doubtful`: the messages can't tell that, because
    messages written after a cut may be planned too, so the cluster must be asked.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    doubtful: bool = False


@dataclass(frozen=True)
class Fetched:
    """The result of one poll.

    `count` messages lie below the stop. `position` is after all that the client has
    passed, markers too; negative before the first message. `batches`: the messages as
    `MESSAGES` batches. They are made when they are taken, which must be before the next
    poll.
    """

    count: int
    position: int
    events: Sequence[Event]
    batches: Iterable[pa.RecordBatch]


class LastMessage(msgspec.Struct, frozen=True):
    """The last message that a client handed over.

    `leader_epoch` is negative if the message has none.
    """

    offset: int
    leader_epoch: int


def can_continue(last: LastMessage | None, start: Start) -> bool:
    """Returns whether a read may continue after the last message without asking the cluster.

    The question to the cluster is if the log was cut off below the start since that was
    frozen. Messages that are written after a cut have a later epoch. So the message
    right before the start answers the question, if its epoch isn't later than the
    start's.
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
        are used if the read starts where the last one ended and `can_continue` is true.

        Returns:
            False if a new client is needed: librdkafka asks about a start's leader
                epoch only when it first hears of the topic's leaders.

        Raises:
            KafkaException: the client can't be used any more.
        """

    def poll(self, max_messages: int, stop: int) -> Fetched:
        """Returns at most `max_messages` messages that have arrived.

        If there are none, it waits a moment for some.
        """

    def close(self) -> None:
        """Closes the client, its threads and its queue."""


Fetching = Callable[[Mapping[str, Any], Start, OnError], Fetcher]
"""Makes a client of one kind at its start; raises KafkaException for properties that can't be used.
"""
