"""The ledger on SQLite and PostgreSQL: the contract, racing processes, clear words when the database is away, locked or damaged."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, insert, inspect, text
from sqlalchemy.engine import make_url

from ingest.errors import RefusedError, SpecError, UnreachableError
from ingest.ledger import SqlLedger, open_ledger
from ingest.ledger.tables import BOUNDARIES, sortable
from ingest.model import Boundary, to_json
from tests.contracts.ledger_contract import PIPELINE, LedgerContract, assert_tiled, at, boundary, freeze_stale, plan


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """A database of its own on the session's server."""
    server = create_engine(postgres, isolation_level="AUTOCOMMIT")
    name = f"ledger_{uuid.uuid4().hex}"
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    server.dispose()
    return make_url(postgres).set(database=name).render_as_string(hide_password=False)


class TestSqlite(LedgerContract):
    """On a file."""

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], SqlLedger]:
        return lambda: open_ledger(str(tmp_path / "state.db"))


class TestPostgres(LedgerContract):
    """On a server."""

    @pytest.fixture
    def reopen(self, postgres_url: str) -> Callable[[], SqlLedger]:
        return lambda: open_ledger(postgres_url)


def nothing_in(ledger: SqlLedger) -> None:
    """All that can be asked without writing, of a ledger that isn't there."""
    assert ledger.boundary(PIPELINE, at(1)) is None
    assert ledger.neighbours(PIPELINE, at(1)) == (None, None)
    assert ledger.plan(plan(0, 1).window) is None
    assert ledger.recorded(PIPELINE) == []


@pytest.mark.parametrize("place", ["state.db", ".windrow/state.db", "nowhere/state.db"])
def test_reading_makes_no_file(tmp_path: Path, place: str) -> None:
    """In a ledger that isn't there nothing is frozen, and looking leaves the folder as it was."""
    nothing_in(open_ledger(str(tmp_path / place)))
    assert list(tmp_path.iterdir()) == []


def test_reading_makes_no_table(tmp_path: Path, postgres_url: str) -> None:
    """The same in a server's empty database, and in a file without tables."""
    nothing_in(open_ledger(postgres_url))
    assert inspect(create_engine(open_ledger(postgres_url).database.engine.url, poolclass=NullPool)).get_table_names() == []
    (tmp_path / "state.db").touch()
    nothing_in(open_ledger(str(tmp_path / "state.db")))
    assert (tmp_path / "state.db").stat().st_size == 0


def test_the_first_write_makes_windrows_own_folder(tmp_path: Path) -> None:
    """The folder beside a spec comes with the ledger; who asks for the identity makes both."""
    ledger = open_ledger(str(tmp_path / ".windrow" / "state.db"))
    assert ledger.identity() == ledger.identity()
    assert (tmp_path / ".windrow" / "state.db").is_file()


def test_a_place_that_may_not_be_looked_at_is_not_taken_for_empty(tmp_path: Path) -> None:
    """Only what surely isn't there holds nothing; a path of which that can't be told is unreachable."""
    with pytest.raises(UnreachableError, match="File name too long"):
        open_ledger(str(tmp_path / ("x" * 300) / "state.db")).boundary(PIPELINE, at(1))


@dataclass(frozen=True)
class ResolvesOutside(SqlLedger):
    """The broken twin: clamps between the neighbours first and inserts in a later transaction. `met` holds all racers in between."""

    met: threading.Barrier

    def freeze(self, pipeline: str, boundaries: Sequence[Boundary]) -> list[Boundary]:
        clamped = [b.clamped(*self.neighbours(pipeline, b.label)) for b in boundaries]
        self.met.wait()
        with self._writing(pipeline) as connection:
            for b in clamped:
                connection.execute(insert(BOUNDARIES).values(pipeline=pipeline, label=sortable(b.label), value=to_json(b)))
        return clamped


def test_clamping_outside_the_freezing_transaction_is_caught(tmp_path: Path) -> None:
    """The checker that the real ledger passes finds the twin's negative windows."""
    database, met = open_ledger(str(tmp_path / "state.db")).database, threading.Barrier(8)
    with pytest.raises(AssertionError, match="negative"):
        assert_tiled(freeze_stale([ResolvesOutside(database, met) for _ in range(8)]))


def _race(url: str, hour: int, ready: multiprocessing.synchronize.Barrier) -> None:
    ready.wait()
    ledger = open_ledger(url)
    ledger.freeze(PIPELINE, [boundary(hour, 100 - hour)])
    ledger.freeze_plan(plan(0, hour + 1))


def _race_in_processes(url: str) -> None:
    """Eight processes make, open and fill one ledger at the same moment."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["tests.ledger.test_sql"])
    ready = server.Barrier(8)
    racers = [server.Process(target=_race, args=(url, hour, ready)) for hour in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [r.exitcode for r in racers] == [0] * 8
    frozen = [open_ledger(url).boundary(PIPELINE, at(hour)) for hour in range(8)]
    assert None not in frozen
    assert_tiled([b for b in frozen if b is not None])


def test_eight_processes_make_and_fill_one_file(tmp_path: Path) -> None:
    """Tables, identity, boundaries and a plan: made once, no process fails."""
    _race_in_processes(f"sqlite:///{tmp_path}/state.db")


def test_eight_processes_make_and_fill_one_server_database(postgres_url: str) -> None:
    """The same on PostgreSQL."""
    _race_in_processes(postgres_url)


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    """The path is named, and what to check."""
    with pytest.raises(UnreachableError, match="unable to open database file") as caught:
        open_ledger(str(tmp_path / "nowhere" / "state.db")).identity()
    assert str(tmp_path / "nowhere" / "state.db") in str(caught.value)
    assert caught.value.stage == "ledger"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """It is left as it is, and the way to rebuild the ledger is named."""
    path = tmp_path / "state.db"
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(RefusedError, match=r"not a database.*rebuild-ledger"):
        open_ledger(str(path)).boundary(PIPELINE, at(1))
    with pytest.raises(RefusedError, match="not a database"):
        open_ledger(str(path)).freeze(PIPELINE, [boundary(1, 5)])
    assert path.read_bytes().startswith(b"something else")


def test_a_value_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    """A damaged boundary is never taken for an absent one."""
    path = tmp_path / "state.db"
    ledger = open_ledger(str(path))
    ledger.freeze(PIPELINE, [boundary(1, 5)])
    with sqlite3.connect(path) as raw:
        raw.execute("update windrow_boundaries set value = '{}'")
    with pytest.raises(RefusedError, match="boundary of pipeline things"):
        ledger.boundary(PIPELINE, at(1))


def test_a_ledger_that_another_process_holds_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting ends; the error says what to look for, and nothing was frozen."""
    monkeypatch.setattr("ingest.ledger.database.WAIT_SECONDS", 0)
    path = tmp_path / "state.db"
    ledger = open_ledger(str(path))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnreachableError, match="database is locked"):
        ledger.freeze(PIPELINE, [boundary(1, 5)])
    holder.execute("ROLLBACK")
    holder.close()
    assert ledger.boundary(PIPELINE, at(1)) is None


def test_a_stopped_holder_loses_the_lock(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server, a run that sleeps inside its transaction holds up the others for a while only, and its own work is undone."""
    monkeypatch.setattr("ingest.ledger.database.WAIT_SECONDS", 2)
    ledger = open_ledger(postgres_url)

    def sleep_in_a_transaction() -> None:
        with ledger._writing(PIPELINE) as connection:
            connection.execute(insert(BOUNDARIES).values(pipeline=PIPELINE, label=sortable(at(1)), value="{}"))
            assert ledger.freeze(PIPELINE, [boundary(1, 5)]) == [boundary(1, 5)]
            connection.execute(text("SELECT 1"))

    with pytest.raises(UnreachableError, match="idle-in-transaction"):
        sleep_in_a_transaction()
    assert ledger.boundary(PIPELINE, at(1)) == boundary(1, 5)


def test_a_server_that_is_not_there_is_unreachable_and_no_secret_is_told() -> None:
    """Host, port and database are named; the password is not, wherever it stood."""
    for url in ("postgresql://me:hunter2@127.0.0.1:1/db", "postgresql://me@127.0.0.1:1/db?password=hunter2"):
        with pytest.raises(UnreachableError, match=r"postgresql://127\.0\.0\.1:1/db") as caught:
            open_ledger(url).recorded(PIPELINE)
        assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"


@pytest.mark.parametrize("url", ["://x", "mysql://h/db", "sqlite://", "sqlite:///:memory:", ":memory:", "nonsense+driver://h/db"])
def test_what_is_no_place_for_a_ledger_is_a_mistake(url: str) -> None:
    """A ledger is a file or a PostgreSQL database."""
    with pytest.raises(SpecError):
        open_ledger(url)


def test_a_path_and_its_url_are_one_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative, absolute, or as a URL."""
    monkeypatch.chdir(tmp_path)
    assert open_ledger("state.db").identity() == open_ledger(f"sqlite:///{tmp_path}/state.db").identity()
    assert [p.name for p in tmp_path.iterdir()] == ["state.db"]


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    """Boundaries that freeze together freeze all or none."""
    ledger = open_ledger(str(tmp_path / "state.db"))

    class TornError(Exception):
        pass

    class Boundaries(list[Boundary]):
        def __iter__(self) -> Iterator[Boundary]:
            yield boundary(1, 5)
            raise TornError

    with pytest.raises(TornError):
        ledger.freeze(PIPELINE, Boundaries())
    assert ledger.boundary(PIPELINE, at(1)) is None
