"""The Spark Connect server that `windrow spark run` keeps: Spark and its Java are up
before the first run asks, and stay between runs.

It is a session like any other, in whose Java Spark's own Connect service listens.
Clients' tasks run beside each other: on this machine in Python workers that are this
environment's, and wait for the next client (`ingest.runner.spark.keep_alive`); or on a
cluster, in those of its workers.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.runner.spark.cluster import is_local, spark_session
from windrow.ingest.runner.spark.connect import ENVIRONMENT, LOOPBACK, TOKEN, environment
from windrow.ingest.runner.spark.keep_alive import kept_alive
from windrow.ingest.runner.spark.local import MASTER, variable_set

SECONDS = 30
"""How long its Java may take to end."""

_CLEANING = "spark.cleaner.periodicGC.interval"
"""How often its Java looks for what nobody uses any more: what ended sessions kept on
disk goes only then.
"""

_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


class SparkServer:
    """A server that runs. `address`: what clients are told."""

    def __init__(self, host: str, session: Any) -> None:
        """`session`: the one in whose Java it listens."""
        self._session = session
        self._java = (
            session.sparkContext._gateway  # noqa: SLF001
        )  # its process is Java; nothing public leads there
        self.address = (  # as above
            f"sc://{host}:{getattr(getattr(session._jvm, _SERVICE), 'MODULE$').localPort()}"  # noqa: SLF001
        )

    def running(self) -> bool:
        """Whether its Java is there."""
        return self._java.proc.poll() is None

    def stop(self) -> None:
        """End it with its workers. What runs there is cancelled, and its clients are told so."""
        with suppress(Exception):  # its Java may be gone
            self._session.stop()
            self._java.shutdown()
        with suppress(OSError):
            self._java.proc.stdin.close()  # the last word to Java
        self._java.proc.wait(SECONDS)


@contextmanager
def spark_server(
    host: str, port: int, token: str | None, more: Mapping[str, str], master: str = MASTER
) -> Iterator[SparkServer]:
    """A server until the end of the block.

    Args:
        host: where it listens: on this machine only, unless there is a token.
        port: 0: any that is free.
        token: what clients must know; None: that in the environment, if there is one.
        more: Spark properties by name, on top of windrow's own.
        master: where its tasks run.

    Raises:
        SpecError: it would listen to other machines, and ask nobody for a token; or
            `more` has what is told otherwise.
        UnreachableError: the port is taken, or Java or Spark can't start.
    """
    token = token or os.environ.get(TOKEN) or None
    if host not in LOOPBACK and token is None:
        what = (
            f"A Spark Connect server on {host} runs what anybody who reaches it sends, and no token"
            " is set"
        )
        raise SpecError(
            what,
            "spec",
            f"Set one, by {TOKEN} in the environment or by --token-file, or leave --host out.",
        )
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": host.strip("[]"),
        "spark.connect.grpc.binding.port": str(port),
        ENVIRONMENT: environment(),
    }
    refused = more.keys() & {*settings, "spark.connect.authenticate.token", "spark.master"}
    if refused:
        do = (
            "Leave it out: --master says where tasks run, --host and --port where it listens,"
            f" {TOKEN} or --token-file its token."
        )
        raise SpecError(f"{min(refused)} is no property to set by --conf", "spec", do)
    _refuse_taken(host, port)
    with variable_set(TOKEN, token):  # Java reads it there; on its command line everybody would
        session = _started(master, {_CLEANING: "5min", **more, **settings})
    # clients' workers have no variables of a session's, and are this one's only if it
    # has none
    session.sparkContext.environment.clear()
    server = SparkServer(host, session)
    try:
        with kept_alive(session) if is_local(master) else nullcontext():
            yield server
    finally:
        server.stop()


def _started(master: str, settings: Mapping[str, str]) -> Any:
    from py4j.protocol import Py4JError  # Spark is loaded only where it is used
    from pyspark.errors import PySparkException

    try:
        return spark_session(master, settings)
    except (PySparkException, Py4JError, OSError) as failed:
        do = "Run `windrow doctor`, which says what is missing; --debug shows Spark's own words."
        raise UnreachableError(
            f"Java or Spark can't start ({type(failed).__name__})", "setup", do
        ) from failed


def _refuse_taken(host: str, port: int) -> None:
    """Before seconds go into Java."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
            probe.listen()
        except OSError as failed:
            what = f"No server can listen at {host}:{port} ({failed.strerror})"
            raise UnreachableError(
                what,
                "setup",
                "End the program that does, which may be another server of windrow's, or give"
                " another --port.",
            ) from None
