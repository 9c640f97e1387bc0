"""Python workers that stay while nothing is asked of them.

Spark ends its idle Python workers once a minute has gone by in which none of them had
anything to do, and nothing sets that minute
(`PythonWorkerFactory.IDLE_WORKER_TIMEOUT_NS`, Spark 4.0). Whatever runs every minute or
more rarely would find new ones each time, which have to import everything and load
compiled code. The minute is counted from the last task of any of them: so one small
task now and then keeps them all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.ingest.runner.spark.stale_code import end_if_stale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = 20.0
"""Seconds between two such tasks: two of them fit into Spark's minute, should one have to wait."""

_END = 5.0
"""Seconds that the last such task has for its end."""


@contextmanager
def kept_alive(session: SparkSession, every: float = EVERY) -> Iterator[None]:
    """Keep the Python workers of a session in this process's own Java until the end of the block.

    Workers are kept by what they run with. So those of a server's clients are only kept
    by a session that has no variables of its own for its workers' environment, for
    clients have none.
    """
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(every):
            with suppress(Exception):  # if Spark is gone, those who have work for it will say so
                stir(session)

    thread = threading.Thread(target=keep, name="keeps workers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END)


def stir(session: SparkSession) -> int:
    """Give one worker a task of nothing; the worker's process id."""
    return int(session.range(0, 1, 1, 1).mapInArrow(_nothing, "id long").collect()[0]["id"])


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    end_if_stale()
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"id": pa.array([os.getpid()], pa.int64())})
