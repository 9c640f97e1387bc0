"""What reads one split of a topic-partition."""

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
    """What a reader counted when its split was read to the end.

    `aborted`: offsets in gaps that were seen to hold aborted messages.

    `skipped`: offsets of the split that were not in the log any more, and that the
    reader was told to go on without. `regrown`: told so, it went on although the log
    had been cut off below the split's start, and had grown again, before the split was
    planned.
    """

    next_offset: int
    read: int
    bytes: int
    aborted: int
    skipped: int = 0
    regrown: bool = False


class ReadPlan(msgspec.Struct, frozen=True):
    """What a reader is made for: the cluster and the topic ids (by name) that the plan
    was made on, and what to do where messages are gone.

    `on_loss` "skip": what retention, or a truncation of the log's end, has removed is
    counted as skipped instead of raised.
    """

    cluster_id: str
    topics: dict[str, str]
    on_loss: OnLoss


Take = Callable[[pa.RecordBatch], None]
"""Is given each batch of a read, in order. What it raises ends the read and passes through."""


class Reader(Protocol):
    """Reads splits, one at a time, each to its end. Picklable; used on executors."""

    def read(self, split: Split, take: Take) -> ReadSummary:
        """Give the visible messages of the split away, in offset order, as `MESSAGES`
        batches bounded by bytes and rows; none is empty.

        Ends when the position reached `split.stop`, over markers, aborted messages and
        compaction gaps; an empty poll is never the end. Only a read to the end has a
        summary. Resources are released however it ends.

        Raises:
            DataLossError: if retention removed the start, or truncation the end, also
                where the log has grown again since: the split's epochs tell. It names
                what was wanted and what is there. Not if the reader was told to skip:
                then it reads what is left of what was planned, and the summary says how
                many offsets were skipped.
            IdentityError: if cluster or topic id are not those of the plan.
            UnreachableError: if nothing arrives for the stall limit.
        """


class _EnoughError(Exception):
    """Ends a read early."""


def read_until(reader: Reader, split: Split, enough: Callable[[pa.RecordBatch], bool]) -> bool:
    """Read a split until `enough` says so of a batch that it was given; whether the end
    was reached before that.
    """

    def take(batch: pa.RecordBatch) -> None:
        if enough(batch):
            raise _EnoughError

    try:
        reader.read(split, take)
    except _EnoughError:
        return False
    return True


class _LeftError(Exception):
    """Ends a read whose batches nobody wants any more."""


class _End:
    """Behind the last batch: how the read ended."""

    def __init__(self, failed: BaseException | None = None) -> None:
        self.failed = failed


def batch_iterator(read: Callable[[Take], object]) -> Iterator[pa.RecordBatch]:
    """The batches of a read, in order; what it raises comes behind those before it.

    It runs in a thread of its own, and is one batch ahead of who asks. Who stops asking ends it.
    """
    given: SimpleQueue[pa.RecordBatch | _End] = SimpleQueue()
    wanted, left = Semaphore(0), False

    def take(batch: pa.RecordBatch) -> None:
        given.put(batch)
        wanted.acquire()
        if left:
            raise _LeftError

    def run() -> None:
        try:
            read(take)
        except _LeftError:
            return
        except BaseException as failed:  # handed over, not swallowed  # noqa: BLE001
            given.put(_End(failed))
        else:
            given.put(_End())

    thread = Thread(target=run, daemon=True, name="windrow-read")
    thread.start()
    try:
        while not isinstance(item := given.get(), _End):
            wanted.release()
            yield item
        if item.failed is not None:
            raise item.failed
    finally:
        left = True
        wanted.release()
        thread.join()
