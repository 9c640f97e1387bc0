"""A server that is stopped is silent, as one is that is at work: nobody waits for it
without limit, and nobody who is served is cut off.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import psycopg
import pytest

from tests.heard import waits_heard
from tests.sinks.hooks import before_look
from tests.sinks.postgres.world import place_of, sink_at, staging_of
from tests.sinks.things import staged_receipt, window
from windrow.ingest.errors import UnreachableError
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.ports.sink import Done, Unknown
from windrow.ingest.settings import watched
from windrow.ingest.sinks.postgres import catalog, server, store
from windrow.ingest.sinks.postgres.server import connected
from windrow.ingest.sinks.postgres.stage import CopyFiles

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]  # starts a server
STOPPED = pytest.mark.some(2, of="tests")  # each waits until a stopped server is given up


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


class Proxy:
    """A port before the server's socket. It can stay connected and lose what the server says."""

    def __init__(self, database: str) -> None:
        host = psycopg.conninfo.conninfo_to_dict(database)["host"]
        self.deaf: set[socket.socket] = set()
        self._open: list[socket.socket] = []
        self._behind = f"{host}/.s.PGSQL.5432"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answers(self) -> None:
        self.deaf.update(self._open[1::2])

    def close(self) -> None:
        for one in (self._listening, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                behind = socket.socket(socket.AF_UNIX)
                behind.connect(self._behind)
                self._open += [client, behind]
                for pair in ((client, behind), (behind, client)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, here: socket.socket, there: socket.socket) -> None:
        with suppress(OSError):
            while data := here.recv(1 << 16):
                if here not in self.deaf:
                    there.sendall(data)
            there.shutdown(socket.SHUT_WR)  # whoever ends, the other hears of it


@pytest.fixture
def sink(database: str) -> Any:
    made = sink_at(f"{database}{'&' if '?' in database else '?'}connect_timeout=2#orders")
    made.prepare()
    return made


ASKS: dict[str, Callable[[Any], Any]] = {
    "look": lambda sink: sink.look(window(0)),
    "contents": lambda sink: list(sink.audit().contents(window(0))),
}


@STOPPED
@pytest.mark.parametrize("ask", ASKS)
def test_who_reads_from_a_stopped_server_gives_up(
    sink: Any, stopped: Stopped, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
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


@STOPPED
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_commit_that_a_stopped_server_does_not_answer(
    sink: Any, stopped: Stopped, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """Nobody knows its outcome: it is looked for again, and found where the server goes
    on; else just that is said.
    """
    made, staged = staged_receipt(sink, 0, dead=False)
    commit = server.commit

    def stop_first(connection: Any) -> None:
        monkeypatch.setattr(server, "commit", commit)
        stopped.server(connection)
        commit(connection)

    monkeypatch.setattr(server, "commit", stop_first)
    sink.store.waits = (0.1,)
    if goes_on:  # before its second look
        before_look(sink, lambda: before_look(sink, stopped.resume))
    outcome = sink.commit(made, staged)
    assert isinstance(outcome, Done if goes_on else Unknown)
    stopped.resume()
    assert isinstance(sink.commit(*staged_receipt(sink, 1, dead=False)), Done)
    kept = sink.look(window(0))
    assert kept is not None
    assert kept.receipt == made


def test_who_is_served_waits_on(
    database: str, stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement may take long: as long as the server answers others, it isn't cut off.

    That it is waited for is said once.
    """
    monkeypatch.setattr(watched.waiting, "SECONDS", 0.2)
    with waits_heard() as heard, connected(sink_at(f"{database}#orders").place.url) as connection:
        for _ in range(2):
            assert connection.execute("SELECT 1 FROM pg_sleep(1)").fetchone() == (1,)
    said = [heard.get_nowait().getMessage() for _ in range(heard.qsize())]
    assert [words for words in said if "at work or held up" in words] == said
    assert len(said) == 1


def test_a_session_that_is_stopped_alone_is_given_up_in_the_end(
    database: str, stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers, and this session never will."""
    monkeypatch.setattr(watched, "LONGEST", 0.5)

    def ask() -> None:
        with connected(sink_at(f"{database}#orders").place.url) as connection:
            stopped.session(connection)
            connection.execute("SELECT 1")

    with pytest.raises(UnreachableError, match="hasn't answered"):
        ask()


@STOPPED
def test_a_copy_that_a_stopped_server_does_not_take_is_given_up(
    sink: Any, stopped: Stopped
) -> None:
    """Sending has a limit as receiving has, and nothing of it arrives."""

    def copy() -> None:
        with (
            connected(sink.place.url) as connection,
            connection.cursor().copy("COPY orders FROM STDIN") as copying,
        ):
            stopped.server(connection)
            for _ in range(64):
                copying.write(b"x" * (1 << 20))

    with pytest.raises(UnreachableError):
        copy()
    stopped.resume()
    with psycopg.connect(sink.place.url.text) as other:
        assert other.execute("SELECT count(*) FROM orders").fetchone() == (0,)


@pytest.mark.parametrize("what", ["commit", "copy_in"])
def test_an_answer_that_is_lost_on_the_way_is_looked_for(
    database: str, stopped: Stopped, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The connection stands, the server answers others, and this answer never comes:
    the window is looked for by a new connection.
    """
    proxy, options = Proxy(database), psycopg.conninfo.conninfo_to_dict(database)
    sink = sink_at(
        f"postgresql://{options['user']}:{options.get('password', '')}@127.0.0.1:{proxy.port}/{options['dbname']}#orders"  # noqa: E501
    )
    sink.store.staged = CopyFiles(staging_of(place_of(f"{database}#orders")), sink.place, [])
    sink_at(f"{database}#orders").prepare()
    made, staged = staged_receipt(sink, 0, dead=False)
    module = server if what == "commit" else store
    done = getattr(module, what)

    def lose_first(*args: Any) -> Any:
        monkeypatch.setattr(module, what, done)
        proxy.lose_answers()
        return done(*args)

    monkeypatch.setattr(module, what, lose_first)
    assert isinstance(sink.commit(made, staged), Done)
    proxy.close()
    kept = sink_at(f"{database}#orders").look(window(0))
    assert kept is not None
    assert kept.receipt == made


def test_a_lock_that_is_waited_for_is_told(
    sink: Any, database: str, stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds it is said while it is waited for, once."""
    made, staged = staged_receipt(sink, 0, dead=False)
    told = threading.Event()
    with psycopg.connect(database, application_name="psql") as other:
        other.execute("LOCK TABLE orders")
        monkeypatch.setattr(logging.getLogger("windrow.postgres"), "warning", lambda *_: told.set())
        run = threading.Thread(target=lambda: sink.commit(made, staged))
        run.start()
        assert told.wait(30)
        other.rollback()
        run.join(60)
    assert sink.look(window(0)) is not None


@STOPPED
def test_a_ledger_on_a_stopped_server_is_not_waited_for(
    postgres_url: str, stopped: Stopped
) -> None:
    """As the table's server: it says that the server doesn't answer, and goes on once that does."""
    ledger = open_ledger(f"{postgres_url}{'&' if '?' in postgres_url else '?'}connect_timeout=2")
    ledger.bind_grid("orders", "hourly")
    with ledger.database.engine.connect() as connection:
        stopped.server(connection.connection.dbapi_connection)
    with pytest.raises(UnreachableError, match=r"ledger .*(answered|timeout)"):
        ledger.recorded("orders")
    stopped.resume()
    assert ledger.recorded("orders") == []
    ledger.database.engine.dispose()
