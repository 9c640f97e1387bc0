"""Keeps idle Python workers alive.

Spark ends its idle Python workers once none of them had a task for a minute, and no
setting changes that minute (`PythonWorkerFactory.IDLE_WORKER_TIMEOUT_NS`, Spark 4.0).
Runs that come every minute or more rarely would get new workers each time, which have
to import everything and load compiled code. The minute is counted from the last task of
any of them: so one small task now and then keeps them all.
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
"""Seconds between two such tasks.

Two of them fit into Spark's minute, if one has to wait.
"""

_END = 5.0
"""Seconds that the last such task has to end."""


@contextmanager
def kept_alive(session: SparkSession) -> Iterator[None]:
    """Keeps the Python workers of a session in this process's Java until the block ends.

    Spark keeps workers by their environment. So those of a server's clients are only
    kept by a session without variables of its own for its workers' environment: clients
    have none.
    """
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(EVERY):
            with suppress(Exception):  # if Spark is gone, its next job reports it
                run_empty_task(session)

    thread = threading.Thread(target=keep, name="keeps workers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END)


def run_empty_task(session: SparkSession) -> int:
    """Runs an empty task on one worker; returns the worker's process id."""
    return int(session.range(0, 1, 1, 1).mapInArrow(_nothing, "id long").collect()[0]["id"])


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    end_if_stale()
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"id": pa.array([os.getpid()], pa.int64())})
