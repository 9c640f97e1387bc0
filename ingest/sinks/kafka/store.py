"""The commit of a Kafka table: one pass through the commit loop for each transaction.

    part      a few splits, under the part's transactional id: their messages, and a record of each
    receipt   under the table's transactional id, last; with `atomic_window` all messages of the
              window are in the same transaction

To open the table for writing, the transactional id is fenced first. The control topic is read
only after that:

    fence   aborts the transaction that an earlier attempt left open under the id, and waits
            until a commit or an abort that had begun is complete
    look    reads the control topic to its end: is the split published, is the window committed
    put     writes messages and records in one transaction

A race of two runs, A and B, of one split:

1. A fences, looks and puts.
2. B fences: A's transaction is aborted.
3. B looks and puts.
4. A's put is refused. A fences and looks again, finds B's record and skips the split.

If B looked before it fenced, A could commit in between, and B would publish the split again.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec
from confluent_kafka import KafkaError

from windrow.ingest.crashpoints import CrashPoint
from windrow.ingest.errors import (
    LostConnectionError,
    OutcomeUnknownError,
    RefusedError,
    SpecError,
    UnreachableError,
)
from windrow.ingest.kafka.error_codes import login_advice
from windrow.ingest.kafka.producers import MessageProducer, ProducerError, ProducerMessage
from windrow.ingest.kafka.rights import Right, lacking_error
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.kafka.control_records import (
    ControlState,
    PublishedSplit,
    Record,
    chunk_header,
    receipt_records,
    split_record,
)
from windrow.ingest.sinks.kafka.send import PublishTarget, send_splits
from windrow.ingest.sinks.kafka.table import KafkaTable
from windrow.ingest.sinks.kafka.work import WindowWork
from windrow.ingest.sinks.kit import (
    Answer,
    Conflict,
    Unanswered,
    Written,
    crash_point,
    run_commit_loop,
)

T = TypeVar("T")
R = TypeVar("R")

PARALLEL = 8
"""Number of transactions at the same time."""

_TRIES, _WAIT_SECONDS = 12, 0.5


class TransactionContents(msgspec.Struct, frozen=True):
    """Contents of one transaction.

    Attributes:
        work: the window; None if the transaction only writes `records`.
        splits: the numbers of the splits whose messages are sent, each with its record.
        receipt: True if the window's receipt is in the transaction.
        records: other records for the control topic.
    """

    work: WindowWork | None = None
    splits: Sequence[int] = ()
    receipt: bool = False
    records: Sequence[Record] = ()

    @property
    def crash_points(self) -> tuple[CrashPoint, CrashPoint] | None:
        """The crash points right before and right after the commit of the transaction."""
        if self.work is None:
            return None
        if self.receipt:
            return "commit.before", "commit.after"
        return "split.before", "split.after"


class FencedStore:
    """A Kafka table for the commit loop, opened under one transactional id.

    Args:
        table: the table.
        name: the transactional id.
        target: where messages go.
    """

    def __init__(self, table: KafkaTable, name: str, target: PublishTarget) -> None:
        self.table, self.name, self.target, self.location = table, name, target, table.identity

    @property
    def waits(self) -> Sequence[float]:
        """Seconds before each retry; random, so that two runs don't fence each other in step."""
        return [
            random.uniform(0.2, 1) * _WAIT_SECONDS * 1.5**tried  # noqa: S311
            for tried in range(_TRIES)
        ]

    @contextmanager
    def writing(self) -> Iterator[KafkaState]:
        with open_fenced(self.target, self.name) as transaction:
            control = self.table.control.read(to_end=True)
            if control is None:
                raise UnreachableError(
                    f"The cluster doesn't know the control topic {self.target.options.control}",
                    "commit",
                    "Nothing was written. Try again in a moment; if it was deleted, restore it.",
                )
            yield self.state(transaction, control)

    def state(self, transaction: MessageProducer, control: ControlState) -> KafkaState:
        """Makes the state of the table after the fence."""
        return KafkaState(self, transaction, control)


class KafkaState:
    """State of the control topic, read after a fence, and the transaction that changes it."""

    def __init__(
        self, store: FencedStore, transaction: MessageProducer, control: ControlState
    ) -> None:
        self.store, self.transaction, self.control = store, transaction, control

    @property
    def version(self) -> int:
        return self.control.version

    def put(self, change: TransactionContents) -> Answer:
        points = change.crash_points
        try:
            self.transaction.begin()
            receipt, records = self.records(change, self.send(change))
            put_records(self.store.target, self.transaction, records)
            if points:
                crash_point(points[0])
            self.transaction.commit()
        except ProducerError as error:
            if not error.unanswered:
                raise
            return Unanswered(error.text)
        if points:
            crash_point(points[1])
        if change.receipt and not self.transaction.transactional:
            return Conflict("without transactions only a new look tells which receipt came first")
        return Written(None, receipt)

    def send(self, change: TransactionContents) -> list[PublishedSplit]:
        """Sends the messages of the splits and returns the record of each split."""
        table = self.store.table
        if change.work is None or not change.splits:
            return []
        return send_splits(
            table.topics.ends,
            table.files,
            change.work,
            self.store.target,
            self.transaction,
            change.splits,
        )

    def records(
        self, change: TransactionContents, new: Sequence[PublishedSplit]
    ) -> tuple[Receipt | None, Sequence[Record]]:
        """Returns the receipt, if the transaction has one, and all records to write."""
        if change.work is None:
            return None, change.records
        if not change.receipt:
            return None, [split_record(split) for split in new]
        key = change.work.receipt.window.key
        published = {
            **change.work.published_splits(self.control),
            **{split.number: split for split in new},
        }
        receipt = change.work.complete_receipt(published)
        attempt = None if self.transaction.transactional else receipt.attempt
        splits = tuple(published[number] for number in sorted(published))
        return receipt, [*receipt_records(key, to_json(receipt), splits, attempt)]


_locks: dict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)


@contextmanager
def open_fenced(target: PublishTarget, name: str) -> Iterator[MessageProducer]:
    """Opens a transaction whose id is fenced; without transactions, a plain producer.

    Within this process only one thread at a time has an id. Two threads would only fence
    each other, or do the same work.

    Raises:
        LostConnectionError: another process took the id, at any step.
        SpecError: this client may not write.
        UnreachableError: the cluster doesn't accept the transaction.
    """
    with _locks[str(target.properties["bootstrap.servers"]), name]:
        transaction = target.producer(name)
        try:
            transaction.fence(next(iter(target.topics)))
            yield transaction
        except ProducerError as error:
            raise _user_error(error, name, target) from None
        finally:
            transaction.leave()


def _user_error(
    error: ProducerError, name: str, target: PublishTarget
) -> SpecError | UnreachableError:
    if error.kind == "fenced":
        return LostConnectionError(
            f"another run took the transactional id {name}",
            "commit",
            "Do several runs of the window run at once? Run it again: it looks first at what is"
            " published already.",
        )
    if error.code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        rights = [Right("Write", "transactional-id", target.options.prefix, is_prefix=True)]
        return lacking_error(rights, str(target.properties["bootstrap.servers"]), "commit")
    if error.kind == "denied":
        return SpecError(
            f"This client may not write: {error.text}",
            "commit",
            login_advice(
                error.text,
                "Check the sasl.* and ssl.* properties under sink.client; windrow doctor SPEC names"
                " the rights that it lacks on the sink's topics.",
            ),
        )
    return UnreachableError(
        f"the sink's cluster doesn't take a transaction: {error.text}",
        "commit",
        "Run the window again: it looks first at what is published already, and publishes only the"
        " rest.",
    )


def put_records(
    target: PublishTarget, transaction: MessageProducer, records: Sequence[Record]
) -> None:
    """Writes records to the control topic and waits until all are confirmed.

    Raises:
        RefusedError: the topic's settings refuse a record, however often it is sent.
        SpecError: this client may not write to the topic.
        ProducerError: a record was not written.
    """
    try:
        headers = chunk_header(records)
        transaction.write(
            target.options.control, [ProducerMessage(key, value, headers) for key, value in records]
        )
    except ProducerError as error:
        if error.code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            rights = [Right("Write", "topic", target.options.control)]
            servers = str(target.properties["bootstrap.servers"])
            raise lacking_error(rights, servers, "commit") from None
        if error.kind == "refused":
            raise RefusedError(
                f"The control topic {target.options.control} doesn't take a record: {error.text}",
                "commit",
                "Raise its max.message.bytes to Kafka's default (1048588) at least, then run the"
                " window again.",
            ) from None
        raise ProducerError(
            error.kind,
            f"the control topic {target.options.control}: {error.text}",
            unanswered=error.unanswered,
        ) from None


def write_records(
    table: KafkaTable, pipeline: str, lacks: Callable[[ControlState], Sequence[Record]]
) -> None:
    """Writes the records that the control topic lacks, under the table's transactional id."""
    done = run_commit_loop(
        FencedStore(table, table.ids.table(pipeline), table.target()),
        lambda state: None if lacks(state.control) else True,
        lambda state: TransactionContents(records=lacks(state.control)),
    )
    if isinstance(done, Unanswered):
        raise OutcomeUnknownError.of(f"to {table.identity}", done.reason, "Try again")
    table.control.wait_until_seen(lambda control: not lacks(control))


def abort_open(target: PublishTarget, names: Iterable[str]) -> None:
    """Aborts the transactions that are open under these ids.

    If another run takes an id at this moment, the id is left to that run: its fence aborts
    the transaction.

    Raises:
        SpecError, UnreachableError: see `open_fenced`.
    """

    def abort(name: str) -> None:
        with suppress(LostConnectionError), open_fenced(target, name):
            pass

    in_parallel(abort, names)


def in_parallel(call: Callable[[T], R], arguments: Iterable[T]) -> list[R]:
    """Calls a function with each item, several at the same time.

    Returns the results in the order of the items. An error of a call is raised after the
    running calls have ended; calls that haven't begun are left out.
    """
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        return list(pool.map(call, arguments))
