"""A server that is stopped is silent, as one is that is at work: nobody waits for it without limit, and nobody who is served is cut off."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import psycopg
import pytest

from ingest.errors import UnreachableError
from ingest.ports.sink import Done, Unknown
from ingest.sinks.postgres import catalog, server, watched
from ingest.sinks.postgres.server import connected
from tests.sinks.postgres.world import sink_at
from tests.sinks.things import staged_receipt, window

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]  # starts a server


class Stopped:
    """Stops the session's server, or only one session's process; all go on at the end."""

    def __init__(self) -> None:
        self._pids: list[int] = []

    def session(self, connection: Any) -> None:
        self._stop(connection.info.backend_pid)

    def server(self, connection: Any) -> None:
        self._stop(psutil.Process(connection.info.backend_pid).ppid())
        self.session(connection)

    def _stop(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        self._pids.append(pid)

    def resume(self) -> None:
        while self._pids:
            os.kill(self._pids.pop(), signal.SIGCONT)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stopped]:
    monkeypatch.setattr(watched, "QUIET", 0.1)
    monkeypatch.setattr(watched, "ANSWER", 1)
    made = Stopped()
    yield made
    made.resume()


@pytest.fixture
def sink(database: str) -> Any:
    made = sink_at(f"{database}{'&' if '?' in database else '?'}connect_timeout=2#orders")
    made.prepare()
    return made


ASKS: dict[str, Callable[[Any], Any]] = {
    "look": lambda sink: sink.look(window(0)),
    "contents": lambda sink: list(sink.audit().contents(window(0))),
}


@pytest.mark.parametrize("ask", ASKS)
def test_who_reads_from_a_stopped_server_gives_up(sink: Any, stopped: Stopped, monkeypatch: pytest.MonkeyPatch, ask: str) -> None:
    """It says that the server doesn't answer; once that goes on, so does the reader."""
    made, staged = staged_receipt(sink, 0, dead=False)
    sink.commit(made, staged)
    at = catalog.table_at

    def stop_first(connection: Any, place: Any) -> Any:
        stopped.server(connection)
        return at(connection, place)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "table_at", stop_first)
        with pytest.raises(UnreachableError, match="hasn't answered"):
            ASKS[ask](sink)
    stopped.resume()
    ASKS[ask](sink)
    assert sink.look(window(0)) is not None


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_commit_that_a_stopped_server_does_not_answer(
    sink: Any, stopped: Stopped, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """Nobody knows its outcome: it is looked for again, and found where the server goes on; else just that is said."""
    made, staged = staged_receipt(sink, 0, dead=False)
    commit = server.commit

    def stop_first(connection: Any) -> None:
        monkeypatch.setattr(server, "commit", commit)
        stopped.server(connection)
        commit(connection)

    monkeypatch.setattr(server, "commit", stop_first)
    monkeypatch.setattr(server, "WAITS", (0.1,))
    monkeypatch.setattr(server.time, "sleep", lambda _: stopped.resume() if goes_on else None)
    outcome = sink.commit(made, staged)
    assert isinstance(outcome, Done if goes_on else Unknown)
    stopped.resume()
    assert isinstance(sink.commit(*staged_receipt(sink, 1, dead=False)), Done)
    kept = sink.look(window(0))
    assert kept is not None
    assert kept.receipt == made


def test_who_is_served_waits_on(database: str, stopped: Stopped) -> None:
    """A statement may take long: as long as the server answers others, it isn't cut off."""
    with connected(sink_at(f"{database}#orders").place.url) as connection:
        assert connection.execute("SELECT 1 FROM pg_sleep(1)").fetchone() == (1,)


def test_a_session_that_is_stopped_alone_is_given_up_in_the_end(database: str, stopped: Stopped, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers, and this session never will."""
    monkeypatch.setattr(watched, "LONGEST", 0.5)

    def ask() -> None:
        with connected(sink_at(f"{database}#orders").place.url) as connection:
            stopped.session(connection)
            connection.execute("SELECT 1")

    with pytest.raises(UnreachableError, match="hasn't answered"):
        ask()


def test_a_copy_that_a_stopped_server_does_not_take_is_given_up(sink: Any, stopped: Stopped) -> None:
    """Sending has a limit as receiving has, and nothing of it arrives."""

    def copy() -> None:
        with connected(sink.place.url) as connection, connection.cursor().copy("COPY orders FROM STDIN") as copying:
            stopped.server(connection)
            for _ in range(64):
                copying.write(b"x" * (1 << 20))

    with pytest.raises(UnreachableError):
        copy()
    stopped.resume()
    with psycopg.connect(sink.place.url.text) as other:
        assert other.execute("SELECT count(*) FROM orders").fetchone() == (0,)
