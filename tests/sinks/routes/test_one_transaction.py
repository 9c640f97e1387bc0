"""Tables of one database: readers see a window in all of them, or in none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.postgres.world import sink_at
from tests.sinks.routes.test_routed import assert_complete, attempt
from tests.sinks.routes.world import FIRST, SECOND, RoutedBoth, pieces
from tests.sinks.sqlite.world import SqliteBoth
from windrow.ingest.crashpoints import CrashError
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks.kit.commit.table_store import Answer, Unanswered
from windrow.ingest.sinks.postgres.store import PostgresState
from windrow.ingest.sinks.routes import sink as routes
from windrow.ingest.sinks.sqlite.store import SqliteState
from windrow.ingest.testing.contracts.windows import ROWS, staged_dead_replay, window

OpenTables = Callable[[int], RoutedBoth]


@pytest.fixture(params=["sqlite", "postgres"])
def open_tables(request: pytest.FixtureRequest, tmp_path: Path) -> OpenTables:
    """Opens a sink with this number of routes to tables of one database, and prepares it."""
    url = request.getfixturevalue("database") if request.param == "postgres" else None

    def open_table(name: str) -> Any:
        if url is None:
            return SqliteBoth(str(tmp_path / "lake.sqlite"), ROWS, table=name)
        return sink_at(f"{url}#public.{name}", ROWS, DEFAULT)

    def open_sink(routes: int) -> RoutedBoth:
        rules = [(FIRST, open_table("first")), (SECOND, open_table("second"))]
        last_table = open_table("orders")
        sink = RoutedBoth(rules[:routes], last_table, last_table.dead_letters, ROWS, DEFAULT)
        sink.prepare()
        return sink

    return open_sink


def attempts_in(sink: RoutedBoth) -> list[str | None]:
    """Returns the attempt that committed window 0 to each table; None if it isn't there."""
    committed = [table.look(window(0)) for table in (*sink.tables, sink.other)]
    return [None if newest is None else newest.receipt.attempt for newest in committed]


def crash(sink: RoutedBoth, point: str, patch: pytest.MonkeyPatch) -> None:
    """Runs window 0 as attempt `a1`, which dies at a point."""
    with patch.context() as crashing:
        crashing.setenv("WINDROW_CRASH", f"{point}:raise")
        with pytest.raises(CrashError):
            attempt(sink, 0, "a1")


@pytest.mark.parametrize("point", ["commit.between", "commit.before"])
def test_a_crash_before_the_commit(
    open_tables: OpenTables, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that dies before its COMMIT leaves no rows in any table; the next run commits all."""
    sink = open_tables(2)
    crash(sink, point, monkeypatch)
    assert attempts_in(sink) == [None] * 3
    assert pieces(sink) == []
    assert isinstance(attempt(sink, 0, "a2"), Done)
    assert attempts_in(sink) == ["a2"] * 3
    assert_complete(sink, [0])


def test_a_crash_after_the_commit(open_tables: OpenTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that dies after its COMMIT leaves the window in all tables; the next run sees it."""
    sink = open_tables(2)
    crash(sink, "commit.after", monkeypatch)
    assert isinstance(attempt(sink, 0, "a2"), AlreadyDone)
    assert attempts_in(sink) == ["a1"] * 3
    assert_complete(sink, [0])


@pytest.mark.parametrize("arrives", [True, False])
def test_a_commit_without_an_answer(
    open_tables: OpenTables, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A COMMIT without an answer is written again in all tables if it didn't arrive, else not."""
    sink = open_tables(2)
    commits = []
    for state_class in (PostgresState, SqliteState):
        commit = state_class.commit

        def commit_once(
            state: Any, receipt: Receipt | None, commit: Callable[..., Answer] = commit
        ) -> Answer:
            if receipt is None:  # a commit of dead letters
                return commit(state, receipt)
            commits.append(receipt)
            if len(commits) > 1:
                return commit(state, receipt)
            if arrives:
                commit(state, receipt)
            return Unanswered("connection reset")

        monkeypatch.setattr(state_class, "commit", commit_once)
    assert isinstance(attempt(sink, 0, "a1"), Done)
    assert len(commits) == (1 if arrives else 2)
    assert attempts_in(sink) == ["a1"] * 3


def test_readers_see_no_part_of_a_window(
    open_tables: OpenTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the writes to two tables, other connections see the window in none of them."""
    sink, reader = open_tables(2), open_tables(2)
    seen: list[Sequence[str | None]] = []
    monkeypatch.setattr(routes, "crash_point", lambda _point: seen.append(attempts_in(reader)))
    attempt(sink, 0, "a1")
    assert seen == [[None] * 3] * 2
    assert attempts_in(reader) == ["a1"] * 3


def test_a_table_that_refuses_a_window(
    open_tables: OpenTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the last table refuses a window, no other table has rows of it."""
    sink = open_tables(2)

    def refuse(*_: object) -> None:
        raise RefusedError("the table holds other rows", "commit", "Remove them.")

    with monkeypatch.context() as refusing:
        refusing.setattr(sink.other, "refuse_foreign_rows", refuse)
        with pytest.raises(RefusedError, match="other rows"):
            attempt(sink, 0, "a1")
    assert pieces(sink) == []
    assert isinstance(attempt(sink, 0, "a2"), Done)
    assert_complete(sink, [0])


def test_replays_and_a_table_that_comes_later(open_tables: OpenTables) -> None:
    """Replays commit together too. A new table gets the earlier generations in that commit."""
    sink = open_tables(1)
    attempt(sink, 0, "a0")
    attempt(sink, 0, "a1", 1)
    sink = open_tables(2)
    assert isinstance(attempt(sink, 0, "a2", 2), Done)
    assert attempts_in(sink) == ["a2"] * 3
    newest = sink.look(window(0)).receipt
    assert isinstance(sink.commit(*staged_dead_replay(sink, newest, "m1")), Done)
    assert isinstance(sink.commit(*staged_dead_replay(sink, newest, "m2")), AlreadyDone)
    assert_complete(sink, [0])
