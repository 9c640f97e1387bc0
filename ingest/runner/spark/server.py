"""The Spark Connect server that `windrow spark run` keeps.

Spark and its Java are up before the first run, and stay up between runs. The server is an
ordinary session; Spark's own Connect service listens in its Java. Tasks of several clients run
at the same time. They run on this machine, in Python workers of this environment that are kept
for the next client (`kept_alive`); or on the workers of a cluster.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.runner.spark import java
from windrow.ingest.runner.spark.cluster import spark_session
from windrow.ingest.runner.spark.connect import ENVIRONMENT, LOOPBACK, TOKEN, environment
from windrow.ingest.runner.spark.jobs import DO_DOCTOR, spark_errors_as
from windrow.ingest.runner.spark.local import MASTER, is_local
from windrow.ingest.runner.spark.pyspark_internals import IDLE_WORKER_SECONDS, connect_port
from windrow.ingest.runner.spark.worker import end_if_stale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 30
"""Seconds that the server's Java may take to end."""

_CLEANING = "spark.cleaner.periodicGC.interval"
"""The property with the interval at which Spark's Java looks for unused data.

Data on disk of ended sessions is removed only then.
"""

PING_SECONDS = IDLE_WORKER_SECONDS / 3
"""Seconds between two empty tasks.

Even if one of them has to wait, there is a task within each `IDLE_WORKER_SECONDS`.
"""

_END = 5.0
"""Seconds that `kept_alive` waits for its last empty task."""


class SparkServer:
    """A running server.

    Attributes:
        address: the address for clients.
    """

    def __init__(self, host: str, session: Any) -> None:
        """Takes a session in whose Java the server listens."""
        self._session = session
        self.address = f"sc://{host}:{connect_port(session)}"

    def running(self) -> bool:
        """Returns whether the server's Java runs."""
        return java.is_running()

    def stop(self) -> None:
        """Ends the server and its workers.

        Running jobs are cancelled, and their clients get an error.
        """
        with suppress(Exception):  # Java may be gone
            self._session.stop()
        java.end(SECONDS)


@contextmanager
def spark_server(
    host: str, port: int, more: Mapping[str, str], master: str = MASTER
) -> Iterator[SparkServer]:
    """Runs a server until the end of the block.

    Args:
        host: the address at which it listens. It must be this machine's loopback address,
            unless the environment has a token (`TOKEN`) that clients must know.
        port: the port; 0 for any free port.
        more: Spark properties in addition to windrow's.
        master: Spark's master, where tasks run.

    Raises:
        SpecError: other machines could reach the server without a token; or `more` has a
            property that another argument sets.
        UnreachableError: the port is taken, or Java or Spark can't start.
    """
    if host not in LOOPBACK and not os.environ.get(TOKEN):
        raise SpecError(
            f"A Spark Connect server on {host} runs what anybody who reaches it sends, and no token"
            " is set",
            "spec",
            f"Set one, by {TOKEN} in the environment, or leave --host out.",
        )
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": host.strip("[]"),
        "spark.connect.grpc.binding.port": str(port),
        ENVIRONMENT: environment(),
    }
    refused = more.keys() & {*settings, "spark.connect.authenticate.token", "spark.master"}
    if refused:
        raise SpecError(
            f"{min(refused)} is no property to set by --conf",
            "spec",
            "Leave it out: --master says where tasks run, --host and --port where it listens,"
            f" {TOKEN} in the environment its token.",
        )
    _refuse_taken(host, port)
    with spark_errors_as("setup", "Java or Spark can't start", DO_DOCTOR):
        session: Any = spark_session(master, {_CLEANING: "5min", **more, **settings})
    # Spark reuses workers only for equal environment variables. Clients set none, so this
    # session must not set any either, or its empty tasks keep other workers alive.
    session.sparkContext.environment.clear()
    server = SparkServer(host, session)
    try:
        with kept_alive(lambda: run_empty_task(session)) if is_local(master) else nullcontext():
            yield server
    finally:
        server.stop()


def _refuse_taken(host: str, port: int) -> None:
    """Checks that the port is free, before Java starts, which takes seconds."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
            probe.listen()
        except OSError as failed:
            raise UnreachableError(
                f"No server can listen at {host}:{port} ({failed.strerror})",
                "setup",
                "End the program that listens there, which may be another server of windrow's, or"
                " give another --port.",
            ) from None


@contextmanager
def kept_alive(empty_task: Callable[[], object]) -> Iterator[None]:
    """Keeps the idle Python workers of this process's Spark alive during the block.

    Spark ends its idle Python workers if none of them had a task for a minute, and no setting
    changes this minute. A run after more than a minute would get new workers. They would have
    to import everything, which takes 0.4 s of CPU each, and load compiled code. A task of any
    worker starts the minute again for all of them, so one empty task now and then is enough.

    Spark has separate workers for each set of environment variables, and for RDDs and
    DataFrames. Clients of a server set no variables. So the empty task must be a DataFrame's,
    in a session that sets no variables for its workers.

    Args:
        empty_task: runs an empty task on one of the workers.
    """
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(PING_SECONDS):
            with suppress(Exception):  # if Spark is gone, its next job reports it
                empty_task()

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
