"""The Kafka topic to which committed dead letters are published (`ports.dead_topic.DeadTopic`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException

from windrow.ingest.errors import RefusedError, SpecError, UnreachableError, WindrowError
from windrow.ingest.kafka.admin_requests import Questions
from windrow.ingest.kafka.allowed_properties import Value
from windrow.ingest.kafka.client_properties import admin_properties
from windrow.ingest.kafka.error_codes import UNKNOWN, login_advice
from windrow.ingest.kafka.producers import (
    MESSAGE_LIMIT,
    MessageProducer,
    ProducerError,
    ProducerMessage,
)
from windrow.ingest.kafka.rights import Right, lacking_error, lacks
from windrow.ingest.kafka.shared_clients import CLIENTS
from windrow.ingest.kafka.timeouts import PATIENCE_SECONDS
from windrow.ingest.model.plan import Window
from windrow.ingest.ports.decoder import HEADER, KEY, RULES, SCHEMA, VALUE

PRODUCER_SETTINGS: Mapping[str, Value] = {
    # A topic may accept no larger batch. A larger message gets its own batch, so that a
    # refusal names it.
    "batch.size": 16 * 1024,
    "message.timeout.ms": int(PATIENCE_SECONDS * 1000),
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

    def cluster_id(self) -> str:
        return self._questions().cluster_id()

    def refuse_unwritable(self) -> None:
        """Refuses a missing topic, or one that this client may not write to.

        The check describes the topic, which doesn't create it.

        Raises:
            SpecError: there is no such topic, or this client may not write to it.
        """
        questions, rights = self._questions(), [Right("Write", "topic", self._topic)]
        (description,) = questions.ask(
            f"the topic of dead letters {self._topic}",
            None,
            lambda: questions.topics([self._topic]).values(),
        )
        if isinstance(description, KafkaException):
            if description.args[0].code() not in UNKNOWN:
                raise questions.error_for(
                    f"the topic of dead letters {self._topic}", None, description.args[0], rights
                )
            raise SpecError(
                f"There is no topic {self._topic} for dead letters on {self._bootstrap}",
                "setup",
                "Create it, or fix dead_letters.topic: windrow doesn't create it.",
            )
        if lacks(description, "Write"):
            raise lacking_error(rights, self._bootstrap, "setup")

    def publish(self, window: Window, dead_letters: Iterable[pa.RecordBatch]) -> None:
        self.refuse_unwritable()  # otherwise a producer's metadata request may create the topic
        producer = MessageProducer({**self._properties, **PRODUCER_SETTINGS}, PATIENCE_SECONDS)
        messages = (
            ProducerMessage(
                dead_letter["key"],
                dead_letter["value"],
                headers_of(dead_letter, window.key),
                (dead_letter["_topic"], dead_letter["_partition"], dead_letter["_offset"]),
            )
            for batch in dead_letters
            for dead_letter in batch.to_pylist()
        )
        try:
            producer.write(self._topic, messages)
        except ProducerError as error:
            raise self._user_error(window, error) from None
        finally:
            producer.leave()

    def _user_error(self, window: Window, error: ProducerError) -> WindrowError:
        if error.kind == "refused":
            return RefusedError(
                f"The topic {self._topic} doesn't accept a dead letter of window"
                f" {window.key}: {error.text}",
                "commit",
                "The window is committed, and the dead letter is in the table. Raise the topic's"
                " max.message.bytes above the source's, then run the window again. No message above"
                f" {MESSAGE_LIMIT} is published: for one that is larger leave out"
                " dead_letters.topic.",
                *error.about,
            )
        message = (
            f"The dead letters of window {window.key} could not be published to"
            f" {self._topic}: {error.text}"
        )
        advice = "The window is committed. Run it again: that publishes them."
        if error.kind == "denied":
            right = Right("Write", "topic", self._topic)
            grant = f"{advice} First: {right.grant(self._bootstrap)}"
            return SpecError(message, "commit", login_advice(error.text, grant))
        return UnreachableError(message, "commit", advice)

    def _questions(self) -> Questions:
        return Questions(self._bootstrap, CLIENTS.of(self._properties), PATIENCE_SECONDS)


# --------------------------------------------------------------------------------------------------


CONNECT = "__connect.errors."
HEADER_PREFIX = "windrow."

_STAGES = {
    KEY: "KEY_CONVERTER",
    HEADER: "HEADER_CONVERTER",
    VALUE: "VALUE_CONVERTER",
    SCHEMA: "VALUE_CONVERTER",
    RULES: "TRANSFORMATION",
}
"""Kafka Connect's name of each stage. The header `windrow.stage` has windrow's own name."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TASK = "0"
"""Number of the Connect task. windrow has no lasting tasks, and Connect counts from 0."""


def headers_of(dead_letter: Mapping[str, Any], window: str) -> list[tuple[str, str | bytes | None]]:
    """Returns all headers of a dead letter, a row of the table of dead letters. Pure.

    The message's own headers come first, then Kafka Connect's, then windrow's. Connect's
    headers are those of `errors.deadletterqueue.context.headers.enable`
    (`DeadLetterQueueReporter`). Each is a text in UTF-8, with numbers as decimal digits. So a
    program that reads Connect's dead letters can read these too. A header of the message with
    the same name stays and comes first, as in Connect; readers take the last one.
    """
    own_headers = [(header["key"], header["value"]) for header in dead_letter["headers"]]
    return own_headers + [
        (name, None if text is None else text.encode())
        for name, text in _context(dead_letter, window)
    ]


def _context(dead_letter: Mapping[str, Any], window: str) -> list[tuple[str, str | None]]:
    stage, timestamp = dead_letter["stage"], dead_letter["_timestamp"]
    connect = {
        "topic": dead_letter["_topic"],
        "partition": str(dead_letter["_partition"]),
        "offset": str(dead_letter["_offset"]),
        "connector.name": dead_letter["pipeline"],
        "task.id": _TASK,
        "stage": _STAGES[stage],
        "class.name": f"windrow.{stage}",
        "exception.class.name": dead_letter["reason"],
        "exception.message": dead_letter["detail"],
    }
    window_headers = {
        "window": window,
        "attempt": dead_letter["attempt"],
        "generation": str(dead_letter["generation"]),
        "stage": stage,
        "reason": dead_letter["reason"],
        "schema.id": dead_letter.get("schema_id"),
        "timestamp": (
            None if timestamp is None else str((timestamp - _EPOCH) // timedelta(milliseconds=1))
        ),
        "timestamp.type": dead_letter["timestamp_type"],
    }
    return [(CONNECT + name, text) for name, text in connect.items()] + [
        (HEADER_PREFIX + name, text) for name, text in window_headers.items() if text is not None
    ]
