"""Producers of messages and records, in one transaction or without transactions.

`init_transactions` does three things:

1. It aborts the transaction that an earlier producer of the transactional id left open.
2. It waits until a commit or an abort that had begun is complete.
3. It fences the earlier producer.

Data that is read after that stays true until this transaction is committed, or another
producer takes the id. A producer runs only one transaction. librdkafka keeps its epoch from
one transaction to the next, so a late answer to the first could end the second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, TypeVar

import confluent_kafka as ck
import msgspec
from confluent_kafka import KafkaError, KafkaException

from windrow.ingest.kafka.allowed_properties import Value
from windrow.ingest.kafka.client_properties import scrub
from windrow.ingest.kafka.error_codes import is_denied
from windrow.ingest.kafka.shared_clients import create_client
from windrow.ingest.kafka.timeouts import (
    AGAIN_SECONDS,
    CALL_SECONDS,
    CONNECT_SECONDS,
    LEAVE_SECONDS,
)

T = TypeVar("T")

Acks = Literal["0", "1", "all"]

MESSAGE_BYTES = 64 * 1024 * 1024
"""Limit of a message, and of all messages in the queue of a producer.

librdkafka reports "queue full" for a message that doesn't fit into an empty queue, every time.
With one limit for both it reports that the message is too large.
"""
MESSAGE_LIMIT = f"{MESSAGE_BYTES // 1024**2} MiB"

PRODUCER: Mapping[str, Value] = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 5,
    "message.max.bytes": MESSAGE_BYTES,
    "queue.buffering.max.kbytes": MESSAGE_BYTES // 1024,
    # Each message in the queue is a few allocations. With a short queue the same memory is
    # used again and stays in the processor's cache.
    "queue.buffering.max.messages": 10_000,
    # Java's clients choose partitions with it, too.
    "partitioner": "murmur2_random",
}

FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        # A producer that was fenced before returns this error.
        KafkaError._FATAL,
    }
)
"""Errors of a producer after another producer took its transactional id."""

NOT_TAKEN = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Errors of a message that the topic's settings refuse, however often it is sent."""

Kind = Literal["fenced", "denied", "refused", "failed"]


class ProducerError(Exception):
    """Error of one step of a producer.

    Attributes:
        kind: the kind of failure:

            - "fenced": another producer took the transactional id.
            - "denied": this client lacks a right.
            - "refused": the topic's settings don't allow a message.
            - "failed": any other failure.
        text: the client's or the broker's words, without secrets.
        unanswered: True if no answer came to a step that writes, so it may have succeeded.
        about: the subject of the message that was not written (`ProducerMessage.about`).
        code: the code of Kafka's error, if there is one.
    """

    def __init__(
        self,
        kind: Kind,
        text: str,
        *,
        unanswered: bool = False,
        about: Any = None,
        code: int | None = None,
    ) -> None:
        super().__init__(text)
        self.kind, self.text, self.unanswered, self.about = kind, text, unanswered, about
        self.code = code


class ProducerMessage(msgspec.Struct, frozen=True):
    """A message to write.

    Attributes:
        key: the message's key.
        value: the message's value.
        headers: the message's headers.
        about: the subject of the message, for the error if it can't be written.
    """

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, str | bytes | None]]
    about: Any = None


def kind_of(error: KafkaError) -> Kind:
    """Classifies an error of the client."""
    code = error.code()
    if code in FENCED:
        return "fenced"
    if is_denied(error):
        return "denied"
    return "refused" if code in NOT_TAKEN else "failed"


class MessageProducer:
    """A producer without transactions. Used by one thread.

    Its methods are called in this order: `fence`, `begin`, `write` any number of times,
    `commit`, `leave`. Messages are given to `producer` itself, between `begin` and `commit`.

    Args:
        properties: the producer's properties.
        patience: how long a step with a retriable error is repeated, in seconds.
    """

    transactional: ClassVar[bool] = False
    """False if readers see messages before the commit."""

    def __init__(self, properties: Mapping[str, Value], patience: float) -> None:
        self._properties, self._patience = {**PRODUCER, **properties}, patience
        self.producer = create_client(ck.Producer, self._properties, ignore_error)

    @property
    def records(self) -> ck.Producer:
        """The client that writes records about messages."""
        return self.producer

    def fence(self, known_topic: str) -> None:
        """Aborts the transaction of an earlier producer with the same id, and fences it.

        Args:
            known_topic: a topic that exists.
        """

    def begin(self) -> None:
        """Begins the transaction."""

    def commit(self) -> None:
        """Commits the transaction. No message may be sent after it, whatever the answer is."""

    def refuse_broken(self) -> None:
        """Checks that the transaction has not failed.

        Raises:
            ProducerError: the transaction has failed; the error gives the reason.
        """

    def leave(self) -> None:
        """Drops the messages in the queue, and aborts a transaction that was not committed."""
        with suppress(KafkaException, SystemError):
            self.producer.purge()

    def write(self, topic: str, messages: Iterable[ProducerMessage]) -> None:
        """Writes messages to a topic and waits until all are confirmed.

        Raises:
            ProducerError: a message was not written; the error's `about` is the message's.
        """
        failed = list[tuple[KafkaError, Any]]()
        sent_count = confirmed_count = 0

        def delivered(error: KafkaError | None, _message: object, about: Any) -> None:
            nonlocal confirmed_count
            confirmed_count += 1
            if error is not None:
                failed.append((error, about))

        for message in messages:
            self._put(topic, message, partial(delivered, about=message.about))
            sent_count += 1
            self._poll(0)
            if failed:
                break
        last_confirmed, deadline = confirmed_count, time.monotonic() + self._patience
        while confirmed_count < sent_count and not failed and time.monotonic() < deadline:
            self._poll(AGAIN_SECONDS)
            if confirmed_count > last_confirmed:
                last_confirmed, deadline = confirmed_count, time.monotonic() + self._patience
        if failed or confirmed_count < sent_count:
            error, about = failed[0] if failed else (KafkaError(KafkaError._TIMED_OUT), None)
            self.refuse_broken()  # it has the reason why the messages were dropped
            # Without a transaction the record may be in the topic already, or arrive later.
            unanswered = not self.transactional and kind_of(error) == "failed"
            raise self.failed(error, unanswered=unanswered, about=about)

    def _put(self, topic: str, message: ProducerMessage, delivered: Callable[..., None]) -> None:
        """Puts a message into the client's queue, once there is room for it."""
        while True:
            try:
                self.retry_call(
                    lambda: self.records.produce(
                        topic,
                        message.value,
                        message.key,
                        headers=list(message.headers),
                        on_delivery=delivered,
                    )
                )
            except BufferError:
                self._poll(AGAIN_SECONDS)
            except ProducerError as error:
                error.about = message.about
                raise
            else:
                return

    def _poll(self, seconds: float) -> None:
        """Takes delivery reports; waits at most `seconds` for the first one."""
        self.retry_call(lambda: self.records.poll(seconds))

    def retry_call(self, call: Callable[[], T], *, commits: bool = False) -> T:
        """Runs a step, and repeats it while librdkafka calls its error retriable.

        Args:
            call: the step.
            commits: True if the step is the commit.

        Raises:
            ProducerError: the step failed.
        """
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return call()
            except (KafkaException, SystemError) as why:
                error = self.reason(why)
                if not error.retriable() or time.monotonic() > deadline:
                    raise self.failed(error, unanswered=commits and error.retriable()) from None
                time.sleep(AGAIN_SECONDS)

    def failed(
        self, error: KafkaError, *, unanswered: bool = False, about: Any = None
    ) -> ProducerError:
        """Makes a step's error from a client's error."""
        kind, text, code = kind_of(error), self.scrub(error), error.code()
        return ProducerError(kind, text, unanswered=unanswered, about=about, code=code)

    def reason(self, failure: KafkaException | SystemError) -> KafkaError:
        """Returns the client's error, even if Python lost it.

        Python loses a fatal error in these steps:

        1. The error is raised within a callback while the client flushes.
        2. Callbacks for messages and for the log run after it. They wrap the exception in another
           one or drop it.
        3. The call fails without a reason.

        Such a producer can't be used any more. It gives the reason when it is asked again.
        """
        cause = failure.__cause__ if isinstance(failure, SystemError) else failure
        if not isinstance(cause, KafkaException):
            cause = self._fatal_error()
            if cause is None:
                raise failure
        error: KafkaError = cause.args[0]
        return error

    def _fatal_error(self) -> KafkaException | None:
        """Returns the error that broke the producer, if the producer can tell."""
        return None

    def scrub(self, error: KafkaError) -> str:
        """Returns the error's text without the secrets that it might quote."""
        return scrub(error.str(), self._properties)


class NonIdempotentProducer(MessageProducer):
    """A producer whose messages may get lost, or arrive twice.

    A separate client writes records about messages. It is idempotent and waits for all
    replicas.

    Args:
        properties: the producer's properties.
        acks: which brokers confirm a message.
        patience: see `MessageProducer`.
    """

    def __init__(self, properties: Mapping[str, Value], acks: Acks, patience: float) -> None:
        self._record_properties = properties
        super().__init__({**properties, "enable.idempotence": False, "acks": acks}, patience)

    @cached_property
    def records(self) -> ck.Producer:
        return create_client(ck.Producer, {**PRODUCER, **self._record_properties}, ignore_error)

    def leave(self) -> None:
        super().leave()
        with suppress(KafkaException, SystemError):
            self.records.purge()


class TransactionalProducer(MessageProducer):
    """A producer with a transactional id, for one transaction.

    Args:
        properties: an AdminClient's properties, and the producer's own.
        name: the transactional id.
        patience: see `MessageProducer`.
    """

    transactional = True

    def __init__(self, properties: Mapping[str, Value], name: str, patience: float) -> None:
        super().__init__({**properties, "transactional.id": name}, patience)
        self._open = False

    def fence(self, known_topic: str) -> None:
        """Takes the transactional id over from any other producer.

        librdkafka looks for the coordinator only over a connection to a broker whose number
        it knows. It waits half a second or a second until it has such a connection. So
        metadata is requested twice here:

        1. The first request goes over the connection to a bootstrap server. The answer has
           the brokers' numbers, and the connection is closed.
        2. The second request opens a connection that can be used.
        """
        with suppress(KafkaException):
            for _ in range(2):
                self.producer.list_topics(known_topic, timeout=CONNECT_SECONDS)
        self.retry_call(lambda: self.producer.init_transactions(CALL_SECONDS))

    def begin(self) -> None:
        self.retry_call(self.producer.begin_transaction)
        self._open = True

    def commit(self) -> None:
        self.retry_call(self._commit_once, commits=True)

    def _commit_once(self) -> None:
        self._open = False
        try:
            self.producer.commit_transaction(CALL_SECONDS)
        except KafkaException as why:
            self._open = why.args[0].txn_requires_abort()
            raise

    def refuse_broken(self) -> None:
        """Checks that the transaction has not failed.

        librdkafka sends no report for messages that wait for a failed step of the
        transaction. So the open transaction is begun once more, which librdkafka always
        refuses: with a wrong-state error, or with the error that broke the transaction.
        """
        try:
            self.producer.begin_transaction()
        except KafkaException as why:
            error = why.args[0]
            if error.code() != KafkaError._STATE:
                raise self.failed(error) from None

    def leave(self) -> None:
        """Aborts the transaction if it wasn't committed, so that no reader waits for it.

        If it can't be aborted now, the broker does it after the transaction's timeout.
        """
        if self._open:
            with suppress(KafkaException, SystemError):
                self.producer.purge()
                self.producer.abort_transaction(LEAVE_SECONDS)
        self._open = False

    def _fatal_error(self) -> KafkaException | None:
        try:
            self.producer.abort_transaction(LEAVE_SECONDS)
        except KafkaException as again:
            return again
        return None


def ignore_error(_: KafkaError) -> None:
    """Ignores an error that belongs to no step, because each step reports its own errors."""
