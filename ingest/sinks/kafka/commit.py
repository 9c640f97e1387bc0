"""The commit of a Kafka table: the one commit loop, once a transaction.

    part      a few splits, behind the part's transactional id: their messages, and a record of each
    receipt   behind the table's id, last; with `atomic_window` all messages come with it

To open the table for writing means to fence the id first, and to look only then:

    fence   ends what an earlier attempt left open under the id, and waits for what it had decided
    look    reads the control topic to its end: is the split published, is the window committed
    put     messages and records in one transaction

Race of two runs of one split:  1 A fences, looks, puts.  2 B fences: A's transaction is ended.
3 B looks, puts.  4 A's put is refused; it fences and looks again, finds B's record and passes the
split over.  Had B looked before it fenced, A could commit in between, and B would put again.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from windrow.ingest.crashpoints import CrashPoint, crash_point
from windrow.ingest.errors import LostConnectionError, RefusedError, SpecError, UnreachableError
from windrow.ingest.kafka.transaction import Sending, TransactionError
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.kafka.control import (
    Held,
    PublishedSplit,
    Record,
    parts_of,
    receipt_records,
    split_record,
)
from windrow.ingest.sinks.kafka.publish import PublishTarget
from windrow.ingest.sinks.kafka.send import sent
from windrow.ingest.sinks.kafka.work import WindowWork
from windrow.ingest.sinks.table_store import Answer, Conflict, Unanswered, Written

if TYPE_CHECKING:
    from windrow.ingest.sinks.kafka.sink import KafkaSink

T = TypeVar("T")
R = TypeVar("R")

PARALLEL = 8
"""Transactions at the same time."""

_TRIES, _WAIT_SECONDS = 12, 0.5


class Publication(msgspec.Struct, frozen=True):
    """What one transaction brings.

    `splits`: the numbers of those whose messages are sent, each with its record. `closes`: the
    window's receipt comes with them. `records`: others for the control topic.
    """

    work: WindowWork | None = None
    splits: Sequence[int] = ()
    closes: bool = False
    records: Sequence[Record] = ()

    @property
    def crash_points(self) -> tuple[CrashPoint, CrashPoint] | None:
        """Right before and behind the end of the transaction."""
        if self.work is None:
            return None
        return ("commit.before", "commit.after") if self.closes else ("split.before", "split.after")


class FencedStore:
    """The table behind one of its transactional ids, for the commit loop."""

    def __init__(self, sink: KafkaSink, name: str, target: PublishTarget) -> None:
        self.sink, self.name, self.target, self.place = sink, name, target, sink.identity

    @property
    def waits(self) -> Sequence[float]:
        """Of random length, so that two runs don't fence each other in step."""
        return [
            random.uniform(0.2, 1) * _WAIT_SECONDS * 1.5**tried  # noqa: S311
            for tried in range(_TRIES)
        ]

    @contextmanager
    def writing(self) -> Iterator[KafkaState]:
        with fenced(self.target, self.name) as transaction:
            held = self.sink.control.read(to_end=True)
            if held is None:
                what = f"The control topic {self.target.control} isn't known to the cluster"
                do = "Nothing was written. Try again in a moment; if it was removed, restore it."
                raise UnreachableError(what, "commit", do)
            yield self.state(transaction, held)

    def state(self, transaction: Sending, held: Held) -> KafkaState:
        """The state that was looked at behind the fence."""
        return KafkaState(self, transaction, held)


class KafkaState:
    """The control topic as it was read behind a fence, and the transaction to change it by."""

    def __init__(self, store: FencedStore, transaction: Sending, held: Held) -> None:
        self.store, self.transaction, self.held = store, transaction, held

    @property
    def version(self) -> int:
        return self.held.version

    def put(self, change: Publication) -> Answer:
        points = change.crash_points
        try:
            self.transaction.begin()
            receipt, records = self.records(change, self.send(change))
            put_records(self.store.target, self.transaction, records)
            if points:
                crash_point(points[0])
            self.transaction.commit()
        except TransactionError as error:
            if not error.sent:
                raise
            return Unanswered(error.text)
        if points:
            crash_point(points[1])
        if change.closes and self.transaction.visible_at_once:
            return Conflict("without transactions only a look tells whose receipt came first")
        return Written(None, receipt)

    def send(self, change: Publication) -> list[PublishedSplit]:
        """Send the messages of splits."""
        sink = self.store.sink
        return (
            sent(
                sink.topics.ends,
                sink.files,
                change.work,
                self.store.target,
                self.transaction,
                change.splits,
            )
            if change.work is not None and change.splits
            else []
        )

    def records(
        self, change: Publication, new: Sequence[PublishedSplit]
    ) -> tuple[Receipt | None, Sequence[Record]]:
        """The records that say what is published, and the receipt among them."""
        if change.work is None:
            return None, change.records
        if not change.closes:
            return None, [split_record(split) for split in new]
        key = change.work.receipt.window.key
        published = {**self.held.splits.get(key, {}), **{split.number: split for split in new}}
        receipt = change.work.whole(published)
        attempt = receipt.attempt if self.transaction.visible_at_once else None
        splits = tuple(published[number] for number in sorted(published))
        return receipt, [*receipt_records(key, to_json(receipt), splits, attempt)]


_turns: dict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)


@contextmanager
def fenced(target: PublishTarget, name: str) -> Iterator[Sending]:
    """A transaction whose id is fenced; without transactions, a producer that fences nobody.

    Of this process one at a time has an id: two would only fence each other, or do the same work.

    Raises:
        LostConnectionError: another process took the id, at any step.
        SpecError: this client may not write.
        UnreachableError: the cluster doesn't take the transaction.
    """
    with _turns[str(target.properties["bootstrap.servers"]), name]:
        transaction = target.sender(name)
        try:
            transaction.fence(next(iter(target.topics)))
            yield transaction
        except TransactionError as error:
            raise _meant(error, name) from None
        finally:
            transaction.leave()


def _meant(error: TransactionError, name: str) -> SpecError | UnreachableError:
    if error.kind == "fenced":
        what = f"another run took the transactional id {name}"
        do = "Is the window being run several times at once? Run it again: it looks first."
        return LostConnectionError(what, "commit", do)
    if error.kind == "denied":
        do = (
            "Check the sasl.* and ssl.* properties under sink.client, and that it has Write and"
            f" Describe on the sink's topics, its control topic and the transactional id {name}."
        )
        return SpecError(f"This client may not write: {error.text}", "commit", do)
    do = "What was under way was taken back, or is looked for when the window is run again."
    return UnreachableError(
        f"the cluster of the sink doesn't take a transaction: {error.text}", "commit", do
    )


def put_records(target: PublishTarget, transaction: Sending, records: Sequence[Record]) -> None:
    """Write records to the control topic, in the transaction; the brokers have each then.

    Raises:
        RefusedError: the topic's settings let one not in, however often it is tried.
        TransactionError: one was not taken.
    """
    try:
        transaction.write(target.control, records, parts_of(records))
    except TransactionError as error:
        if error.kind == "refused":
            do = (
                "Raise its max.message.bytes to Kafka's default (1048588) at least, then run the"
                " window again."
            )
            raise RefusedError(
                f"The control topic {target.control} doesn't take a record: {error.text}",
                "commit",
                do,
            ) from None
        raise TransactionError(
            error.kind, f"the control topic {target.control}: {error.text}", sent=error.sent
        ) from None


def end_open(target: PublishTarget, names: Iterable[str]) -> None:
    """End the transactions that are open under these ids.

    One that another run takes at this moment is ended by that run's fence.

    Raises:
        SpecError, UnreachableError: as `fenced`.
    """

    def end(name: str) -> None:
        with suppress(LostConnectionError), fenced(target, name):
            pass

    in_parallel(end, names)


def in_parallel(call: Callable[[T], R], every: Iterable[T]) -> list[R]:
    """Calls a function with each item, several at the same time.

    Returns the results in the order of the items. An error of a call is raised once the
    calls that are running have ended; those that haven't begun are left out.
    """
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        return list(pool.map(call, every))
