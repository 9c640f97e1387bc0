"""A table with a primary key holds the last word on each key: by the log, whatever the order of windows, kills, replays and races."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from ingest.errors import DamagedError, SchemaChangedError, SpecError
from ingest.ports.sink import Done
from ingest.schema.primary_key import PrimaryKey
from ingest.sinks.delta import merge as merging
from ingest.sinks.delta.names import GRAVES
from ingest.sinks.delta.sink import DeltaSink
from tests.sinks.beside import BINDING, DeltaKeyedBoth
from tests.sinks.delta.keyed_logs import KEY, NARROW, ROWS, Change, Keyed, Log, divided, joined, last_changes, random_log
from tests.sinks.things import PARTITIONS, PER_WINDOW, together, window

KEYS = {
    "upsert": PrimaryKey(KEY, buckets=2), "one-bucket": PrimaryKey(KEY, buckets=1), "marks": PrimaryKey(KEY, marks=True, buckets=3),
    "version": PrimaryKey(KEY, version="revision", buckets=2),
}  # fmt: skip


def log_of(*windows: list[list[Change]]) -> Log:
    """Messages of partition 0, window by window."""
    return {
        n: [[*of, *([[]] * (PER_WINDOW - len(of)))], *([[[]] * PER_WINDOW] * (PARTITIONS - 1))] for n, of in enumerate(windows)
    }  # fmt: skip


A, B = ("a", 1), ("b", 1)


def replay(dice: random.Random, log: Log, number: int, *, deletes: bool) -> Log:
    """The log with another reading of one window: a schema was mended, so that messages say more, or other things."""
    other = random_log(dice, number + 1, deletes=deletes)[number]
    kept = [
        [new if dice.random() < 0.3 and new else old for old, new in zip(*both, strict=True)]
        for both in zip(log[number], other, strict=True)
    ]
    return {**log, number: kept}


@pytest.mark.sampled(3, of=125)
@pytest.mark.parametrize("kind", KEYS)
def test_random_logs_fold_into_the_table(
    part: int, kind: str, dice: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Of ten random logs, in any order, with replays, mendings, crashes, repeated runs and narrower models: the fold is in the table."""
    for number in range(10):
        seed = dice.randrange(2**32)
        wrong = one_log(random.Random(seed), Keyed(str(tmp_path / f"{number}"), KEYS[kind], rows=NARROW), monkeypatch)
        assert not wrong, f"part {part}, seed {seed}: {wrong}"


def one_log(dice: random.Random, table: Keyed, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is wrong with the table after a random run."""
    deletes, windows = not table.versioned, dice.randint(1, 5)
    dead, log = divided(dice, random_log(dice, windows, deletes=deletes), dice.choice([0, 0.3]))

    def to_the_end(run: Callable[[], None], retry: Callable[[], None] = lambda: None) -> None:
        table.turn_to(dice.choice([NARROW, ROWS]))
        monkeypatch.setenv("WINDROW_CRASH", dice.choice(["", "", "commit.before:raise", "commit.after:raise"]))
        table.crash(run)
        monkeypatch.setenv("WINDROW_CRASH", "")
        retry()

    for number in dice.sample(range(windows), windows):
        run = partial(table.commit, log, number)
        to_the_end(run, run)  # as a retry would, whether it is there or not
        if dice.random() < 0.3:
            again = dice.choice(sorted(table.generations))
            before, other = table.generations[again], replay(dice, log, again, deletes=deletes)
            to_the_end(partial(table.commit, other, again, replace=True))
            log = other if table.generations[again] > before else log
        if dice.random() < 0.5:
            again = dice.choice(sorted(table.generations))
            mended, dead[again] = (part[again] for part in divided(dice, {again: dead[again]}, 0.6))
            before = table.generations[again]
            to_the_end(partial(table.mend, log, {again: mended}, again))
            log = joined(log, {again: mended}, again) if table.generations[again] > before else log
    return table.wrong()


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_an_older_window_does_not_undo_a_newer_one(tmp_path: Path, order: list[int]) -> None:
    """Neither a row nor a delete of before comes back, whenever its window is committed."""
    table = Keyed(str(tmp_path / "t"), KEYS["upsert"])
    log = log_of([[Change(A, 1)], [Change(B, 2)]], [[Change(A, None)], [Change(B, 3)]], [[Change(B, None)]])
    for number in order:
        table.commit(log, number)
    assert table.held() == {}
    assert not table.wrong()


def test_a_key_that_changes_is_a_delete_and_a_row(tmp_path: Path) -> None:
    """In one message the delete counts first, also of the same key."""
    table = Keyed(str(tmp_path / "t"), KEYS["upsert"])
    table.commit(log_of([[Change(A, 1)], [Change(A, None), Change(B, 2)], [Change(B, None), Change(B, 3)]]), 0)
    assert {key: row.amount for key, row in table.held().items()} == {B: 3}


def test_a_delete_marks(tmp_path: Path) -> None:
    """Where deletes mark, the key stays, with null in the columns that a row must have; a row of the key makes it one again."""
    table = Keyed(str(tmp_path / "t"), KEYS["marks"])
    log = log_of([[Change(A, 1)], [Change(B, 1)]], [[Change(A, None)], [Change(("c", 9), None)]], [[Change(A, 5)]])
    table.commit(log, 0)
    table.commit(log, 1)
    assert {key: row.amount for key, row in table.held().items()} == {A: None, B: 1, ("c", 9): None}
    table.commit(log, 2)
    assert {key: row.amount for key, row in table.held().items()} == {A: 5, B: 1, ("c", 9): None}
    assert not table.wrong()


def test_a_version_decides_before_the_log(tmp_path: Path) -> None:
    """The greatest version is the row, of two equal ones the later; null is the least."""
    table = Keyed(str(tmp_path / "t"), KEYS["version"])
    log = log_of(
        [[Change(A, 1, 5)], [Change(A, 2, 4)], [Change(B, 3, None)]], [[Change(A, 4, 5)], [Change(B, 5, None)]], [[Change(A, 6, None)]]
    )
    for number in (2, 0, 1):
        table.commit(log, number)
    assert {key: row.amount for key, row in table.held().items()} == {A: 4, B: 5}
    assert not table.wrong()


def test_a_replacement_that_says_less_is_refused(tmp_path: Path) -> None:
    """What its keys were before nobody knows; where a later window tells of them, it doesn't matter. Nothing changes by the refusal."""
    table = Keyed(str(tmp_path / "t"), KEYS["upsert"])
    log = log_of([[Change(A, 1)], [Change(B, 1)], [Change(("c", 1), 1)]], [[Change(B, None)], [Change(A, 2)]], [[Change(A, None)]])
    for number in range(3):
        table.commit(log, number)
    less = log_of([], [[Change(A, 3)]], [])
    table.commit(less, 1, replace=True)  # B's grave
    assert table.generations[1] == 0
    table.commit(less, 0, replace=True)  # c
    assert table.generations[0] == 0
    table.commit(log_of([], [[Change(B, 7)]]), 1, replace=True)  # of A the last window tells
    assert table.generations[1] == 1
    assert {key: row.amount for key, row in table.held().items()} == {B: 7, ("c", 1): 1}
    assert not table.wrong()


def test_a_replacement_answers_for_deletes_that_left_nothing(tmp_path: Path) -> None:
    """Also where the table holds no row, and the new attempt nothing, in the bucket of a key that the window took out."""
    table = Keyed(str(tmp_path / "t"), KEYS["upsert"])
    log = log_of([[Change(("k", n), None)] for n in range(PER_WINDOW)])
    table.commit(log, 0)
    table.commit(log_of([]), 0, replace=True)
    assert table.generations[0] == 0


C, D, E = ("c", 1), ("d", 1), ("e", 1)


def mended_between(table: Keyed) -> None:
    """A window whose refused messages lie before and behind those that it took, with a later window that tells of one of the keys."""
    taken = log_of([[], [Change(A, 2)], [Change(B, None)], [Change(C, 1)], [], [Change(D, None)], []], [[Change(E, 9)]])
    dead = log_of([[Change(A, 1), Change(B, 1)], [], [], [], [Change(C, None)], [], [Change(D, 5), Change(E, 5)]], [])
    table.commit(taken, 1)
    table.commit(taken, 0)
    table.mend(taken, dead, 0)


@pytest.mark.parametrize("kind", ["upsert", "marks"])
def test_mended_messages_count_where_they_lie(tmp_path: Path, kind: str) -> None:
    """A later message of the window itself stands, row or delete; an earlier one goes; and older windows hear of what is buried now."""
    table = Keyed(str(tmp_path / "t"), KEYS[kind])
    mended_between(table)
    assert {key: row.amount for key, row in table.held().items() if row.amount is not None} == {A: 2, D: 5, E: 9}
    assert not table.wrong()


@pytest.mark.parametrize("damage", ["gone", "cut", "planted"])
def test_lost_graves_refuse_older_windows(tmp_path: Path, damage: str) -> None:
    """Without them nobody can tell what was taken out since: a later window goes in, an older one doesn't, and verification says so."""
    table = Keyed(str(tmp_path / "t"), KEYS["upsert"])
    log = log_of([[Change(A, 1)]], [[Change(A, None)]], [[Change(B, 1)]])
    table.commit(log, 1)
    (file,) = (tmp_path / "t" / GRAVES).iterdir()
    if damage == "gone":
        file.unlink()
    else:
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] if damage == "cut" else whole[:10] + bytes([whole[10] ^ 1]) + whole[11:])
    table.commit(log, 2)
    with pytest.raises(DamagedError, match="which says which 1 keys") as refused:
        table.commit(log, 0)
    assert ("missing" in refused.value.what) == (damage == "gone")
    assert [f.level for f in table.findings()] == ["wrong"]
    assert sorted(table.held()) == [B]


def test_racing_windows_all_arrive(tmp_path: Path) -> None:
    """Of runs that merge the same keys at the same moment each looks again until its merge is on what is there."""
    table = Keyed(str(tmp_path / "t"), KEYS["upsert"])
    log = random_log(random.Random(7), 4, deletes=True)
    sinks = [table.made() for _ in log]
    ready = [(sink, *table.staged(log, number, 0, sink)) for number, sink in enumerate(sinks)]
    outcomes = together([lambda one=one: one[0].commit(*one[1:]) for one in ready])  # type: ignore[misc]
    assert all(isinstance(outcome, Done) for outcome in outcomes)
    table.committed = {number: last_changes(log, number, False) for number in log}
    assert not table.wrong()


def test_files_of_a_bucket_are_put_together(tmp_path: Path) -> None:
    """Rows that come to a bucket leave the others alone, until there are too many files; nothing is lost by either."""
    table = Keyed(str(tmp_path / "t"), KEYS["one-bucket"])
    windows = 2 * merging.FEW + 3
    log = log_of(*([[Change(("k", n), n)]] for n in range(windows)))
    counts = []
    for number in range(windows):
        table.commit(log, number)
        counts.append(len(merging.data_files(DeltaTable(table.uri))))
    assert max(counts) == merging.FEW
    assert counts[: merging.FEW] == list(range(1, merging.FEW + 1))
    assert len(table.held()) == windows
    assert not table.wrong()


@pytest.mark.parametrize("other", [
    PrimaryKey(("id",), buckets=2), PrimaryKey(KEY, buckets=3), PrimaryKey(KEY, marks=True, buckets=2),
    PrimaryKey(KEY, version="revision", buckets=2),
])  # fmt: skip
def test_the_key_is_for_ever(tmp_path: Path, other: PrimaryKey) -> None:
    """A table takes no other key, order or division, and an append nothing of it."""
    table = Keyed(str(tmp_path / "t"), KEYS["upsert"])
    with pytest.raises(SchemaChangedError):
        DeltaKeyedBoth(table.uri, ROWS, other).prepare()
    with pytest.raises(SchemaChangedError):
        DeltaSink(table.uri, ROWS).prepare(BINDING)
    assert table.sink.look(window(0)) is None


@pytest.mark.parametrize(("key", "said"), [
    (PrimaryKey(("id", "nothing")), "nothing: the schema hasn't this column"),
    (PrimaryKey(("revision",)), "revision: a column of the key is never null"),
    (PrimaryKey(("tags",)), "tags: map<string, int64> is no type for a key"),
    (PrimaryKey(("id",), version="shop"), "version shop: string is no type for it"),
    (PrimaryKey(("id",), version="none"), "version none: the schema hasn't this column"),
])  # fmt: skip
def test_a_key_must_fit_the_columns(key: PrimaryKey, said: str) -> None:
    """It is refused before anything is made, with the column."""
    with pytest.raises(SpecError, match=said):
        DeltaKeyedBoth("/nowhere", ROWS, key)


# -------------------------------------------------------------------------------------------------------------------- broken twins


class Meanwhile(DeltaKeyedBoth):
    """The sink itself; another run gets its turn between its merge and its write."""

    turn: Callable[[], object] = staticmethod(lambda: None)

    def _try_commit(self, *args: Any) -> str | None:
        turn, self.turn = self.turn, lambda: None
        turn()
        return super()._try_commit(*args)


class NoGraves(Meanwhile):
    """Doesn't ask what later windows took out."""

    def _after(self, *_: Any) -> list[Any]:
        return []


class MergedOnce(Meanwhile):
    """Merges into the first state that it sees, and commits that on whatever is there by then."""

    merged: Any = None

    def _writing(self, *args: Any) -> Any:
        self.merged = self.merged or super()._writing(*args)
        return self.merged


class NoOrder(Meanwhile):
    """Takes every change for a newer one than the row that it meets."""

    def _writing(self, *args: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(merging._Merging, "_wins", lambda *given: np.ones(len(given[-1]), np.bool_))
            return super()._writing(*args)


@pytest.mark.parametrize(("left_out", "instead"), [
    ("_follows", lambda *given: np.ones(len(given[-1]), np.bool_)),  # what is mended counts as later than all that its window has
    ("_own_graves", lambda *_: None),  # what the window itself took out isn't asked for, and is forgotten
])  # fmt: skip
def test_mended_messages_catch_the_twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str, instead: Callable[..., object]
) -> None:  # fmt: skip
    """A merge that leaves one step out fails where the real one doesn't."""
    table = Keyed(str(tmp_path / "t"), KEYS["upsert"])
    monkeypatch.setattr(merging._Merging, left_out, instead)
    mended_between(table)
    assert table.wrong()


def out_of_order(table: Keyed, twin: type[Meanwhile]) -> str:
    """A newer window first: it updates a key and takes another one out. Then the older one, beside which another window is committed."""
    log = log_of([[Change(A, 1)], [Change(B, 1)], [Change(("c", 1), 1)]], [[Change(A, 2)], [Change(B, None)]], [[Change(("c", 1), 2)]])
    table.commit(log, 1)
    table.sink = twin(table.uri, ROWS, table.key)
    table.sink.turn = lambda: Keyed(table.uri, table.key).commit(log, 2)
    table.commit(log, 0)
    table.committed[2] = last_changes(log, 2, False)
    table.reopen()
    return table.wrong()


@pytest.mark.parametrize("twin", [NoGraves, MergedOnce, NoOrder])
def test_the_fold_catches_the_twin(tmp_path: Path, twin: type[Meanwhile]) -> None:
    """A sink that leaves one step out fails where the real one doesn't."""
    assert not out_of_order(Keyed(str(tmp_path / "real"), KEYS["one-bucket"]), Meanwhile)
    try:
        wrong = out_of_order(Keyed(str(tmp_path / "twin"), KEYS["one-bucket"]), twin)
    except AssertionError as error:  # a key is there twice
        wrong = repr(error)
    assert wrong
