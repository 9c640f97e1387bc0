"""Commits to Delta's log: deltalake's answer is an error, another commit comes first, or the
log was changed meanwhile.

These tests rely on deltalake 1.6: `create_write_transaction` does not refresh the handle that
it was called on. So a commit is made on exactly the snapshot that was looked at.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import DamagedError, OutcomeUnknownError, OverlapError, UnreachableError
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.table import entry_name
from windrow.ingest.sinks.kit.commit.pages import PAGES
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.testing.checker import check
from windrow.ingest.testing.contracts.commit_hooks import run_between
from windrow.ingest.testing.contracts.windows import (
    PER_WINDOW,
    ROWS,
    plan,
    produced_messages,
    receipt,
    stage,
    staged_receipt,
    window,
)

RACES = 30


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """A prepared sink that doesn't wait between tries."""
    sink = DeltaBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    sink.store.waits = sink.dead_letters.store.waits = (0.0, 0.0)  # type: ignore[attr-defined]
    return sink


def commit(sink: DeltaBoth, number: int, generation: int = 0) -> None:
    """Commits a window and its dead letters."""
    window_receipt, staged = staged_receipt(sink, number, generation, f"a{generation}")
    sink.commit_dead(window_receipt.plan, window_receipt.attempt, staged)
    assert isinstance(sink.commit(window_receipt, staged), Done)


def assert_holds(uri: str, numbers: range) -> None:
    """Asserts that the table holds each message of these windows once."""
    fresh = DeltaBoth(uri, ROWS)
    receipts = [c.receipt for c in fresh.receipts()]
    assert [r.window for r in receipts] == [window(n) for n in numbers]
    report = check(
        produced_messages(numbers),
        delta_pieces(uri),
        [fresh.read_dead(r.window) for r in receipts],
        receipts,
        content="id",
    )
    assert report.ok, report


class Wire:
    """A wrapper of deltalake's write that runs an act of the test around each write."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *acts: Callable[[Callable[[], None]], None]
    ) -> None:
        self.write_count = 0
        remaining_acts, write = list(acts), DeltaTable.create_write_transaction

        def write_acting(*args: Any, **more: Any) -> None:
            self.write_count += 1
            send = lambda: write(*args, **more)  # noqa: E731
            remaining_acts.pop(0)(send) if remaining_acts else send()

        monkeypatch.setattr(DeltaTable, "create_write_transaction", write_acting)


def land_unanswered(error: Exception) -> Callable[[Callable[[], None]], None]:
    """Returns an act that sends the commit, then raises `error`."""

    def act(send: Callable[[], None]) -> None:
        send()
        raise error

    return act


def fail_unsent(error: Exception) -> Callable[[Callable[[], None]], None]:
    """Returns an act that raises `error` without sending the commit."""

    def act(_: Callable[[], None]) -> None:
        raise error

    return act


# --- deltalake's answers


@pytest.mark.parametrize(
    "error",
    [
        OSError("reset"),
        DeltaError("checkpoint failed"),
        CommitFailedError("version exists"),
        Exception("External"),
    ],
)
def test_a_commit_that_arrived_unanswered_is_found(
    sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A commit that is in the table is done, and isn't sent twice, whatever error deltalake
    raised.
    """
    wire = Wire(monkeypatch, land_unanswered(error))
    window_receipt, staged = staged_receipt(sink, 0)
    outcome = sink.commit(window_receipt, staged)
    assert isinstance(outcome, Done)
    assert outcome.committed == sink.look(window(0))
    assert wire.write_count == 1


@pytest.mark.parametrize(
    "error", [OSError("no route"), DeltaError("generic"), Exception("External")]
)
def test_a_commit_that_never_left_is_sent_again(
    sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A commit that failed before it was sent is tried again with the same files."""
    wire = Wire(monkeypatch, fail_unsent(error), fail_unsent(error))
    assert isinstance(sink.commit(*staged_receipt(sink, 0)), Done)
    assert wire.write_count == 3


def test_a_dead_letter_commit_unanswered(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters that arrived are not sent twice after an error.

    If it stays unknown whether they arrived, OutcomeUnknownError is raised.
    """
    window_receipt, staged = staged_receipt(sink, 0)
    wire = Wire(monkeypatch, land_unanswered(OSError("reset")))
    sink.commit_dead(window_receipt.plan, "a1", staged)
    assert wire.write_count == 1
    assert sum(p.num_rows for p in delta_pieces(f"{sink.uri}_dead")) == 2
    Wire(monkeypatch, *[fail_unsent(OSError("no route"))] * 3)
    with pytest.raises(OutcomeUnknownError, match="no route"):
        sink.commit_dead(window_receipt.plan, "a2", staged)


def test_conflict_errors_of_deltalake(tmp_path: Path) -> None:
    """A write on a stale snapshot raises CommitFailedError, and nothing of it arrives."""
    uri = str(tmp_path / "t")
    DeltaTable.create(
        uri,
        Schema.from_arrow(ROWS.append(pa.field("_window", pa.string()))),
        partition_by=["_window"],
    )
    stale = DeltaTable(uri)
    tables.write(Place(uri), DeltaTable(uri), tables.Writing([]), "a", "")
    with pytest.raises(CommitFailedError):
        tables.write(Place(uri), stale, tables.Writing([]), "b", "")
    assert DeltaTable(uri).version() == 1


# --- other writers between look and put


def set_property(uri: str) -> None:
    DeltaTable(uri).alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})


def maintain(uri: str) -> None:
    table = DeltaTable(uri)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()


def clean_log_up_to(uri: str, kept_version: int = 2) -> None:
    """Cleans the log up to a new checkpoint, except one older entry."""
    sink = DeltaBoth(uri, ROWS)
    for number in range(3, 6):
        commit(sink, number)
    DeltaTable(uri).create_checkpoint()
    for version in range(DeltaTable(uri).version()):
        if version != kept_version:
            (Path(uri) / entry_name(version)).unlink(missing_ok=True)


@pytest.mark.parametrize("turn", [set_property, maintain, clean_log_up_to])
def test_what_comes_between_look_and_put(sink: DeltaBoth, turn: Callable[[str], None]) -> None:
    """A commit looks again after any change to the table or its log, then arrives, and nothing
    is lost.
    """
    for number in (0, 1):
        commit(sink, number)
    window_receipt, staged = staged_receipt(sink, 2)
    sink.commit_dead(window_receipt.plan, "a1", staged)
    run_between(sink, lambda: turn(sink.uri))
    assert isinstance(sink.commit(window_receipt, staged), Done)
    receipts = [c.receipt for c in DeltaBoth(sink.uri, ROWS).receipts()]
    report = check(
        produced_messages(range(len(receipts))), delta_pieces(sink.uri), [], [], content="id"
    )
    assert len(receipts) == (6 if turn is clean_log_up_to else 3)
    assert report.invented == report.duplicated == ()


def race(uri: str, name: str, windows: range, done_counts: Any) -> None:
    """Commits the windows one after the other, in a process of its own."""
    sink, done = DeltaBoth(uri, ROWS), 0
    for number in windows:
        window_receipt, staged = staged_receipt(sink, number, 0, name)
        sink.commit_dead(window_receipt.plan, name, staged)
        done += isinstance(sink.commit(window_receipt, staged), Done)
    done_counts.put(done)


def test_two_processes_race(sink: DeltaBoth) -> None:
    """Two processes that commit the same windows in opposite orders commit each window once."""
    DeltaTable(sink.uri).alter.set_table_properties({"delta.checkpointInterval": "10"})
    context = multiprocessing.get_context("spawn")
    done_counts = context.Queue()
    orders = (range(RACES), range(RACES - 1, -1, -1))
    runs = [
        context.Process(target=race, args=(sink.uri, f"r{i}", order, done_counts))
        for i, order in enumerate(orders)
    ]
    for run in runs:
        run.start()
    done = sum(done_counts.get(timeout=240) for _ in runs)
    for run in runs:
        run.join(60)
        assert run.exitcode == 0
    assert done == RACES
    assert_holds(sink.uri, range(RACES))


# --- looks at a changed log


@pytest.mark.parametrize("longer", [False, True])
def test_a_table_made_anew_is_another_one(sink: DeltaBoth, longer: bool) -> None:
    """A process sees a table that was deleted and made again as another table.

    1. A commits, and looks.
    2. The table is deleted and made again.
    3. A looks, and sees the new table, whether its log is shorter or longer.
    """
    commit(sink, 0)
    commit(sink, 1)
    assert sink.look(window(1)) is not None
    shutil.rmtree(sink.uri)
    shutil.rmtree(f"{sink.uri}_dead")
    new_sink = DeltaBoth(sink.uri, ROWS)
    new_sink.prepare()
    for number in range(4 if longer else 1):
        commit(new_sink, number)
    assert (sink.look(window(1)) is not None) is longer
    commit(sink, 4 if longer else 1)
    assert_holds(sink.uri, range(5 if longer else 2))


def test_a_gap_that_a_clean_up_made_is_not_the_end(sink: DeltaBoth) -> None:
    """A look finds a newer checkpoint even if the next entry of its cached log state was
    cleaned up.
    """
    for number in range(3):
        commit(sink, number)
    assert sink.look(window(3)) is None
    clean_log_up_to(sink.uri, kept_version=3)
    assert sink.look(window(3)) is not None
    commit(sink, 6)
    assert_holds(sink.uri, range(7))


def test_nothing_is_loaded_where_nothing_has_come(
    sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several looks and preparations load the table once.

    A commit of another process is still seen.
    """
    commit(sink, 0)
    loads, load = list[str](), tables.load
    monkeypatch.setattr(tables, "load", lambda uri: loads.append(uri) or load(uri))
    for _ in range(3):
        assert sink.look(window(1)) is None
    assert sink.columns_to_come() == ()
    assert loads == [sink.uri]
    commit(DeltaBoth(sink.uri, ROWS), 1)
    assert sink.look(window(1)) is not None


def test_a_torn_entry_in_between_is_told(sink: DeltaBoth) -> None:
    """A torn log entry that another program wrote is reported, not skipped."""
    commit(sink, 0)
    (Path(sink.uri) / entry_name(2)).write_bytes(b'{"commitInfo":{"times')
    with pytest.raises(UnreachableError, match="damaged"):
        sink.commit(*staged_receipt(sink, 1))


def test_a_table_that_was_set_back(sink: DeltaBoth) -> None:
    """Windows may use the offsets of windows that were taken back.

    1. A process knows eight windows.
    2. The table is set back to five.
    3. A window with other boundaries commits offsets of the three.
    """
    for number in range(8):
        commit(sink, number)
    for version in (6, 7, 8):
        (Path(sink.uri) / entry_name(version)).unlink()
    overlapping_plan = plan(sink, 40, (5 * PER_WINDOW, 7 * PER_WINDOW))
    assert isinstance(
        sink.commit(
            receipt(overlapping_plan, [], 0, "w"), stage(sink, overlapping_plan, 0, "w", dead=False)
        ),
        Done,
    )
    commit(sink, 7)
    with pytest.raises(OverlapError, match=window(40).key):
        sink.commit(*staged_receipt(sink, 6, dead=False))


@pytest.mark.parametrize("number", [0, 7])
def test_an_overlap_is_refused_by_a_process_that_has_seen_nothing(
    sink: DeltaBoth, number: int
) -> None:
    """A process without cached state refuses an overlapping window: pages name the offsets,
    receipts the window.
    """
    for n in range(8):
        commit(sink, n)
    fresh = DeltaBoth(sink.uri, ROWS)
    overlapping_plan = plan(fresh, 50, (number * PER_WINDOW + 4, number * PER_WINDOW + 5))
    with pytest.raises(OverlapError, match=window(number).key):
        fresh.commit(
            receipt(overlapping_plan, [], 0, "w"),
            stage(fresh, overlapping_plan, 0, "w", dead=False),
        )
    assert fresh.look(window(50)) is None


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_nothing_is_written_without_its_pages(sink: DeltaBoth, harm: str) -> None:
    """A page that can't be read stops every look and commit.

    The error names the file and the advice.
    """
    for number in range(3):
        commit(sink, number)
    pages = list((Path(sink.uri) / PAGES).iterdir())
    assert pages
    for page in pages:
        page.unlink() if harm == "gone" else page.write_bytes(page.read_bytes()[:-3] + b"abc")
    fresh = DeltaBoth(sink.uri, ROWS)
    window_receipt, staged = staged_receipt(fresh, 3)
    for ask in (lambda: fresh.look(window(0)), lambda: fresh.commit(window_receipt, staged)):
        with pytest.raises(DamagedError, match="--restore-receipts"):
            ask()


# --- the log after a commit


def test_the_history_is_readable_by_people(sink: DeltaBoth) -> None:
    """The commit's own log entry names window, generation, counts and offset ranges."""
    sink.commit(*staged_receipt(sink, 0))
    note = DeltaTable(sink.uri).history(1)[0]["windrow"]
    assert window(0).key in note
    assert '"ranges":[["shop.orders",0,0,10],["shop.orders",1,0,10]]' in note
    assert '"generation":0' in note


def test_checkpoints_are_made(sink: DeltaBoth) -> None:
    """Checkpoints are made as often as the table's property says.

    Entries before the last checkpoint aren't needed.
    """
    DeltaTable(sink.uri).alter.set_table_properties({"delta.checkpointInterval": "3"})
    for number in range(8):
        commit(sink, number)
    log = Path(sink.uri) / "_delta_log"
    checkpoints = sorted(path.name for path in log.glob("*.checkpoint.parquet"))
    assert [int(name[:20]) for name in checkpoints] == [2, 5, 8]
    for path in log.glob("*.json"):
        if path.name < checkpoints[-1]:
            path.unlink()
    assert_holds(sink.uri, range(8))
    commit(sink, 8)
    assert_holds(sink.uri, range(9))


def test_a_table_that_is_made_during_a_look_is_no_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that another run makes during a look doesn't count as lost.

    1. The look finds no log.
    2. The other run makes the table and commits.
    3. The look lists the table's folders.
    """
    uri = str(tmp_path / "t")
    looking_sink, creating_sink = (DeltaBoth(uri, ROWS) for _ in range(2))
    looked = Place.folders

    def create_then_list(self: Place, folder: str) -> set[str]:
        if folder == "_windrow":
            monkeypatch.undo()
            creating_sink.prepare()
            commit(creating_sink, 0)
        return looked(self, folder)

    monkeypatch.setattr(Place, "folders", create_then_list)
    assert looking_sink.look(window(0)) == creating_sink.look(window(0)) is not None


def test_a_log_is_cleaned_up_now_and_then(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is cleaned up only at every `CLEANED_EVERY`th commit, because a clean-up looks at
    each file of the log.
    """
    monkeypatch.setattr(tables, "CLEANED_EVERY", 6)
    properties = {
        "delta.checkpointInterval": "2",
        "delta.logRetentionDuration": "interval 0 seconds",
    }
    DeltaTable(sink.uri).alter.set_table_properties(properties)
    first_entry_exists = []
    for number in range(6):
        commit(sink, number)
        first_entry_exists.append((Path(sink.uri) / entry_name(1)).exists())
    assert first_entry_exists == [True, True, True, True, False, False]
    assert_holds(sink.uri, range(6))


def test_all_that_counts_is_synced(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit syncs its log entry, its checkpoint and the log's folder before it returns.

    This holds for rows, dead letters and replacements.
    """
    DeltaTable(sink.uri).alter.set_table_properties({"delta.checkpointInterval": "4"})
    synced, fsync = list[str](), os.fsync

    def sync_watched(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", sync_watched)
    for generation in (0, 1):
        synced.clear()
        commit(sink, 0, generation)
        version = DeltaTable(sink.uri).version()
        assert synced[-1] == f"{sink.uri}/_delta_log"
        assert f"{sink.uri}_dead/_delta_log" in synced[: synced.index(f"{sink.uri}/_delta_log")]
        assert f"{sink.uri}/{entry_name(version)}" in synced
        assert (f"{sink.uri}/_delta_log/{3:020d}.checkpoint.parquet" in synced) == (generation == 1)
