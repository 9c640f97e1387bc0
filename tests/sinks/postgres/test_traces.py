"""The model of PostgreSQL's protocol doesn't drift from the code: what real sinks say
to a server in races and deaths, it can do.
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
from windrow.ingest.testing.contracts.commit_hooks import in_between
from windrow.ingest.testing.contracts.windows import staged_receipt, together

__all__ = ["recorder"]

pytestmark = [pytest.mark.slow, pytest.mark.some(1)]


def open_recorded(location: str, recorder: Recorder, who: str) -> Any:
    """A run's sink, of the kind that the table's name says."""
    return record_sink(_world(location).sink_at(location), recorder, who, RecordedPostgres)


def _world(location: str) -> SinkWorld:
    return world_of("postgres-keyed" if location.endswith("keyed") else "postgres")


@pytest.fixture(params=["orders", "keyed"])
def location(database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prepared table without and with a primary key."""
    location = f"{database}#{request.param}"
    _world(location).sink_at(location).prepare()
    record_the_wire(monkeypatch)
    return location


@pytest.fixture
def make(location: str, recorder: Recorder) -> Make:
    """Runs' sinks on the table."""
    return partial(open_recorded, location, recorder)


def follow_recorded(recorder: Recorder, scenario: str = "one window twice") -> list[Event]:
    """The trace, once the model has followed all of it."""
    return traced.follow_trace(Transaction(), recorder, scenario)


def test_a_race_is_followed(make: Make, recorder: Recorder) -> None:
    """B comes to the lock while A is inside, waits, and finds A's receipt behind it."""
    first, second, results = make("A"), make("B"), []
    inside = threading.Event()
    HELD_UP.clear()

    def other_comes() -> None:
        inside.set()
        assert HELD_UP.wait(60)

    def second_runs() -> None:
        assert inside.wait(60)
        results.append(commit_window(second))

    in_between(first, other_comes)
    together([lambda: results.append(commit_window(first)), second_runs])
    run_steps = [(e.who, e.name, e.reply) for e in follow_recorded(recorder)]
    assert run_steps[-3:] == [("B", "lock", "ok"), ("B", "look", "A"), ("B", "end", None)]


class TestShared(SharedTraces):
    """Two windows, and two replays."""

    model = Transaction


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_is_followed(
    make: Make, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """Whether the COMMIT arrived or not, the sink locks and looks again, and writes
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
    """The server ends the session that has the lock, and waits for its client."""
    with psycopg.Connection.connect(location.partition("#")[0], autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(l.pid, 10000) FROM pg_locks l JOIN pg_stat_activity a ON"
            " a.pid = l.pid WHERE a.state = 'idle in transaction' AND l.relation ="
            " 'windrow.targets'::regclass"
        )


def test_a_session_that_is_ended_is_followed(make: Make, recorder: Recorder, location: str) -> None:
    """The server ends A's session behind its look; A takes the lock anew, and looks anew."""
    first = make("A")
    in_between(first, partial(end_session, location))
    assert isinstance(commit_window(first), Done)
    step_names = [e.name for e in follow_recorded(recorder) if e.reply != "gone"]
    assert step_names == ["keep_letters", "lock", "look", "lock", "look", "insert", "send_commit"]


def test_a_file_that_is_cut_is_followed(make: Make, recorder: Recorder) -> None:
    """A staged file isn't whole any more: what of it was streamed in is taken back, and
    another run's files bring the window.
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
    """A run, in a process of its own, whose idle sessions the server ends at once; it
    is struck around its COMMIT.
    """
    server.IDLE = "300ms"
    commit, sink = server.commit, open_recorded(location, recorder, "A")

    def commit_struck(connection: Any) -> None:
        if committed:
            commit(connection)
        os.kill(os.getpid(), strike)
        commit(connection)

    record_the_wire(pytest.MonkeyPatch())
    # the dead letters' commit is behind it
    in_between(sink, lambda: setattr(server, "commit", commit_struck))
    commit_window(sink)


@pytest.mark.parametrize("committed", [False, True])
def test_a_kill_is_followed(make: Make, location: str, recorder: Recorder, committed: bool) -> None:
    """A is killed right before or behind its COMMIT; B finds what A left."""
    first = SERVER.Process(target=struck_at, args=(location, recorder, signal.SIGKILL, committed))
    first.start()
    first.join(60)
    assert first.exitcode == -signal.SIGKILL
    assert isinstance(commit_window(make("B")), AlreadyDone if committed else Done)
    follow_recorded(recorder)


def test_a_zombie_is_followed(make: Make, location: str, recorder: Recorder) -> None:
    """A is stopped before its COMMIT, so the server ends its session, and B commits; A
    wakes, and finds B's receipt.
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


# --------------------------------------------------------------------------------------------------


def test_a_look_before_the_lock_is_not_followed(make: Make, recorder: Recorder) -> None:
    """A looks, B commits, A writes: the model has no look without the lock."""
    first = make("A")
    locks_nothing(first)
    in_between(first, partial(commit_window, make("B")))
    with suppress(WindrowError):
        commit_window(first)
    refused_step, *_ = refused_events(Transaction(), "one window twice", recorder.trace())
    assert (refused_step.who, refused_step.name, refused_step.reply) == ("A", "look", None)


def test_rows_without_their_receipt_are_not_followed(
    make: Make, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed without a receipt, or before it, is no step of the model's."""
    monkeypatch.setattr(BoundTable, "put_receipt", lambda *_: None)
    commit_window(make("A"))
    assert [
        (e.name, e.reply)
        for e in refused_events(Transaction(), "one window twice", recorder.trace())
    ] == [("send_commit", "ok")]


def test_a_second_try_without_a_look_is_not_followed(
    make: Make, recorder: Recorder, location: str
) -> None:
    """A sink that takes its first look for the truth, after its session was ended,
    locks and writes.
    """
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
    in_between(sink, ended)
    commit_window(sink)
    first, *_ = refused_events(Transaction(), "one window twice", recorder.trace())
    assert (first.name, first.reply) == ("insert", "all")
