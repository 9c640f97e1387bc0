"""The ledger on SQLite and PostgreSQL: its contract, concurrent processes, and clear errors.

An error says that the database is unreachable, locked or damaged.
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
    boundary,
    cut,
    freeze_stale,
    hour_at,
    plan,
    receipt,
)
from tests.contracts.ledger_table_contract import LedgerTableContract
from tests.forked import fork
from tests.heard import hear_waits
from tests.profiles import examples
from tests.warm import SERVER
from windrow.ingest.errors import DamagedError, RefusedError, SpecError, UnreachableError
from windrow.ingest.ledger.entries import BOUNDARY, TABLE
from windrow.ingest.ledger.sql import SqlLedger, open_ledger
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.tiling import clamp


class TestSqlite(LedgerContract, LedgerTableContract):
    """A ledger in a file."""

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], SqlLedger]:
        return lambda: open_ledger(str(tmp_path / "state.db"))


class TestPostgres(LedgerContract, LedgerTableContract):
    """A ledger on a server."""

    @pytest.fixture
    def reopen(self, postgres_url: str) -> Callable[[], SqlLedger]:
        return lambda: open_ledger(postgres_url)


def nothing_in(ledger: SqlLedger) -> None:
    """Asserts that each query of a ledger that doesn't exist has an empty answer."""
    assert ledger.boundary(PIPELINE, hour_at(1)) is None
    assert ledger.start(PIPELINE, hour_at(1)) is None
    assert ledger.neighbours(PIPELINE, hour_at(1)) == (None, None)
    assert ledger.newest(PIPELINE) == []
    assert ledger.rebased_boundaries(PIPELINE) == []
    assert ledger.assigned_number(PIPELINE, "r") is None
    assert ledger.plan(plan(0, 1).window) is None
    assert ledger.recorded_receipts(PIPELINE) == []


@pytest.mark.parametrize("ledger_path", ["state.db", ".windrow/state.db", "nowhere/state.db"])
def test_reading_makes_no_file(tmp_path: Path, ledger_path: str) -> None:
    """A query of a ledger that doesn't exist makes no file, and finds nothing frozen."""
    nothing_in(open_ledger(str(tmp_path / ledger_path)))
    assert list(tmp_path.iterdir()) == []


def test_reading_makes_no_table(tmp_path: Path, postgres_url: str) -> None:
    """A query makes no table in a server's empty database or in a file without tables."""
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
    """The first write makes the `.windrow` folder.

    `identity` makes the folder and the ledger too.
    """
    ledger = open_ledger(str(tmp_path / ".windrow" / "state.db"))
    assert ledger.identity() == ledger.identity()
    assert (tmp_path / ".windrow" / "state.db").is_file()


def test_a_place_that_may_not_be_looked_at_is_not_taken_for_empty(tmp_path: Path) -> None:
    """A path that can't be checked raises UnreachableError, and isn't taken for an empty ledger."""
    with pytest.raises(UnreachableError, match="File name too long"):
        open_ledger(str(tmp_path / ("x" * 300) / "state.db")).boundary(PIPELINE, hour_at(1))


@dataclass(frozen=True)
class ResolvesOutside(SqlLedger):
    """A broken ledger: it clamps first, and inserts in a later transaction.

    Attributes:
        met: holds all racers between the two steps.
    """

    met: threading.Barrier

    def freeze(self, pipeline_id: str, boundaries: Sequence[Boundary]) -> list[Boundary]:
        moved = [clamp(b, *self.neighbours(pipeline_id, b.label)) for b in boundaries]
        self.met.wait(60)
        with self.writing(pipeline_id) as entries:
            for b in moved:
                entries.put(BOUNDARY, b.label, b)
        return moved


def test_clamping_outside_the_freezing_transaction_is_caught(tmp_path: Path) -> None:
    """The check of the contract finds the broken ledger's negative windows."""
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
    """Runs eight processes of different pipelines that make and fill one ledger at once."""
    ready = SERVER.Barrier(8)
    racers = [SERVER.Process(target=_race, args=(url, hour, ready)) for hour in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert [r.exitcode for r in racers] == [0] * 8
    frozen = [open_ledger(url).boundary(PIPELINE, hour_at(hour)) for hour in range(8)]
    assert None not in frozen
    assert_tiled([b for b in frozen if b is not None])


@pytest.mark.slow
def test_eight_processes_make_and_fill_one_file(tmp_path: Path) -> None:
    """Eight processes make tables, identity, boundaries and a plan once, and none fails."""
    _race_in_processes(f"sqlite:///{tmp_path}/state.db")


@pytest.mark.slow
def test_eight_processes_make_and_fill_one_server_database(postgres_url: str) -> None:
    """Eight processes make and fill one PostgreSQL database, and none fails."""
    _race_in_processes(postgres_url)


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    """A missing folder raises UnreachableError with the path and what to check."""
    with pytest.raises(UnreachableError, match="unable to open database file") as caught:
        open_ledger(str(tmp_path / "nowhere" / "state.db")).identity()
    assert str(tmp_path / "nowhere" / "state.db") in str(caught.value)
    assert caught.value.stage == "ledger"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """A file that is no database raises RefusedError with the way to rebuild the ledger.

    The file isn't changed.
    """
    path = tmp_path / "state.db"
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(RefusedError, match=r"not a database.*rebuild-ledger"):
        open_ledger(str(path)).boundary(PIPELINE, hour_at(1))
    with pytest.raises(RefusedError, match="not a database"):
        open_ledger(str(path)).freeze(PIPELINE, [boundary(1, 5)])
    assert path.read_bytes().startswith(b"something else")


def test_a_value_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    """A damaged boundary raises RefusedError and isn't taken for a missing one."""
    path = tmp_path / "state.db"
    ledger = open_ledger(str(path))
    ledger.freeze(PIPELINE, [boundary(1, 5)])
    with sqlite3.connect(path) as raw:
        raw.execute(f"update {TABLE.name} set value = '{{}}' where kind = 'boundary'")
    with pytest.raises(RefusedError, match="boundary of pipeline things"):
        ledger.boundary(PIPELINE, hour_at(1))


def test_what_is_long_lies_compressed_and_what_is_short_can_be_read(tmp_path: Path) -> None:
    """A long value is compressed, and a short value is readable JSON.

    A plan of a thousand topic-partitions needs a tenth of its JSON. A damaged compressed value
    is refused like any other.
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
    """A locked ledger raises UnreachableError after a logged wait, and nothing is frozen.

    Another process writes or reads. The error says what to look for.
    """
    monkeypatch.setattr("windrow.ingest.ledger.database.WAIT_SECONDS", 1)
    monkeypatch.setattr("windrow.ingest.waiting.SECONDS", 0.1)
    path = tmp_path / "state.db"
    ledger = open_ledger(str(path))
    ledger.identity()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute(begin_statement)
    holder.execute("SELECT * FROM sqlite_master").fetchall()
    with hear_waits() as heard, pytest.raises(UnreachableError, match="database is locked"):
        ledger.freeze(PIPELINE, [boundary(1, 5)])
    assert (
        heard.get(timeout=30).getMessage()
        == f"Waiting for the ledger {path}, which another process holds"
    )
    holder.execute("ROLLBACK")
    holder.close()
    assert ledger.boundary(PIPELINE, hour_at(1)) is None


def test_a_stopped_holder_loses_the_lock(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that sleeps in its transaction on a server delays other runs for a limited time.

    Its own work is rolled back.
    """
    monkeypatch.setattr("windrow.ingest.ledger.database.WAIT_SECONDS", 2)
    ledger = open_ledger(postgres_url)

    def sleep_in_a_transaction() -> None:
        with ledger.writing(PIPELINE) as entries:
            entries.put(BOUNDARY, hour_at(1), boundary(1, 7))
            assert ledger.freeze(PIPELINE, [boundary(1, 5)]) == [boundary(1, 5)]
            entries.get(BOUNDARY, hour_at(1))

    with pytest.raises(UnreachableError, match="idle-in-transaction"):
        sleep_in_a_transaction()
    assert ledger.boundary(PIPELINE, hour_at(1)) == boundary(1, 5)


def test_a_server_that_is_not_there_is_unreachable_and_no_secret_is_told() -> None:
    """The error about an unreachable server has host, port and database, and never the password."""
    for url in (
        "postgresql://me:hunter2@127.0.0.1:1/db",
        "postgresql://me@127.0.0.1:1/db?password=hunter2",
    ):
        with pytest.raises(UnreachableError, match=r"postgresql://127\.0\.0\.1:1/db") as caught:
            open_ledger(url).recorded_receipts(PIPELINE)
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
    """A URL that is neither a file nor a PostgreSQL database raises SpecError."""
    with pytest.raises(SpecError):
        open_ledger(url)


def test_a_path_and_its_url_are_one_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path, an absolute path and a URL of the same file are one ledger."""
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
    """A ledger of another version raises SpecError with the way out, and isn't changed.

    This holds for reads and writes.
    """
    url = database if database_kind == "server" else f"sqlite:///{tmp_path}/state.db"
    driver = url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = create_engine(driver, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {other_table} (name TEXT)"))
    ledger = open_ledger(driver)
    with pytest.raises(SpecError, match=r"made by another version of windrow.*rebuild-ledger"):
        ledger.recorded_receipts(PIPELINE)
    with pytest.raises(SpecError, match="made by another version"):
        ledger.identity()
    ledger.database.engine.dispose()
    assert inspect(engine).get_table_names() == [other_table]


def test_no_question_reads_more_than_it_answers(tmp_path: Path) -> None:
    """Each query searches in the primary key without a sort, for any number of windows.

    Only the query of the writers' schemas reads all of them, because they are few.
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
    ledger.rebase(PIPELINE, cut(hour_at(2), 0, topic_id="anew"))
    assert ledger.neighbours(PIPELINE, hour_at(1)) == (boundary(0, 0), boundary(2, 2))
    assert len(ledger.newest(PIPELINE, 2)) == 2
    assert (
        ledger.recorded_receipts(PIPELINE, 1) == ledger.recorded_receipts(PIPELINE) == [receipt(1)]
    )
    with closing(sqlite3.connect(tmp_path / "state.db")) as raw:
        steps = {
            step
            for statement, parameters in statements
            for *_, step in raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        }
    index = f"SEARCH {TABLE.name} USING INDEX sqlite_autoindex_{TABLE.name}_1"
    assert {step.partition(" (")[0] for step in steps} == {index}


def _sessions(postgres_url: str, ask: str) -> list[object]:
    """Returns a column of all sessions in the database that aren't of this function.

    A session of an earlier call can still be listed, because the server removes it after the
    client has closed the connection.
    """
    engine = create_engine(
        postgres_url, poolclass=NullPool, connect_args={"application_name": "sessions"}
    )
    with engine.connect() as connection:
        others = (
            f"SELECT {ask} FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name <> 'sessions'"
        )
        return list(connection.execute(text(others)).scalars())


def test_one_connection_to_a_server_is_kept_and_replaced_when_it_dies(postgres_url: str) -> None:
    """One connection to a server is kept for all uses of the ledger.

    It is replaced without an error if the server restarted.
    """
    for hour in (1, 2, 3):
        open_ledger(postgres_url).freeze(PIPELINE, [boundary(hour, 5)])
    (first,) = _sessions(postgres_url, "pid")
    assert _sessions(postgres_url, "pg_terminate_backend(pid, 10000)") == [True]
    assert open_ledger(postgres_url).boundary(PIPELINE, hour_at(1)) == boundary(1, 5)
    assert _sessions(postgres_url, "pid") != [first]
    assert _sessions(postgres_url, "pg_terminate_backend(pid, 10000)") == [True]
    assert open_ledger(postgres_url).freeze(PIPELINE, [boundary(4, 5)]) == [boundary(4, 5)]


def test_threads_that_open_a_server_at_once_share_its_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that open a server at the same time share one engine.

    Otherwise each would keep a connection that is never closed.
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
    assert open_ledger(url).boundary(PIPELINE, hour_at(1)) == boundary(1, 5)
    assert parent_asked.wait(60)


def test_a_forked_process_makes_its_own_connection(postgres_url: str) -> None:
    """A forked child makes its own connection, and the parent's connection keeps working."""
    ledger = open_ledger(postgres_url)
    ledger.freeze(PIPELINE, [boundary(1, 5)])
    parent_asked = multiprocessing.get_context("fork").Event()
    child = fork(_ask_in_child, postgres_url, parent_asked)
    assert ledger.boundary(PIPELINE, hour_at(1)) == boundary(1, 5)
    parent_asked.set()
    child.join(60)
    assert child.exitcode == 0
    (session_pid,) = _sessions(postgres_url, "pid")
    assert ledger.neighbours(PIPELINE, hour_at(2)) == (boundary(1, 5), None)
    assert _sessions(postgres_url, "pid") == [session_pid]


def test_a_database_made_anew_gets_its_table_again(postgres_url: str) -> None:
    """A recreated database gets its table again, because the process caches nothing of it."""
    ledger = open_ledger(postgres_url)
    first = ledger.identity()
    assert ledger.boundary(PIPELINE, hour_at(1)) is None
    with ledger.database.writing("test") as connection:
        TABLE.drop(connection)
    assert ledger.freeze(PIPELINE, [boundary(1, 5)]) == [boundary(1, 5)]
    assert ledger.identity() != first


def test_a_file_that_was_moved_away_is_not_written_to(tmp_path: Path) -> None:
    """An open ledger uses the file at its path, even if the earlier file was moved away."""
    ledger, path = open_ledger(str(tmp_path / "state.db")), tmp_path / "state.db"
    ledger.freeze(PIPELINE, [boundary(1, 5)])
    path.rename(tmp_path / "old.db")
    assert ledger.boundary(PIPELINE, hour_at(1)) is None
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
    """Boundaries that are frozen in any calls have the same result as when frozen one by one.

    In the order of labels each boundary is clamped between the frozen ones, and all of them
    tile.
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
