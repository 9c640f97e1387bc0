"""Entries that windrow writes into the log itself: whatever disk, other writer or clean-up is in between, a window is there once."""

from __future__ import annotations

import errno
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType, StructType

from tests.sinks.beside import DeltaBoth
from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.things import ROWS, produced, staged_receipt, window
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks import place
from windrow.ingest.sinks.delta import entry
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.entry import is_plain
from windrow.ingest.sinks.delta.log import checkpoint_name, entry_name
from windrow.ingest.sinks.place import Place
from windrow.ingest.testing.checker import check

RACES = 100


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """With one window."""
    made = DeltaBoth(str(tmp_path / "orders"), ROWS)
    made.prepare()
    commit(made, 0)
    return made


def commit(sink: DeltaBoth, number: int, generation: int = 0) -> None:
    receipt, staged = staged_receipt(sink, number, generation, f"a{generation}")
    sink.commit_dead(receipt.plan, receipt.attempt, staged)
    assert isinstance(sink.commit(receipt, staged), Done)


def holds(uri: str, numbers: range) -> None:
    """The table holds each message of these windows once."""
    fresh = DeltaBoth(uri, ROWS)
    receipts = [c.receipt for c in fresh.receipts()]
    assert [r.window for r in receipts] == [window(n) for n in numbers]
    report = check(produced(numbers), delta_pieces(uri), [fresh.read_dead(r.window) for r in receipts], receipts, content="id")
    assert report.ok, report


class Between:
    """Does what a test says after a sink has looked and before it writes, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, uri: str, act: Callable[[], None]) -> None:
        self.acted = 0
        append = tables.append

        def appending(table: DeltaTable, *args: Any, **more: Any) -> None:
            if not self.acted and table.table_uri.rstrip("/").endswith(uri):
                self.acted = 1
                act()
            append(table, *args, **more)

        monkeypatch.setattr(tables, "append", appending)


@pytest.mark.parametrize("code", sorted(entry._NO_LINKS))
def test_a_disk_without_hard_links(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """deltalake commits in windrow's place, on the very version that was looked at, and no draft stays behind."""

    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "hardlink_to", refused)
        between = Between(patch, sink.uri, lambda: commit(DeltaBoth(sink.uri, ROWS), 1))
        assert isinstance(sink.commit(*staged_receipt(sink, 1)), AlreadyDone)
        assert between.acted
        for number in (2, 3):
            commit(sink, number)
    assert not list((Path(sink.uri) / "_windrow" / "drafts").iterdir())
    holds(sink.uri, range(4))


@pytest.mark.parametrize("lands", [False, True])
def test_a_link_with_an_unknown_outcome(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch, lands: bool) -> None:
    """A disk that fails, before or after the entry is there: a look tells, and the window is there once."""
    monkeypatch.setattr(tables, "WAITS", (0.0,))
    link, failed = Path.hardlink_to, list[str]()

    def failing(self: Path, target: Path) -> None:
        if lands or failed:
            link(self, target)
        if not failed:
            failed.append(self.name)
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "hardlink_to", failing)
    receipt, staged = staged_receipt(sink, 1, dead=False)
    assert isinstance(sink.commit(receipt, staged), Done)
    assert failed
    assert DeltaTable(sink.uri).version() == 2


def cleaned(sink: DeltaBoth, kept: int) -> None:
    """Others have gone on to a checkpoint, and a clean-up takes what is before it, but for one entry that it hasn't come to yet."""
    other = DeltaBoth(sink.uri, ROWS)
    for number in range(1, 4):
        commit(other, number)
    DeltaTable(sink.uri).create_checkpoint()
    newest = DeltaTable(sink.uri).version()
    for version in range(newest):
        if version != kept:
            (Path(sink.uri) / entry_name(version)).unlink(missing_ok=True)


def test_an_entry_where_a_clean_up_made_room(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number behind the looked-at one is free again, and nobody would read what is put there: it doesn't count as arrived."""
    looked_at = DeltaTable(sink.uri).version()
    between = Between(monkeypatch, sink.uri, lambda: cleaned(sink, looked_at))
    receipt, staged = staged_receipt(sink, 4)
    sink.commit_dead(receipt.plan, receipt.attempt, staged)
    assert isinstance(sink.commit(receipt, staged), Done)
    assert between.acted
    holds(sink.uri, range(5))


def test_a_gap_that_a_clean_up_made_is_not_the_end(sink: DeltaBoth) -> None:
    """A look that follows the log to a gap loads the table instead: windows behind the gap are there."""
    assert sink.look(window(1)) is None
    cleaned(sink, DeltaTable(sink.uri).version())
    assert sink.look(window(3)) is not None
    commit(sink, 4)
    holds(sink.uri, range(5))


def test_what_a_nested_field_asks_for(tmp_path: Path) -> None:
    """An invariant deep in a column makes the table one for deltalake."""
    for metadata in ({}, {"delta.invariants": '{"expression":{"expression":"c.x > 3"}}'}):
        uri = str(tmp_path / str(len(metadata)))
        inner = StructType([Field("x", PrimitiveType("long"), metadata=metadata)])
        DeltaTable.create(uri, Schema([Field("c", inner)]))
        assert is_plain(Place(uri), DeltaTable(uri)) == (not metadata)


def test_an_upgrade_in_between(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 A looks. 2 The table gets a property that asks more of writers. 3 A's entry comes second; deltalake makes the next one."""
    Between(monkeypatch, sink.uri, lambda: DeltaTable(sink.uri).alter.set_table_properties({"delta.enableChangeDataFeed": "true"}))
    commit(sink, 1)
    assert sink._newest.look().entry is None  # type: ignore[union-attr]
    commit(sink, 2)
    holds(sink.uri, range(3))


def test_maintenance_in_between(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 A looks. 2 The table is compacted and vacuumed, its log checkpointed. 3 A's commit arrives behind it, and nothing is lost."""
    for number in range(1, 4):
        commit(sink, number)

    def maintained() -> None:
        table = DeltaTable(sink.uri)
        table.optimize.compact()
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()

    between = Between(monkeypatch, sink.uri, maintained)
    receipt, staged = staged_receipt(sink, 4)
    sink.commit_dead(receipt.plan, receipt.attempt, staged)
    assert isinstance(sink.commit(receipt, staged), Done)
    assert between.acted
    receipts = [c.receipt for c in DeltaBoth(sink.uri, ROWS).receipts()]
    report = check(produced(range(5)), delta_pieces(sink.uri), [sink.read_dead(r.window) for r in receipts], receipts, content="id")
    assert report.invented == report.duplicated == report.lost == ()


def test_a_conflict_costs_no_load(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that loses to another one follows the log to it, however large the table is."""
    rival = DeltaBoth(sink.uri, ROWS)
    rival.look(window(0))
    Between(monkeypatch, sink.uri, lambda: commit(rival, 1))
    sink.look(window(0))
    receipt, staged = staged_receipt(sink, 2, dead=False)
    loads, load = list[str](), tables.load
    monkeypatch.setattr(tables, "load", lambda uri: loads.append(uri) or load(uri))
    assert isinstance(sink.commit(receipt, staged), Done)
    assert sink.uri not in loads


def test_all_that_counts_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody hears of it: the entry of each commit, of rows, dead letters and replacements, and the log's folder."""
    synced, sync = list[str](), place._sync
    monkeypatch.setattr(place, "_sync", lambda name: (synced.append(name), sync(name))[1])
    sink = DeltaBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    for uri in (sink.uri, f"{sink.uri}_dead"):
        assert [f"{uri}/{entry_name(0)}", f"{uri}/_delta_log"] == [name for name in synced if name.startswith(f"{uri}/_delta_log")]
    for generation in (0, 1):
        synced.clear()
        commit(sink, 0, generation)
        assert synced[-1] == f"{sink.uri}/_delta_log"
        assert f"{sink.uri}_dead/_delta_log" in synced[: synced.index(f"{sink.uri}/_delta_log")]
        assert (f"{sink.uri}/{entry_name(2)}" in synced) == (generation == 1)


def test_a_checkpoint_is_synced(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers begin there: one that a loss of power emptied would hide the whole table."""
    DeltaTable(sink.uri).alter.set_table_properties({"delta.checkpointInterval": "4"})
    synced, sync = list[str](), place._sync
    monkeypatch.setattr(place, "_sync", lambda name: (synced.append(name), sync(name))[1])
    commit(sink, 1)
    assert f"{sink.uri}/{checkpoint_name(3)}" in synced


def race(uri: str, name: str, windows: range, told: Any) -> None:
    """In a process of its own: commit them all, one after the other."""
    sink, done = DeltaBoth(uri, ROWS), 0
    for number in windows:
        receipt, staged = staged_receipt(sink, number, 0, name)
        sink.commit_dead(receipt.plan, name, staged)
        done += isinstance(sink.commit(receipt, staged), Done)
    told.put(done)


def test_two_processes_race(sink: DeltaBoth) -> None:
    """Two processes commit the same hundred windows, in opposite orders: each window arrives once, whoever was first."""
    DeltaTable(sink.uri).alter.set_table_properties({"delta.checkpointInterval": "10"})
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    orders = (range(1, RACES + 1), range(RACES, 0, -1))
    runs = [context.Process(target=race, args=(sink.uri, f"r{i}", order, told)) for i, order in enumerate(orders)]
    for run in runs:
        run.start()
    done = sum(told.get(timeout=240) for _ in runs)
    for run in runs:
        run.join(60)
        assert run.exitcode == 0
    assert done == RACES
    holds(sink.uri, range(RACES + 1))
