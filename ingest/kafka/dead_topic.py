"""A Kafka topic that committed dead letters are published to (`ports.dead_topic.DeadTopic`).

A publish attempt is a transaction (`ingest.kafka.transaction`) with a transactional id
of its own. The mark that the attempt is published is an offset of a consumer group of
the same name. It is committed in the transaction, so it exists exactly if the letters
do.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, ConfigResource, ResourceType  # type: ignore[attr-defined]  # untyped

from windrow.ingest.errors import OutcomeUnknownError, RefusedError, SpecError, UnreachableError
from windrow.ingest.kafka.client import admin_properties
from windrow.ingest.kafka.clients import CLIENTS, create_client
from windrow.ingest.kafka.codes import UNKNOWN
from windrow.ingest.kafka.dead_headers import headers_of
from windrow.ingest.kafka.properties import Tuning, Value
from windrow.ingest.kafka.questions import Questions
from windrow.ingest.kafka.retry import AGAIN_SECONDS, CALL_SECONDS, PATIENCE_SECONDS
from windrow.ingest.kafka.transaction import (
    NOT_TAKEN,
    LibrdkafkaTransaction,
    TransactionError,
    kind_of,
)
from windrow.ingest.model.window import Window

MessagePosition = tuple[str, int, int]
"""A message's topic, partition and offset."""

PREFIX = "windrow.dead."
"""Prefix of transactional ids and groups; rights may be granted by it."""

_RIGHTS = (
    "Grant it Write and Describe on the topic and on transactional ids, and Read on groups, that"
    f" begin with {PREFIX}."
)

_TRANSACTION_SECONDS = 300
"""Seconds that the broker keeps the transaction of a producer that is gone.

Until then, readers of committed messages wait behind it.
"""

_LEAST_RETENTION = timedelta(days=1)
"""Assumed `offsets.retention.minutes` of a cluster that doesn't let this client ask.

No version of Kafka had a lower default.
"""

_PRODUCER: Mapping[str, Value] = {
    # a topic may accept no larger batch; and a larger message has a batch of its own, so
    # that a refusal names it
    "batch.size": 16 * 1024,
    # with the next property, the limit of memory
    "queue.buffering.max.kbytes": 32 * 1024,
    "queue.buffering.max.messages": 10_000,
    "transaction.timeout.ms": _TRANSACTION_SECONDS * 1000,
}


class KafkaDeadTopic:
    """`ports.dead_topic.DeadTopic` on a cluster. Used on the driver."""

    def __init__(
        self,
        bootstrap: str,
        client: Mapping[str, object],
        topic: str,
        *,
        tuning: Tuning | None = None,
    ) -> None:
        """Connects lazily.

        Args:
            bootstrap: the cluster's address.
            client: the user's client properties.
            topic: the topic's name.
            tuning: the user's typed settings.

        Raises:
            SpecError: the client properties can't be used.
        """
        self._bootstrap, self._topic = bootstrap, topic
        self._properties = admin_properties(bootstrap, client, tuning=tuning or Tuning())

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

    def remembers(self) -> timedelta:
        """The controller's `offsets.retention.minutes`."""
        questions = self._questions()
        try:
            minutes = questions.ask(
                "how long groups' offsets are kept", None, lambda: _retention_minutes(questions)
            )
        except SpecError:  # this client may not ask for it
            return _LEAST_RETENTION
        return timedelta(minutes=minutes)

    @contextmanager
    def publishing(
        self, window: Window, attempt: str
    ) -> Generator[KafkaPublishAttempt, None, None]:
        self.refuse_unwritable()  # else a producer's request for metadata may create the topic
        publishing = KafkaPublishAttempt(
            self._questions(),
            self._properties,
            self._topic,
            window,
            f"{PREFIX}{window.pipeline}.{attempt}",
        )
        try:
            publishing.begin()
            yield publishing
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


def _ignore_error(_: KafkaError) -> None:
    """Ignores errors that belong to no step: each step raises its own."""


def _retention_minutes(questions: Questions) -> int:
    described = questions.result(
        questions.admin.describe_cluster(request_timeout=questions.seconds)
    )
    resource = ConfigResource(ResourceType.BROKER, str(described.controller.id))
    (found,) = questions.admin.describe_configs(
        [resource], request_timeout=questions.seconds
    ).values()
    return int(questions.result(found)["offsets.retention.minutes"].value)


class KafkaPublishAttempt:
    """`ports.dead_topic.PublishAttempt` as one transaction."""

    def __init__(
        self,
        questions: Questions,
        properties: Mapping[str, Value],
        topic: str,
        window: Window,
        name: str,
    ) -> None:
        """Begins nothing yet; `name` is the transactional id and the group's name."""
        self._questions, self._properties, self._topic, self._window, self._name = (
            questions,
            properties,
            topic,
            window,
            name,
        )
        self._undelivered: tuple[KafkaError, MessagePosition] | None = None
        self._transaction = LibrdkafkaTransaction(
            {**properties, **_PRODUCER}, name, questions.patience
        )
        self._producer = self._transaction.producer

    def begin(self) -> None:
        """Fences an earlier producer of this attempt."""
        with self._as_error():
            self._transaction.fence(self._topic)

    def is_published(self) -> bool:
        what = f"whether the dead letters of window {self._window.key} are published"
        return self._questions.ask(what, None, self._marked)

    def write(self, letters: Iterable[pa.RecordBatch]) -> None:
        with self._as_error():
            self._transaction.begin()
        try:
            self._write(letters)
        # any call may raise that the producer was fenced
        except (KafkaException, SystemError) as why:
            raise self._error_of(self._transaction.reason(why)) from None

    def _write(self, letters: Iterable[pa.RecordBatch]) -> None:
        for batch in letters:
            for letter in batch.to_pylist():
                self._send(letter)
        deadline = time.monotonic() + _TRANSACTION_SECONDS
        while self._producer.flush(1.0):
            self._raise_undelivered()
            if time.monotonic() > deadline:
                raise self._failed("the cluster takes too long")
        self._raise_undelivered()

    def commit(self, count: int) -> None:
        mark = ck.TopicPartition(self._topic, 0, count, metadata=self._window.key)
        member = create_client(
            ck.Consumer, {**self._properties, "group.id": self._name}, _ignore_error
        )
        try:
            group = member.consumer_group_metadata()
        finally:
            member.close()
        with self._as_error():
            self._transaction.retried(
                lambda: self._producer.send_offsets_to_transaction([mark], group, CALL_SECONDS)
            )
            self._transaction.commit()

    def leave(self) -> None:
        """Aborts the transaction if it wasn't committed."""
        self._transaction.leave()

    def _marked(self) -> bool:
        asked = ck.ConsumerGroupTopicPartitions(self._name, [ck.TopicPartition(self._topic, 0)])
        request = self._questions.admin.list_consumer_group_offsets(
            [asked], require_stable=True, request_timeout=self._questions.seconds
        )
        (found,) = self._questions.result(request[self._name]).topic_partitions
        # UNSTABLE_OFFSET_COMMIT while a transaction is ending; the request is repeated
        if found.error is not None and found.error.code() not in UNKNOWN:
            raise KafkaException(found.error)
        return bool(found.offset >= 0)

    def _send(self, letter: Mapping[str, Any]) -> None:
        position = (letter["_topic"], letter["_partition"], letter["_offset"])

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None and self._undelivered is None:
                self._undelivered = (error, position)

        headers = headers_of(letter, self._window.key)
        while True:
            self._raise_undelivered()
            try:
                self._producer.produce(
                    self._topic,
                    letter["value"],
                    letter["key"],
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
        """Raises the error of the first letter that was not delivered, if there is one."""
        if self._undelivered is None:
            return
        error, position = self._undelivered
        if error.code() not in NOT_TAKEN:
            raise self._error_of(error)
        what = (
            f"The topic {self._topic} doesn't accept a dead letter of window {self._window.key}:"
            f" {self._scrub(error)}"
        )
        do = (
            "The window is committed. Raise the topic's max.message.bytes above the source's, then"
            " run the window again."
        )
        raise RefusedError(what, "commit", do, *position)

    @contextmanager
    def _as_error(self) -> Generator[None, None, None]:
        """Raises the failure of a step as an error for the user."""
        try:
            yield
        except TransactionError as error:
            raise self._error_for(error) from None

    def _error_of(self, error: KafkaError) -> SpecError | UnreachableError:
        return self._error_for(TransactionError(kind_of(error), self._scrub(error)))

    def _error_for(self, error: TransactionError) -> SpecError | UnreachableError:
        if error.kind == "fenced":
            return self._failed(
                "another run, which began later, publishes them, or it took more than"
                f" {_TRANSACTION_SECONDS} s"
            )
        if error.kind == "denied":
            what = (
                f"The dead letters of window {self._window.key} may not be published to"
                f" {self._topic}: {error.text}"
            )
            return SpecError(
                what,
                "commit",
                f"The window is committed. {_RIGHTS} Then run the window again: that publishes"
                " them.",
            )
        return self._failed(
            error.text, OutcomeUnknownError if error.unanswered else UnreachableError
        )

    def _failed(
        self, why: str, kind: type[UnreachableError] = UnreachableError
    ) -> UnreachableError:
        what = (
            f"The dead letters of window {self._window.key} could not be published to"
            f" {self._topic}: {why}"
        )
        return kind(what, "commit", "The window is committed. Run it again: that publishes them.")

    def _scrub(self, error: KafkaError) -> str:
        return self._transaction.scrub(error)
