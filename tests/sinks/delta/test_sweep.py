"""A sweep removes what no commit can name any more, and nothing else: whoever is late
is refused, whoever is first keeps its files.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.sinks.delta.pieces import staged_paths
from tests.sinks.hooks import answered, in_between
from tests.sinks.things import ROWS, staged_receipt, window
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks import sweep
from windrow.ingest.sinks.place import Place
from windrow.ingest.sinks.table_store import Unanswered

GRACE = timedelta(hours=2)


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """A table with one window, that doesn't wait between tries."""
    made = DeltaBoth(str(tmp_path / "orders"), ROWS)
    made.prepare()
    receipt, staged = staged_receipt(made, 0)
    made.commit_dead(receipt.plan, "a1", staged)
    made.commit(receipt, staged)
    made.store.waits = (0.0, 0.0)
    return made


def aged(sink: DeltaBoth) -> None:
    """All that is staged was last written long ago."""
    for place in (sink.uri, f"{sink.uri}_dead"):
        for path in staged_paths(place):
            os.utime(path, (1_000_000_000, 1_000_000_000))


def lost(uri: str) -> list[str]:
    """Files that the table names and that aren't there."""
    return [path for path in DeltaTable(uri).file_uris() if not Path(path).exists()]


def overtaken(sink: DeltaBoth) -> tuple[DeltaBoth, Any, Any]:
    """1 A run has staged long ago, looks, and sees its files.  2 A sweep comes.  3 The
    run goes on.
    """
    late = DeltaBoth(sink.uri, ROWS)
    receipt, staged = staged_receipt(late, 1, attempt="late")
    aged(sink)
    in_between(late, lambda: sink.sweep(GRACE))
    return late, receipt, staged


def test_a_run_that_is_swept_meanwhile_is_refused(sink: DeltaBoth) -> None:
    """Its look was before the sweep, its write would be after: it commits no file that
    is gone, and can be run again.
    """
    late, receipt, staged = overtaken(sink)
    with pytest.raises(RefusedError, match="gone"):
        late.commit(receipt, staged)
    assert lost(sink.uri) == []
    assert sink.look(window(1)) is None
    assert isinstance(sink.commit(*staged_receipt(sink, 1, attempt="again")), Done)


def test_giving_up_carries_the_promise(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that only looks before it removes loses the rows of the same run: the
    table names files that are gone.
    """
    monkeypatch.setattr(sweep, "given_up", sweep.orphans)
    late, receipt, staged = overtaken(sink)
    assert isinstance(late.commit(receipt, staged), Done)
    assert len(lost(sink.uri)) == 2


def test_what_was_given_up_is_refused_before_it_is_gone(
    sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 A sweep gives files up and dies.  2 A run commits them: refused, though they
    are there.  3 The next sweep removes them.
    """
    receipt, staged = staged_receipt(sink, 1, attempt="late")
    aged(sink)
    with monkeypatch.context() as patch:
        patch.setattr(Place, "remove", _dying)
        with pytest.raises(KeyboardInterrupt):
            sink.sweep(GRACE)
    with pytest.raises(RefusedError, match="2 of 2 staged files were given up by windrow sweep"):
        sink.commit(receipt, staged)
    assert len(sink.sweep(GRACE)) == 2
    assert lost(sink.uri) == []


def test_dead_letters_that_were_given_up_are_refused(
    sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their store holds its own sweep to the same rule."""
    receipt, staged = staged_receipt(sink, 1, attempt="late")
    aged(sink)
    with monkeypatch.context() as patch:
        patch.setattr(Place, "remove", _dying)
        with pytest.raises(KeyboardInterrupt):
            sink.dead_letters.sweep(GRACE)
    with pytest.raises(RefusedError, match="given up by windrow sweep"):
        sink.commit_dead(receipt.plan, "late", staged)
    assert sink.dead_letters.attempts(lambda _: True) == {window(0).key: "a1"}


def test_a_run_that_is_first_keeps_its_files(sink: DeltaBoth) -> None:
    """1 A sweep sees files that no commit names.  2 Their run commits.  3 The sweep
    looks again, and leaves them.
    """
    receipt, staged = staged_receipt(sink, 1, attempt="first")
    aged(sink)
    in_between(sink, lambda: DeltaBoth(sink.uri, ROWS).commit(receipt, staged))
    assert sink.sweep(GRACE) == []
    assert lost(sink.uri) == []
    assert isinstance(sink.commit(receipt, staged), AlreadyDone)


def test_younger_files_are_not_given_up(sink: DeltaBoth) -> None:
    """A run that staged after the cutoff commits as if no sweep had been."""
    staged_receipt(sink, 2, attempt="died")
    aged(sink)
    receipt, staged = staged_receipt(sink, 1, attempt="young")
    assert len(sink.sweep(GRACE)) == 2
    assert isinstance(sink.commit(receipt, staged), Done)
    assert lost(sink.uri) == []


class Ahead(datetime):
    """A clock that is ten years ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + timedelta(days=3650)


def test_a_clock_that_is_ahead_gives_up_nothing_that_is_yet_to_come(
    sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a sweep takes the files of attempts that are at work, which are refused;
    whoever stages after it commits.
    """
    receipt, staged = staged_receipt(sink, 1, attempt="at work")
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "datetime", Ahead)
        assert len(sink.sweep(GRACE)) == 2
    with pytest.raises(RefusedError, match="gone"):
        sink.commit(receipt, staged)
    assert isinstance(sink.commit(*later(staged_receipt(sink, 1, attempt="again"), sink)), Done)
    assert lost(sink.uri) == []


def later(made: Any, sink: DeltaBoth) -> Any:
    """The same, staged a second later than all that was staged before."""
    for path in staged_paths(sink.uri):
        os.utime(path, (Path(path).stat().st_mtime + 1,) * 2)
    return made


def test_a_cutoff_never_goes_back(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later sweep with a longer grace period takes nothing back of what an earlier
    one gave up.
    """
    receipt, staged = staged_receipt(sink, 1, attempt="late")
    young, young_files = staged_receipt(sink, 1, attempt="young")
    for s, age in ((staged, 10), (young_files, 30)):
        names = {word.split('"path":"')[1].split('"')[0] for one in s for word in one.rows}
        for name in names:
            path = Path(sink.uri) / name
            os.utime(path, (path.stat().st_mtime - age * 3600,) * 2)
    with monkeypatch.context() as patch:
        patch.setattr(Place, "remove", lambda *_: None)
        assert len(sink.sweep(timedelta(hours=5))) == 4
        assert len(sink.sweep(timedelta(hours=20))) == 2
    for made, files in ((receipt, staged), (young, young_files)):
        with pytest.raises(RefusedError, match="given up"):
            sink.commit(made, files)


def test_only_looking_changes_nothing(sink: DeltaBoth) -> None:
    """A dry run names the same files, and neither removes one nor gives one up."""
    receipt, staged = staged_receipt(sink, 1, attempt="late")
    aged(sink)
    before = DeltaTable(sink.uri).version()
    seen = sink.sweep(GRACE, dry_run=True)
    assert len(seen) == 2
    assert all(Path(path).exists() for path in seen)
    assert DeltaTable(sink.uri).version() == before
    assert isinstance(sink.commit(receipt, staged), Done)


def test_nothing_to_remove_is_no_commit(sink: DeltaBoth) -> None:
    """A table without orphans is left as it is."""
    aged(sink)
    before = DeltaTable(sink.uri).version()
    assert sink.sweep(GRACE) == []
    assert DeltaTable(sink.uri).version() == before


def test_what_cannot_be_given_up_stays(sink: DeltaBoth) -> None:
    """If the table takes no commit, nothing is removed, and the error says so."""
    staged_receipt(sink, 1, attempt="died")
    aged(sink)
    before = staged_paths(sink.uri)

    answered(sink, *[(Unanswered("no route"), False)] * 3)
    with pytest.raises(UnreachableError, match="nothing was removed"):
        sink.sweep(GRACE)
    assert staged_paths(sink.uri) == before


def test_a_swept_table_goes_on(sink: DeltaBoth) -> None:
    """Receipts are as they were, another process reads them, and windows are committed
    and replaced.
    """
    staged_receipt(sink, 5, attempt="died")
    aged(sink)
    before = list(sink.receipts())
    assert len(sink.sweep_both(GRACE)) == 4
    fresh = DeltaBoth(sink.uri, ROWS)
    assert list(fresh.receipts()) == before
    for number, generation in ((0, 1), (1, 0)):
        receipt, staged = staged_receipt(fresh, number, generation, "b")
        fresh.commit_dead(receipt.plan, "b", staged)
        assert isinstance(fresh.commit(receipt, staged), Done)
    assert [c.receipt.generation for c in fresh.receipts()] == [1, 0]


def _dying(*_: object) -> None:
    raise KeyboardInterrupt
