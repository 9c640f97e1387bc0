"""What every sink promises. A subclass says how its sink is made, how its rows are read, and how a commit's answer gets lost."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.errors import GridError, IdentityError, OverlapError, RefusedError, SpecError
from ingest.grid import batch_at, window_at
from ingest.metacolumns import DEFAULT, TYPES
from ingest.model import Committed, Plan, TopicSeen
from ingest.ports import AlreadyDone, Done, Sink, Unknown
from ingest.testing.checker import Report, check
from tests.write.things import (
    FIRST,
    PER_WINDOW,
    ROWS,
    TOPIC,
    plan,
    plan_of,
    produced,
    receipt,
    stage,
    staged_receipt,
    together,
    window,
    with_digest,
)

RENAMED = {name: f"kafka {name}" for name in TYPES}
"""Every metadata column there is, under names that need quotes."""

REBORN = TopicSeen(TOPIC.topic, "topic-id-2", TOPIC.partitions)
OTHER = TopicSeen("shop.returns", "topic-id-3", 1)


class SinkContract(ABC):
    """Runs unchanged on every sink."""

    @abstractmethod
    def make(self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> Any:
        """A sink whose table isn't there yet."""

    @abstractmethod
    def reopen(self, sink: Any) -> Any:
        """A sink on the same table as another process would make it; the same object where there is only one process."""

    @abstractmethod
    def pieces(self, sink: Any) -> list[pa.Table]:
        """All visible rows, cut as the checker wants them."""

    @abstractmethod
    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        """The next commit arrives, but its answer doesn't."""

    @pytest.fixture
    def sink(self, tmp_path: Path) -> Iterator[Any]:
        """A prepared sink."""
        made = self.make(tmp_path, ROWS)
        made.prepare("ledger-1", "orders", "hourly")
        return made

    def report(self, sink: Any, numbers: list[int]) -> Report:
        """The checker's word on windows that should be there."""
        receipts = [c.receipt for c in sink.receipts()]
        dead = [sink.read_dead(r.window) for r in receipts]
        default = {sink.metadata[name]: column for name, column in DEFAULT.items() if name in sink.metadata}
        pieces = [piece.rename_columns([default.get(c, c) for c in piece.column_names]) for piece in self.pieces(sink)]
        return check(produced(numbers), pieces, dead, receipts, content="id")

    def commit(self, sink: Any, number: int, generation: int = 0, attempt: str = "a1") -> Any:
        """Stage and commit a window with its dead letters."""
        made, staged = staged_receipt(sink, number, generation, attempt)
        sink.commit_dead(made.plan, attempt, staged)
        return sink.commit(made, staged)

    def commit_plan(self, sink: Any, planned: Plan, *, generation: int = 0, grid: str = "hourly") -> Any:
        """Stage and commit any plan with its dead letters."""
        staged = stage(sink, planned, generation, f"a{generation}")
        sink.commit_dead(planned, f"a{generation}", staged)
        return sink.commit(receipt(planned, staged, generation, f"a{generation}", grid=grid), staged)

    def test_nothing_is_there_before(self, sink: Any) -> None:
        """A prepared table holds no window, and asking changes nothing."""
        assert sink.look(window(0)) is None
        assert list(sink.receipts()) == []

    def test_look_without_a_table(self, tmp_path: Path) -> None:
        """Looking where no table is, is no error."""
        fresh = self.make(tmp_path / "none", ROWS)
        assert fresh.look(window(0)) is None
        assert list(fresh.receipts()) == []

    def test_a_commit_shows_rows_and_receipt(self, sink: Any) -> None:
        """A commit makes rows and receipt visible together, to other processes too."""
        made, staged = staged_receipt(sink, 0)
        sink.commit_dead(made.plan, "a1", staged)
        assert self.pieces(sink) == []
        outcome = sink.commit(made, staged)
        assert isinstance(outcome, Done)
        assert self.reopen(sink).look(window(0)) == outcome.committed
        assert outcome.committed.receipt == made
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))

    def test_a_second_commit_writes_nothing(self, sink: Any) -> None:
        """Another attempt at a committed window hears of the first one's receipt and leaves its own files out."""
        first = self.commit(sink, 0)
        second = self.commit(self.reopen(sink), 0, attempt="a2")
        assert second == AlreadyDone(first.committed)
        assert self.report(sink, [0]).ok

    def test_the_same_commit_twice(self, sink: Any) -> None:
        """A call that is repeated as it was, says that it is done already."""
        made, staged = staged_receipt(sink, 0)
        assert isinstance(sink.commit(made, staged), Done)
        assert isinstance(sink.commit(made, staged), AlreadyDone)

    def test_a_replacement_takes_away_only_its_own_window(self, sink: Any) -> None:
        """The next generation stands in the place of the one before; neighbours stay as they are."""
        for n in range(3):
            self.commit(sink, n)
        assert isinstance(self.commit(sink, 1, generation=1, attempt="b1"), Done)
        assert sink.look(window(1)).receipt.generation == 1
        assert sink.look(window(1)).receipt.attempt == "b1"
        assert self.report(sink, [0, 1, 2]).ok, str(self.report(sink, [0, 1, 2]))

    def test_a_window_without_rows(self, sink: Any) -> None:
        """A window without any message is committed like any other, with a receipt and no files."""
        planned = plan(sink, 0, offsets=(0, 0))
        outcome = sink.commit(receipt(planned, [], 0, "a1"), [])
        assert isinstance(outcome, Done)
        assert sink.look(window(0)).receipt.counts.read == 0
        assert self.pieces(sink) == []

    def test_replaced_by_nothing(self, sink: Any) -> None:
        """A replacement without rows empties its window, and only that."""
        self.commit(sink, 0)
        self.commit(sink, 1)
        planned = plan(sink, 0)
        sink.commit(receipt(planned, [], 1, "b1"), [])
        assert {w for piece in self.pieces(sink) for w in piece["_window"].to_pylist()} == {window(1).key}
        assert sink.look(window(0)).receipt.generation == 1

    @pytest.mark.parametrize(("number", "offsets"), [(1, (12, 20)), (1, (10, 18)), (1, (0, 0))])
    def test_a_window_that_does_not_join_on_is_refused(self, sink: Any, number: int, offsets: tuple[int, int]) -> None:
        """Planned by another ledger, it would leave offsets in no window, or in two: refused; the right one goes in."""
        self.commit(sink, 0)
        self.commit(sink, 2)
        torn = plan(sink, number, offsets)
        staged = stage(sink, torn, 0, "torn")
        with pytest.raises(RefusedError, match="window"):
            sink.commit(receipt(torn, staged, 0, "torn"), staged)
        assert isinstance(self.commit(sink, 1), Done)
        assert self.report(sink, [0, 1, 2]).ok

    @pytest.mark.parametrize("committed_first", [0, 1])
    @pytest.mark.parametrize(
        ("topics", "cluster"),
        [((REBORN,), "cluster"), ((REBORN, OTHER), "cluster"), ((REBORN,), "another"), ((OTHER,), "another")],
        ids=["topic made anew", "topic made anew, another added", "cluster replaced", "all replaced"],
    )
    def test_a_rebase_is_a_legal_seam(self, sink: Any, topics: tuple[TopicSeen, ...], cluster: str, committed_first: int) -> None:
        """Behind a rebase offsets begin anew: what has another id there is not held against the window before it, in either order."""
        plans = [plan(sink, 0), plan_of(sink, window(1), (3, 5), topics, cluster)]
        for planned in plans if committed_first == 0 else reversed(plans):
            assert isinstance(self.commit_plan(sink, planned), Done)
        assert self.report(sink, [0]).accounting == ()

    def test_a_rebase_excuses_only_what_it_changed(self, sink: Any) -> None:
        """Where one topic was made anew, another one that stayed the same still has to join on."""
        self.commit_plan(sink, plan_of(sink, window(0), (0, 10), (TOPIC, OTHER)))
        with pytest.raises(IdentityError, match=window(0).key) as refused:
            self.commit_plan(sink, plan_of(sink, window(1), (12, 15), (REBORN, OTHER)))
        assert (refused.value.topic, refused.value.partition, refused.value.offset) == (OTHER.topic, 0, 12)
        assert isinstance(self.commit_plan(sink, plan_of(sink, window(1), (10, 15), (REBORN, OTHER))), Done)

    @pytest.mark.parametrize(("one", "other"), [((TOPIC,), (TOPIC, OTHER)), ((TOPIC, OTHER), (TOPIC,))])
    def test_a_topic_that_only_one_side_knows_is_refused(self, sink: Any, one: tuple[TopicSeen, ...], other: tuple[TopicSeen, ...]) -> None:
        """Adjacent windows of one ledger share their boundary, topics included: one that comes or goes between them shows two ledgers."""
        self.commit_plan(sink, plan_of(sink, window(0), (0, 10), one))
        with pytest.raises(IdentityError, match="nowhere") as refused:
            self.commit_plan(sink, plan_of(sink, window(1), (10, 20), other))
        assert refused.value.topic == OTHER.topic

    def test_micro_batches(self, tmp_path: Path) -> None:
        """Micro-batches are windows like others: visible by key, replaced alone, joined on by number; nothing lies before the first."""
        made = self.make(tmp_path, ROWS)
        made.prepare("ledger-1", "orders", "batch")
        plans = [plan_of(made, batch_at("orders", n), (10 * n, 10 * n + 10)) for n in range(3)]
        for planned in plans:
            assert isinstance(self.commit_plan(made, planned, grid="batch"), Done)
        assert isinstance(self.commit_plan(made, plans[1], generation=1, grid="batch"), Done)
        assert [c.receipt.window.start for c in self.reopen(made).receipts()] == [0, 1, 2]
        assert self.reopen(made).look(batch_at("orders", 1)).receipt.generation == 1
        assert {k for piece in self.pieces(made) for k in piece["_window"].to_pylist()} == {f"batch-00000000{n}" for n in range(3)}
        torn = plan_of(made, batch_at("orders", 3), (31, 40))
        with pytest.raises(IdentityError, match="batch-000000002"):
            self.commit_plan(made, torn, grid="batch")
        assert self.report(made, [0, 1, 2]).ok, str(self.report(made, [0, 1, 2]))

    def test_windows_of_unequal_length(self, tmp_path: Path) -> None:
        """On a cron grid a window's neighbours are the grid's, however long they are: those are what it has to join on to."""
        grid, made = "0 0,3 * * *", self.make(tmp_path, ROWS)
        made.prepare("ledger-1", "orders", grid)
        short = window_at("orders", grid, FIRST)
        long = window_at("orders", grid, FIRST + timedelta(hours=3))
        self.commit_plan(made, plan_of(made, long, (10, 20)), grid=grid)
        for offsets in ((0, 9), (0, 12)):
            with pytest.raises(RefusedError, match=long.key):
                self.commit_plan(made, plan_of(made, short, offsets), grid=grid)
        assert isinstance(self.commit_plan(made, plan_of(made, short, (0, 10)), grid=grid), Done)
        following = window_at("orders", grid, FIRST + timedelta(hours=24))
        with pytest.raises(IdentityError, match=long.key):
            self.commit_plan(made, plan_of(made, following, (25, 30)), grid=grid)
        assert self.report(made, [0, 1]).ok, str(self.report(made, [0, 1]))

    def test_metadata_columns_by_any_name(self, tmp_path: Path) -> None:
        """Under other names, the window's too, everything works as before: replacing takes one window; dead letters keep their names."""
        made = self.make(tmp_path, ROWS, RENAMED)
        made.prepare("ledger-1", "orders", "hourly")
        for n in range(3):
            self.commit(made, n)
        assert isinstance(self.commit(made, 1, generation=1, attempt="b1"), Done)
        self.reopen(made).prepare("ledger-1", "orders", "hourly")
        assert [c.receipt.generation for c in self.reopen(made).receipts()] == [0, 1, 0]
        assert {*ROWS.names, *RENAMED.values()} == set(self.pieces(made)[0].column_names)
        assert {"_topic", "_partition", "_offset", "_timestamp", "_window"} <= set(made.read_dead(window(0)).column_names)
        assert self.report(made, [0, 1, 2]).ok, str(self.report(made, [0, 1, 2]))
        assert {a for piece in self.pieces(made) for a in piece["kafka attempt"].to_pylist()} == {"a1", "b1"}

    def test_metadata_columns_say_what_the_message_does(self, tmp_path: Path) -> None:
        """Each column has its type, and the value of the message that the row came from; of two equal header keys the last counts."""
        made = self.make(tmp_path, ROWS, RENAMED)
        made.prepare("ledger-1", "orders", "hourly")
        self.commit(made, 0)
        piece = next(p for p in self.pieces(made) if p["kafka partition"][0].as_py() == 1)
        assert {name: piece.schema.field(column).type for name, column in RENAMED.items()} == TYPES
        row = {name: piece[column][1].as_py() for name, column in RENAMED.items()}
        assert row == {
            "topic": TOPIC.topic, "partition": 1, "offset": 1, "timestamp": FIRST + timedelta(milliseconds=1),
            "timestamp-type": "CreateTime", "headers": [("h", None)],
            "header-list": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}], "leader-epoch": 7,
            "key": None, "value-size": 2, "attempt": "a1", "window": window(0).key,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("metadata", "says"),
        [
            (DEFAULT | {"key": "Amount"}, r"column amount .* metadata key \(Amount\)"),
            (DEFAULT | {"key": "_Offset"}, "metadata offset and key"),
            (DEFAULT | {"serial": "s"}, "metadata serial"),
            ({n: c for n, c in DEFAULT.items() if n != "window"}, "metadata window can't be left out"),
            (DEFAULT | {"key": ""}, "metadata key"),
        ],
    )
    def test_metadata_columns_that_cannot_be(self, tmp_path: Path, metadata: Mapping[str, str], says: str) -> None:
        """A name that is taken, unknown or left out is refused before anything is made; a clash names both sides."""
        with pytest.raises(SpecError, match=says):
            self.make(tmp_path, ROWS, metadata)

    def test_an_overlap_is_refused(self, sink: Any) -> None:
        """A range that another window holds is refused, naming that window, topic-partition and offset; nothing is written."""
        self.commit(sink, 0)
        planned = plan(sink, 5, offsets=(PER_WINDOW - 1, PER_WINDOW + 5))
        staged = stage(sink, planned, 0, "a1")
        with pytest.raises(OverlapError, match=window(0).key) as refused:
            sink.commit(receipt(planned, staged, 0, "a1"), staged)
        assert (refused.value.topic, refused.value.partition, refused.value.offset) == ("shop.orders", 0, PER_WINDOW - 1)
        assert sink.look(window(5)) is None
        assert self.report(sink, [0]).ok

    def test_a_stale_generation_changes_nothing(self, sink: Any) -> None:
        """An attempt at an older generation that wakes late, hears of the newer one."""
        stale, stale_files = staged_receipt(sink, 0, 0, "zombie")
        self.commit(sink, 0)
        self.commit(sink, 0, generation=1, attempt="b1")
        outcome = sink.commit(stale, stale_files)
        assert isinstance(outcome, AlreadyDone)
        assert outcome.committed.receipt.attempt == "b1"
        assert self.report(sink, [0]).ok

    @pytest.mark.parametrize(("there", "proposed"), [(None, 1), (0, 2)])
    def test_no_generation_is_left_out(self, sink: Any, there: int | None, proposed: int) -> None:
        """A generation needs the one before it."""
        if there is not None:
            self.commit(sink, 0)
        made, staged = staged_receipt(sink, 0, proposed, "b1")
        with pytest.raises(RefusedError):
            sink.commit(made, staged)

    @pytest.mark.parametrize("generation", [0, 1])
    def test_another_plan_fails_closed(self, sink: Any, generation: int) -> None:
        """A window that is there under another plan is refused, whatever the generation; both digests are named."""
        self.commit(sink, 0)
        made, staged = staged_receipt(sink, 0, generation, "a2")
        other = with_digest(made, plan(sink, 0, offsets=(0, PER_WINDOW - 1)))
        with pytest.raises(RefusedError, match=other.digest[:12]) as refused:
            sink.commit(other, staged)
        assert made.digest[:12] in str(refused.value)
        assert self.report(sink, [0]).ok

    def test_eight_racers_of_one_window(self, sink: Any) -> None:
        """Of eight runs of one window one commits; the other seven report its receipt."""
        racers = [(self.reopen(sink), f"racer {i}") for i in range(8)]
        ready = [(s, *staged_receipt(s, 0, 0, name)) for s, name in racers]
        for s, made, staged in ready:
            s.commit_dead(made.plan, made.attempt, staged)
        outcomes = together([_committing(s, made, staged) for s, made, staged in ready])
        assert sorted(type(o).__name__ for o in outcomes) == ["AlreadyDone"] * 7 + ["Done"]
        assert len({o.committed.receipt.attempt for o in outcomes}) == 1
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))

    def test_racers_of_different_windows_all_arrive(self, sink: Any) -> None:
        """Runs of different windows never stop one another."""
        ready = [(s, *staged_receipt(s, n)) for n, s in enumerate(self.reopen(sink) for _ in range(8))]
        for s, made, staged in ready:
            s.commit_dead(made.plan, made.attempt, staged)
        outcomes = together([_committing(s, made, staged) for s, made, staged in ready])
        assert all(isinstance(o, Done) for o in outcomes)
        assert self.report(sink, list(range(8))).ok

    def test_two_stale_replacements_both_arrive(self, sink: Any) -> None:
        """Replacements of two windows that both looked before either wrote, both arrive."""
        for n in (0, 1):
            self.commit(sink, n)
        ready = [(s, *staged_receipt(s, n, 1, "b1")) for n, s in ((0, self.reopen(sink)), (1, self.reopen(sink)))]
        for s, made, staged in ready:
            s.commit_dead(made.plan, "b1", staged)
        assert all(isinstance(o, Done) for o in together([_committing(s, made, staged) for s, made, staged in ready]))
        assert [c.receipt.generation for c in sink.receipts()] == [1, 1]
        assert self.report(sink, [0, 1]).ok, str(self.report(sink, [0, 1]))

    def test_receipts_are_the_newest_of_each_window(self, sink: Any) -> None:
        """All windows, each with its newest generation, in order."""
        for n in (2, 0, 1):
            self.commit(sink, n)
        self.commit(sink, 1, generation=1, attempt="b1")
        found: list[Committed] = list(self.reopen(sink).receipts())
        assert [(c.receipt.window, c.receipt.generation) for c in found] == [(window(0), 0), (window(1), 1), (window(2), 0)]
        assert found == [sink.look(window(n)) for n in range(3)]

    def test_a_lost_answer_is_settled_by_looking(self, sink: Any) -> None:
        """A commit that arrived unanswered is done or unknown, never refused; the next attempt finds it and writes nothing."""
        made, staged = staged_receipt(sink, 0)
        sink.commit_dead(made.plan, "a1", staged)
        with self.no_answer(sink):
            outcome = sink.commit(made, staged)
        assert isinstance(outcome, Unknown | Done)
        assert sink.look(window(0)).receipt == made
        assert isinstance(self.commit(self.reopen(sink), 0, attempt="a2"), AlreadyDone)
        assert self.report(sink, [0]).ok

    def test_dead_letters_of_the_counted_attempt_only(self, sink: Any) -> None:
        """Readers see the dead letters of the attempt that the receipt names, once, however often they were sent."""
        first, first_files = staged_receipt(sink, 0, 0, "died before its commit")
        sink.commit_dead(first.plan, first.attempt, first_files)
        assert sink.read_dead(window(0)).num_rows == 0
        assert sink.read_dead(window(0), attempt=first.attempt).num_rows == first.counts.dead
        made, staged = staged_receipt(sink, 0, 0, "a2")
        sink.commit_dead(made.plan, "a2", staged)
        self.reopen(sink).commit_dead(made.plan, "a2", staged)
        sink.commit(made, staged)
        seen = sink.read_dead(window(0))
        assert set(seen["attempt"].to_pylist()) == {"a2"}
        assert seen.num_rows == made.counts.dead
        assert self.report(sink, [0]).ok

    def test_a_mended_retry_leaves_no_message_on_both_sides(self, sink: Any) -> None:
        """Dead letters of an attempt that refused a message don't count once another attempt took it as a row."""
        refused, refused_files = staged_receipt(sink, 0, 0, "old schema")
        sink.commit_dead(refused.plan, refused.attempt, refused_files)
        made, staged = staged_receipt(sink, 0, 0, "mended", dead=False)
        sink.commit_dead(made.plan, "mended", staged)
        sink.commit(made, staged)
        assert sink.read_dead(window(0)).num_rows == 0
        assert self.report(sink, [0]).ok

    def test_a_dead_letter_is_the_whole_message(self, sink: Any) -> None:
        """Bytes, headers in order with duplicates, coordinates, stage, reason and attempt come back as they went in."""
        self.commit(sink, 0)
        row = sink.read_dead(window(0), limit=1).to_pylist()[0]
        assert (row["_topic"], row["_offset"], row["key"], row["value"]) == ("shop.orders", 3, None, b"v3")
        assert row["_timestamp"] is None
        assert [tuple(h.values()) for h in row["headers"]] == [("h", b"1"), ("h", None)]
        assert (row["stage"], row["reason"], row["detail"], row["timestamp_type"]) == ("decode", "truncated", "at $.amount", "CreateTime")
        assert (row["attempt"], row["generation"], row["pipeline"], row["leader_epoch"]) == ("a1", 0, "orders", 7)

    def test_prepare_again(self, sink: Any) -> None:
        """Preparing a prepared table changes nothing."""
        self.commit(sink, 0)
        self.reopen(sink).prepare("ledger-1", "orders", "hourly")
        assert self.report(sink, [0]).ok

    def test_the_grid_is_bound(self, sink: Any) -> None:
        """Another grid is refused, naming both."""
        with pytest.raises(GridError, match=r"hourly.*daily"):
            self.reopen(sink).prepare("ledger-1", "orders", "daily")

    @pytest.mark.parametrize(("ledger", "pipeline"), [("ledger-2", "orders"), ("ledger-1", "returns")])
    def test_ledger_and_pipeline_are_bound(self, sink: Any, ledger: str, pipeline: str) -> None:
        """Another ledger, or another pipeline, is refused, naming both."""
        with pytest.raises(IdentityError, match=ledger if pipeline == "orders" else pipeline):
            self.reopen(sink).prepare(ledger, pipeline, "hourly")

    def test_a_commit_of_another_ledger_is_refused(self, sink: Any) -> None:
        """What prepare refuses, commit refuses too: the table may have been made anew in between."""
        made, staged = staged_receipt(sink, 0)
        with pytest.raises(IdentityError):
            sink.commit(receipt(made.plan, staged, 0, "a1", ledger="ledger-2"), staged)
        with pytest.raises(GridError):
            sink.commit(receipt(made.plan, staged, 0, "a1", grid="daily"), staged)

    def test_racing_preparations_agree(self, tmp_path: Path) -> None:
        """Of eight that make one table with ledgers of their own, one binds it; the others are told whose it is."""
        fresh = self.make(tmp_path / "raced", ROWS)
        outcomes = together([_preparing(self.reopen(fresh), f"ledger-{i}") for i in range(8)])
        assert sorted(outcomes) == ["bound", *["refused"] * 7]

    def test_the_stager_travels(self, sink: Any) -> None:
        """The factory survives pickling, and an attempt that was given up leaves nothing visible."""
        planned = plan(sink, 0)
        factory = pickle.loads(pickle.dumps(sink.stager(planned, 0, "a1")))
        given_up = factory(planned.splits[0])
        given_up.discard()
        assert factory(planned.splits[0]).finish() == (0, 0, (), ())
        assert self.pieces(sink) == []


def _committing(sink: Sink, made: Any, staged: Any) -> Callable[[], Any]:
    return lambda: sink.commit(made, staged)


def _preparing(sink: Sink, ledger: str) -> Callable[[], str]:
    def run() -> str:
        try:
            sink.prepare(ledger, "orders", "hourly")
        except IdentityError:
            return "refused"
        return "bound"

    return run
