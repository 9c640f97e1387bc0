"""A read that gives its batches away, as an iterator: what Spark asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Semaphore, Thread

import pyarrow as pa

from windrow.ingest.ports.reader import Take


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
