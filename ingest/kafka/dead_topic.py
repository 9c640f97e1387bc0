"""A Kafka topic that committed dead letters are published to (`ports.dead_topic.DeadTopic`).

A turn is a transaction of a producer of its own, whose transactional id is the attempt's: `init_transactions` ends whatever an earlier turn
left open, waits for what it had decided, and fences it. The mark that the attempt is published is an offset of a consumer group of the same
name, sent in the transaction: so it is there exactly if the letters are. A producer has one transaction and goes: librdkafka keeps its
epoch from one transaction to the next, so that a late answer to one could end another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import confluent_kafka as ck
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, ConfigResource, ResourceType  # type: ignore[attr-defined]  # public, untyped

from ingest.errors import OutcomeUnknownError, RefusedError, SpecError, UnreachableError
from ingest.kafka.client import admin_properties, scrubbed
from ingest.kafka.clients import CLIENTS, made
from ingest.kafka.codes import DENIED, UNKNOWN
from ingest.kafka.dead_headers import headers_of
from ingest.kafka.properties import Tuning, Value
from ingest.kafka.questions import Questions
from ingest.model.window import Window

T = TypeVar("T")
Place = tuple[str, int, int]
"""A message's topic, partition and offset."""

PREFIX = "windrow.dead."
"""How transactional ids and groups begin, which rights may be granted by."""

_RIGHTS = f"Grant it Write and Describe on the topic and on transactional ids, and Read on groups, that begin with {PREFIX}."

_TURN_SECONDS = 300
"""So long the broker keeps a transaction open whose producer is gone; until then readers of committed messages wait behind it."""

_CALL_SECONDS = 30.0
_AGAIN_SECONDS = 0.1
_FORGETFUL = timedelta(days=1)
"""What a cluster's `offsets.retention.minutes` is taken for where it may not be asked: the least that any Kafka had by default."""

_PRODUCER: Mapping[str, Value] = {
    "acks": "all",
    "batch.size": 16 * 1024,  # a topic may take no more at once; and what is larger stands alone, so that a refusal names it
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 5,
    "message.max.bytes": 1_000_000_000,  # how large a message may be, the topic says
    "partitioner": "murmur2_random",  # as Java's clients place keys
    "queue.buffering.max.kbytes": 32 * 1024,  # what waits to be sent: with the next, the bound of memory
    "queue.buffering.max.messages": 10_000,
    "transaction.timeout.ms": _TURN_SECONDS * 1000,
}

_FENCED = frozenset({
    KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.INVALID_PRODUCER_ID_MAPPING,  # noqa: SLF001
    KafkaError.INVALID_TXN_STATE, KafkaError._FATAL,  # noqa: SLF001  # what is said of a producer that was fenced before
})  # fmt: skip
"""What is said to a producer whose turn another one took."""

_NOT_TAKEN = frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
})  # fmt: skip
"""What the topic's settings don't let in, whoever asks and how often."""


class KafkaDeadTopic:
    """The topic on a cluster. Used on the driver; asks nothing before it is used."""

    def __init__(
        self, bootstrap: str, client: Mapping[str, object], topic: str, *, tuning: Tuning | None = None, patience_seconds: float = 30.0
    ) -> None:  # fmt: skip
        """Connects lazily.

        Args:
            bootstrap: the cluster's address.
            client: the user's properties.
            topic: its name.
            tuning: the user's typed settings.
            patience_seconds: how long one question is asked again before giving up.

        Raises:
            SpecError: the client properties can't be used.
        """
        self._bootstrap, self._topic, self._patience = bootstrap, topic, patience_seconds
        self._properties = admin_properties(bootstrap, client, tuning=tuning or Tuning())

    @property
    def name(self) -> str:
        """See `ports.dead_topic.DeadTopic.name`."""
        return self._topic

    def refuse_unwritable(self) -> None:
        """See `ports.dead_topic.DeadTopic.refuse_unwritable`. Asking for a topic's description doesn't make it."""
        questions = self._questions()
        asked = ck.TopicCollection([self._topic])
        (found,) = questions.ask(
            f"the topic of dead letters {self._topic}", None, lambda: self._described(questions, asked).values()
        )  # fmt: skip
        if isinstance(found, KafkaException):
            if found.args[0].code() not in UNKNOWN:
                raise questions.named(f"the topic of dead letters {self._topic}", None, found.args[0])
            do = "Create it, or mend dead_letters.topic: windrow doesn't make it."
            raise SpecError(f"There is no topic {self._topic} for dead letters on {self._bootstrap}", "setup", do)
        if found.authorized_operations is not None and AclOperation.WRITE not in found.authorized_operations:
            what = f"This client may not write to the topic of dead letters {self._topic} on {self._bootstrap}"
            raise SpecError(what, "setup", _RIGHTS)

    def remembers(self) -> timedelta:
        """See `ports.dead_topic.DeadTopic.remembers`: what the controller says of `offsets.retention.minutes`."""
        questions = self._questions()
        try:
            minutes = questions.ask("how long groups' offsets are kept", None, lambda: _kept_minutes(questions))
        except SpecError:  # it may not be asked
            return _FORGETFUL
        return timedelta(minutes=minutes)

    @contextmanager
    def turn(self, window: Window, attempt: str) -> Generator[KafkaTurn, None, None]:
        """See `ports.dead_topic.DeadTopic.turn`."""
        self.refuse_unwritable()  # else a producer's first look may make the topic
        turn = KafkaTurn(self._questions(), self._properties, self._topic, window, f"{PREFIX}{window.pipeline}.{attempt}")
        try:
            turn.begin()
            yield turn
        finally:
            turn.leave()

    def _questions(self) -> Questions:
        return Questions(self._bootstrap, CLIENTS.of(self._properties), self._patience)

    @staticmethod
    def _described(questions: Questions, asked: ck.TopicCollection) -> dict[str, Any]:
        request = questions.admin.describe_topics(asked, include_authorized_operations=True, request_timeout=questions.seconds)
        return questions.each(request)


def _unheard(_: KafkaError) -> None:
    """What a client says by itself: each step of the transaction says what came of it."""


def _kept_minutes(questions: Questions) -> int:
    described = questions.result(questions.admin.describe_cluster(request_timeout=questions.seconds))
    resource = ConfigResource(ResourceType.BROKER, str(described.controller.id))
    (found,) = questions.admin.describe_configs([resource], request_timeout=questions.seconds).values()
    return int(questions.result(found)["offsets.retention.minutes"].value)


class KafkaTurn:
    """`ports.dead_topic.Turn` in one transaction."""

    def __init__(self, questions: Questions, properties: Mapping[str, Value], topic: str, window: Window, name: str) -> None:
        """`name`: of the transactional id, and of the group."""
        self._questions, self._properties, self._topic, self._window, self._name = questions, properties, topic, window, name
        self._refused: tuple[KafkaError, Place] | None = None
        self._open = False
        self._producer = made(ck.Producer, {**properties, **_PRODUCER, "transactional.id": name}, _unheard)

    def begin(self) -> None:
        """Fence whoever had a turn before."""
        self._called(lambda: self._producer.init_transactions(_CALL_SECONDS))

    def is_published(self) -> bool:
        """See `ports.dead_topic.Turn.is_published`."""
        what = f"whether the dead letters of window {self._window.key} are published"
        return self._questions.ask(what, None, self._marked)

    def write(self, letters: Iterable[pa.RecordBatch]) -> None:
        """See `ports.dead_topic.Turn.write`."""
        self._called(self._producer.begin_transaction)
        self._open = True
        try:
            self._write(letters)
        except (KafkaException, SystemError) as why:  # any call may say that the producer was fenced
            raise self._meant(self._said(why)) from None

    def _write(self, letters: Iterable[pa.RecordBatch]) -> None:
        for batch in letters:
            for letter in batch.to_pylist():
                self._send(letter)
        deadline = time.monotonic() + _TURN_SECONDS
        while self._producer.flush(1.0):
            self._refuse_untaken()
            if time.monotonic() > deadline:
                raise self._failed("the cluster takes too long")
        self._refuse_untaken()

    def commit(self, count: int) -> None:
        """See `ports.dead_topic.Turn.commit`."""
        mark = ck.TopicPartition(self._topic, 0, count, metadata=self._window.key)
        member = made(ck.Consumer, {**self._properties, "group.id": self._name}, _unheard)
        try:
            group = member.consumer_group_metadata()
        finally:
            member.close()
        self._called(lambda: self._producer.send_offsets_to_transaction([mark], group, _CALL_SECONDS))
        self._open = False  # what is sent now may not be taken back, whatever is answered
        self._called(lambda: self._producer.commit_transaction(_CALL_SECONDS), OutcomeUnknownError)

    def leave(self) -> None:
        """End a transaction that wasn't committed, so that no reader waits for it. What can't be ended the broker ends by itself."""
        if self._open:
            with suppress(KafkaException, SystemError):
                self._producer.purge()
                self._producer.abort_transaction(5.0)
        self._open = False

    def _marked(self) -> bool:
        asked = ck.ConsumerGroupTopicPartitions(self._name, [ck.TopicPartition(self._topic, 0)])
        request = self._questions.admin.list_consumer_group_offsets(
            [asked], require_stable=True, request_timeout=self._questions.seconds
        )  # fmt: skip
        (found,) = self._questions.result(request[self._name]).topic_partitions
        if found.error is not None and found.error.code() not in UNKNOWN:  # while a transaction's end is on its way this is said here
            raise KafkaException(found.error)
        return bool(found.offset >= 0)

    def _send(self, letter: Mapping[str, Any]) -> None:
        place = (letter["_topic"], letter["_partition"], letter["_offset"])

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None and self._refused is None:
                self._refused = (error, place)

        headers = headers_of(letter, self._window.key)
        while True:
            self._refuse_untaken()
            try:
                self._producer.produce(self._topic, letter["value"], letter["key"], headers=headers, on_delivery=delivered)
            except BufferError:
                self._producer.poll(_AGAIN_SECONDS)
                continue
            except KafkaException as why:
                self._refused = (why.args[0], place)
                continue
            self._producer.poll(0)
            return

    def _refuse_untaken(self) -> None:
        if self._refused is None:
            return
        error, place = self._refused
        if error.code() not in _NOT_TAKEN:
            raise self._meant(error)
        what = f"The topic {self._topic} doesn't take a dead letter of window {self._window.key}: {self._scrub(error)}"
        do = "The window is committed. Raise the topic's max.message.bytes above the source's, then run the window again."
        raise RefusedError(what, "commit", do, *place)

    def _called(self, call: Callable[[], T], unanswered: type[UnreachableError] = UnreachableError) -> T:
        """A step of the transaction, which librdkafka lets be repeated where it says so; `unanswered`: what that means in the end."""
        deadline = time.monotonic() + self._questions.patience
        while True:
            try:
                return call()
            except (KafkaException, SystemError) as why:
                error = self._said(why)
                if not error.retriable():
                    raise self._meant(error) from None
                if time.monotonic() > deadline:
                    raise self._failed(self._scrub(error), unanswered) from None
                time.sleep(_AGAIN_SECONDS)

    def _said(self, why: KafkaException | SystemError) -> KafkaError:
        """What the client says, also where Python lost it.

        A fatal error is raised within a callback, while it flushes. Callbacks that are called after it, for letters and for its log, wrap
        that exception in another or end it, so that the call fails without a reason. Such a producer is of no more use, and says why when
        it is asked again.
        """
        cause = why.__cause__ if isinstance(why, SystemError) else why
        if not isinstance(cause, KafkaException):
            try:
                self._producer.abort_transaction(5.0)
            except KafkaException as again:
                cause = again
            else:
                raise why
        error: KafkaError = cause.args[0]
        return error

    def _meant(self, error: KafkaError) -> SpecError | UnreachableError:
        if error.code() in _FENCED:
            return self._failed(f"another run, which began later, publishes them, or it took more than {_TURN_SECONDS} s")
        if error.code() in DENIED | {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}:
            what = f"The dead letters of window {self._window.key} may not be published to {self._topic}: {self._scrub(error)}"
            return SpecError(what, "commit", f"The window is committed. {_RIGHTS} Then run the window again: that publishes them.")
        return self._failed(self._scrub(error))

    def _failed(self, why: str, kind: type[UnreachableError] = UnreachableError) -> UnreachableError:
        what = f"The dead letters of window {self._window.key} could not be published to {self._topic}: {why}"
        return kind(what, "commit", "The window is committed. Run it again: that publishes them.")

    def _scrub(self, error: KafkaError) -> str:
        return scrubbed(error.str(), self._properties)
