"""Maintenance changes files and versions of a table, and never its rows or receipts."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.clock import clock_ahead
from tests.sinks.kit.commit.test_sweep import age_files, commit, staged_paths, version
from tests.sinks.world import SinkWorld
from tests.sinks.worlds import world_of
from windrow.ingest.errors import OutcomeUnknownError, RefusedError, UnreachableError
from windrow.ingest.ports.sink import Done, Maintained, Maintenance
from windrow.ingest.sinks.kit.commit.maintain import LEASE_TIME
from windrow.ingest.sinks.kit.commit.table_store import Answer, TableChange, Unanswered
from windrow.ingest.testing.contracts.commit_hooks import answer_puts, on_put, run_between
from windrow.ingest.testing.contracts.windows import staged_receipt, window

pytestmark = pytest.mark.parametrize("kind", ["delta", "files", "iceberg"])

DAY = timedelta(days=1)
JOIN = Maintenance(keep_files=DAY, file_size=1 << 20)
ALL = Maintenance(keep_files=DAY, keep_versions=timedelta(minutes=-30), file_size=1 << 20)
"""Old versions go at once. Files stay for a day."""

WINDOWS = range(3)


@pytest.fixture
def world(kind: str) -> SinkWorld:
    return world_of(kind)


@pytest.fixture
def sink(world: SinkWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A table with three windows of two files each."""
    sink = world.sink_at(world.new_location(tmp_path, None))
    monkeypatch.setattr(type(sink.store), "waits", (0.0, 0.0))
    sink.prepare()
    for number in WINDOWS:
        commit(sink, number)
    return sink


def assert_same(world: SinkWorld, sink: Any, committed: list[Any], files_each: int = 1) -> None:
    """Checks receipts, rows and dead letters as another process sees them, and counts files."""
    fresh = world.reopen(sink)
    assert [c.receipt for c in fresh.receipts()] == [c.receipt for c in committed]
    report = world.report(fresh, WINDOWS)
    assert report.ok, str(report)
    assert len(world.pieces(fresh)) == files_each * len(WINDOWS)


def test_it_joins_the_files_of_each_window(world: SinkWorld, sink: Any) -> None:
    """Each window has one file after it, with the same rows under the same receipts. A dry run
    says the same and does nothing, and the next maintenance has nothing to do.
    """
    committed, old_version = list(sink.receipts()), version(sink)
    expected = Maintained(joined_files=6, new_files=3)
    assert sink.maintain(JOIN, dry_run=True) == expected
    assert version(sink) == old_version
    assert sink.maintain(JOIN) == expected
    assert sink.dead_letters.maintain(JOIN) == expected
    assert_same(world, sink, committed)
    joined_version = version(sink)
    assert world.reopen(sink).maintain(JOIN) == Maintained()
    assert version(sink) == joined_version
    assert isinstance(commit(world.reopen(sink), 1, 1, "b1"), Done)
    assert isinstance(commit(world.reopen(sink), 3), Done)
    assert world.report(world.reopen(sink), range(4)).ok


def test_files_up_to_the_size_are_joined(sink: Any) -> None:
    """No file becomes larger than the size, and a file of three quarters of it stays."""
    with sink.store.reading() as state:
        (size, *_), *_ = [[f.size for f in files] for files in state.files_by_partition().values()]
    for file_size in (size, size * 4 // 3):
        settings = Maintenance(keep_files=DAY, file_size=file_size)
        assert sink.maintain(settings, dry_run=True) == Maintained()


def test_a_run_in_between_loses_nothing(world: SinkWorld, sink: Any) -> None:
    """A replay and a new window that are committed while files are joined stay as they are."""
    puts: list[TableChange] = []

    def others(state: Any, change: TableChange) -> Answer:
        puts.append(change)
        if len(puts) == 2:
            commit(world.reopen(sink), 1, 1, "b1")
            commit(world.reopen(sink), 3)
        answer: Answer = state.put(change)
        return answer

    on_put(sink, others)
    assert sink.maintain(JOIN) == Maintained(joined_files=4, new_files=2)
    fresh = world.reopen(sink)
    assert [c.receipt.generation for c in fresh.receipts()] == [0, 1, 0, 0]
    assert world.report(fresh, range(4)).ok, str(world.report(fresh, range(4)))


def test_two_do_not_meet(world: SinkWorld, sink: Any) -> None:
    """While one maintenance is at work, another one is refused; a killed one is waited for."""

    def second() -> None:
        with pytest.raises(RefusedError, match="another process maintains the table"):
            world.reopen(sink).maintain(JOIN)

    puts: list[TableChange] = []

    def overtaken(state: Any, change: TableChange) -> Answer:
        puts.append(change)
        if len(puts) == 2:
            second()
            raise KeyboardInterrupt
        answer: Answer = state.put(change)
        return answer

    on_put(sink, overtaken)
    with pytest.raises(KeyboardInterrupt):
        sink.maintain(JOIN)
    second()
    with clock_ahead(LEASE_TIME):
        assert world.reopen(sink).maintain(JOIN).new_files == 3


def test_one_that_was_too_slow_stops(world: SinkWorld, sink: Any) -> None:
    """A maintenance whose lease has ended, and was taken by another one, changes nothing more."""

    def overtake() -> None:
        with clock_ahead(LEASE_TIME * 2):
            assert world.reopen(sink).maintain(JOIN).new_files == 3

    puts: list[TableChange] = []

    def slow(state: Any, change: TableChange) -> Answer:
        puts.append(change)
        if len(puts) == 2:
            overtake()
        answer: Answer = state.put(change)
        return answer

    committed = list(sink.receipts())
    on_put(sink, slow)
    with pytest.raises(RefusedError, match="another process maintains the table"):
        sink.maintain(JOIN)
    assert_same(world, sink, committed)


@pytest.mark.some(3)
@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_a_kill_at_any_step(world: SinkWorld, sink: Any, number: int, *, arrives: bool) -> None:
    """After a kill before or after any commit, the next maintenance ends the work. What the
    killed one has written goes.
    """
    committed, puts = list(sink.receipts()), list[TableChange]()

    def die(state: Any, change: TableChange) -> Answer:
        puts.append(change)
        if len(puts) <= number:
            answer: Answer = state.put(change)
            return answer
        if arrives:
            state.put(change)
        raise KeyboardInterrupt

    on_put(sink, die)
    with suppress(KeyboardInterrupt):
        sink.maintain(ALL)
    assert world.report(world.reopen(sink), WINDOWS).ok
    with clock_ahead(LEASE_TIME):
        world.reopen(sink).maintain(ALL)
    assert_same(world, sink, committed)
    with clock_ahead(2 * DAY):
        world.reopen(sink).maintain(ALL)
    assert_same(world, sink, committed)
    named = len(WINDOWS) * 3  # the joined file, and two files of dead letters
    assert len(staged_paths(sink)) == named


@pytest.mark.parametrize("arrives", [False, True])
def test_a_kill_while_dead_letters_expire(world: SinkWorld, sink: Any, *, arrives: bool) -> None:
    """After a kill before or after the commit, dead letters and note are both there or both gone,
    and the next maintenance ends the work.
    """

    def die(state: Any, change: TableChange) -> Answer:
        if arrives:
            state.put(change)
        raise KeyboardInterrupt

    on_put(sink.dead_letters, die)
    with suppress(KeyboardInterrupt):
        sink.dead_letters.expire(window(0), "a1")
    fresh = world.reopen(sink)
    assert fresh.dead_letters.is_expired(window(0), "a1") is arrives
    assert (fresh.read_dead(window(0)).num_rows == 0) is arrives
    assert fresh.dead_letters.expire(window(0), "a1")
    assert world.reopen(sink).read_dead(window(0)).num_rows == 0


def test_no_answer_is_looked_for(world: SinkWorld, sink: Any) -> None:
    """A commit that arrives without an answer counts; one that never arrives fails."""
    committed = list(sink.receipts())
    answer_puts(sink, *[(Unanswered("the line is cut"), True)] * 3)
    assert sink.maintain(JOIN).new_files == 3
    assert_same(world, sink, committed)
    commit(sink, 0, 1, "b1")
    answer_puts(sink, *[(Unanswered("no route"), False)] * 9)
    with pytest.raises(OutcomeUnknownError, match="no route"):
        sink.maintain(JOIN)


def test_a_lease_that_stays(world: SinkWorld, sink: Any) -> None:
    """If the storage is gone when a maintenance ends, the error says from when on it can be run
    again, and then it can.
    """
    puts: list[TableChange] = []

    def vanish(state: Any, change: TableChange) -> Answer:
        puts.append(change)
        if len(puts) > 1:
            raise UnreachableError("no route", "commit", "Run it again.")
        answer: Answer = state.put(change)
        return answer

    on_put(sink, vanish)
    with pytest.raises(
        UnreachableError, match=r"no route.* then another one is refused until 2\S+Z"
    ):
        sink.maintain(JOIN)
    with pytest.raises(RefusedError, match="another process maintains the table"):
        world.reopen(sink).maintain(JOIN)
    with clock_ahead(LEASE_TIME):
        assert world.reopen(sink).maintain(JOIN).new_files == 3


def test_a_window_that_is_swept_meanwhile(sink: Any) -> None:
    """Joined files that a sweep of another process gave up are refused before a commit."""
    late = staged_receipt(sink, 5, attempt="late", dead=False)
    age_files(sink)
    run_between(sink, lambda: sink.sweep(DAY))
    with pytest.raises(RefusedError, match="gone"):
        sink.commit(*late)
    assert sink.look(window(5)) is None


def test_replaced_files_stay_for_readers(world: SinkWorld, sink: Any, kind: str) -> None:
    """Files that were joined stay as long as a reader of an older version may need them."""
    sink.maintain(JOIN)
    age_files(sink)
    committed = list(sink.receipts())
    settings = Maintenance(keep_files=DAY, keep_versions=7 * DAY)
    assert world.reopen(sink).maintain(settings) == Maintained()
    before = len(staged_paths(sink))
    if kind == "files":
        with clock_ahead(2 * DAY):
            removed = world.reopen(sink).maintain(settings).removed_files
    else:
        removed = world.reopen(sink).maintain(ALL).removed_files
    gone = [path for path in removed if "/metadata/" not in path]
    assert (len(gone), before - len(staged_paths(sink))) == (6, 6)
    assert_same(world, sink, committed)
