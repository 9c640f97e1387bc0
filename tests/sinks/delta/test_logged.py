"""What windrow reads of a table's log by itself is what deltalake says of the table, whatever has happened to it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from tests.sinks.beside import DeltaBoth
from tests.sinks.things import ROWS, staged_receipt, window
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.log import read_log
from windrow.ingest.sinks.delta.logged import LoggedTable
from windrow.ingest.sinks.delta.names import window_app
from windrow.ingest.sinks.delta.newest import Newest
from windrow.ingest.sinks.place import Place

WINDOWS = 4


def commit(uri: str, number: int, generation: int) -> None:
    sink = DeltaBoth(uri, ROWS)
    receipt, staged = staged_receipt(sink, number, generation, f"a{generation}", dead=False)
    assert isinstance(sink.commit(receipt, staged), Done)


def properties(uri: str) -> None:
    DeltaTable(uri).alter.set_table_properties({"delta.checkpointInterval": "50"})


def checkpoint(uri: str) -> None:
    DeltaTable(uri).create_checkpoint()


def cleaned(uri: str) -> None:
    checkpoint(uri)
    newest = DeltaTable(uri).version()
    for entry in (Path(uri) / "_delta_log").glob("*.json"):
        if entry.name[:20].isdigit() and int(entry.name[:20]) < newest:
            entry.unlink()


def removed(uri: str) -> None:
    DeltaTable(uri).delete(f"_window = '{window(0).key}'")


def compacted(uri: str) -> None:
    DeltaTable(uri).optimize.compact()


def extended(uri: str) -> None:
    table = DeltaTable(uri)
    table.alter.add_columns([Field(f"more{table.version()}", PrimitiveType("long"))])


def same(uri: str) -> LoggedTable | None:
    """A fresh look, held against deltalake's handle; None where it is that handle itself."""
    state, table = Newest(uri, Place(uri)).look(), DeltaTable(uri)
    assert state is not None
    assert state.version == table.version()
    assert state.filled.every() == tables.parts(table)
    apps = [window_app(window(n).key, "orders") for n in range(WINDOWS)]
    assert [state.version_of(app) for app in apps] == [table.transaction_version(app) for app in apps]
    if not isinstance(state.table, LoggedTable):
        return None
    assert json.loads(state.table.schema().to_json()) == json.loads(table.schema().to_json())
    assert state.table.metadata().configuration == table.metadata().configuration
    assert state.table.metadata().partition_columns == table.metadata().partition_columns
    mine, theirs = state.table.protocol(), table.protocol()
    assert (mine.min_reader_version, mine.min_writer_version) == (theirs.min_reader_version, theirs.min_writer_version)
    return state.table


@pytest.mark.sampled(2, of=40)
def test_a_look_says_what_deltalake_says(part: int, dice: random.Random, tmp_path: Path) -> None:
    """Commits and replacements, checkpoints and clean-ups, rows that others remove or compact, new properties and columns, in any order."""
    uri, generations, logged = str(tmp_path / "orders"), [-1] * WINDOWS, 0
    DeltaBoth(uri, ROWS).prepare()
    others: list[Callable[[str], None]] = [properties, checkpoint, cleaned, removed, compacted, extended]
    for _ in range(25):
        if dice.random() < 0.5:
            number = dice.randrange(WINDOWS)
            generations[number] += 1
            commit(uri, number, generations[number])
        else:
            dice.choice(others)(uri)
        logged += same(uri) is not None
    assert logged, "every look was deltalake's"


def test_no_file_is_taken_in_for_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look of a process and its first commits load no handle, which would read what the log says of every file."""
    uri = str(tmp_path / "orders")
    DeltaBoth(uri, ROWS).prepare()
    commit(uri, 0, 0)
    checkpoint(uri)
    fresh = DeltaBoth(uri, ROWS)
    monkeypatch.setattr(tables, "load", lambda _: pytest.fail("the table was loaded"))
    assert fresh.look(window(0)) is not None
    for number in (1, 2):
        assert isinstance(fresh.commit(*staged_receipt(fresh, number, dead=False)), Done)
    assert [c.receipt.window for c in DeltaBoth(uri, ROWS).receipts()] == [window(n) for n in range(3)]


@pytest.mark.parametrize("torn", [b"", b'{"commitInfo":{"times', b"\xff"])
def test_what_can_not_be_read_is_left_to_deltalake(tmp_path: Path, torn: bytes) -> None:
    """An entry that isn't whole is no answer, and nothing is made of the part of it that is."""
    uri = str(tmp_path / "orders")
    DeltaBoth(uri, ROWS).prepare()
    (Path(uri) / f"_delta_log/{1:020d}.json").write_bytes(torn)
    assert read_log(Place(uri)) is None


def test_a_table_that_is_gone(tmp_path: Path) -> None:
    """Between a look and what needs the files: another one was first, and a look tells."""
    uri = str(tmp_path / "orders")
    DeltaBoth(uri, ROWS).prepare()
    state = Newest(uri, Place(uri)).look()
    assert state is not None
    assert isinstance(state.table, LoggedTable)
    state.table._load = lambda: None
    with pytest.raises(CommitFailedError):
        tables.brought_to(state.table, 0)


def test_metadata_on_a_field_is_seen(tmp_path: Path) -> None:
    """An invariant in the columns of the log is one that the commit leaves to deltalake."""
    uri = str(tmp_path / "plain")
    DeltaTable.create(uri, Schema([Field("c", PrimitiveType("long"), metadata={"delta.invariants": "{}"})]))
    state = Newest(uri, Place(uri)).look()
    assert state is not None
    assert state.entry is None
    assert not isinstance(state.table, LoggedTable)
