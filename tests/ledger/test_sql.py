"""The ledger on SQLite and PostgreSQL: the contract, racing processes, clear words when
the database is away, locked or damaged.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, NullPool, create_engine, event, inspect, text

from tests.contracts.ledger_contract import (
    PIPELINE,
    LedgerContract,
    assert_tiled,
    at,
    boundary,
    cut,
    freeze_stale,
    plan,
    receipt,
)
from tests.contracts.ledger_table_contract import LedgerTableContract
from tests.forked import forked
from tests.heard import waits_heard
from tests.profiles import examples
from tests.warm import SERVER
from windrow.ingest.errors import DamagedError, RefusedError, SpecError, UnreachableError
from windrow.ingest.ledger.entries import BOUNDARY, TABLE
from windrow.ingest.ledger.sql import SqlLedger, open_ledger
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.tiling import clamped


class TestSqlite(LedgerContract, LedgerTableContract):
    """On a file."""

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], SqlLedger]:
        return lambda: open_ledger(str(tmp_path / "state.db"))


class TestPostgres(LedgerContract, LedgerTableContract):
    """On a server."""

    @pytest.fixture
    def reopen(self, postgres_url: str) -> Callable[[], SqlLedger]:
        return lambda: open_ledger(postgres_url)


def nothing_in(ledger: SqlLedger) -> None:
    """All that can be asked without writing, of a ledger that isn't there."""
    assert ledger.boundary(PIPELINE, at(1)) is None
    assert ledger.start(PIPELINE, at(1)) is None
    assert ledger.neighbours(PIPELINE, at(1)) == (None, None)
    assert ledger.newest(PIPELINE) == []
    assert ledger.rebased(PIPELINE) == []
    assert ledger.assigned(PIPELINE, "r") is None
    assert ledger.plan(plan(0, 1).window) is None
    assert ledger.recorded(PIPELINE) == []


@pytest.mark.parametrize("ledger_path", ["state.db", ".windrow/state.db", "nowhere/state.db"])
def test_reading_makes_no_file(tmp_path: Path, ledger_path: str) -> None:
    """In a ledger that isn't there nothing is frozen, and looking leaves the folder as it was."""
    nothing_in(open_ledger(str(tmp_path / ledger_path)))
    assert list(tmp_path.iterdir()) == []


def test_reading_makes_no_table(tmp_path: Path, postgres_url: str) -> None:
    """The same in a server's empty database, and in a file without tables."""
    nothing_in(open_ledger(postgres_url))
    assert (
        inspect(
            create_engine(open_ledger(postgres_url).database.engine.url, poolclass=NullPool)
        ).get_table_names()
        == []
    )
    (tmp_path / "state.db").touch()
    nothing_in(open_ledger(str(tmp_path / "state.db")))
    assert (tmp_path / "state.db").stat().st_size == 0


def test_the_first_write_makes_windrows_own_folder(tmp_path: Path) -> None:
    """The folder beside a spec comes with the ledger; who asks for the identity makes both."""
    ledger = open_ledger(str(tmp_path / ".windrow" / "state.db"))
    assert ledger.identity() == ledger.identity()
    assert (tmp_path / ".windrow" / "state.db").is_file()


def test_a_place_that_may_not_be_looked_at_is_not_taken_for_empty(tmp_path: Path) -> None:
    """Only what surely isn't there holds nothing; a path of which that can't be told is
    unreachable.
    """
    with pytest.raises(UnreachableError, match="File name too long"):
        open_ledger(str(tmp_path / ("x" * 300) / "state.db")).boundary(PIPELINE, at(1))


@dataclass(frozen=True)
class ResolvesOutside(SqlLedger):
    """The broken twin: clamps between the neighbours first and inserts in a later transaction.

    `met` holds all racers in between.
    """

    met: threading.Barrier

    def freeze(self, pipeline_id: str, boundaries: Sequence[Boundary]) -> list[Boundary]:
        moved = [clamped(b, *self.neighbours(pipeline_id, b.label)) for b in boundaries]
        self.met.wait(60)
        with self.writing(pipeline_id) as entries:
            for b in moved:
                entries.put(BOUNDARY, b.label, b)
        return moved


def test_clamping_outside_the_freezing_transaction_is_caught(tmp_path: Path) -> None:
    """The checker that the real ledger passes finds the twin's negative windows."""
    database, met = open_ledger(str(tmp_path / "state.db")).database, threading.Barrier(8)
    with pytest.raises(AssertionError, match="negative"):
        assert_tiled(freeze_stale([ResolvesOutside(database, met) for _ in range(8)]))


def _race(url: str, hour: int, ready: multiprocessing.synchronize.Barrier) -> None:
    ready.wait(60)
    ledger = open_ledger(url)
    ledger.bind_grid(f"pipeline {hour}", "hourly")
    ledger.freeze(PIPELINE, [boundary(hour, 100 - hour)])
    ledger.freeze_plans([plan(0, hour + 1)])


def _race_in_processes(url: str) -> None:
    """Eight processes, each of another pipeline, make and fill one ledger at the same moment."""
    ready = SERVER.Barrier(8)
    racers = [SERVER.Process(target=_race, args=(url, hour, ready)) for hour in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert [r.exitcode for r in racers] == [0] * 8
    frozen = [open_ledger(url).boundary(PIPELINE, at(hour)) for hour in range(8)]
    assert None not in frozen
    assert_tiled([b for b in frozen if b is not None])


@pytest.mark.slow
def test_eight_processes_make_and_fill_one_file(tmp_path: Path) -> None:
    """Tables, identity, boundaries and a plan: made once, no process fails."""
    _race_in_processes(f"sqlite:///{tmp_path}/state.db")


@pytest.mark.slow
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
        raw.execute(f"update {TABLE.name} set value = '{{}}' where kind = 'boundary'")
    with pytest.raises(RefusedError, match="boundary of pipeline things"):
        ledger.boundary(PIPELINE, at(1))


def test_what_is_long_lies_compressed_and_what_is_short_can_be_read(tmp_path: Path) -> None:
    """A window of a thousand topic-partitions takes a tenth of its JSON; if that is
    damaged, it is refused like any other value.
    """
    path = tmp_path / "state.db"
    ledger = open_ledger(str(path))
    long_plan = plan(1, *range(1, 1_001))
    ledger.freeze_plans([long_plan, plan(2, 5)])
    with sqlite3.connect(path) as raw:
        long, short = (
            value
            for (value,) in raw.execute(
                f"select value from {TABLE.name} where kind = 'plan' order by key"
            )
        )
        assert (len(long) < len(to_json(long_plan)) / 10, short) == (True, to_json(plan(2, 5)))
    for damaged in (long[:-8], long[:100] + "!" + long[101:], "zlib:"):
        with sqlite3.connect(path) as raw:
            raw.execute(f"update {TABLE.name} set value = ?", (damaged,))
        with pytest.raises(DamagedError, match="plan of pipeline things"):
            open_ledger(str(path)).plan(long_plan.window)


@pytest.mark.parametrize("begin_statement", ["BEGIN IMMEDIATE", "BEGIN"])
def test_a_ledger_that_another_process_holds_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin_statement: str
) -> None:
    """Waiting for one that writes, and for one that reads, is said, and ends; the error says what
    to look for, and nothing was frozen.
    """
    monkeypatch.setattr("windrow.ingest.ledger.database.WAIT_SECONDS", 1)
    monkeypatch.setattr("windrow.ingest.waiting.SECONDS", 0.1)
    path = tmp_path / "state.db"
    ledger = open_ledger(str(path))
    ledger.identity()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute(begin_statement)
    holder.execute("SELECT * FROM sqlite_master").fetchall()
    with waits_heard() as heard, pytest.raises(UnreachableError, match="database is locked"):
        ledger.freeze(PIPELINE, [boundary(1, 5)])
    assert (
        heard.get(timeout=30).getMessage()
        == f"Waiting for the ledger {path}, which another process holds"
    )
    holder.execute("ROLLBACK")
    holder.close()
    assert ledger.boundary(PIPELINE, at(1)) is None


def test_a_stopped_holder_loses_the_lock(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server, a run that sleeps inside its transaction holds up the others for a
    while only, and its own work is undone.
    """
    monkeypatch.setattr("windrow.ingest.ledger.database.WAIT_SECONDS", 2)
    ledger = open_ledger(postgres_url)

    def sleep_in_a_transaction() -> None:
        with ledger.writing(PIPELINE) as entries:
            entries.put(BOUNDARY, at(1), boundary(1, 7))
            assert ledger.freeze(PIPELINE, [boundary(1, 5)]) == [boundary(1, 5)]
            entries.get(BOUNDARY, at(1))

    with pytest.raises(UnreachableError, match="idle-in-transaction"):
        sleep_in_a_transaction()
    assert ledger.boundary(PIPELINE, at(1)) == boundary(1, 5)


def test_a_server_that_is_not_there_is_unreachable_and_no_secret_is_told() -> None:
    """Host, port and database are named; the password is not, wherever it stood."""
    for url in (
        "postgresql://me:hunter2@127.0.0.1:1/db",
        "postgresql://me@127.0.0.1:1/db?password=hunter2",
    ):
        with pytest.raises(UnreachableError, match=r"postgresql://127\.0\.0\.1:1/db") as caught:
            open_ledger(url).recorded(PIPELINE)
        assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"


@pytest.mark.parametrize(
    "url",
    [
        "://x",
        "mysql://h/db",
        "sqlite://",
        "sqlite:///:memory:",
        ":memory:",
        "nonsense+driver://h/db",
    ],
)
def test_what_is_no_place_for_a_ledger_is_a_mistake(url: str) -> None:
    """A ledger is a file or a PostgreSQL database."""
    with pytest.raises(SpecError):
        open_ledger(url)


def test_a_path_and_its_url_are_one_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative, absolute, or as a URL."""
    monkeypatch.chdir(tmp_path)
    assert (
        open_ledger("state.db").identity()
        == open_ledger(f"sqlite:///{tmp_path}/state.db").identity()
    )
    assert [p.name for p in tmp_path.iterdir()] == ["state.db"]


@pytest.mark.parametrize("other_table", ["windrow_facts", "windrow_ledger_1", "windrow_ledger_3"])
@pytest.mark.parametrize("database_kind", ["file", "server"])
def test_a_ledger_of_another_form_is_refused(
    database_kind: str, other_table: str, tmp_path: Path, database: str
) -> None:
    """In a sentence that names the way out, whether it is read or written; it stays as it is."""
    url = database if database_kind == "server" else f"sqlite:///{tmp_path}/state.db"
    driver = url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = create_engine(driver, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {other_table} (name TEXT)"))
    ledger = open_ledger(driver)
    with pytest.raises(SpecError, match=r"made by another version of windrow.*rebuild-ledger"):
        ledger.recorded(PIPELINE)
    with pytest.raises(SpecError, match="made by another version"):
        ledger.identity()
    ledger.database.engine.dispose()
    assert inspect(engine).get_table_names() == [other_table]


def test_no_question_reads_more_than_it_answers(tmp_path: Path) -> None:
    """Each is a search in the primary key, without a sort, however many windows there are; but
    for the writers' schemas, which are few.
    """
    ledger = open_ledger(str(tmp_path / "state.db"))
    statements = list[tuple[str, Any]]()

    def heard(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if statement.startswith("SELECT windrow_ledger"):
            statements.append((statement, parameters))

    event.listen(ledger.database.engine, "before_cursor_execute", heard)
    ledger.freeze(PIPELINE, [boundary(hour, hour) for hour in range(3)])
    ledger.freeze_plans([plan(1, 5)])
    ledger.record(receipt(1))
    ledger.rebase(PIPELINE, cut(at(2), 0, topic_id="anew"))
    assert ledger.neighbours(PIPELINE, at(1)) == (boundary(0, 0), boundary(2, 2))
    assert len(ledger.newest(PIPELINE, 2)) == 2
    assert ledger.recorded(PIPELINE, 1) == ledger.recorded(PIPELINE) == [receipt(1)]
    with closing(sqlite3.connect(tmp_path / "state.db")) as raw:
        steps = {
            step
            for statement, parameters in statements
            for *_, step in raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        }
    index = f"SEARCH {TABLE.name} USING INDEX sqlite_autoindex_{TABLE.name}_1"
    assert {step.partition(" (")[0] for step in steps} == {index}


def _sessions(postgres_url: str, ask: str) -> list[object]:
    """Of all other sessions in the database."""
    engine = create_engine(postgres_url, poolclass=NullPool)
    with engine.connect() as connection:
        others = (
            f"SELECT {ask} FROM pg_stat_activity WHERE datname = current_database() AND pid <>"
            " pg_backend_pid()"
        )
        return list(connection.execute(text(others)).scalars())


def test_one_connection_to_a_server_is_kept_and_replaced_when_it_dies(postgres_url: str) -> None:
    """However often the ledger is opened and asked; a server that was restarted
    meanwhile is not reported.
    """
    for hour in (1, 2, 3):
        open_ledger(postgres_url).freeze(PIPELINE, [boundary(hour, 5)])
    (first,) = _sessions(postgres_url, "pid")
    assert _sessions(postgres_url, "pg_terminate_backend(pid, 10000)") == [True]
    assert open_ledger(postgres_url).boundary(PIPELINE, at(1)) == boundary(1, 5)
    assert _sessions(postgres_url, "pid") != [first]
    assert _sessions(postgres_url, "pg_terminate_backend(pid, 10000)") == [True]
    assert open_ledger(postgres_url).freeze(PIPELINE, [boundary(4, 5)]) == [boundary(4, 5)]


def test_threads_that_open_a_server_at_once_share_its_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time too, when the engine is made: each of several would keep a
    connection that nobody closes.
    """
    both = threading.Barrier(2)

    def engine_made_by_both(*args: Any, **more: Any) -> Engine:
        both.wait(60)
        return create_engine(*args, **more)

    monkeypatch.setattr("windrow.ingest.ledger.database.create_engine", engine_made_by_both)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: open_ledger(postgres_url).database, range(2))
    assert first is second


def _ask_in_child(url: str, parent_asked: multiprocessing.synchronize.Event) -> None:
    assert open_ledger(url).boundary(PIPELINE, at(1)) == boundary(1, 5)
    assert parent_asked.wait(60)


def test_a_forked_process_makes_its_own_connection(postgres_url: str) -> None:
    """The parent's goes on working while the child asks, and after it ended."""
    ledger = open_ledger(postgres_url)
    ledger.freeze(PIPELINE, [boundary(1, 5)])
    parent_asked = multiprocessing.get_context("fork").Event()
    child = forked(_ask_in_child, postgres_url, parent_asked)
    assert ledger.boundary(PIPELINE, at(1)) == boundary(1, 5)
    parent_asked.set()
    child.join(60)
    assert child.exitcode == 0
    (session_pid,) = _sessions(postgres_url, "pid")
    assert ledger.neighbours(PIPELINE, at(2)) == (boundary(1, 5), None)
    assert _sessions(postgres_url, "pid") == [session_pid]


def test_a_database_made_anew_gets_its_table_again(postgres_url: str) -> None:
    """A process remembers nothing of it."""
    ledger = open_ledger(postgres_url)
    first = ledger.identity()
    assert ledger.boundary(PIPELINE, at(1)) is None
    with ledger.database.writing("test") as connection:
        TABLE.drop(connection)
    assert ledger.freeze(PIPELINE, [boundary(1, 5)]) == [boundary(1, 5)]
    assert ledger.identity() != first


def test_a_file_that_was_moved_away_is_not_written_to(tmp_path: Path) -> None:
    """A ledger that is open goes on with what is at its path, not with the file that was there."""
    ledger, path = open_ledger(str(tmp_path / "state.db")), tmp_path / "state.db"
    ledger.freeze(PIPELINE, [boundary(1, 5)])
    path.rename(tmp_path / "old.db")
    assert ledger.boundary(PIPELINE, at(1)) is None
    ledger.freeze(PIPELINE, [boundary(2, 6)])
    assert open_ledger(str(tmp_path / "old.db")).newest(PIPELINE, 9) == [boundary(1, 5)]
    assert ledger.newest(PIPELINE, 9) == [boundary(2, 6)]


@settings(max_examples=examples(25))
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8
    ),
    st.data(),
)
def test_freezing_together_is_freezing_one_by_one(
    cuts: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """However boundaries are cut into calls, in label order each is clamped between
    what is frozen then: equal, and tiled.
    """
    boundaries = sorted({h: boundary(h, a, b) for h, a, b in cuts}.values(), key=lambda b: b.label)
    already_frozen = data.draw(st.lists(st.sampled_from(boundaries), unique_by=lambda b: b.label))
    with TemporaryDirectory() as folder:
        batch_ledger, single_ledger = (
            open_ledger(f"{folder}/one.db"),
            open_ledger(f"{folder}/other.db"),
        )
        for ledger in (batch_ledger, single_ledger):
            ledger.freeze(PIPELINE, already_frozen)
        together = batch_ledger.freeze(PIPELINE, boundaries)
        assert together == [
            b for single in boundaries for b in single_ledger.freeze(PIPELINE, [single])
        ]
        assert together == batch_ledger.newest(PIPELINE, 99)
        assert_tiled(together)
