"""Delta tables with a primary key: they hold the last change of each key by log order.

The order of windows, kills, replays and races doesn't matter.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from tests.sinks.delta.world import DeltaKeyed
from tests.sinks.keyed_contract import (
    KEYS,
    A,
    B,
    KeyedTableContract,
    log_of,
    out_of_order,
    replay_between,
)
from tests.sinks.keyed_logs import KEY, ROWS, Change
from tests.sinks.with_dead_letters import DeltaBoth, DeltaKeyedBoth
from windrow.ingest.errors import DamagedError, SchemaChangedError, SpecError
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.kit.commit.table_store import Answer
from windrow.ingest.sinks.kit.merge import bucket_merge as merging
from windrow.ingest.sinks.kit.merge.tombstones import TOMBSTONES
from windrow.ingest.testing.contracts.commit_hooks import on_put
from windrow.ingest.testing.contracts.windows import window


class TestDeltaKeyedTable(KeyedTableContract):
    """The contract of keyed tables, on real Delta tables."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.places = (str(tmp_path / f"{number}") for number in count())

    def table(self, kind: str, rows: Any = ROWS) -> DeltaKeyed:
        return DeltaKeyed(next(self.places), KEYS[kind], rows=rows)


@pytest.mark.parametrize("damage", ["gone", "cut", "planted"])
def test_lost_tombstones_refuse_older_windows(tmp_path: Path, damage: str) -> None:
    """Without tombstones, an older window is refused, because it is unknown which keys were
    deleted since.

    A later window is accepted, and verification reports the loss.
    """
    table = DeltaKeyed(str(tmp_path / "t"), KEYS["upsert"])
    log = log_of([[Change(A, 1)]], [[Change(A, None)]], [[Change(B, 1)]])
    table.commit(log, 1)
    (file,) = (tmp_path / "t" / TOMBSTONES).iterdir()
    if damage == "gone":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(
            content[:-1]
            if damage == "cut"
            else content[:10] + bytes([content[10] ^ 1]) + content[11:]
        )
    table.commit(log, 2)
    with pytest.raises(DamagedError, match=r"which says which 1 key\b") as refused:
        table.commit(log, 0)
    assert ("missing" in refused.value.message) == (damage == "gone")
    assert [f.level for f in table.findings()] == ["wrong"]
    assert sorted(table.held_rows()) == [B]


def test_files_of_a_bucket_are_put_together(tmp_path: Path) -> None:
    """A window adds a file to a bucket until there are `merging.FEW` files; then they are
    merged.

    No row is lost.
    """
    table = DeltaKeyed(str(tmp_path / "t"), KEYS["one-bucket"])
    windows = 2 * merging.FEW + 3
    log = log_of(*([[Change(("k", n), n)]] for n in range(windows)))
    counts = []
    for number in range(windows):
        table.commit(log, number)
        counts.append(len(tables.data_files(DeltaTable(table.uri))))
    assert max(counts) == merging.FEW
    assert counts[: merging.FEW] == list(range(1, merging.FEW + 1))
    assert len(table.held_rows()) == windows
    assert not table.find_mistakes()


@pytest.mark.parametrize(
    "other_key",
    [
        PrimaryKey(("id",), buckets=2),
        PrimaryKey(KEY, buckets=3),
        PrimaryKey(KEY, marks=True, buckets=2),
        PrimaryKey(KEY, version="revision", buckets=2),
    ],
)
def test_the_key_is_for_ever(tmp_path: Path, other_key: PrimaryKey) -> None:
    """A table refuses another primary key, order or number of buckets, and refuses appends."""
    table = DeltaKeyed(str(tmp_path / "t"), KEYS["upsert"])
    with pytest.raises(SchemaChangedError):
        DeltaKeyedBoth(table.uri, ROWS, other_key).prepare()
    with pytest.raises(SchemaChangedError):
        DeltaBoth(table.uri, ROWS).prepare()
    assert table.sink.look(window(0)) is None


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (PrimaryKey(("id", "nothing")), "nothing: the schema doesn't have this column"),
        (PrimaryKey(("revision",)), "revision: a column of the key is never null"),
        (PrimaryKey(("tags",)), "tags: map<string, int64> is not a type for a key"),
        (PrimaryKey(("id",), version="shop"), "version shop: string is not a type for it"),
        (PrimaryKey(("id",), version="none"), "version none: the schema doesn't have this column"),
    ],
)
def test_a_key_must_fit_the_columns(key: PrimaryKey, message: str) -> None:
    """A primary key that doesn't fit the columns is refused with the column's name before
    anything is made.
    """
    with pytest.raises(SpecError, match=message):
        DeltaKeyedBoth("/nowhere", ROWS, key)


# --- broken twins


class Meanwhile(DeltaKeyedBoth):
    """The real sink. A test's function runs between its look and its put."""

    turn: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        on_put(self, self.put)

    def put(self, state: Any, change: Any) -> Answer:
        turn, self.turn = self.turn, lambda: None
        turn()
        return state.put(change)  # type: ignore[no-any-return]


class NoTombstones(Meanwhile):
    """A twin that doesn't ask for keys that later windows deleted."""

    def put(self, state: Any, change: Any) -> Answer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(merging, "find_tombstones", lambda _: None)
            return super().put(state, change)


class MergedOnce(Meanwhile):
    """A twin that merges into the first state that it sees, and puts the result on the newest
    state.
    """

    def put(self, state: Any, change: Any) -> Answer:
        write = tables.write

        def write_late(location: Any, table: Any, *more: Any) -> None:
            turn, self.turn = self.turn, lambda: None
            turn()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tables, "write", write)
                write(location, DeltaTable(self.uri), *more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "write", write_late)
            return state.put(change)  # type: ignore[no-any-return]


class NoOrder(Meanwhile):
    """A twin for which every change is newer than the row in the table."""

    def put(self, state: Any, change: Any) -> Answer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                merging.Merging, "wins", lambda *arguments: np.ones(len(arguments[-1]), np.bool_)
            )
            return super().put(state, change)


@pytest.mark.parametrize(
    ("left_out", "instead"),
    [
        # replayed messages count as later than all other messages of the window
        ("follows", lambda *arguments: np.ones(len(arguments[-1]), np.bool_)),
        # keys that the window itself deleted are forgotten
        ("own_tombstones", lambda *_: None),
    ],
)
def test_replayed_messages_catch_the_twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str, instead: Callable[..., object]
) -> None:
    """A merge without one of its steps fails the check that the real merge passes."""
    table = DeltaKeyed(str(tmp_path / "t"), KEYS["upsert"])
    monkeypatch.setattr(merging.Merging, left_out, instead)
    replay_between(table)
    assert table.find_mistakes()


def fold_beside(table: DeltaKeyed, twin: type[Meanwhile]) -> str:
    """Returns the mistakes after windows out of order, with another run in the middle of a
    commit.
    """

    def meanwhile(turn: Callable[[], object]) -> None:
        table.sink = twin(table.uri, ROWS, table.key)
        table.sink.turn = turn

    return out_of_order(table, meanwhile)


@pytest.mark.parametrize("twin", [NoTombstones, MergedOnce, NoOrder])
def test_the_fold_catches_the_twin(tmp_path: Path, twin: type[Meanwhile]) -> None:
    """A sink without one of its steps fails the check that the real sink passes."""
    assert not fold_beside(DeltaKeyed(str(tmp_path / "real"), KEYS["one-bucket"]), Meanwhile)
    try:
        mistakes = fold_beside(DeltaKeyed(str(tmp_path / "twin"), KEYS["one-bucket"]), twin)
    except AssertionError as error:  # a key is there twice
        mistakes = repr(error)
    assert mistakes
