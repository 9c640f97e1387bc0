"""What a sweep takes: never what counts, and what it takes can't be committed any more."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.files.test_log import commit, fresh
from tests.sinks.files.world import FilesBoth, report
from tests.sinks.hooks import answered, in_between
from tests.sinks.things import FIRST, ROWS, staged_dead_replay, staged_receipt, window
from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks import put_if_absent, sweep
from windrow.ingest.sinks.files.manifest import path_of
from windrow.ingest.sinks.files.reader import list_files
from windrow.ingest.sinks.place import Place, millis
from windrow.ingest.sinks.table_store import Unanswered

pytestmark = pytest.mark.slow  # its dead letters are a Delta table

HOUR = timedelta(hours=1)


@pytest.fixture
def sink(tmp_path: Path) -> Any:
    """A prepared sink."""
    made = FilesBoth(str(tmp_path / "orders"), ROWS)
    made.prepare()
    return made


def age(sink: Any) -> None:
    """Let all data files be older than the windows' own receipts say."""
    for file in (Path(sink.uri) / "data").rglob("*.parquet"):
        os.utime(file, (FIRST.timestamp() - 86_400,) * 2)


def test_what_came_to_nothing_goes(sink: Any) -> None:
    """Files of an attempt that was never committed go once they are old enough; what is
    committed stays, replayed windows too.
    """
    commit(sink, 0)
    sink.commit(*staged_dead_replay(sink, sink.look(window(0)).receipt, "m"))
    staged_receipt(sink, 1, 0, "came to nothing")
    assert sink.sweep(HOUR) == []
    age(sink)
    found = sink.sweep(HOUR, dry_run=True)
    assert len(found) == 2
    assert fresh(sink).sweep(HOUR) == found
    assert sink.sweep(HOUR) == []
    assert report(sink, range(1)).ok
    with pytest.raises(ValueError, match="grace"):
        sink.sweep(timedelta(minutes=1))


def test_a_replaced_generation_stays_for_those_who_read_it(sink: Any) -> None:
    """However old its files are: until the grace period since the replacement is over."""
    commit(sink, 0)
    listed = list_files(sink.uri)
    age(sink)
    made, staged = staged_receipt(sink, 0, 1, "b1")
    sink.commit_dead(made.plan, "b1", staged)
    sink.commit(made, staged)
    old = list(sink.store.files.walk("data"))
    with sink.store.reading() as state:
        since = millis(sink.store.files.seen([path_of(2)])[path_of(2)].modified)
        assert state.unneeded(old, since - 1) == {}
        assert sorted(f"{sink.uri}/{path}" for path in state.unneeded(old, since)) == sorted(listed)


def test_a_replaced_generation_stays_behind_later_commits(sink: Any) -> None:
    """The grace period of its files is remembered by every commit that comes after it."""
    commit(sink, 0)
    listed = list_files(sink.uri)
    made, staged = staged_receipt(sink, 0, 1, "b1")
    sink.commit_dead(made.plan, "b1", staged)
    sink.commit(made, staged)
    commit(sink, 1)
    age(sink)
    assert fresh(sink).sweep(HOUR) == []
    assert all(Path(path).exists() for path in listed)


def test_what_was_given_up_is_not_committed(sink: Any) -> None:
    """An attempt that wakes after its files were swept is refused, and the window can
    be run again.
    """
    made, staged = staged_receipt(sink, 0, 0, "slow")
    age(sink)
    assert len(fresh(sink).sweep(HOUR)) == 2
    with pytest.raises(RefusedError, match="gone or cut short"):
        sink.commit(made, staged)
    assert isinstance(commit(sink, 0), Done)
    assert report(sink, range(1)).ok


def test_a_commit_that_arrives_while_a_sweep_looks(sink: Any) -> None:
    """Between the sweep's look and its note: the sweep finds the name taken, looks
    again, and leaves the files alone.
    """
    made, staged = staged_receipt(sink, 0, 0, "slow")
    sink.commit_dead(made.plan, "slow", staged)
    age(sink)
    sweeper = fresh(sink)
    in_between(sweeper, lambda: sink.commit(made, staged))
    assert sweeper.sweep(HOUR) == []
    assert report(sink, range(1)).ok


def test_a_run_that_a_sweep_overtakes(sink: Any) -> None:
    """Between the run's look and its put: its put meets another state, it reads the
    note, and names no file that is gone.
    """
    late = fresh(sink)
    made, staged = staged_receipt(late, 0, 0, "late")
    late.commit_dead(made.plan, "late", staged)
    age(sink)
    in_between(late, lambda: sink.sweep(HOUR))
    with pytest.raises(RefusedError, match="gone"):
        late.commit(made, staged)
    assert isinstance(commit(sink, 0), Done)
    assert report(sink, range(1)).ok


def test_what_was_given_up_and_is_not_removed_yet(
    sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep that was stopped between its note and its removals: the files are seen,
    and may not be named all the same.
    """
    made, staged = staged_receipt(sink, 0, 0, "slow")
    age(sink)
    monkeypatch.setattr(Place, "remove", lambda *_: None)
    assert len(fresh(sink).sweep(HOUR)) == 2
    with pytest.raises(RefusedError, match="given up"):
        sink.commit(made, staged)


def test_without_the_note_it_would_take_what_counts(
    sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep that doesn't note first what it gives up loses the rows of a commit that
    comes in between: the note carries the promise.
    """
    made, staged = staged_receipt(sink, 0, 0, "slow")
    sink.commit_dead(made.plan, "slow", staged)
    age(sink)

    def silent(store: Any, staged_files: Any, cutoff: int) -> Any:
        gone = sweep.orphans(store, staged_files, cutoff)
        sink.commit(made, staged)
        return gone

    monkeypatch.setattr(sweep, "given_up", silent)
    assert len(fresh(sink).sweep(HOUR)) == 2
    with pytest.raises(RefusedError, match="gone"):
        report(sink, range(1))


def test_a_sweep_that_cannot_say_so_removes_nothing(
    sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the log can't be written, every file stays."""
    staged_receipt(sink, 0, 0, "came to nothing")
    age(sink)
    monkeypatch.setattr(put_if_absent, "WAITS", (0.0,))
    answered(sink, *[(Unanswered("Input/output error"), False)] * 10)
    with pytest.raises(UnreachableError, match="nothing was removed"):
        sink.sweep(HOUR)
    assert len(list((Path(sink.uri) / "data").rglob("*.parquet"))) == 2
