"""Producers that send one piece of work: in a transaction, or without one.

`init_transactions` ends what an earlier producer of the transactional id left open,
waits for what it had decided, and fences it: what is read behind it stays true until this
transaction is committed, or another producer takes the id. A producer runs one
transaction: librdkafka keeps its epoch from one transaction to the next, so a late
answer to one could end another.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import ClassVar, Literal, TypeVar

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException

from windrow.ingest.kafka.client import scrubbed
from windrow.ingest.kafka.clients import made
from windrow.ingest.kafka.codes import DENIED
from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.retry import AGAIN_SECONDS, CALL_SECONDS, CONNECT_SECONDS, LEAVE_SECONDS

T = TypeVar("T")

Acks = Literal["0", "1", "all"]

PRODUCER: Mapping[str, Value] = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 5,
    "message.max.bytes": 1_000_000_000,  # the topic says how large a message may be
    "partitioner": "murmur2_random",  # as Java's clients place keys
}

FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError._FATAL,  # of a producer that was fenced before  # noqa: SLF001
    }
)
"""Errors of a producer whose transactional id another producer took."""

NOT_TAKEN = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Errors of a message that the topic's settings don't let in, however often it is sent."""

Kind = Literal["fenced", "denied", "refused", "failed"]


class TransactionError(Exception):
    """A step that failed.

    `kind`: another producer took the id (`fenced`); this client may not (`denied`); the
    topic doesn't take it (`refused`); anything else. `sent`: it was the commit, and no
    answer came.
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
    """One piece of work: messages, and records of what was done. Used by one thread."""

    visible_at_once: ClassVar[bool]
    """Whether readers see messages before the commit."""

    @abstractmethod
    def fence(self, known: str) -> None:
        """Ends an earlier producer of the same work, where that is possible.

        `known`: a topic that exists.
        """

    @abstractmethod
    def begin(self) -> None:
        """Makes what is sent from here on part of the work."""

    @abstractmethod
    def write(
        self,
        topic: str,
        records: Sequence[tuple[bytes, bytes | None]],
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        """Sends records, keys and values, to a topic's first partition, and waits until
        the brokers have each. `headers`: of each.

        Raises:
            TransactionError: one was not taken.
        """

    @abstractmethod
    def commit(self) -> None:
        """Makes what was sent count. It may not be sent again, whatever is answered."""

    @abstractmethod
    def leave(self) -> None:
        """Ends what was not committed."""


class Sender(Sending):
    """A producer of librdkafka without a transaction; `Transaction` has one.

    Args:
        properties: the producer's.
        patience: how long a step that the client calls retriable is repeated, in seconds.
    """

    visible_at_once = True

    def __init__(self, properties: Mapping[str, Value], patience: float) -> None:
        self._properties, self._patience = {**PRODUCER, **properties}, patience
        self.producer = made(ck.Producer, self._properties, unheard)

    @property
    def records(self) -> ck.Producer:
        """The producer of the records of what was done."""
        return self.producer

    def fence(self, known: str) -> None:
        """Nobody is fenced."""

    def begin(self) -> None:
        """There is nothing to begin."""

    def commit(self) -> None:
        """What was sent counts already."""

    def refuse_broken(self) -> None:
        """Checks that messages are still taken.

        Raises:
            TransactionError: why they aren't.
        """

    def leave(self) -> None:
        """Gives up what waits to be sent."""
        with suppress(KafkaException, SystemError):
            self.producer.purge()

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
        """Runs a step, again while librdkafka calls its error retriable.

        `sends`: it is the commit.

        Raises:
            TransactionError: it failed.
        """
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return call()
            except (KafkaException, SystemError) as why:
                error = self.reason(why)
                if not error.retriable() or time.monotonic() > deadline:
                    raise self.failed(error, sent=sends and error.retriable()) from None
                time.sleep(AGAIN_SECONDS)

    def failed(self, error: KafkaError, *, sent: bool = False) -> TransactionError:
        """A client's error as a step's."""
        return TransactionError(kind_of(error), self.scrub(error), sent=sent)

    def reason(self, why: KafkaException | SystemError) -> KafkaError:
        """The client's error, also where Python lost it.

        A fatal error is raised within a callback, while it flushes. Callbacks that are
        called after it, for messages and for its log, wrap that exception in another or
        end it, so that the call fails without a reason. Such a producer is of no more
        use, and gives the reason when it is asked again.
        """
        cause = why.__cause__ if isinstance(why, SystemError) else why
        if not isinstance(cause, KafkaException):
            cause = self._said_again()
            if cause is None:
                raise why
        error: KafkaError = cause.args[0]
        return error

    def _said_again(self) -> KafkaException | None:
        return None

    def scrub(self, error: KafkaError) -> str:
        """The error's text without the secrets that it might quote."""
        return scrubbed(error.str(), self._properties)


class Unsure(Sender):
    """A producer of messages that may get lost, or come twice; its records are confirmed
    by all replicas all the same.

    `acks`: who confirms a message.
    """

    def __init__(self, properties: Mapping[str, Value], acks: Acks, patience: float) -> None:
        self._sure = properties
        super().__init__({**properties, "enable.idempotence": False, "acks": acks}, patience)

    @cached_property
    def records(self) -> ck.Producer:
        return made(ck.Producer, {**PRODUCER, **self._sure}, unheard)

    def leave(self) -> None:
        super().leave()
        with suppress(KafkaException, SystemError):
            self.records.purge()


class Transaction(Sender):
    """A producer with a transactional id, and its one transaction.

    Args:
        properties: an AdminClient's, and the producer's own.
        name: the transactional id.
        patience: as of `Sender`.
    """

    visible_at_once = False

    def __init__(self, properties: Mapping[str, Value], name: str, patience: float) -> None:
        super().__init__({**properties, "transactional.id": name}, patience)
        self._open = False

    def fence(self, known: str) -> None:
        """Takes the id from whoever has it.

        A client that is connected to no broker by its number asks half a second later,
        or a whole one. The first answer, which numbers them, comes over the connection
        to a bootstrap server, and that one is closed then: it takes a second question.
        """
        with suppress(KafkaException):
            for _ in range(2):
                self.producer.list_topics(known, timeout=CONNECT_SECONDS)
        self.called(lambda: self.producer.init_transactions(CALL_SECONDS))

    def begin(self) -> None:
        self.called(self.producer.begin_transaction)
        self._open = True

    def commit(self) -> None:
        self._open = False
        self.called(lambda: self.producer.commit_transaction(CALL_SECONDS), sends=True)

    def refuse_broken(self) -> None:
        """Nothing is reported of messages that wait behind a failed step of the
        transaction. To begin one that is open is always refused: with its state, or
        with the reason why it failed.
        """
        try:
            self.producer.begin_transaction()
        except KafkaException as why:
            error = why.args[0]
            if error.code() != KafkaError._STATE:  # public  # noqa: SLF001
                raise self.failed(error) from None

    def leave(self) -> None:
        """Aborts a transaction that wasn't committed, so that no reader waits for it.

        If it can't be aborted now, the broker does it after the transaction's timeout.
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
    """Ignores errors that belong to no step: each step reports its own."""
