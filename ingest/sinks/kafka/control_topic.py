"""The reader of the control topic, a compacted topic with one partition (`control_records`).

The records are written in the same transactions as the messages. Without transactions they are
written after the messages.

An open transaction of another producer hides the records after its begin. A run that takes a
hidden record for absent would publish its split twice. So a run that has fenced its
transactional id asks for the end of the log, and waits until no transaction is open below that
end. Other readers read only up to the first open transaction and don't wait. That transaction
may belong to a dead run, and only the next run's fence ends it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import cast

import confluent_kafka as ck
from confluent_kafka import KafkaException

from windrow.ingest.errors import UnreachableError
from windrow.ingest.kafka.allowed_properties import Value
from windrow.ingest.kafka.error_codes import END, MISSING_TOPIC, PASSING
from windrow.ingest.kafka.shared_clients import CLIENTS
from windrow.ingest.kafka.timeouts import LOOK_SECONDS, PATIENCE_SECONDS, POLL_SECONDS, SEEN_SECONDS
from windrow.ingest.kafka.timestamp_scan import scan_properties
from windrow.ingest.sinks.kafka.control_records import ControlState
from windrow.ingest.sinks.kafka.topics import LogSeen, SinkTopics
from windrow.ingest.sinks.kit import waiting_for

_POLL_MESSAGES = 500


def headers_of(message: ck.Message) -> list[tuple[str, bytes | None]]:
    """Returns a message's headers."""
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _is_end(message: ck.Message) -> bool:
    error = message.error()
    return error is not None and error.code() == END


def poll_messages(consumer: ck.Consumer, seconds: float) -> list[ck.Message]:
    """Returns the messages that have arrived, as soon as there is at least one.

    The client's own call waits until it has the requested number of messages.
    """
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(_POLL_MESSAGES, 0)]


class ControlTopic:
    """Reader of a control topic, which keeps the records that it has read.

    Threads may share it. It connects at first use.

    The records are kept as long as the log has the same leader and the same first offset.
    After a change, the log may hold other records at these offsets, so the topic is read
    again from its start.
    """

    def __init__(
        self,
        name: str,
        topics: SinkTopics,
        admin: Mapping[str, Value],
        consumer: Mapping[str, Value],
    ) -> None:
        """Connects to nothing yet.

        Args:
            name: the topic's name.
            topics: asks for the topic's description.
            admin: an AdminClient's properties.
            consumer: a consumer's properties.
        """
        self.name, self.patience = name, PATIENCE_SECONDS
        self._topics, self.admin, self.consumer = topics, admin, scan_properties(consumer)
        self._lock = threading.Lock()
        self._log: LogSeen | None = None
        self._state = ControlState()

    def read(self, *, to_end: bool = False) -> ControlState | None:
        """Reads the topic and returns the state of the table; None if there is no topic.

        Args:
            to_end: False to read the decided records only. True, after a fence, to read up
                to the log's end and wait for open transactions; the topic is known to exist.

        Raises:
            UnreachableError: the cluster doesn't answer, or an open transaction hides
                the end of the topic.
        """
        with self._lock:
            log = self._topics.control(wait=to_end)
            if log is not None and not log.goes_on(self._log):
                self._state = ControlState(self.name, log.start)
            self._log = log
            if log is None:
                return None
            if self._state.position < log.end:
                self._state = self._state.copy()
                self._read_on(self._state, log.end, to_end=to_end)
            return self._state

    def wait_until_seen(self, is_seen: Callable[[ControlState], bool]) -> None:
        """Waits after a commit until readers see it, but at most `SEEN_SECONDS`.

        Kafka answers a commit before every partition has its marker, and the next reader
        should see the commit. The wait is limited because an open transaction of another run
        may hold readers back, although the commit is complete.
        """
        deadline = time.monotonic() + SEEN_SECONDS
        with suppress(UnreachableError, KafkaException):
            while time.monotonic() < deadline:
                state = self.read()
                if state is not None and is_seen(state):
                    return
                time.sleep(LOOK_SECONDS)

    def _read_on(self, state: ControlState, end: int, *, to_end: bool) -> None:
        state.is_complete, deadline = False, time.monotonic() + self.patience
        with (
            CLIENTS.of(self.admin).consumers(self.consumer).lend(self.name) as consumer,
            waiting_for(f"the control topic {self.name} to be read"),
        ):
            consumer.assign([ck.TopicPartition(self.name, 0, state.position)])
            while state.position < end:
                batch = poll_messages(consumer, POLL_SECONDS)
                for message in batch:
                    self._take(state, message)
                if state.position < end and not to_end and any(map(_is_end, batch)):
                    return
                if state.position < end and time.monotonic() > deadline:
                    raise UnreachableError(
                        f"The control topic {self.name} can't be read to its end {end}, only to"
                        f" offset {state.position}",
                        "commit",
                        "An open transaction hides the rest, of a run that died: run its window"
                        " again, or wait until Kafka aborts it. If Kafka has lost its log of"
                        " transactions it never does: then abort it by kafka-transactions.sh"
                        " abort.",
                    )
        state.is_complete = True

    def _take(self, state: ControlState, message: ck.Message) -> None:
        error, offset = message.error(), cast("int", message.offset())
        if error is None:
            chunks = next((value for name, value in headers_of(message) if name == "parts"), None)
            state.take(message.key() or b"", message.value(), chunks)
            state.position = offset + 1
        elif error.code() == END:
            state.position = max(state.position, offset)
        elif error.code() not in PASSING | MISSING_TOPIC:
            raise self._topics.error_for(self.name, error)
