"""The model of PostgreSQL's protocol against the code: the model can do each step that real
sinks do in races and deaths.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.protocols.traces import Event, Recorder, refused_events
from tests.protocols.transaction import Transaction
from tests.sinks import traced
from tests.sinks.postgres.recorded import HELD_UP, RecordedPostgres, record_the_wire
from tests.sinks.postgres.twins import locks_nothing
from tests.sinks.traced import Make, SharedTraces, commit_window, record_sink, recorder
from tests.sinks.world import SinkWorld
from tests.sinks.worlds import world_of
from tests.warm import SERVER, stops
from windrow.ingest.errors import RefusedError, WindrowError
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks.postgres import server
from windrow.ingest.sinks.postgres.catalog import BoundTable
from windrow.ingest.testing.contracts.commit_hooks import run_between
from windrow.ingest.testing.contracts.windows import run_together, staged_receipt

__all__ = ["recorder"]

pytestmark = [pytest.mark.slow, pytest.mark.some(1)]


def open_recorded(location: str, recorder: Recorder, who: str) -> Any:
    """Opens the recorded sink of a run; the table's name says which kind it is."""
    return record_sink(_world(location).sink_at(location), recorder, who, RecordedPostgres)


def _world(location: str) -> SinkWorld:
    return world_of("postgres-keyed" if location.endswith("keyed") else "postgres")


@pytest.fixture(params=["orders", "keyed"])
def location(database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The location of a prepared table, without and with a primary key."""
    location = f"{database}#{request.param}"
    _world(location).sink_at(location).prepare()
    record_the_wire(monkeypatch)
    return location


@pytest.fixture
def make(location: str, recorder: Recorder) -> Make:
    """A function that opens runs' sinks on the table."""
    return partial(open_recorded, location, recorder)


def follow_recorded(recorder: Recorder, scenario: str = "one window twice") -> list[Event]:
    """Asserts that the model can follow the whole trace, and returns the trace."""
    return traced.follow_trace(Transaction(), recorder, scenario)


def test_a_race_is_followed(make: Make, recorder: Recorder) -> None:
    """The model follows a race: B waits for the lock that A has, and then finds A's receipt."""
    first, second, results = make("A"), make("B"), []
    inside = threading.Event()
    HELD_UP.clear()

    def other_comes() -> None:
        inside.set()
        assert HELD_UP.wait(60)

    def second_runs() -> None:
        assert inside.wait(60)
        results.append(commit_window(second))

    run_between(first, other_comes)
    run_together([lambda: results.append(commit_window(first)), second_runs])
    run_steps = [(e.who, e.name, e.reply) for e in follow_recorded(recorder)]
    assert run_steps[-3:] == [("B", "lock", "ok"), ("B", "look", "A"), ("B", "end", None)]


class TestShared(SharedTraces):
    """Traces that every kind shares: two windows, and two replays."""

    model = Transaction


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_is_followed(
    make: Make, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """The model follows a COMMIT with a lost answer: the sink locks and looks again, and writes
    only what isn't there.
    """
    execute, lost_queries = psycopg.Cursor.execute, []

    def execute_losing_commit(cursor: Any, query: Any, *args: Any, **more: Any) -> Any:
        if query != "COMMIT" or lost_queries:
            return execute(cursor, query, *args, **more)
        lost_queries.append(query)
        if arrives:
            execute(cursor, query)
        cursor.connection.close()
        raise psycopg.OperationalError("the answer was lost")

    sink = make("A")
    receipt, staged = staged_receipt(sink, 0, 0, "A")
    sink.commit_dead(receipt.plan, "A", staged)
    monkeypatch.setattr(psycopg.Cursor, "execute", execute_losing_commit)
    assert isinstance(sink.commit(receipt, staged), Done)
    assert [e.reply for e in follow_recorded(recorder) if e.name == "send_commit"] == (
        ["unknown"] if arrives else ["unknown", "ok"]
    )


def end_session(location: str) -> None:
    """Ends the session that has the lock, and waits until its client is gone."""
    with psycopg.Connection.connect(location.partition("#")[0], autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(l.pid, 10000) FROM pg_locks l JOIN pg_stat_activity a ON"
            " a.pid = l.pid WHERE a.state = 'idle in transaction' AND l.relation ="
            " 'windrow.targets'::regclass"
        )


def test_a_session_that_is_ended_is_followed(make: Make, recorder: Recorder, location: str) -> None:
    """The model follows a session that is ended after its look: A locks and looks again."""
    first = make("A")
    run_between(first, partial(end_session, location))
    assert isinstance(commit_window(first), Done)
    step_names = [e.name for e in follow_recorded(recorder) if e.reply != "gone"]
    assert step_names == ["keep_letters", "lock", "look", "lock", "look", "insert", "send_commit"]


def test_a_file_that_is_cut_is_followed(make: Make, recorder: Recorder) -> None:
    """The model follows a staged file that is cut: its rows are rolled back, and another run's
    files bring the window.
    """
    sink = make("A")
    receipt, staged = staged_receipt(sink, 0, 0, "A")
    sink.commit_dead(receipt.plan, "A", staged)
    for file in Path(sink.store.staged.uri).rglob("*/A-*.copy"):
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(RefusedError, match="bytes"):
        sink.commit(receipt, staged)
    assert isinstance(commit_window(make("B")), Done)
    assert [(e.who, e.name, e.reply) for e in follow_recorded(recorder)][3:5] == [
        ("A", "insert", "cut"),
        ("A", "end", None),
    ]


def struck_at(location: str, recorder: Recorder, strike: signal.Signals, committed: bool) -> None:
    """Runs a window in another process, and sends itself a signal right before or after the
    COMMIT.

    The server ends idle sessions after 300 ms.
    """
    server.IDLE = "300ms"
    commit, sink = server.commit, open_recorded(location, recorder, "A")

    def commit_struck(connection: Any) -> None:
        if committed:
            commit(connection)
        os.kill(os.getpid(), strike)
        commit(connection)

    record_the_wire(pytest.MonkeyPatch())
    # from here on, the dead letters' commit is over
    run_between(sink, lambda: setattr(server, "commit", commit_struck))
    commit_window(sink)


@pytest.mark.parametrize("committed", [False, True])
def test_a_kill_is_followed(make: Make, location: str, recorder: Recorder, committed: bool) -> None:
    """The model follows a kill right before or after A's COMMIT: B finds what A left."""
    first = SERVER.Process(target=struck_at, args=(location, recorder, signal.SIGKILL, committed))
    first.start()
    first.join(60)
    assert first.exitcode == -signal.SIGKILL
    assert isinstance(commit_window(make("B")), AlreadyDone if committed else Done)
    follow_recorded(recorder)


def test_a_zombie_is_followed(make: Make, location: str, recorder: Recorder) -> None:
    """The model follows a zombie: A is stopped before its COMMIT, the server ends its session,
    B commits, and A finds B's receipt.
    """
    first = SERVER.Process(target=struck_at, args=(location, recorder, signal.SIGSTOP, False))
    first.start()
    try:
        assert stops(first)
        assert isinstance(commit_window(make("B")), Done)
        assert first.pid is not None
        os.kill(first.pid, signal.SIGCONT)
        first.join(60)
        assert first.exitcode == 0
    finally:
        first.kill()
        first.join(60)
    run_steps = [(e.who, e.name, e.reply) for e in follow_recorded(recorder)]
    assert run_steps[-4:] == [
        ("A", "send_commit", "unknown"),
        ("A", "lock", "ok"),
        ("A", "look", "B"),
        ("A", "end", None),
    ]


# --- broken twins


def test_a_look_before_the_lock_is_not_followed(make: Make, recorder: Recorder) -> None:
    """The model doesn't follow a look without the lock: A looks, B commits, A writes."""
    first = make("A")
    locks_nothing(first)
    run_between(first, partial(commit_window, make("B")))
    with suppress(WindrowError):
        commit_window(first)
    refused_step, *_ = refused_events(Transaction(), "one window twice", recorder.trace())
    assert (refused_step.who, refused_step.name, refused_step.reply) == ("A", "look", None)


def test_rows_without_their_receipt_are_not_followed(
    make: Make, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model doesn't follow a COMMIT of rows without their receipt."""
    monkeypatch.setattr(BoundTable, "put_receipt", lambda *_: None)
    commit_window(make("A"))
    assert [
        (e.name, e.reply)
        for e in refused_events(Transaction(), "one window twice", recorder.trace())
    ] == [("send_commit", "ok")]


def test_a_second_try_without_a_look_is_not_followed(
    make: Make, recorder: Recorder, location: str
) -> None:
    """The model doesn't follow a second try without a look, after the first session was ended."""
    sink = make("A")
    writing, looked = sink.store.writing, list[object]()

    @contextmanager
    def write_without_receipts() -> Iterator[Any]:
        with writing() as state:
            if looked:
                state.receipts = lambda _: iter(())
            yield state

    def ended() -> None:
        looked.append(None)
        end_session(location)

    sink.store.writing = write_without_receipts
    run_between(sink, ended)
    commit_window(sink)
    first, *_ = refused_events(Transaction(), "one window twice", recorder.trace())
    assert (first.name, first.reply) == ("insert", "all")
