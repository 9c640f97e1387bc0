"""The state of a table that a sink keeps from one look to the next, and the entries that it writes into the log itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.sinks.beside import DeltaBoth
from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.things import ROWS, produced, staged_receipt, window
from windrow.ingest.errors import UnreachableError
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.entry import Tip, is_plain, write_entry
from windrow.ingest.sinks.delta.log import entry_name, read_log
from windrow.ingest.sinks.delta.newest import Newest
from windrow.ingest.sinks.place import Place
from windrow.ingest.testing.checker import check


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """With one window."""
    made = DeltaBoth(str(tmp_path / "orders"), ROWS)
    made.prepare()
    commit(made, 0)
    return made


@pytest.fixture
def loads(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The table is loaded so often from here on."""
    found, load = list[str](), tables.load
    monkeypatch.setattr(tables, "load", lambda uri: found.append(uri) or load(uri))
    yield found
    monkeypatch.undo()


def commit(sink: DeltaBoth, number: int, generation: int = 0) -> None:
    receipt, staged = staged_receipt(sink, number, generation, f"a{generation}")
    sink.commit_dead(receipt.plan, receipt.attempt, staged)
    assert isinstance(sink.commit(receipt, staged), Done)


def holds(uri: str, numbers: range) -> None:
    """The table holds each message of these windows once, whoever reads it."""
    fresh = DeltaBoth(uri, ROWS)
    receipts = [c.receipt for c in fresh.receipts()]
    assert [r.window for r in receipts] == [window(n) for n in numbers]
    report = check(produced(numbers), delta_pieces(uri), [fresh.read_dead(r.window) for r in receipts], receipts, content="id")
    assert report.ok, report
    table = DeltaTable(uri)
    log = read_log(Place(uri), table.version())
    assert log is not None
    assert log.transactions == Newest(uri, Place(uri)).look().every  # type: ignore[union-attr]


def test_between_commits_nothing_is_loaded(sink: DeltaBoth, loads: list[str]) -> None:
    """What the process committed before is known: the next commits read no more than the entries that have come since."""
    for number in range(1, 5):
        commit(sink, number)
    assert loads.count(sink.uri) == 0
    holds(sink.uri, range(5))


def test_what_others_commit_in_between_is_seen(sink: DeltaBoth, loads: list[str]) -> None:
    """The look before a commit sees what another process has committed since the last one, without loading the table."""
    other = DeltaBoth(sink.uri, ROWS)
    commit(other, 1)
    loads.clear()
    held = sink.look(window(1))
    assert held is not None
    receipt, staged = staged_receipt(sink, 1, 0, "b1")
    outcome = sink.commit(receipt, staged)
    assert not isinstance(outcome, Done)
    commit(sink, 2)
    assert sink.uri not in loads
    holds(sink.uri, range(3))


@pytest.mark.parametrize("longer", [False, True])
def test_a_table_made_anew_is_another_one(sink: DeltaBoth, longer: bool) -> None:
    """1 A commits. 2 The table is removed, and made anew. 3 A looks, and sees the new one, whether its log is shorter or longer."""
    commit(sink, 1)
    shutil.rmtree(sink.uri)
    shutil.rmtree(f"{sink.uri}_dead")
    other = DeltaBoth(sink.uri, ROWS)
    other.prepare()
    for number in range(4 if longer else 1):
        commit(other, number)
    assert (sink.look(window(1)) is not None) is longer
    commit(sink, 4 if longer else 1)
    holds(sink.uri, range(5 if longer else 2))


def test_a_change_of_the_table_is_taken_in(sink: DeltaBoth) -> None:
    """A property that asks for more than lines in the log, set by somebody else in between, leaves the commits to deltalake."""
    state = sink._newest.look()
    assert state is not None
    assert state.entry is not None
    DeltaTable(sink.uri).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert not is_plain(Place(sink.uri), DeltaTable(sink.uri))
    now = sink._newest.look()
    assert now is not None
    assert now.entry is None
    commit(sink, 1)
    holds(sink.uri, range(2))


def test_a_replacement_in_between_is_followed(sink: DeltaBoth) -> None:
    """deltalake writes replacements, on the very version that was looked at."""
    commit(sink, 1)
    commit(sink, 0, 1)
    commit(sink, 2)
    commit(sink, 1, 1)
    holds(sink.uri, range(3))


def test_a_torn_entry_in_between_is_told(sink: DeltaBoth) -> None:
    """An entry of somebody else's that isn't whole is not passed over."""
    version = DeltaTable(sink.uri).version() + 1
    (Path(sink.uri) / entry_name(version)).write_bytes(b'{"commitInfo":{"times')
    receipt, staged = staged_receipt(sink, 1)
    with pytest.raises(UnreachableError, match="damaged"):
        sink.commit(receipt, staged)


def test_checkpoints_are_made(sink: DeltaBoth) -> None:
    """As often as the table says, and the log behind them is all that is needed."""
    DeltaTable(sink.uri).alter.set_table_properties({"delta.checkpointInterval": "3"})
    for number in range(1, 8):
        commit(sink, number)
    log = Path(sink.uri) / "_delta_log"
    made = sorted(path.name for path in log.glob("*.checkpoint.parquet"))
    assert [int(name[:20]) for name in made] == [2, 5, 8]
    for path in log.glob("*.json"):
        if path.name < made[-1]:
            path.unlink()
    holds(sink.uri, range(8))
    commit(sink, 8)
    holds(sink.uri, range(9))


def test_an_entry_beside_a_cleaned_log_is_not_done(sink: DeltaBoth) -> None:
    """1 A looks at version 1. 2 The log is cleaned up to version 9. 3 A writes entry 2, which nobody reads: that isn't an arrival."""
    place, table = Place(sink.uri), DeltaTable(sink.uri)
    tip = Tip(place, table.version(), place.get(entry_name(table.version())))
    (Path(sink.uri) / entry_name(table.version())).unlink()
    with pytest.raises((OSError, FileNotFoundError)):
        write_entry(tip, table, [], tables.once({"a": 1}, {}))


def test_of_a_checkpoint_its_transactions_are_read(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine tenths of it are of files: a first look and a first commit read none of that, nor make an object of each file."""
    commit(sink, 1)
    DeltaTable(sink.uri).create_checkpoint()
    whole, get = list[str](), Place.get
    monkeypatch.setattr(Place, "get", lambda place, path: (whole.append(path), get(place, path))[1])
    monkeypatch.delattr(DeltaTable, "partitions")
    fresh = DeltaBoth(sink.uri, ROWS)
    assert fresh.look(window(1)) is not None
    commit(fresh, 2)
    assert fresh.look(window(2)) is not None
    assert not [path for path in whole if path.endswith(".parquet")]


def test_a_log_is_cleaned_up_now_and_then(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean-up looks at each file of the log: with every checkpoint a window would cost the more the more there are."""
    DeltaTable(sink.uri).alter.set_table_properties({"delta.checkpointInterval": "2"})
    cleaned = list[int]()
    monkeypatch.setattr(DeltaTable, "cleanup_metadata", lambda table: cleaned.append(table.version()))
    for number in range(1, 42):
        commit(sink, number)
    assert cleaned == [19, 39]
