"""One transaction of a producer of its own; and what it has in common with a producer that has none.

`init_transactions` ends whatever an earlier producer of the same transactional id left
open, waits for what it had decided, and fences it: so what is looked at behind it stays
true until this transaction is committed, or another producer takes the id. A producer
has one transaction and goes: librdkafka keeps its epoch from one transaction to the
next, so that a late answer to one could end another.
"""  # noqa: E501

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Literal, TypeVar

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException

from windrow.ingest.kafka.client import scrubbed
from windrow.ingest.kafka.clients import made
from windrow.ingest.kafka.codes import DENIED
from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.retry import AGAIN_SECONDS, CALL_SECONDS, CONNECT_SECONDS, LEAVE_SECONDS

T = TypeVar("T")

PRODUCER: Mapping[str, Value] = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 5,
    "message.max.bytes": 1_000_000_000,  # how large a message may be, the topic says
    "partitioner": "murmur2_random",  # as Java's clients place keys
}

FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError._FATAL,  # what is said of a producer that was fenced before  # noqa: SLF001
    }
)
"""What is said to a producer whose id another one took."""

NOT_TAKEN = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
    }
)
"""What the topic's settings don't let in, whoever asks and how often."""

Kind = Literal["fenced", "denied", "refused", "failed"]


class TransactionError(Exception):
    """A step that can't be done.

    `kind`: another producer took the id; this client may not; the topic doesn't take it; all else.

    `sent`: it was the commit, which wasn't answered.
    """

    def __init__(self, kind: Kind, text: str, *, sent: bool = False) -> None:
        super().__init__(text)
        self.kind, self.text, self.sent = kind, text, sent


def kind_of(error: KafkaError) -> Kind:
    """What an error of the client means to a transaction."""
    code = error.code()
    if code in FENCED:
        return "fenced"
    if code in DENIED | {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}:
        return "denied"
    return "refused" if code in NOT_TAKEN else "failed"


class Sending(ABC):
    """One piece of work: what is sent to topics, and records of what was done.

    Used by one thread.
    """

    visible_at_once: ClassVar[bool]
    """Whether readers see what was sent before it is committed."""

    @abstractmethod
    def fence(self, known: str) -> None:
        """Whoever was at the same work before can't go on with it, where that is possible.

        `known`: a topic that is there.
        """

    @abstractmethod
    def begin(self) -> None:
        """From here on what is sent is part of the work."""

    @abstractmethod
    def write(
        self,
        topic: str,
        records: Sequence[tuple[bytes, bytes | None]],
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        """Records, keys and values, into a topic's first partition; the brokers have
        each when this returns.

        `headers`: of each.

        Raises:
            TransactionError: one was not taken.
        """

    @abstractmethod
    def commit(self) -> None:
        """What was sent counts. What is sent now may not be taken back, whatever is answered."""

    @abstractmethod
    def leave(self) -> None:
        """End what was not committed, and be done."""


class Sender(Sending):
    """Sends by a producer of librdkafka."""

    def __init__(self, properties: Mapping[str, Value], patience: float) -> None:
        """Makes the producer; asks nothing.

        Args:
            properties: the producer's.
            patience: how long a step is tried again where the client says that it may
                be, in seconds.
        """
        self._properties, self._patience = properties, patience
        self.producer = made(ck.Producer, properties, unheard)

    @property
    def records(self) -> ck.Producer:
        """What sends the records of what was done."""
        return self.producer

    def fence(self, known: str) -> None:
        """Nobody is fenced."""

    def begin(self) -> None:
        """There is nothing to begin."""

    def commit(self) -> None:
        """What was sent counts already."""

    def leave(self) -> None:
        """See `Sending.leave`."""

    def write(
        self,
        topic: str,
        records: Sequence[tuple[bytes, bytes | None]],
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        failed: list[KafkaError] = []
        left = len(records)

        def reported(error: KafkaError | None, _message: object) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                failed.append(error)

        def put() -> None:
            for key, value in records:
                self.records.produce(
                    topic, value, key, 0, headers=list(headers), on_delivery=reported
                )

        self.called(put)
        deadline = time.monotonic() + self._patience
        while left and not failed and time.monotonic() < deadline:
            self.called(lambda: self.records.poll(AGAIN_SECONDS))
        if failed or left:
            text = self.scrub(failed[0]) if failed else "no answer"
            kind = kind_of(failed[0]) if failed else "failed"
            sent = self.visible_at_once and kind == "failed"  # it may be there, or come yet
            raise TransactionError(kind, text, sent=sent)

    def called(self, call: Callable[[], T], *, sends: bool = False) -> T:
        """A step of the transaction, which librdkafka lets be repeated where it says so.

        `sends`: it is the commit.

        Raises:
            TransactionError: it can't be done.
        """
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return call()
            except (KafkaException, SystemError) as why:
                error = self.reason(why)
                if not error.retriable() or time.monotonic() > deadline:
                    raise TransactionError(
                        kind_of(error), self.scrub(error), sent=sends and error.retriable()
                    ) from None
                time.sleep(AGAIN_SECONDS)

    def reason(self, why: KafkaException | SystemError) -> KafkaError:
        """What the client says, also where Python lost it.

        A fatal error is raised within a callback, while it flushes. Callbacks that are
        called after it, for messages and for its log, wrap that exception in another or
        end it, so that the call fails without a reason. Such a producer is of no more
        use, and says why when it is asked again.
        """
        cause = why.__cause__ if isinstance(why, SystemError) else why
        if not isinstance(cause, KafkaException):
            cause = self._said_again()
            if cause is None:
                raise why
        error: KafkaError = cause.args[0]
        return error

    def _said_again(self) -> KafkaException | None:
        """Why a producer that is of no more use is so, asked once more."""
        return None

    def scrub(self, error: KafkaError) -> str:
        """The error's words without the secrets that they might quote."""
        return scrubbed(error.str(), self._properties)


class Transaction(Sender):
    """A producer with a transactional id, and its one transaction."""

    visible_at_once = False

    def __init__(self, properties: Mapping[str, Value], name: str, patience: float) -> None:
        """Makes the producer; asks nothing.

        Args:
            properties: an AdminClient's, and what a producer has besides.
            name: the transactional id.
            patience: how long a step is tried again where the client says that it may
                be, in seconds.
        """
        super().__init__({**PRODUCER, **properties, "transactional.id": name}, patience)
        self._open = False

    def fence(self, known: str) -> None:
        """Take the id from whoever has it.

        A client that is connected to no broker by its number asks half a second later,
        or a whole one. The first answer, which numbers them, comes over the connection
        to a bootstrap server, and that one is closed then: it takes a second question.
        """
        with suppress(KafkaException):
            for _ in range(2):
                self.producer.list_topics(known, timeout=CONNECT_SECONDS)
        self.called(lambda: self.producer.init_transactions(CALL_SECONDS))

    def begin(self) -> None:
        """From here on what is produced is in the transaction."""
        self.called(self.producer.begin_transaction)
        self._open = True

    def commit(self) -> None:
        """Make visible what was produced.

        What is sent now may not be taken back, whatever is answered.
        """
        self._open = False
        self.called(lambda: self.producer.commit_transaction(CALL_SECONDS), sends=True)

    def leave(self) -> None:
        """End a transaction that wasn't committed, so that no reader waits for it.

        What can't be ended the broker ends by itself.
        """
        if self._open:
            with suppress(KafkaException, SystemError):
                self.producer.purge()
                self.producer.abort_transaction(LEAVE_SECONDS)
        self._open = False

    def _said_again(self) -> KafkaException | None:
        try:
            self.producer.abort_transaction(LEAVE_SECONDS)
        except KafkaException as again:
            return again
        return None


def unheard(_: KafkaError) -> None:
    """What a client says by itself: each step of the transaction says what came of it."""
