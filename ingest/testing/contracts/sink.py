"""The contract suites of a sink's commits: a window is committed whole, and only once."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windrow.ingest.errors import GridError, IdentityError, OverlapError, RefusedError
from windrow.ingest.model.codec import from_json
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.receipt import Committed, Counts, DeadReplay, Receipt, Staging
from windrow.ingest.ports.sink import AlreadyDone, Done, Sink, Unknown
from windrow.ingest.testing.contracts.commit_hooks import each_line
from windrow.ingest.testing.contracts.sink_under_test import SinkUnderTest
from windrow.ingest.testing.contracts.windows import (
    PER_WINDOW,
    ROWS,
    as_proposed,
    plan,
    receipt,
    run_together,
    stage,
    staged_dead_replay,
    staged_receipt,
    window,
    with_digest,
)


class CommitContract(SinkUnderTest):
    """The suite that runs on every sink."""

    def test_nothing_is_there_before(self, sink: Any) -> None:
        """A prepared table has no windows."""
        assert sink.look(window(0)) is None
        assert list(sink.receipts()) == []

    def test_it_knows_its_identity(self, sink: Any, tmp_path: Path) -> None:
        """Two sinks on the same table have the same identity; a table elsewhere has another."""
        assert sink.is_at(self.reopen(sink).identity)
        assert not sink.is_at(self.make(tmp_path / "none", ROWS).identity)

    def test_look_without_a_table(self, tmp_path: Path) -> None:
        """`look` and `receipts` find nothing, without an error, if there is no table."""
        fresh = self.make(tmp_path / "none", ROWS)
        assert fresh.look(window(0)) is None
        assert list(fresh.receipts()) == []

    def test_a_commit_shows_rows_and_receipt(self, sink: Any) -> None:
        """A commit makes rows and receipt visible together, also to other processes."""
        new_receipt, staged = staged_receipt(sink, 0)
        sink.commit_dead(new_receipt.plan, "a1", staged)
        assert self.pieces(sink) == []
        outcome = sink.commit(new_receipt, staged)
        assert isinstance(outcome, Done)
        assert self.reopen(sink).look(window(0)) == outcome.committed
        assert as_proposed(outcome.committed.receipt) == new_receipt
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))

    def test_receipts_say_by_which_times_they_count(self, sink: Any) -> None:
        """Windows that count late messages by an event time follow one that counts by the broker's
        timestamps. The table takes both, and returns each receipt as it was written.
        """
        by_stamp = self.commit(sink, 0).committed.receipt
        new_receipt, staged = staged_receipt(sink, 1)
        late = {"late": 2, "late_by": ((window(0).key, 2),), "late_stamps": 1}
        splits = tuple(
            msgspec.structs.replace(counts, **late, latest_event=window(1).start)
            for counts in new_receipt.splits
        )
        new_receipt = msgspec.structs.replace(
            new_receipt, splits=splits, counts=Counts.total(splits), event_time="created_at"
        )
        assert isinstance(sink.commit(new_receipt, staged), Done)
        first, second = (committed.receipt for committed in self.reopen(sink).receipts())
        assert (first.event_time, as_proposed(second)) == (None, new_receipt)
        assert first == by_stamp

    def test_several_windows_are_looked_at_at_once(self, sink: Any, tmp_path: Path) -> None:
        """`looks` returns the same as single calls of `look`, in the requested order; None for
        windows that the table doesn't have, and for all windows without a table.
        """
        sink.commit(*staged_receipt(sink, 1))
        windows = [window(n) for n in (2, 1, 0)]
        assert list(self.reopen(sink).looks(windows)) == [None, sink.look(window(1)), None]
        assert list(sink.looks([])) == []
        assert list(self.make(tmp_path / "none", ROWS).looks(windows)) == [None] * 3

    def test_which_windows_are_committed(self, sink: Any, tmp_path: Path) -> None:
        """`committed` returns the requested windows that the table has; none without a table."""
        for number in (1, 3):
            sink.commit(*staged_receipt(sink, number))
        windows = [window(n) for n in (2, 1, 0)]
        assert self.reopen(sink).committed(windows) == sink.committed(windows) == {window(1)}
        assert sink.committed([]) == self.make(tmp_path / "none", ROWS).committed(windows) == set()

    def test_a_second_commit_writes_nothing(self, sink: Any) -> None:
        """A second attempt at a committed window gets the first attempt's receipt, and adds no
        rows.
        """
        first = self.commit(sink, 0)
        second = self.commit(self.reopen(sink), 0, attempt="a2")
        assert second == AlreadyDone(first.committed)
        assert self.report(sink, [0]).ok

    def test_the_same_commit_twice(self, sink: Any) -> None:
        """A repeated call with the same receipt returns AlreadyDone."""
        new_receipt, staged = staged_receipt(sink, 0)
        assert isinstance(sink.commit(new_receipt, staged), Done)
        assert isinstance(sink.commit(new_receipt, staged), AlreadyDone)

    def test_a_window_without_rows(self, sink: Any) -> None:
        """A window without messages is committed with a receipt and without rows."""
        planned = plan(sink, 0, offsets=(0, 0))
        outcome = sink.commit(receipt(planned, [], 0, "a1"), [])
        assert isinstance(outcome, Done)
        assert sink.look(window(0)).receipt.counts.read == 0
        assert self.pieces(sink) == []

    @pytest.mark.parametrize(("number", "offsets"), [(1, (12, 20)), (1, (10, 18)), (1, (0, 0))])
    def test_a_window_that_does_not_join_on_is_refused(
        self, sink: Any, number: int, offsets: tuple[int, int]
    ) -> None:
        """A window whose offsets leave a gap to its neighbours, or overlap them, is refused. Such
        a window was planned by another ledger. The right window is committed afterwards.
        """
        self.commit(sink, 0)
        self.commit(sink, 2)
        torn = plan(sink, number, offsets)
        staged = stage(sink, torn, 0, "torn")
        with pytest.raises(RefusedError, match="window"):
            sink.commit(receipt(torn, staged, 0, "torn"), staged)
        assert isinstance(self.commit(sink, 1), Done)
        assert self.report(sink, [0, 1, 2]).ok

    def test_an_overlap_is_refused(self, sink: Any) -> None:
        """A window with offsets of a committed window is refused, and nothing is written. The
        error names that window, the topic-partition and the offset.
        """
        self.commit(sink, 0)
        planned = plan(sink, 5, offsets=(PER_WINDOW - 1, PER_WINDOW + 5))
        staged = stage(sink, planned, 0, "a1")
        with pytest.raises(OverlapError, match=window(0).key) as refused:
            sink.commit(receipt(planned, staged, 0, "a1"), staged)
        assert (refused.value.topic, refused.value.partition, refused.value.offset) == (
            "shop.orders",
            0,
            PER_WINDOW - 1,
        )
        assert sink.look(window(5)) is None
        assert self.report(sink, [0]).ok

    @pytest.mark.parametrize(
        "calls",
        [
            ["owner"],
            ["owner", "prepare"],
            ["owner", "prepare", "look"],
            ["look", "prepare"],
            ["look", "look"],
        ],
    )
    def test_whatever_was_asked_before_an_overlap_is_refused(
        self, sink: Any, calls: list[str]
    ) -> None:
        """An overlap is refused, whatever the sink was asked before the commit."""
        self.commit(sink, 0)
        self.commit(sink, 1)
        fresh = self.reopen(sink)
        ask = {
            "owner": fresh.owner,
            "prepare": lambda: fresh.prepare(fresh.owner()),
            "look": lambda: fresh.look(window(5)),
        }
        for word in calls:
            ask[word]()
        planned = plan(fresh, 5, offsets=(PER_WINDOW - 1, PER_WINDOW))
        staged = stage(fresh, planned, 0, "a1")
        with pytest.raises(OverlapError, match=window(0).key):
            fresh.commit(receipt(planned, staged, 0, "a1"), staged)

    @pytest.mark.parametrize(("existing", "proposed"), [(None, 1), (0, 2)])
    def test_no_generation_is_left_out(
        self, sink: Any, existing: int | None, proposed: int
    ) -> None:
        """A generation is refused if the previous generation isn't committed."""
        if existing is not None:
            self.commit(sink, 0)
        new_receipt, staged = staged_receipt(sink, 0, proposed, "b1")
        with pytest.raises(RefusedError):
            sink.commit(new_receipt, staged)

    @pytest.mark.parametrize("generation", [0, 1])
    def test_another_plan_fails_closed(self, sink: Any, generation: int) -> None:
        """A window that is committed with another plan is refused in any generation, and the
        text has both digests.
        """
        self.commit(sink, 0)
        new_receipt, staged = staged_receipt(sink, 0, generation, "a2")
        other_receipt = with_digest(new_receipt, plan(sink, 0, offsets=(0, PER_WINDOW - 1)))
        with pytest.raises(RefusedError, match=other_receipt.digest[:12]) as refused:
            sink.commit(other_receipt, staged)
        assert new_receipt.digest[:12] in str(refused.value)
        assert self.report(sink, [0]).ok

    def test_eight_racers_of_one_window(self, sink: Any) -> None:
        """If eight runs commit the same window at once, one commits, and seven report its
        receipt.
        """
        racers = [(self.reopen(sink), f"racer {i}") for i in range(8)]
        ready = [(s, *staged_receipt(s, 0, 0, name)) for s, name in racers]
        for s, new_receipt, staged in ready:
            s.commit_dead(new_receipt.plan, new_receipt.attempt, staged)
        outcomes = run_together(
            [_commit_later(s, new_receipt, staged) for s, new_receipt, staged in ready]
        )
        assert sorted(type(o).__name__ for o in outcomes) == ["AlreadyDone"] * 7 + ["Done"]
        assert len({o.committed.receipt.attempt for o in outcomes}) == 1
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))

    def test_racers_of_different_windows_all_arrive(self, sink: Any) -> None:
        """Eight runs can commit different windows at once."""
        ready = [
            (s, *staged_receipt(s, n)) for n, s in enumerate(self.reopen(sink) for _ in range(8))
        ]
        for s, new_receipt, staged in ready:
            s.commit_dead(new_receipt.plan, new_receipt.attempt, staged)
        outcomes = run_together(
            [_commit_later(s, new_receipt, staged) for s, new_receipt, staged in ready]
        )
        assert all(isinstance(o, Done) for o in outcomes)
        assert self.report(sink, list(range(8))).ok

    def test_receipts_are_the_newest_of_each_window(self, sink: Any) -> None:
        """`receipts` returns the newest generation of each window, in the order of windows."""
        for n in (2, 0, 1):
            self.commit(sink, n)
        newest = self.generations(sink)[-1]
        if newest:
            self.commit(sink, 1, generation=newest, attempt="b1")
        receipts: list[Committed] = list(self.reopen(sink).receipts())
        assert [(c.receipt.window, c.receipt.generation) for c in receipts] == [
            (window(0), 0),
            (window(1), newest),
            (window(2), 0),
        ]
        assert receipts == [sink.look(window(n)) for n in range(3)]

    def test_an_inspection_finds_every_window(self, sink: Any) -> None:
        """An audit returns the same receipts as the sink. Restoring a receipt that is there
        changes nothing; restoring another window's receipt is refused.
        """
        for n in (1, 0):
            self.commit(sink, n)
        fresh = self.reopen(sink)
        assert list(fresh.audit().receipts()) == list(sink.receipts())
        for committed in fresh.receipts():
            assert from_json(fresh.receipt_text(committed.receipt), Receipt) == committed.receipt
            fresh.audit().restore(committed.receipt.window, fresh.receipt_text(committed.receipt))
        with pytest.raises(RefusedError):
            fresh.audit().restore(window(0), sink.receipt_text(sink.look(window(1)).receipt))
        with pytest.raises(RefusedError):
            fresh.audit().restore(window(7), sink.receipt_text(sink.look(window(1)).receipt))
        assert self.report(sink, [0, 1]).ok

    def test_a_lost_answer_is_settled_by_looking(self, sink: Any) -> None:
        """A commit whose answer is lost is Done or Unknown, never refused. The next attempt
        finds it and writes nothing.
        """
        new_receipt, staged = staged_receipt(sink, 0)
        sink.commit_dead(new_receipt.plan, "a1", staged)
        with self.no_answer(sink):
            outcome = sink.commit(new_receipt, staged)
        assert isinstance(outcome, Unknown | Done)
        assert as_proposed(sink.look(window(0)).receipt) == new_receipt
        assert isinstance(self.commit(self.reopen(sink), 0, attempt="a2"), AlreadyDone)
        assert self.report(sink, [0]).ok

    def test_prepare_again(self, sink: Any) -> None:
        """Preparing a prepared table changes nothing."""
        self.commit(sink, 0)
        self.reopen(sink).prepare()
        assert self.report(sink, [0]).ok

    def test_the_grid_is_bound(self, sink: Any) -> None:
        """Another grid is refused, and the text names both grids."""
        with pytest.raises(GridError, match=r"hourly.*daily"):
            self.reopen(sink).prepare(TableOwner("orders", "ledger-1", "daily"))

    @pytest.mark.parametrize(
        ("ledger", "pipeline"), [("ledger-2", "orders"), ("ledger-1", "returns")]
    )
    def test_ledger_and_pipeline_are_bound(self, sink: Any, ledger: str, pipeline: str) -> None:
        """Another ledger or another pipeline is refused, and the text names it."""
        with pytest.raises(IdentityError, match=ledger if pipeline == "orders" else pipeline):
            self.reopen(sink).prepare(TableOwner(pipeline, ledger, "hourly"))

    def test_a_commit_of_another_ledger_is_refused(self, sink: Any) -> None:
        """`commit` refuses another ledger or grid, as `prepare` does, because the table may have
        been made anew in between.
        """
        new_receipt, staged = staged_receipt(sink, 0)
        with pytest.raises(IdentityError):
            sink.commit(receipt(new_receipt.plan, staged, 0, "a1", ledger="ledger-2"), staged)
        with pytest.raises(GridError):
            sink.commit(receipt(new_receipt.plan, staged, 0, "a1", grid="daily"), staged)

    def test_racing_preparations_agree(self, tmp_path: Path) -> None:
        """If eight runs with different ledgers make the same table at once, one binds the table,
        and seven are refused.
        """
        fresh = self.make(tmp_path / "raced", ROWS)
        outcomes = run_together([_preparing(self.reopen(fresh), f"ledger-{i}") for i in range(8)])
        assert sorted(outcomes) == ["bound", *["refused"] * 7]

    def test_runs_that_make_one_table_at_the_same_time_share_it(self, tmp_path: Path) -> None:
        """If eight runs of one pipeline find no table and make it at once, there is one table, with
        the windows of all eight.
        """

        def begun(sink: Any, number: int) -> Any:
            sink.prepare()
            return self.commit(sink, number)

        fresh = self.make(tmp_path / "raced", ROWS)
        outcomes = run_together([partial(begun, self.reopen(fresh), n) for n in range(8)])
        assert all(isinstance(outcome, Done) for outcome in outcomes)
        assert self.report(fresh, list(range(8))).ok, str(self.report(fresh, list(range(8))))

    def test_the_stager_travels(self, sink: Any) -> None:
        """The stager's factory can be pickled, and a discarded stager leaves nothing visible."""
        planned = plan(sink, 0)
        factory = pickle.loads(pickle.dumps(sink.stager(planned, 0, "a1")))  # noqa: S301
        given_up = factory(planned.splits[0])
        given_up.discard()
        assert factory(planned.splits[0]).finish() == Staging()
        assert self.pieces(sink) == []


class ReplaceContract(SinkUnderTest):
    """The suite that runs on every sink that can replace committed windows."""

    def test_a_replacement_takes_away_only_its_own_window(self, sink: Any) -> None:
        """A replacement replaces the rows of its window, and leaves other windows unchanged."""
        for n in range(3):
            self.commit(sink, n)
        assert isinstance(self.commit(sink, 1, generation=1, attempt="b1"), Done)
        assert sink.look(window(1)).receipt.generation == 1
        assert sink.look(window(1)).receipt.attempt == "b1"
        assert self.report(sink, [0, 1, 2]).ok, str(self.report(sink, [0, 1, 2]))

    def test_a_dead_replay_adds_to_its_own_window(self, sink: Any) -> None:
        """A dead-letter replay adds its rows to the window, replaces the receipt, and leaves other
        windows unchanged.
        """
        for n in range(3):
            self.commit(sink, n)
        new_receipt, staged = staged_dead_replay(sink, sink.look(window(1)).receipt, "m1")
        outcome = sink.commit(new_receipt, staged)
        assert isinstance(outcome, Done)
        reopened = self.reopen(sink)
        assert reopened.look(window(1)) == outcome.committed
        assert as_proposed(reopened.look(window(1)).receipt) == new_receipt
        assert self.report(reopened, [0, 1, 2]).ok, str(self.report(reopened, [0, 1, 2]))
        assert isinstance(reopened.commit(new_receipt, staged), AlreadyDone)
        assert self.report(reopened, [0, 1, 2]).ok, str(self.report(reopened, [0, 1, 2]))

    def test_of_two_dead_replays_one_is_committed(self, sink: Any) -> None:
        """If two dead-letter replays have the same base generation, the second adds nothing, and
        gets the first replay's receipt.
        """
        self.commit(sink, 0)
        base_receipt = sink.look(window(0)).receipt
        first, second = (
            staged_dead_replay(sink, base_receipt, "m1"),
            staged_dead_replay(sink, base_receipt, "m2"),
        )
        sink.commit(*first)
        outcome = self.reopen(sink).commit(*second)
        assert isinstance(outcome, AlreadyDone)
        assert outcome.committed.receipt.attempt == "m1"
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))

    def test_dead_replays_race(self, sink: Any) -> None:
        """If four dead-letter replays commit at once, one is Done, and three are AlreadyDone."""
        self.commit(sink, 0)
        base_receipt = sink.look(window(0)).receipt
        others = [self.reopen(sink) for _ in range(4)]
        tried = [
            (racer, *staged_dead_replay(racer, base_receipt, f"m{n}"))
            for n, racer in enumerate(others)
        ]
        outcomes = run_together(
            [_commit_later(racer, new_receipt, files) for racer, new_receipt, files in tried]
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyDone"] * 3 + [
            "Done"
        ]
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))

    def test_a_dead_replay_stands_on_the_attempt_that_it_read(self, sink: Any) -> None:
        """A dead-letter replay is refused if its base attempt isn't the committed attempt. After a
        later generation it is AlreadyDone. In both cases it adds nothing.
        """
        self.commit(sink, 0)
        new_receipt, staged = staged_dead_replay(sink, sink.look(window(0)).receipt, "m1")
        other_receipt = msgspec.structs.replace(
            new_receipt, dead_replay=DeadReplay("another", "another", 2)
        )
        with pytest.raises(RefusedError, match="another"):
            sink.commit(other_receipt, staged)
        self.commit(sink, 0, generation=1, attempt="b1")
        assert isinstance(sink.commit(new_receipt, staged), AlreadyDone)
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))

    def test_a_replacement_takes_replayed_rows_with_it(self, sink: Any) -> None:
        """A replacement also replaces rows that a dead-letter replay has added."""
        self.commit(sink, 0)
        sink.commit(*staged_dead_replay(sink, sink.look(window(0)).receipt, "m1"))
        assert isinstance(self.commit(sink, 0, generation=2, attempt="b1"), Done)
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))

    def test_replaced_by_nothing(self, sink: Any) -> None:
        """A replacement without rows removes the rows of its window, and of no other window."""
        self.commit(sink, 0)
        self.commit(sink, 1)
        planned = plan(sink, 0)
        sink.commit(receipt(planned, [], 1, "b1"), [])
        assert {w for piece in self.pieces(sink) for w in piece["_window"].to_pylist()} == {
            window(1).key
        }
        assert sink.look(window(0)).receipt.generation == 1

    def test_a_stale_generation_changes_nothing(self, sink: Any) -> None:
        """A late attempt at an older generation changes nothing, and gets the newer receipt."""
        stale, stale_files = staged_receipt(sink, 0, 0, "zombie")
        self.commit(sink, 0)
        self.commit(sink, 0, generation=1, attempt="b1")
        outcome = sink.commit(stale, stale_files)
        assert isinstance(outcome, AlreadyDone)
        assert outcome.committed.receipt.attempt == "b1"
        assert self.report(sink, [0]).ok

    def test_two_stale_replacements_both_arrive(self, sink: Any) -> None:
        """Replacements of two windows that run at once are both committed."""
        for n in (0, 1):
            self.commit(sink, n)
        ready = [
            (s, *staged_receipt(s, n, 1, "b1"))
            for n, s in ((0, self.reopen(sink)), (1, self.reopen(sink)))
        ]
        for s, new_receipt, staged in ready:
            s.commit_dead(new_receipt.plan, "b1", staged)
        assert all(
            isinstance(o, Done)
            for o in run_together(
                [_commit_later(s, new_receipt, staged) for s, new_receipt, staged in ready]
            )
        )
        assert [c.receipt.generation for c in sink.receipts()] == [1, 1]
        assert self.report(sink, [0, 1]).ok, str(self.report(sink, [0, 1]))


class KeepContract(SinkUnderTest):
    """The suite that runs on every sink that can't replace committed windows."""

    def test_what_is_committed_is_not_replaced(self, sink: Any) -> None:
        """A replacement and a dead-letter replay are refused and change nothing. A second attempt
        at the first generation still gets the receipt.
        """
        first = self.commit(sink, 0)
        for new_receipt, staged in (
            staged_receipt(sink, 0, 1, "b1"),
            staged_dead_replay(sink, first.committed.receipt, "m1"),
        ):
            with pytest.raises(RefusedError, match=window(0).key):
                sink.commit(new_receipt, staged)
        assert self.commit(self.reopen(sink), 0, attempt="a2") == AlreadyDone(first.committed)
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))


class SinkContract(CommitContract, ReplaceContract):
    """The suite of commits and replacements, for every sink that can replace windows."""

    def test_a_put_that_dies_at_any_of_its_lines(self, sink: Any) -> None:
        """If a process dies at any line of `put`, rows, receipt and note are all there or none is.
        That holds for a first commit and a replacement. The next run commits the window.
        """
        lines = set[int]()
        each_line(sink, "lives", lines.add)
        self.commit(sink, 0)
        assert len(lines) > 1
        for number, line in enumerate(sorted(lines), 1):
            for generation in range(2):
                dying, name = self.reopen(sink), f"{number} {generation}"
                each_line(dying, name, partial(_die_at, line))
                with suppress(SystemExit):
                    dying.commit(*staged_receipt(dying, number, generation, "dies", dead=False))
                fresh = self.reopen(sink)
                committed = fresh.look(window(number))
                with fresh.store.reading() as state:
                    done = committed is not None and committed.receipt.generation == generation
                    assert done == (state.note(name) is not None), line
                    rows = sum(batch.num_rows for batch in state.scan(window(number)))
                if sink.capabilities.atomic == "window":
                    assert rows == (0 if committed is None else committed.receipt.counts.rows), line
                if committed is None:
                    fresh.commit(*staged_receipt(fresh, number, 0, "lives", dead=False))
        assert self.report(sink, list(range(number + 1))).ok


def _die_at(line: int, number: int) -> None:
    """Raises SystemExit at a line, to simulate the death of the process in a put."""
    if number == line:
        raise SystemExit(line)


def _commit_later(sink: Sink, new_receipt: Any, staged: Any) -> Callable[[], Any]:
    return lambda: sink.commit(new_receipt, staged)


def _preparing(sink: Sink, ledger: str) -> Callable[[], str]:
    def run() -> str:
        try:
            sink.prepare(TableOwner("orders", ledger, "hourly"))
        except IdentityError:
            return "refused"
        return "bound"

    return run
