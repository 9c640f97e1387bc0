"""Promises of every table with a primary key: it holds the last change of each key by log
order.

The order of windows, kills and replays doesn't matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.sinks.keyed_logs import (
    KEY,
    NARROW,
    ROWS,
    Change,
    Keyed,
    Log,
    divide_log,
    join_logs,
    last_changes,
    random_log,
)
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.testing.contracts.windows import PARTITIONS, PER_WINDOW, run_together

KEYS = {
    "upsert": PrimaryKey(KEY, buckets=2),
    "one-bucket": PrimaryKey(KEY, buckets=1),
    "marks": PrimaryKey(KEY, marks=True, buckets=3),
    "version": PrimaryKey(KEY, version="revision", buckets=2),
}

A, B, C, D, E = ("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)


def log_of(*windows: list[list[Change]]) -> Log:
    """Returns a log with messages in partition 0 only, window by window."""
    return {
        n: [
            [*messages, *([[]] * (PER_WINDOW - len(messages)))],
            *([[[]] * PER_WINDOW] * (PARTITIONS - 1)),
        ]
        for n, messages in enumerate(windows)
    }


def replay(
    dice: random.Random, log: Log, number: int, *, deletes: bool, unavailable_share: float
) -> Log:
    """Returns the log with one window read differently, as after a schema correction: some
    messages have other changes.
    """
    other_log = random_log(dice, number + 1, deletes=deletes, unavailable_share=unavailable_share)[
        number
    ]
    messages = [
        [new if dice.random() < 0.3 and new else old for old, new in zip(*both, strict=True)]
        for both in zip(log[number], other_log, strict=True)
    ]
    return {**log, number: messages}


def run_random_log(
    dice: random.Random, table: Keyed, monkeypatch: pytest.MonkeyPatch, unavailable_share: float
) -> str:
    """Runs random operations, and returns the table's mistakes.

    Args:
        dice: the source of randomness.
        table: an empty table.
        monkeypatch: sets WINDROW_CRASH.
        unavailable_share: share of rows that leave a column unchanged.
    """
    deletes, windows = not table.versioned, dice.randint(1, 5)
    dead, log = divide_log(
        dice,
        random_log(dice, windows, deletes=deletes, unavailable_share=unavailable_share),
        dice.choice([0, 0.3]),
    )

    def to_the_end(run: Callable[[], None], retry: Callable[[], None] = lambda: None) -> None:
        table.turn_to(dice.choice([NARROW, ROWS]))
        monkeypatch.setenv(
            "WINDROW_CRASH", dice.choice(["", "", "commit.before:raise", "commit.after:raise"])
        )
        table.crash(run)
        monkeypatch.setenv("WINDROW_CRASH", "")
        retry()

    for number in (
        range(windows)
        if unavailable_share and dice.random() < 0.5
        else dice.sample(range(windows), windows)
    ):
        run = partial(table.commit, log, number)
        to_the_end(run, run)  # a retry runs again, whether the window was committed or not
        if dice.random() < 0.3:
            earlier_number = dice.choice(sorted(table.generations))
            old_generation, replayed = (
                table.generations[earlier_number],
                replay(
                    dice, log, earlier_number, deletes=deletes, unavailable_share=unavailable_share
                ),
            )
            to_the_end(partial(table.commit, replayed, earlier_number, replace=True))
            log = replayed if table.generations[earlier_number] > old_generation else log
        if dice.random() < 0.5:
            earlier_number = dice.choice(sorted(table.generations))
            accepted, dead[earlier_number] = (
                part[earlier_number]
                for part in divide_log(dice, {earlier_number: dead[earlier_number]}, 0.6)
            )
            old_generation = table.generations[earlier_number]
            to_the_end(
                partial(table.replay_dead_letters, log, {earlier_number: accepted}, earlier_number)
            )
            log = (
                join_logs(log, {earlier_number: accepted}, earlier_number)
                if table.generations[earlier_number] > old_generation
                else log
            )
    return table.find_mistakes()


def replay_between(table: Keyed) -> None:
    """Replays dead letters whose offsets are before and after the window's accepted messages.

    A later window changes one of the keys.
    """
    log = log_of(
        [[], [Change(A, 2)], [Change(B, None)], [Change(C, 1)], [], [Change(D, None)], []],
        [[Change(E, 9)]],
    )
    dead = log_of(
        [
            [Change(A, 1), Change(B, 1)],
            [],
            [],
            [],
            [Change(C, None)],
            [],
            [Change(D, 5), Change(E, 5)],
        ],
        [],
    )
    table.commit(log, 1)
    table.commit(log, 0)
    table.replay_dead_letters(log, dead, 0)


def out_of_order(
    table: Keyed, meanwhile: Callable[[Callable[[], object]], object] = lambda turn: turn()
) -> str:
    """Commits windows out of order, and returns the table's mistakes.

    1. A newer window updates a key, and deletes another.
    2. The older window is committed, beside a third window.

    Args:
        table: the table.
        meanwhile: runs the third window's commit at some point.
    """
    log = log_of(
        [[Change(A, 1)], [Change(B, 1)], [Change(("c", 1), 1)]],
        [[Change(A, 2)], [Change(B, None)]],
        [[Change(("c", 1), 2)]],
    )
    table.commit(log, 1)
    meanwhile(lambda: type(table)(table.uri, table.key).commit(log, 2))
    table.commit(log, 0)
    table.committed[2] = last_changes(log, 2, False)
    table.reopen()
    return table.find_mistakes()


def tags(table: Keyed) -> dict[Any, int | None]:
    """Returns the tag of each row."""
    return {key: row.tag for key, row in table.held_rows().items()}


class KeyedTableContract:
    """The suite for every kind of table with a primary key.

    Attributes:
        LOGS: number of random logs per test.
    """

    LOGS = 10

    def table(self, kind: str, rows: Any = ROWS) -> Keyed:
        """Returns a new table with a key of `KEYS`."""
        raise NotImplementedError

    @pytest.mark.some(1)
    @pytest.mark.sampled(3, of=125)
    @pytest.mark.parametrize("kind", KEYS)
    def test_random_logs_fold_into_the_table(
        self, part: int, kind: str, dice: random.Random, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Random logs, in any order of windows, give the rows of the fold.

        The runs have replays, dead-letter replays, crashes, repeated runs and narrower models.
        """
        for _ in range(self.LOGS):
            seed = dice.randrange(2**32)
            table = self.table(kind, NARROW)
            unavailable_share = 0 if table.versioned else seed % 2 * 0.4
            mistakes = run_random_log(random.Random(seed), table, monkeypatch, unavailable_share)
            assert not mistakes, f"part {part}, seed {seed}: {mistakes}"

    @pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
    def test_an_older_window_does_not_undo_a_newer_one(self, order: list[int]) -> None:
        """A row or delete of an older window never replaces a newer one, whenever the older
        window is committed.
        """
        table = self.table("upsert")
        log = log_of(
            [[Change(A, 1)], [Change(B, 2)]],
            [[Change(A, None)], [Change(B, 3)]],
            [[Change(B, None)]],
        )
        for number in order:
            table.commit(log, number)
        assert table.held_rows() == {}
        assert not table.find_mistakes()

    def test_a_key_that_changes_is_a_delete_and_a_row(self) -> None:
        """In one message the delete counts before the row, also for the same key."""
        table = self.table("upsert")
        table.commit(
            log_of(
                [[Change(A, 1)], [Change(A, None), Change(B, 2)], [Change(B, None), Change(B, 3)]]
            ),
            0,
        )
        assert {key: row.amount for key, row in table.held_rows().items()} == {B: 3}

    def test_a_delete_marks(self) -> None:
        """With marks, a deleted key stays, with null in required columns.

        A later row of the key replaces the mark.
        """
        table = self.table("marks")
        log = log_of(
            [[Change(A, 1)], [Change(B, 1)]],
            [[Change(A, None)], [Change(("c", 9), None)]],
            [[Change(A, 5)]],
        )
        table.commit(log, 0)
        table.commit(log, 1)
        assert {key: row.amount for key, row in table.held_rows().items()} == {
            A: None,
            B: 1,
            ("c", 9): None,
        }
        table.commit(log, 2)
        assert {key: row.amount for key, row in table.held_rows().items()} == {
            A: 5,
            B: 1,
            ("c", 9): None,
        }
        assert not table.find_mistakes()

    def test_a_version_decides_before_the_log(self) -> None:
        """The greatest version is the row; of two equal versions, the later.

        A null version is the least.
        """
        table = self.table("version")
        log = log_of(
            [[Change(A, 1, 5)], [Change(A, 2, 4)], [Change(B, 3, None)]],
            [[Change(A, 4, 5)], [Change(B, 5, None)]],
            [[Change(A, 6, None)]],
        )
        for number in (2, 0, 1):
            table.commit(log, number)
        assert {key: row.amount for key, row in table.held_rows().items()} == {A: 4, B: 5}
        assert not table.find_mistakes()

    def test_a_replacement_that_says_less_is_refused(self) -> None:
        """A replacement that lacks a key of the old attempt is refused, and nothing changes:
        the key's earlier row is unknown.

        It is allowed if a later window changes the key.
        """
        table = self.table("upsert")
        log = log_of(
            [[Change(A, 1)], [Change(B, 1)], [Change(("c", 1), 1)]],
            [[Change(B, None)], [Change(A, 2)]],
            [[Change(A, None)]],
        )
        for number in range(3):
            table.commit(log, number)
        less = log_of([], [[Change(A, 3)]], [])
        table.commit(less, 1, replace=True)  # B's tombstone would be lost
        assert table.generations[1] == 0
        table.commit(less, 0, replace=True)  # c would be lost
        assert table.generations[0] == 0
        table.commit(log_of([], [[Change(B, 7)]]), 1, replace=True)  # the last window changes A
        assert table.generations[1] == 1
        assert {key: row.amount for key, row in table.held_rows().items()} == {B: 7, ("c", 1): 1}
        assert not table.find_mistakes()

    def test_a_replacement_answers_for_deletes_that_left_nothing(self) -> None:
        """A replacement that lacks deletes of the old attempt is refused, even if the table
        holds no row in their buckets.
        """
        table = self.table("upsert")
        log = log_of([[Change(("k", n), None)] for n in range(PER_WINDOW)])
        table.commit(log, 0)
        table.commit(log_of([]), 0, replace=True)
        assert table.generations[0] == 0

    @pytest.mark.parametrize("kind", ["upsert", "marks"])
    def test_replayed_messages_count_where_they_lie(self, kind: str) -> None:
        """Replayed messages count by their offsets: a later change of the same window wins.

        Older windows see the tombstones.
        """
        table = self.table(kind)
        replay_between(table)
        assert {
            key: row.amount for key, row in table.held_rows().items() if row.amount is not None
        } == {
            A: 2,
            D: 5,
            E: 9,
        }
        assert not table.find_mistakes()

    def test_racing_windows_all_arrive(self) -> None:
        """Runs that merge the same keys at the same time all commit: each looks again until its
        merge is on the newest state.
        """
        table = self.table("upsert")
        log = random_log(random.Random(7), 4, deletes=True)
        sinks = [table.make_sink() for _ in log]
        ready = [
            (sink, *table.stage_window(log, number, 0, sink)) for number, sink in enumerate(sinks)
        ]
        outcomes = run_together(
            [lambda racer=racer: racer[0].commit(*racer[1:]) for racer in ready]
        )  # type: ignore[misc]
        assert all(isinstance(outcome, Done) for outcome in outcomes)
        table.committed = {number: last_changes(log, number, False) for number in log}
        assert not table.find_mistakes()

    @pytest.mark.parametrize("kind", ["upsert", "marks"])
    def test_a_row_keeps_what_its_change_leaves_alone(self, kind: str) -> None:
        """A change keeps the columns that it leaves unchanged, from the table's row or from an
        earlier change in the window.

        After a delete, or without a row, they are null, and such rows are counted.
        """
        table = self.table(kind)
        log = log_of(
            [[Change(A, 1), Change(B, 2)], [Change(C, 3)], [Change(B, 4, keeps_tags=True)]],
            [
                [Change(A, 5, keeps_tags=True)],
                [Change(A, 6, keeps_tags=True)],
                [Change(C, None)],
                [Change(C, 7, keeps_tags=True)],
                [Change(D, 8, keeps_tags=True)],
            ],
            [[Change(A, 9)], [Change(B, None)], [Change(D, 10, keeps_tags=True)]],
            [[Change(A, 11, keeps_tags=True)], [Change(B, 12, keeps_tags=True)]],
        )
        for number, expected in enumerate([{A: 1, B: 2, C: 3}, {A: 1, B: 2, C: None, D: None}]):
            table.commit(log, number)
            assert tags(table) == expected
        for number in (2, 3):
            table.commit(log, number)
            assert not table.find_mistakes()
        assert {key: tag for key, tag in tags(table).items() if key != B} == {
            A: 9,
            C: None,
            D: None,
        }
        assert tags(table)[B] is None
        merged = [c.receipt.merged for c in table.make_sink().receipts()]
        assert [(m.kept_count, m.unknown) for m in merged] == [(1, 0), (1, 2), (1, 0), (1, 1)]

    def test_an_unknown_value_never_comes_late(self) -> None:
        """An older window is refused if it would bring the row that a newer change with
        unchanged columns didn't find.
        """
        table = self.table("upsert")
        log = log_of([[Change(A, 1)]], [[Change(A, 2, keeps_tags=True)]])
        for number in (1, 0):
            table.commit(log, number)
        assert (table.generations, tags(table)) == ({1: 0}, {A: None})

    def test_what_would_have_been_kept_never_comes_late(self) -> None:
        """A window is refused if it would change a value that a later window kept: an older
        window, a new attempt, a dead-letter replay.
        """
        log = log_of(
            [[Change(A, 1)], [Change(B, 1)]],
            [[Change(A, 2)]],
            [[], [Change(A, 3, keeps_tags=True)]],
            [[Change(B, 4)]],
        )
        table = self.table("upsert")
        for number in (0, 2):
            table.commit(log, number)
        table.commit(log, 1)  # A's tag would have been 2
        table.commit(log, 0, replace=True)
        table.commit(log, 2, replace=True)
        table.replay_dead_letters(log, log_of([], [], [[Change(A, 5)]]), 2)
        table.commit(log, 3)
        assert (table.generations, tags(table)) == ({0: 0, 2: 0, 3: 0}, {A: 1, B: 4})
        table.replay_dead_letters(log, log_of([], [], [], [[], [Change(B, 6, keeps_tags=True)]]), 3)
        assert table.generations[3] == 0
        assert not table.find_mistakes()
