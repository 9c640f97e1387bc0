"""A sweep removes only files that no commit can name any more: a late commit of them is
refused, an earlier one keeps its files.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.clock import clock_ahead
from tests.sinks.sqlite.world import SqliteBoth
from tests.sinks.world import SinkWorld
from tests.sinks.worlds import world_of
from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks.kit.commit import sweep
from windrow.ingest.sinks.kit.commit.sweep import orphans
from windrow.ingest.sinks.kit.commit.table_store import Unanswered
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.testing.contracts.commit_hooks import answer_puts, run_between
from windrow.ingest.testing.contracts.windows import (
    ROWS,
    staged_dead_replay,
    staged_receipt,
    window,
)
from windrow.ingest.testing.contracts.with_dead_letters import swept

GRACE = timedelta(hours=2)

files_stay = pytest.mark.parametrize("kind", ["delta", "files", "iceberg"])
"""Kinds whose commits name the staged files. The other kinds copy their content."""


@pytest.fixture
def world(kind: str) -> SinkWorld:
    return world_of(kind)


@pytest.fixture
def sink(world: SinkWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A table with one window, whose sink doesn't wait between tries."""
    sink = world.sink_at(world.new_location(tmp_path, None))
    monkeypatch.setattr(type(sink.store), "waits", (0.0, 0.0))
    sink.prepare()
    commit(sink, 0)
    return sink


def commit(sink: Any, number: int, generation: int = 0, attempt: str = "a1") -> Any:
    receipt, staged = staged_receipt(sink, number, generation, attempt)
    sink.commit_dead(receipt.plan, attempt, staged)
    return sink.commit(receipt, staged)


def staged_paths(sink: Any) -> list[Path]:
    """Returns all staged files of rows and dead letters, committed or not."""
    paths = []
    for store in (sink.store, sink.dead_letters.store):
        root = Path(store.staged.uri.removeprefix("file://"))
        paths += [p for f in store.staged.folders for p in (root / f).rglob("*") if p.is_file()]
    return paths


def age_files(sink: Any, hours: float = 100_000) -> None:
    """Sets the time of all staged files back."""
    for path in staged_paths(sink):
        os.utime(path, (path.stat().st_mtime - hours * 3600,) * 2)


@pytest.mark.parametrize("kind", ["delta", "files", "iceberg", "sqlite"])
def test_a_file_of_progress_goes(world: SinkWorld, sink: Any) -> None:
    """A sweep removes an old progress file, and nothing else.

    A worker writes it with a pickled copy of the driver's folder, and it is no row.
    """
    driver = sink.progress_folder()
    with pickle.loads(pickle.dumps(driver)).open_output("j-worker") as out:
        out.write(b"{}")
    file_count = len(staged_paths(sink))
    assert (driver.names(""), driver.get("j-worker")) == ({"j-worker"}, b"{}")
    assert world.report(sink, [0]).ok
    assert sink.sweep_both(GRACE) == []
    age_files(sink)
    (swept,) = sink.sweep_both(GRACE)
    assert swept.endswith("_progress/j-worker")
    assert len(staged_paths(sink)) == file_count - 1
    assert world.report(world.reopen(sink), [0]).ok


@contextmanager
def dying(store: Any) -> Iterator[None]:
    """Makes a sweep die between its note and its removals."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store.staged.folder), "remove", die)
        with pytest.raises(KeyboardInterrupt):
            yield


def version(sink: Any) -> int:
    with sink.store.reading() as state:
        return int(state.version)


@files_stay
def test_what_came_to_nothing_goes(world: SinkWorld, sink: Any) -> None:
    """Old files of an attempt that wasn't committed are removed, of rows and of dead letters.

    Committed files stay, also of replayed windows, and the table works after the sweep.
    """
    sink.commit(*staged_dead_replay(sink, sink.look(window(0)).receipt, "m1"))
    file_count = len(staged_paths(sink))
    staged_receipt(sink, 1, attempt="died")
    assert sink.sweep_both(GRACE) == []
    age_files(sink)
    committed, old_version = list(sink.receipts()), version(sink)
    swept = sink.sweep(GRACE, dry_run=True)
    assert (len(swept), len(staged_paths(sink)), version(sink)) == (2, file_count + 4, old_version)
    assert set(swept) < {*sink.sweep_both(GRACE)}
    assert len(staged_paths(sink)) == file_count
    fresh = world.reopen(sink)
    assert list(fresh.receipts()) == committed
    for number, generation in ((0, 2), (1, 0)):
        assert isinstance(commit(fresh, number, generation, "b1"), Done)
    assert world.report(fresh, [0, 1]).ok, str(world.report(fresh, [0, 1]))


@files_stay
def test_haste_is_refused(sink: Any) -> None:
    """A grace period that is too short is refused, because it would remove the files of running
    tasks.
    """
    with pytest.raises(ValueError, match="still staging"):
        sink.sweep_both(timedelta(minutes=5))


@files_stay
def test_nothing_to_remove_is_no_commit(sink: Any) -> None:
    """A table without orphans is left as it is."""
    age_files(sink)
    old_version = version(sink)
    assert sink.sweep(GRACE) == []
    assert version(sink) == old_version


def overtake_by_sweep(world: SinkWorld, sink: Any) -> tuple[Any, Any, Any]:
    """Lets a sweep overtake a run. Returns the run's sink, receipt and staged files.

    1. A run has staged long ago, looks, and sees its files.
    2. A sweep removes them.
    3. The run goes on.
    """
    late = world.reopen(sink)
    receipt, staged = staged_receipt(late, 1, attempt="late", dead=False)
    age_files(sink)
    run_between(late, lambda: sink.sweep(GRACE))
    return late, receipt, staged


@files_stay
def test_a_run_that_is_swept_meanwhile_is_refused(world: SinkWorld, sink: Any) -> None:
    """A run whose files are swept between its look and its write is refused, and can be run
    again.
    """
    late, receipt, staged = overtake_by_sweep(world, sink)
    with pytest.raises(RefusedError, match="gone"):
        late.commit(receipt, staged)
    assert world.report(sink, [0]).ok
    assert isinstance(commit(sink, 1, attempt="again"), Done)
    assert world.report(sink, [0, 1]).ok


@files_stay
def test_giving_up_carries_the_promise(
    world: SinkWorld, sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep that only looks before it removes, without a note, loses rows: the table names
    files that are gone.
    """
    monkeypatch.setattr(sweep, "given_up", sweep.orphans)
    late, receipt, staged = overtake_by_sweep(world, sink)
    assert isinstance(late.commit(receipt, staged), Done)
    with pytest.raises((RefusedError, FileNotFoundError)):
        world.report(sink, [0, 1])


@files_stay
def test_what_was_given_up_is_refused_before_it_is_gone(sink: Any) -> None:
    """Files that a sweep gave up are refused before they are removed.

    1. A sweep gives files up, and dies.
    2. A run that commits them is refused, though they exist.
    3. The next sweep removes them.
    """
    receipt, staged = staged_receipt(sink, 1, attempt="late")
    age_files(sink)
    with dying(sink.store):
        sink.sweep(GRACE)
    with pytest.raises(RefusedError, match="2 of 2 staged files were given up by windrow maintain"):
        sink.commit(receipt, staged)
    assert len(sink.sweep(GRACE)) == 2


@files_stay
def test_dead_letters_that_were_given_up_are_refused(sink: Any) -> None:
    """Dead letters that their store's sweep gave up are refused."""
    receipt, staged = staged_receipt(sink, 1, attempt="late")
    age_files(sink)
    with dying(sink.dead_letters.store):
        swept(sink.dead_letters, GRACE)
    with pytest.raises(RefusedError, match="given up by windrow maintain"):
        sink.commit_dead(receipt.plan, "late", staged)
    assert sink.dead_letters.attempts(lambda _: True) == {window(0).key: "a1"}


@files_stay
def test_a_run_that_is_first_keeps_its_files(world: SinkWorld, sink: Any) -> None:
    """A run that commits before the sweep's second look keeps its files.

    1. A sweep sees files that no commit names.
    2. Their run commits.
    3. The sweep looks again, and leaves them.
    """
    receipt, staged = staged_receipt(sink, 1, attempt="first", dead=False)
    age_files(sink)
    run_between(sink, lambda: world.reopen(sink).commit(receipt, staged))
    assert sink.sweep(GRACE) == []
    assert world.report(sink, [0, 1]).ok
    assert isinstance(sink.commit(receipt, staged), AlreadyDone)


@files_stay
def test_younger_files_are_not_given_up(world: SinkWorld, sink: Any) -> None:
    """A run that staged after the cutoff commits despite the sweep."""
    staged_receipt(sink, 2, attempt="died")
    age_files(sink)
    young = staged_receipt(sink, 1, attempt="young", dead=False)
    assert len(sink.sweep(GRACE)) == 2
    assert isinstance(sink.commit(*young), Done)
    assert world.report(sink, [0, 1]).ok


@files_stay
def test_a_clock_that_is_ahead_gives_up_nothing_that_is_yet_to_come(
    world: SinkWorld, sink: Any
) -> None:
    """A sweep with a fast clock gives up files of running attempts, which are refused.

    A later attempt commits.
    """
    at_work = staged_receipt(sink, 1, attempt="at work")
    with clock_ahead(timedelta(days=3650)):
        assert len(sink.sweep(GRACE)) == 2
    with pytest.raises(RefusedError, match="gone"):
        sink.commit(*at_work)
    retry_window = staged_receipt(sink, 1, attempt="again", dead=False)
    age_files(sink, hours=-1)  # to a second after the note's, however fast the machine is
    assert isinstance(sink.commit(*retry_window), Done)
    assert world.report(sink, [0, 1]).ok


@files_stay
def test_a_cutoff_never_goes_back(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later sweep with a longer grace period doesn't take back files that an earlier sweep
    gave up.
    """
    older = staged_receipt(sink, 1, attempt="older")
    age_files(sink, hours=20)
    old = staged_receipt(sink, 1, attempt="old")
    age_files(sink, hours=10)
    monkeypatch.setattr(type(sink.store.staged.folder), "remove", lambda *_: None)
    assert len(sink.sweep(timedelta(hours=5))) == 4
    assert len(sink.sweep(timedelta(hours=20))) == 2
    for receipt, staged in (older, old):
        with pytest.raises(RefusedError, match="given up"):
            sink.commit(receipt, staged)


@files_stay
def test_what_cannot_be_given_up_stays(sink: Any) -> None:
    """If the table accepts no commit, a sweep removes nothing, and the error says so."""
    staged_receipt(sink, 1, attempt="died")
    age_files(sink)
    old_paths = staged_paths(sink)
    answer_puts(sink, *[(Unanswered("no route"), False)] * 10)
    with pytest.raises(UnreachableError, match="nothing was removed"):
        sink.sweep(GRACE)
    assert staged_paths(sink) == old_paths


def test_a_staged_file_that_stays_fails_no_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window is committed even if its staged files can't be removed afterwards."""
    sink = SqliteBoth(str(tmp_path / "shop.sqlite"), ROWS)
    sink.prepare()
    receipt, staged = staged_receipt(sink, 0)
    sink.commit_dead(receipt.plan, "a1", staged)
    tried = list[str]()

    def refuse_removal(_: Place, path: str) -> None:
        tried.append(path)
        raise UnreachableError("the folder can't be written", "commit", "Look after it.")

    monkeypatch.setattr(Place, "remove", refuse_removal)
    assert isinstance(sink.commit(receipt, staged), Done)
    assert tried
    assert sink.look(window(0)) is not None


def test_what_is_committed_while_a_sweep_looks_is_not_listed() -> None:
    """A file that is staged and committed between the sweep's two looks isn't listed as an
    orphan.
    """
    committed = set[str]()

    def older(_: int) -> dict[str, int]:
        committed.add("new")
        return {"new": 0, "old": 0}

    @contextmanager
    def reading() -> Iterator[Any]:
        known_paths = set(committed)
        yield SimpleNamespace(
            unneeded=lambda old, _: {
                path: instant for path, instant in old.items() if path not in known_paths
            }
        )

    store: Any = SimpleNamespace(reading=reading)
    files: Any = SimpleNamespace(written_until=older)
    assert orphans(store, files, 0) == {"old": 0}
