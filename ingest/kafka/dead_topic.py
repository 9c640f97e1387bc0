"""A Kafka topic that committed dead letters are published to (`ports.dead_topic.DeadTopic`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # untyped

from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.kafka.client import admin_properties
from windrow.ingest.kafka.clients import CLIENTS
from windrow.ingest.kafka.codes import DENIED, UNKNOWN
from windrow.ingest.kafka.dead_headers import headers_of
from windrow.ingest.kafka.producers import NOT_TAKEN, MessageProducer
from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.questions import Questions
from windrow.ingest.kafka.retry import AGAIN_SECONDS, PATIENCE_SECONDS
from windrow.ingest.model.window import Window

MessagePosition = tuple[str, int, int]
"""A message's topic, partition and offset."""

_RIGHTS = "Grant it Write and Describe on the topic."

PRODUCER_SETTINGS: Mapping[str, Value] = {
    # a topic may accept no larger batch; and a larger message has a batch of its own, so
    # that a refusal names it
    "batch.size": 16 * 1024,
    "message.timeout.ms": int(PATIENCE_SECONDS * 1000),
    # with the next property, the limit of memory
    "queue.buffering.max.kbytes": 32 * 1024,
    "queue.buffering.max.messages": 10_000,
}


class KafkaDeadTopic:
    """`ports.dead_topic.DeadTopic` on a cluster. Used on the driver."""

    def __init__(
        self,
        bootstrap: str,
        client: Mapping[str, object],
        topic: str,
    ) -> None:
        """Connects lazily.

        Args:
            bootstrap: the cluster's address.
            client: the user's client properties.
            topic: the topic's name.

        Raises:
            SpecError: the client properties can't be used.
        """
        self._bootstrap, self._topic = bootstrap, topic
        self._properties = admin_properties(bootstrap, client)

    @property
    def name(self) -> str:
        return self._topic

    def refuse_unwritable(self) -> None:
        """Describes the topic, which doesn't create it.

        Raises:
            SpecError: there is no such topic, or this client may not write to it.
        """
        questions = self._questions()
        asked = ck.TopicCollection([self._topic])
        (found,) = questions.ask(
            f"the topic of dead letters {self._topic}",
            None,
            lambda: self._described(questions, asked).values(),
        )
        if isinstance(found, KafkaException):
            if found.args[0].code() not in UNKNOWN:
                raise questions.error_for(
                    f"the topic of dead letters {self._topic}", None, found.args[0]
                )
            do = "Create it, or fix dead_letters.topic: windrow doesn't create it."
            raise SpecError(
                f"There is no topic {self._topic} for dead letters on {self._bootstrap}",
                "setup",
                do,
            )
        if (
            found.authorized_operations is not None
            and AclOperation.WRITE not in found.authorized_operations
        ):
            what = (
                f"This client may not write to the topic of dead letters {self._topic} on"
                f" {self._bootstrap}"
            )
            raise SpecError(what, "setup", _RIGHTS)

    def publish(self, window: Window, dead_letters: Iterable[pa.RecordBatch]) -> None:
        self.refuse_unwritable()  # else a producer's request for metadata may create the topic
        publishing = _Publishing(self._properties, self._topic, window)
        try:
            publishing.write(dead_letters)
        finally:
            publishing.leave()

    def _questions(self) -> Questions:
        return Questions(self._bootstrap, CLIENTS.of(self._properties), PATIENCE_SECONDS)

    @staticmethod
    def _described(questions: Questions, asked: ck.TopicCollection) -> dict[str, Any]:
        request = questions.admin.describe_topics(
            asked, include_authorized_operations=True, request_timeout=questions.seconds
        )
        return questions.results(request)


class _Publishing:
    """A producer that writes a window's dead letters."""

    def __init__(self, properties: Mapping[str, Value], topic: str, window: Window) -> None:
        self._topic, self._window = topic, window
        self._undelivered: tuple[KafkaError, MessagePosition] | None = None
        self._sending = MessageProducer({**properties, **PRODUCER_SETTINGS}, PATIENCE_SECONDS)
        self._producer = self._sending.producer

    def write(self, dead_letters: Iterable[pa.RecordBatch]) -> None:
        """Writes all of them, and waits until each is confirmed."""
        for batch in dead_letters:
            for dead_letter in batch.to_pylist():
                self._send(dead_letter)
        while self._producer.flush(1.0):  # each ends after `message.timeout.ms`
            self._raise_undelivered()
        self._raise_undelivered()

    def leave(self) -> None:
        """Drops what waits to be sent."""
        self._sending.leave()

    def _send(self, dead_letter: Mapping[str, Any]) -> None:
        position = (dead_letter["_topic"], dead_letter["_partition"], dead_letter["_offset"])

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None and self._undelivered is None:
                self._undelivered = (error, position)

        headers = headers_of(dead_letter, self._window.key)
        while True:
            self._raise_undelivered()
            try:
                self._producer.produce(
                    self._topic,
                    dead_letter["value"],
                    dead_letter["key"],
                    headers=headers,
                    on_delivery=delivered,
                )
            except BufferError:
                self._producer.poll(AGAIN_SECONDS)
                continue
            except KafkaException as why:
                self._undelivered = (why.args[0], position)
                continue
            self._producer.poll(0)
            return

    def _raise_undelivered(self) -> None:
        """Raises the error of the first dead letter that was not delivered, if there is one."""
        if self._undelivered is None:
            return
        error, position = self._undelivered
        text = self._sending.scrub(error)
        if error.code() in NOT_TAKEN:
            raise RefusedError(
                f"The topic {self._topic} doesn't accept a dead letter of window"
                f" {self._window.key}: {text}",
                "commit",
                "The window is committed. Raise the topic's max.message.bytes above the source's,"
                " then run the window again.",
                *position,
            )
        what = (
            f"The dead letters of window {self._window.key} could not be published to"
            f" {self._topic}: {text}"
        )
        again = "The window is committed. Run it again: that publishes them."
        if error.code() in DENIED:
            raise SpecError(what, "commit", f"{_RIGHTS} {again}")
        raise UnreachableError(what, "commit", again)
