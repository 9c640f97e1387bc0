"""Readers: they read one split of a topic-partition on an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Protocol

import msgspec
import pyarrow as pa

from windrow.ingest.model.plan import Split
from windrow.ingest.model.source import OnLoss


class ReadSummary(msgspec.Struct, frozen=True):
    """The counts of a read that reached the end of its split.

    Attributes:
        next_offset: the reader's position after the read.
        read: number of visible messages.
        bytes: their size.
        aborted: number of messages of aborted transactions in the gaps between visible offsets.
        skipped: number of the split's offsets that the log had lost and that the reader was
            allowed to skip.
        diverged: whether the log had been truncated below the split's start, and had grown
            again, before the split was planned. Only a reader that may skip goes on then.
    """

    next_offset: int
    read: int
    bytes: int
    aborted: int
    skipped: int = 0
    diverged: bool = False


class ReadPlan(msgspec.Struct, frozen=True):
    """The settings of a reader.

    Attributes:
        cluster_id: the cluster's id in the plan.
        topics: the topics' ids in the plan, by name.
        on_loss: "skip" counts messages that retention or a truncation of the log has removed as
            skipped. Otherwise they are an error.
        single_batches: whether to fetch Kafka's batches one at a time, each when the one before
            is read.
    """

    cluster_id: str
    topics: dict[str, str]
    on_loss: OnLoss
    single_batches: bool = False


Take = Callable[[pa.RecordBatch], None]
"""Takes each batch of a read, in order. An exception that it raises ends the read."""


class Reader(Protocol):
    """A reader of splits, one at a time, each to its end. Picklable; used on executors."""

    def read(self, split: Split, take: Take) -> ReadSummary:
        """Passes the visible messages of the split to `take`, in offset order.

        They come in batches with the columns `ingest.schema.messages.MESSAGES`, of bounded
        bytes and rows, never empty. The read ends when the position reaches `split.stop`,
        across markers, aborted messages and compaction gaps. An empty poll is never the end.
        Only a read to the end returns a summary. Resources are released in every case.

        Raises:
            DataLossError: retention removed the start, or a truncation removed the end. It is
                raised also if the log has grown again since, which the split's epochs show. The
                error names the offsets that were wanted and the offsets that the log has. A
                reader that may skip doesn't raise it: it reads the rest, and the summary counts
                the skipped offsets.
            IdentityError: the cluster's id or the topic's id is not that of the plan.
            UnreachableError: no message arrives within the stall limit.
        """


class _EnoughError(Exception):
    """Ends a read early."""


def read_until(reader: Reader, split: Split, enough: Callable[[pa.RecordBatch], bool]) -> bool:
    """Reads a split until `enough` returns true for a batch.

    Returns:
        Whether the split's end was reached before that.
    """

    def take(batch: pa.RecordBatch) -> None:
        if enough(batch):
            raise _EnoughError

    try:
        reader.read(split, take)
    except _EnoughError:
        return False
    return True


class _AbandonedError(Exception):
    """Ends a read whose iterator was closed."""


class _End:
    """The item after the last batch, with the exception that ended the read, if any."""

    def __init__(self, failed: BaseException | None = None) -> None:
        self.failed = failed


def batch_iterator(read: Callable[[Take], object]) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a read, in order, and then raises the read's exception, if any.

    The read runs in its own thread and is at most one batch ahead. Closing the iterator ends
    the read.
    """
    batches: SimpleQueue[pa.RecordBatch | _End] = SimpleQueue()
    demand, abandoned = Semaphore(0), False

    def take(batch: pa.RecordBatch) -> None:
        batches.put(batch)
        demand.acquire()
        if abandoned:
            raise _AbandonedError

    def run() -> None:
        try:
            read(take)
        except _AbandonedError:
            return
        except BaseException as failed:  # raised again by the iterator  # noqa: BLE001
            batches.put(_End(failed))
        else:
            batches.put(_End())

    thread = Thread(target=run, daemon=True, name="windrow-read")
    thread.start()
    try:
        while not isinstance(item := batches.get(), _End):
            demand.release()
            yield item
        if item.failed is not None:
            raise item.failed
    finally:
        abandoned = True
        demand.release()
        thread.join()
