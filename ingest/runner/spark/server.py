"""The Spark Connect server that `windrow spark run` keeps.

Spark and its Java are up before the first run asks, and stay between runs. It is a
session like any other, in whose Java Spark's own Connect service listens. Clients'
tasks run at the same time: on this machine in Python workers of this environment, which
wait for the next client (`kept_alive`); or on a cluster's workers.
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
"""Seconds that its Java may take to end."""

_CLEANING = "spark.cleaner.periodicGC.interval"
"""The property with the interval at which its Java looks for unused data.

Data that ended sessions kept on disk is removed only then.
"""

PING_SECONDS = IDLE_WORKER_SECONDS / 3
"""Seconds between two empty tasks: two fit into Spark's minute, if one has to wait."""

_END = 5.0
"""Seconds that the last empty task has to end."""


class SparkServer:
    """A server that runs. `address`: the address for clients."""

    def __init__(self, host: str, session: Any) -> None:
        """`session`: the one in whose Java it listens."""
        self._session = session
        self.address = f"sc://{host}:{connect_port(session)}"

    def running(self) -> bool:
        """Returns whether its Java runs."""
        return java.is_running()

    def stop(self) -> None:
        """Ends it with its workers.

        Jobs that run are cancelled, and their clients get an error.
        """
        with suppress(Exception):  # its Java may be gone
            self._session.stop()
        java.end(SECONDS)


@contextmanager
def spark_server(
    host: str, port: int, more: Mapping[str, str], master: str = MASTER
) -> Iterator[SparkServer]:
    """Runs a server until the end of the block.

    Args:
        host: the address that it listens at: on this machine only, unless there is a
            token in the environment (`TOKEN`), which clients must know.
        port: 0: any that is free.
        more: Spark properties by name, on top of windrow's own.
        master: where its tasks run.

    Raises:
        SpecError: it would listen to other machines, and ask nobody for a token; or
            `more` has a property that another argument sets.
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
    # Spark shares workers by their variables: clients' have none of a session's own, so
    # this session must have none
    session.sparkContext.environment.clear()
    server = SparkServer(host, session)
    try:
        with kept_alive(lambda: run_empty_task(session)) if is_local(master) else nullcontext():
            yield server
    finally:
        server.stop()


def _refuse_taken(host: str, port: int) -> None:
    """Checks that the port is free, before seconds go into Java."""
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
    """Keeps the idle Python workers of this process's Spark for the block.

    `empty_task` runs an empty task on one of the workers to keep.

    Spark ends its idle Python workers once none of them had a task for a minute, and no
    setting changes that minute.
    Runs that come every minute or more rarely would get new workers each time, which
    have to import everything, 0.4 s of a processor each, and load compiled code. The
    minute is counted from the last task of any of them: so one small task now and then
    keeps them all.

    Spark keeps workers by their environment, and those of RDDs apart from those of
    DataFrames. So those of a server's clients are only kept by a session without variables
    of its own for its workers' environment: clients have none.
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
