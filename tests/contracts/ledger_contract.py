"""The contract that every ledger keeps.

A record is stored only if none exists, and stays. Boundaries tile: windows between them neither
overlap nor leave a gap, also if several writers freeze boundaries at the same time. Values come
back as they were recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import get_args

import msgspec
import pytest

from windrow.ingest.errors import IdentityError, RefusedError, UnreachableError
from windrow.ingest.model.boundary import Boundary, How, Label, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.ledger_records import Pause, PoisonPill, RefusedWindow
from windrow.ingest.model.lookup import Pin
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.receipt import Counts, Receipt, SplitCounts
from windrow.ingest.model.source import AtTime, Earliest, FrozenStop, Given, Latest
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.ledger import Ledger

DAY = datetime(2026, 1, 5, tzinfo=UTC)
PIPELINE = "things"
WIDE = 2_000
"""Number of topic-partitions of a wide window."""


def hour_at(hour: float) -> datetime:
    """Returns an hour of the test's day."""
    return DAY + timedelta(hours=hour)


def window(hour: int, pipeline: str = PIPELINE) -> Window:
    """Returns the window that starts at an hour."""
    return Window(pipeline, hour_at(hour), hour_at(hour + 1))


def boundary(hour: float, *offsets: int, origin: How = "settled") -> Boundary:
    """Returns a boundary of topic t at an hour, with these offsets by partition."""
    return cut(hour_at(hour), *offsets, origin=origin)


def cut(label: Label, *offsets: int, origin: How = "settled", topic_id: str = "id") -> Boundary:
    """Returns a boundary of topic t under any label, with these offsets by partition.

    Another `topic_id` means that the topic was deleted and made again.
    """
    marks = [
        Mark("t", p, offset, origin, leader_epoch=3 if p else None)
        for p, offset in enumerate(offsets)
    ]
    return Boundary.of(label, "cluster", [TopicSeen("t", topic_id, len(offsets))], marks)


def plan(hour: int, *offsets: int, pipeline: str = PIPELINE) -> Plan:
    """Returns a window's plan from offset 0 to these offsets."""
    splits = tuple(Split("t", p, 0, offset, 7) for p, offset in enumerate(offsets) if offset)
    return Plan(
        window(hour, pipeline),
        boundary(hour, *(0 for _ in offsets)),
        boundary(hour + 1, *offsets),
        splits,
        "file:///tables/t",
    )


def receipt(
    hour: int, generation: int = 0, attempt: str = "a", pipeline: str = PIPELINE
) -> Receipt:
    """Returns a receipt with a value in every field, among them a name that isn't ASCII."""
    planned = plan(hour, 5, pipeline=pipeline)
    counts = SplitCounts(
        topic="t",
        partition=0,
        start=0,
        stop=5,
        next_offset=5,
        read=4,
        bytes=99,
        valid=3,
        dead=1,
        dropped=0,
        rows_staged=3,
        dead_staged=1,
        aborted=1,
        reasons=(("tombstone", 1),),
        min_timestamp=DAY,
        max_timestamp=hour_at(1),
        rows=3,
    )
    return Receipt(
        plan=planned,
        digest=planned.digest,
        generation=generation,
        attempt=attempt,
        request="request",
        ledger="ledger",
        grid="hourly",
        counts=Counts.total([counts]),
        splits=(counts,),
        schema=(("größe", "int64"),),
        code="0.1",
        staged_at=hour_at(2),
        seconds=1.5,
        warnings=("one aborted message",),
    )


def assert_tiled(boundaries: Sequence[Boundary]) -> None:
    """Asserts that no window between neighbouring boundaries is negative in any topic-partition."""
    ordered = sorted(boundaries, key=lambda b: b.label)
    for lower, upper in pairwise(ordered):
        for tp, below in lower.by_tp().items():
            above = upper.cut(tp)
            assert above is not None
            assert below.offset <= above.offset, (
                f"window {lower.label} / {upper.label} is negative in {tp}"
            )


def freeze_stale(ledgers: Sequence[Ledger]) -> list[Boundary]:
    """Freezes one hour with each ledger, each in its own thread, at the same time.

    The later the hour, the lower the offset of its boundary.
    """
    ready = threading.Barrier(len(ledgers))

    def freeze_hour(hour: int) -> list[Boundary]:
        ready.wait(60)
        return ledgers[hour].freeze(PIPELINE, [boundary(hour, 100 * (len(ledgers) - hour), 50)])

    with ThreadPoolExecutor(len(ledgers)) as pool:
        return [b for frozen in pool.map(freeze_hour, range(len(ledgers))) for b in frozen]


class LedgerContract:
    """The promises of a ledger.

    A subclass supplies the fixture `reopen`: a function that opens the same ledger again. The
    ledger is empty at first.
    """

    def test_identity_is_made_once(self, reopen: Callable[[], Ledger]) -> None:
        """Everyone who opens a ledger gets the same id, also if several open it at the
        same time.
        """
        with ThreadPoolExecutor(8) as pool:
            ids = list(pool.map(lambda _: reopen().identity(), range(8)))
        assert len(set(ids)) == 1
        assert len(ids[0]) == 32

    def test_an_empty_ledger_adopts_a_tables_identity(self, reopen: Callable[[], Ledger]) -> None:
        """An empty ledger takes over the id that its table is bound to, and keeps it."""
        reopen().adopt_identity("the table's")
        assert reopen().identity() == "the table's"

    def test_a_ledger_with_boundaries_adopts_no_other_identity(
        self, reopen: Callable[[], Ledger]
    ) -> None:
        """A ledger that has boundaries refuses another id, and accepts its own."""
        ledger = reopen()
        own_identity = ledger.identity()
        ledger.freeze(PIPELINE, [boundary(1, 5)])
        with pytest.raises(IdentityError, match=own_identity):
            ledger.adopt_identity("the table's")
        ledger.adopt_identity(own_identity)
        assert reopen().identity() == own_identity

    def test_the_first_grid_stays(self, reopen: Callable[[], Ledger]) -> None:
        """A pipeline's first recorded grid stays, and every later caller gets it."""
        ledger = reopen()
        assert ledger.bind_grid(PIPELINE, "hourly") == "hourly"
        assert ledger.bind_grid(PIPELINE, "daily") == "hourly"
        assert ledger.bind_grid("other", "daily") == "daily"

    def test_a_frozen_boundary_stays(self, reopen: Callable[[], Ledger]) -> None:
        """A frozen boundary never changes; a later caller gets the frozen one."""
        ledger = reopen()
        assert ledger.boundary(PIPELINE, hour_at(1)) is None
        (first,) = ledger.freeze(PIPELINE, [boundary(1, 5)])
        assert first == boundary(1, 5)
        assert reopen().freeze(PIPELINE, [boundary(1, 9)]) == [first]
        assert ledger.boundary(PIPELINE, hour_at(1)) == first
        assert ledger.boundary("other", hour_at(1)) is None

    def test_boundaries_freeze_in_label_order_with_what_is_there_in_its_place(
        self, reopen: Callable[[], Ledger]
    ) -> None:
        """Boundaries freeze in label order, whatever their order in the call.

        Boundaries that are already frozen are returned in their places.
        """
        ledger = reopen()
        ledger.freeze(PIPELINE, [boundary(2, 20)])
        frozen = ledger.freeze(PIPELINE, [boundary(3, 5), boundary(2, 99), boundary(1, 50)])
        assert [(b.label, b.marks[0].offset, b.marks[0].origin) for b in frozen] == [
            (hour_at(1), 20, "clamped"),
            (hour_at(2), 20, "settled"),
            (hour_at(3), 20, "clamped"),
        ]

    def test_a_boundary_is_clamped_between_its_neighbours(
        self, reopen: Callable[[], Ledger]
    ) -> None:
        """A boundary's offsets are clamped between its neighbours.

        A partition that the lower neighbour doesn't list has 0 as its lower limit. If the upper
        neighbour doesn't list it either, its offset becomes 0.
        """
        ledger = reopen()
        ledger.freeze(PIPELINE, [boundary(1, 10), boundary(5, 30, 5)])
        (frozen,) = ledger.freeze(PIPELINE, [boundary(3, 4, 9, 7)])
        assert [(m.partition, m.offset) for m in frozen.marks] == [(0, 10), (1, 5), (2, 0)]

    def test_neighbours_are_the_nearest_in_time(self, reopen: Callable[[], Ledger]) -> None:
        """A boundary's neighbours are the nearest boundaries of the same pipeline in time.

        Labels may have fractions of seconds. A boundary is not its own neighbour.
        """
        ledger = reopen()
        hours = [1, 1 + 0.25 / 3600, 2, 26]
        boundaries = ledger.freeze(PIPELINE, [boundary(h, i) for i, h in enumerate(hours)])
        ledger.freeze("other", [boundary(1.5, 99)])
        ends = [None, *boundaries, None]
        for i, hour in enumerate(hours):
            assert ledger.neighbours(PIPELINE, hour_at(hour)) == (ends[i], ends[i + 2])
        assert ledger.neighbours(PIPELINE, hour_at(1.5)) == (boundaries[1], boundaries[2])

    def test_stale_resolutions_frozen_at_once_tile(self, reopen: Callable[[], Ledger]) -> None:
        """Boundaries whose offsets fall while their labels rise tile, even if frozen together.

        No window is negative, and each caller gets the frozen boundary.
        """
        frozen = freeze_stale([reopen() for _ in range(8)])
        assert_tiled(frozen)
        assert [reopen().boundary(PIPELINE, b.label) for b in frozen] == frozen

    def test_one_label_frozen_at_once_has_one_value(self, reopen: Callable[[], Ledger]) -> None:
        """If eight runs freeze a boundary for the same label, one stays, and all get it."""
        with ThreadPoolExecutor(8) as pool:
            frozen = list(
                pool.map(
                    lambda offset: reopen().freeze(PIPELINE, [boundary(1, offset)])[0], range(8)
                )
            )
        assert len({b.marks for b in frozen}) == 1

    def test_a_refused_boundary_freezes_nothing(self, reopen: Callable[[], Ledger]) -> None:
        """Boundaries that are frozen together are all frozen, or none is.

        The error that refuses them reaches the caller.
        """
        ledger = reopen()
        ledger.freeze(PIPELINE, [boundary(1, 5)])
        with pytest.raises(IdentityError, match="two topics"):
            ledger.freeze(PIPELINE, [boundary(2, 6), cut(hour_at(3), 7, topic_id="anew")])
        unasked = Boundary.of(
            hour_at(2),
            "cluster",
            [TopicSeen("t", "id", 1), TopicSeen("u", "id2", 1)],
            [Mark("t", 0, 6, "end"), Mark("u", 0, 6, "end")],
        )
        with pytest.raises(UnreachableError, match="doesn't know"):
            ledger.freeze(PIPELINE, [unasked])
        assert ledger.newest(PIPELINE, 9) == [boundary(1, 5)]

    def test_start_marks_are_kept(self, reopen: Callable[[], Ledger]) -> None:
        """A new topic's start mark stays only in the lowest boundary that has the topic."""
        ledger = reopen()
        ledger.freeze(PIPELINE, [boundary(1, 5)])
        topics, marks = (
            [TopicSeen("t", "id", 1), TopicSeen("u", "id2", 1)],
            [
                Mark("t", 0, 6, "settled"),
                Mark("u", 0, 60, "settled"),
            ],
        )
        first, second = (
            Boundary.of(hour_at(h), "cluster", topics, marks, [Mark("u", 0, 40, "log_start")])
            for h in (2, 3)
        )
        frozen = ledger.freeze(PIPELINE, [first, second])
        assert [[b.offset for b in f.start_marks] for f in frozen] == [[40], []]
        assert reopen().boundary(PIPELINE, hour_at(2)) == frozen[0]

    def test_numbers_are_labels_too(self, reopen: Callable[[], Ledger]) -> None:
        """Numbers of micro-batches are labels, too.

        They are in the order of numbers, whatever their number of digits, and have plans of
        their own.
        """
        ledger, numbers = reopen(), [9, 10, 99, 10**9, 2**62]
        frozen = ledger.freeze(
            PIPELINE, [cut(n, i, origin="batch") for i, n in reversed(list(enumerate(numbers)))]
        )
        assert [b.label for b in frozen] == numbers
        assert ledger.neighbours(PIPELINE, 98) == (frozen[1], frozen[2])
        assert [b.label for b in reopen().newest(PIPELINE, 3)] == numbers[2:]
        numbered_plan = msgspec.structs.replace(plan(1, 5), window=Window(PIPELINE, 9, 10))
        assert (
            ledger.freeze_plans([numbered_plan])[0]
            == reopen().plan(Window(PIPELINE, 9, 10))
            == numbered_plan
        )
        assert ledger.plan(Window(PIPELINE, 10, 11)) is None

    def test_an_instant_is_no_neighbour_of_a_number(self, reopen: Callable[[], Ledger]) -> None:
        """Boundaries with instants and boundaries with numbers are no neighbours.

        Both kinds may be in one pipeline if its spec changed the grid. Neither is clamped to
        the other.
        """
        ledger = reopen()
        instants, numbers = (
            ledger.freeze(PIPELINE, [boundary(1, 50)]),
            ledger.freeze(PIPELINE, [cut(0, 10)]),
        )
        assert (instants, numbers) == ([boundary(1, 50)], [cut(0, 10)])
        assert ledger.neighbours(PIPELINE, hour_at(2)) == (instants[0], None)
        assert ledger.neighbours(PIPELINE, 1) == (numbers[0], None)
        assert ledger.freeze(PIPELINE, [boundary(2, 60), cut(1, 20)]) == [
            boundary(2, 60),
            cut(1, 20),
        ]

    def test_the_newest_come_in_label_order(self, reopen: Callable[[], Ledger]) -> None:
        """The newest boundaries of a pipeline come in label order, at most as many as asked for."""
        ledger = reopen()
        assert ledger.newest(PIPELINE) == []
        frozen = ledger.freeze(PIPELINE, [boundary(h, h) for h in (1, 2, 3)])
        ledger.freeze("other", [boundary(9, 9)])
        assert reopen().newest(PIPELINE) == frozen[2:]
        assert ledger.newest(PIPELINE, 2) == frozen[1:]
        assert ledger.newest(PIPELINE, 9) == frozen

    def test_a_rebase_opens_a_label_anew(self, reopen: Callable[[], Ledger]) -> None:
        """A rebase replaces the boundary as a start, but not as an end.

        Windows that end at the label keep the old boundary. Windows that start there use the
        rebase, and later boundaries are clamped to it.
        """
        ledger = reopen()
        old = ledger.freeze(PIPELINE, [boundary(1, 50), boundary(3, 70)])
        assert ledger.start(PIPELINE, hour_at(3)) == old[1]
        rebased = cut(hour_at(3), 0, origin="position", topic_id="anew")
        ledger.rebase(PIPELINE, rebased)
        later = cut(hour_at(4), 9, topic_id="anew")
        assert ledger.freeze(PIPELINE, [later]) == [later]
        reopened = reopen()
        assert (
            reopened.start(PIPELINE, hour_at(3))
            == reopened.neighbours(PIPELINE, hour_at(4))[0]
            == rebased
        )
        assert (
            reopened.boundary(PIPELINE, hour_at(3))
            == reopened.neighbours(PIPELINE, hour_at(2))[1]
            == old[1]
        )
        assert reopened.start(PIPELINE, hour_at(2)) is None
        assert reopened.newest(PIPELINE, 2) == [old[1], later]
        assert reopened.rebased_boundaries(PIPELINE) == [rebased]
        assert reopened.rebased_boundaries("other") == []
        frozen = reopened.freeze(PIPELINE, [boundary(2, 60), cut(hour_at(3.5), 4, topic_id="anew")])
        assert [m.offset for b in frozen for m in b.marks] == [60, 4]

    def test_a_rebase_stays(self, reopen: Callable[[], Ledger]) -> None:
        """A rebase is replaced only by a caller that names it, and only while no later boundary
        exists.

        Recording the same rebase again changes nothing.
        """
        ledger, first, second = (
            reopen(),
            cut(hour_at(3), 0, topic_id="anew"),
            cut(hour_at(3), 5, topic_id="other"),
        )
        ledger.freeze(PIPELINE, [boundary(3, 70)])
        ledger.rebase(PIPELINE, first)
        with pytest.raises(RefusedError, match="Another rebase"):
            reopen().rebase(PIPELINE, second)
        reopen().rebase(PIPELINE, second, first)
        assert reopen().rebased_boundaries(PIPELINE) == [second]
        ledger.freeze(PIPELINE, [cut(hour_at(4), 9, topic_id="other")])
        reopen().rebase(PIPELINE, second)
        with pytest.raises(RefusedError, match="highest"):
            reopen().rebase(PIPELINE, first, second)

    def test_a_rebase_below_the_highest_boundary_is_refused(
        self, reopen: Callable[[], Ledger]
    ) -> None:
        """A rebase below the highest boundary is refused, because the boundaries above have the
        old source.

        Without a frozen boundary, a rebase is refused, too.
        """
        ledger = reopen()
        with pytest.raises(
            RefusedError,
            match=r"highest frozen boundary, not at 2026-01-05T03:00:00Z.*windrow rebase SPEC",
        ):
            ledger.rebase(PIPELINE, cut(hour_at(3), 0, topic_id="anew"))
        ledger.freeze(PIPELINE, [boundary(3, 70), boundary(4, 80)])
        for hour in (3, 3.5, 5):
            with pytest.raises(RefusedError, match="highest frozen boundary"):
                ledger.rebase(PIPELINE, cut(hour_at(hour), 0, topic_id="anew"))
        assert ledger.rebased_boundaries(PIPELINE) == []

    def test_rebases_at_once_are_one(self, reopen: Callable[[], Ledger]) -> None:
        """Of eight simultaneous rebases, one is recorded, and the others raise RefusedError."""
        reopen().freeze(PIPELINE, [boundary(1, 5)])

        def try_rebase(n: int) -> int | None:
            try:
                reopen().rebase(PIPELINE, cut(hour_at(1), n, topic_id="anew"))
            except RefusedError:
                return None
            return n

        with ThreadPoolExecutor(8) as pool:
            (won,) = [n for n in pool.map(try_rebase, range(8)) if n is not None]
        assert [m.offset for b in reopen().rebased_boundaries(PIPELINE) for m in b.marks] == [won]

    def test_a_rebase_against_a_freeze(self, reopen: Callable[[], Ledger]) -> None:
        """A simultaneous rebase and freeze never leave a rebase below a boundary of the old source.

        The second of the two is refused.
        """
        ready = threading.Barrier(8)

        def rebase_or_freeze(n: int) -> None:
            ledger, name = reopen(), f"{PIPELINE} {n // 2}"
            ledger.freeze(name, [boundary(1, 5)])
            ready.wait(60)
            try:
                if n % 2:
                    ledger.rebase(name, cut(hour_at(1), 0, topic_id="anew"))
                else:
                    ledger.freeze(name, [boundary(2, 9)])
            except RefusedError:
                refused.append(name)

        refused: list[str] = []
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(rebase_or_freeze, range(8)))
        assert sorted(refused) == [f"{PIPELINE} {n}" for n in range(4)]
        ledger = reopen()
        for name in refused:
            assert [len(ledger.rebased_boundaries(name)), len(ledger.newest(name, 9))] in (
                [1, 1],
                [0, 2],
            )

    def test_a_requests_retries_run_one_batch(self, reopen: Callable[[], Ledger]) -> None:
        """A request's batch number is recorded once for each pipeline; two requests may share a
        batch.
        """
        ledger = reopen()
        assert ledger.assigned_number(PIPELINE, "r1") is None
        assert ledger.assign(PIPELINE, "r1", 7) == 7
        assert reopen().assign(PIPELINE, "r1", 8) == 7
        assert reopen().assigned_number(PIPELINE, "r1") == 7
        assert ledger.assign(PIPELINE, "r2", 7) == 7
        assert ledger.assigned_number("other", "r1") is None

    def test_one_request_assigned_at_once_has_one_batch(self, reopen: Callable[[], Ledger]) -> None:
        """If eight callers assign a number to the same request, one stays, and all get it."""
        with ThreadPoolExecutor(8) as pool:
            numbers = set(pool.map(lambda n: reopen().assign(PIPELINE, "r", n), range(8)))
        assert numbers == {reopen().assigned_number(PIPELINE, "r")}

    def test_the_newest_pause_counts(self, reopen: Callable[[], Ledger]) -> None:
        """Pause records have numbers and are put if absent; the one with the highest number
        counts.
        """
        assert reopen().pause(PIPELINE) is None
        pauses = [Pause(n, n % 2 == 0, "ann", "größe", hour_at(n)) for n in range(12)]
        for pause in pauses:
            assert reopen().put_pause(PIPELINE, pause) == pause
        assert reopen().put_pause(PIPELINE, Pause(3, True, "bob", "", hour_at(30))) == pauses[3]
        assert reopen().pause(PIPELINE) == pauses[-1]
        assert reopen().pause("other") is None
        with ThreadPoolExecutor(4) as pool:
            answers = pool.map(
                lambda who: reopen().put_pause(PIPELINE, Pause(12, True, who, "", hour_at(12))),
                "abcd",
            )
        assert set(answers) == {reopen().pause(PIPELINE)}

    def test_the_newest_record_of_a_poison_pill_counts(self, reopen: Callable[[], Ledger]) -> None:
        """Records of a poison pill are put if absent, and of each message the newest one counts.

        Runs that record the same message at once get one record.
        """
        assert reopen().poison_pills(PIPELINE) == []
        pill = PoisonPill("t", "id", 3, 12, 0, True, "value", "signal 11, größe", hour_at(1))
        with ThreadPoolExecutor(4) as pool:
            searches = [
                msgspec.structs.replace(pill, recorded_at=hour_at(hours)) for hours in range(4)
            ]
            answers = pool.map(lambda found: reopen().put_poison_pill(PIPELINE, found), searches)
        (recorded,) = set(answers)
        assert reopen().poison_pills(PIPELINE) == [recorded]
        others = [
            msgspec.structs.replace(pill, **different)
            for different in ({"offset": 5}, {"partition": 2}, {"topic_id": "anew"})
        ]
        for other in others:
            assert reopen().put_poison_pill(PIPELINE, other) == other
        ended = msgspec.structs.replace(pill, number=1, left_out=False)
        again = msgspec.structs.replace(pill, number=2, recorded_at=hour_at(9))
        for record in (ended, again):
            reopen().put_poison_pill(PIPELINE, record)
        assert {*reopen().poison_pills(PIPELINE)} == {again, *others}
        assert reopen().poison_pills("other") == []

    def test_a_refusal_lasts_until_the_commit(self, reopen: Callable[[], Ledger]) -> None:
        """The newest refusal of a window is kept until the window's receipt is recorded.

        Refusals come in window order. Another pipeline has its own.
        """
        assert reopen().refused_windows(PIPELINE) == []
        first, repeated, earlier = (
            RefusedWindow(window(hour), plan, "schema", "windrow 1", hour_at(30))
            for hour, plan in ((3, ""), (3, "digest"), (1, ""))
        )
        for refusal in (first, earlier, repeated):
            reopen().refuse(refusal)
        assert reopen().refused_windows(PIPELINE) == [earlier, repeated]
        assert reopen().refused_windows("other") == []
        reopen().record(receipt(2))
        reopen().record(receipt(3))
        assert reopen().refused_windows(PIPELINE) == [earlier]

    def test_a_frozen_plan_stays(self, reopen: Callable[[], Ledger]) -> None:
        """If two runs plan one window, both use the first plan.

        Another window or pipeline has its own plan.
        """
        ledger = reopen()
        assert ledger.plan(window(1)) is None
        assert ledger.freeze_plans([plan(1, 5, 0)])[0] == plan(1, 5, 0)
        assert reopen().freeze_plans([plan(1, 9, 9)])[0] == plan(1, 5, 0)
        assert reopen().plan(window(1)) == plan(1, 5, 0)
        assert ledger.plan(window(2)) is None
        assert ledger.plan(window(1, "other")) is None

    def test_several_plans_are_frozen_at_once(self, reopen: Callable[[], Ledger]) -> None:
        """Several plans are frozen and returned in their order; an existing plan is returned
        instead.
        """
        ledger = reopen()
        assert ledger.freeze_plans([]) == []
        ledger.freeze_plans([plan(2, 5, 0)])
        assert ledger.freeze_plans([plan(3, 7), plan(2, 9, 9), plan(1, 4)]) == [
            plan(3, 7),
            plan(2, 5, 0),
            plan(1, 4),
        ]
        assert [reopen().plan(window(n)) for n in (1, 2, 3)] == [
            plan(1, 4),
            plan(2, 5, 0),
            plan(3, 7),
        ]

    def test_one_window_planned_at_once_has_one_plan(self, reopen: Callable[[], Ledger]) -> None:
        """If eight callers plan the same window, one plan stays, and all get it."""
        with ThreadPoolExecutor(8) as pool:
            plans = list(
                pool.map(lambda stop: reopen().freeze_plans([plan(1, stop + 1)])[0], range(8))
            )
        assert len({p.digest for p in plans}) == 1

    def test_a_wide_window_is_kept_whole(self, reopen: Callable[[], Ledger]) -> None:
        """Boundaries, plan and receipt with thousands of topic-partitions come back unchanged.

        The receipt's text comes back byte by byte.
        """
        below, above = boundary(1, *[0] * WIDE), boundary(2, *range(1, WIDE + 1))
        wide_plan = plan(1, *range(1, WIDE + 1))
        wide_receipt = msgspec.structs.replace(receipt(1), plan=wide_plan, digest=wide_plan.digest)
        ledger, text = reopen(), to_json(wide_receipt).replace("größe", "Größe")
        assert ledger.freeze(PIPELINE, [below, above]) == [below, above]
        assert ledger.freeze_plans([wide_plan])[0] == wide_plan
        ledger.record(wide_receipt, text)
        ledger.record(wide_receipt, text)
        assert (reopen().boundary(PIPELINE, hour_at(2)), reopen().plan(wide_plan.window)) == (
            above,
            wide_plan,
        )
        assert (
            reopen().recorded_text(wide_plan.window),
            [r.plan for r in reopen().recorded_receipts(PIPELINE)],
        ) == (
            text,
            [wide_plan],
        )

    def test_a_schema_id_means_one_schema(self, reopen: Callable[[], Ledger]) -> None:
        """The first schema under an id stays for its pipeline.

        All schemas are kept, and come back with the newest first.
        """
        ledger, conflicting = reopen(), WriterSchema("7", "AVRO", '"long"')
        first = (
            WriterSchema("7", "AVRO", '"grün"', (("a.B", "{}"),)),
            WriterSchema("8", "JSON", "{}"),
        )
        assert ledger.schemas(PIPELINE) == []
        assert ledger.keep_schemas(PIPELINE, []) == []
        assert ledger.keep_schemas(PIPELINE, first) == [*first]
        assert ledger.keep_schemas(PIPELINE, [conflicting, WriterSchema("9", "AVRO", "")]) == [
            first[0],
            WriterSchema("9", "AVRO", ""),
        ]
        assert [schema.id for schema in reopen().schemas(PIPELINE)] == ["9", "8", "7"]
        assert reopen().schemas(PIPELINE)[2] == first[0]
        assert reopen().schemas("elsewhere") == []
        assert ledger.keep_schemas("elsewhere", [conflicting]) == [conflicting]

    def test_schemas_that_are_kept_at_once(self, reopen: Callable[[], Ledger]) -> None:
        """If two runs bring different schemas under one id, both get the same one."""
        schemas = [WriterSchema("7", "AVRO", str(n)) for n in range(8)]
        with ThreadPoolExecutor(8) as pool:
            stored = list(
                pool.map(lambda schema: reopen().keep_schemas(PIPELINE, [schema])[0], schemas)
            )
        assert set(stored) == {reopen().schemas(PIPELINE)[0]}

    def test_a_requests_retries_aim_at_one_generation(self, reopen: Callable[[], Ledger]) -> None:
        """A request's target generation is recorded once for each window.

        So a retry that sees its own replacement doesn't replace the window again.
        """
        ledger = reopen()
        assert ledger.target_generation(window(1), "r1", 1) == 1
        assert reopen().target_generation(window(1), "r1", 2) == 1
        assert ledger.target_generation(window(1), "r2", 2) == 2
        assert ledger.target_generation(window(2), "r1", 5) == 5

    def test_a_generation_keeps_the_versions_of_its_lookups(
        self, reopen: Callable[[], Ledger]
    ) -> None:
        """The version of a lookup is recorded once for each generation, lookup and source.

        A retry and a run at the same time get the recorded version. A lookup that is new, or
        has another source, gets its own. With `anew`, all versions are replaced.
        """
        first = (Pin("a", "delta:/a", "1"), Pin("b", "delta:/b", "1"))
        later = (Pin("a", "delta:/a", "2"), Pin("b", "delta:/c", "2"), Pin("c", "delta:/c", "2"))
        assert reopen().pins(window(1), 0) == ()
        assert reopen().freeze_pins(window(1), 0, first) == first
        assert reopen().freeze_pins(window(1), 0, later) == (first[0], *later[1:])
        assert reopen().pins(window(1), 0) == (first[0], *later[1:])
        assert reopen().pins(window(1), 1) == reopen().pins(window(2), 0) == ()
        assert reopen().freeze_pins(window(1), 0, later, anew=True) == later
        assert reopen().freeze_pins(window(1), 0, later[:1]) == later[:1]
        assert reopen().pins(window(1), 0) == later
        with ThreadPoolExecutor(4) as pool:
            pins = [[Pin("a", "delta:/a", str(n))] for n in range(4)]
            stored = pool.map(lambda own_pins: reopen().freeze_pins(window(3), 0, own_pins), pins)
        assert set(stored) == {reopen().pins(window(3), 0)}

    def test_an_end_is_frozen_once_for_each_position(self, reopen: Callable[[], Ledger]) -> None:
        """The end that a position resolves to is recorded once for each position of a pipeline.

        The position may be very long. Later callers get the recorded end.
        """
        offsets = tuple((TopicPartition("t", p), 10**12 + p) for p in range(WIDE))
        for position in (Latest(), AtTime(hour_at(1)), Given(offsets)):
            first, later = (FrozenStop(position, cut(0, n, 7)) for n in (5, 6))
            assert reopen().frozen_stop(PIPELINE, position) is None
            assert reopen().freeze_stop(PIPELINE, first) == first
            assert reopen().freeze_stop(PIPELINE, later) == first
            assert reopen().frozen_stop(PIPELINE, position) == first
            assert reopen().frozen_stop("other", position) is None
        with ThreadPoolExecutor(4) as pool:
            stops = [FrozenStop(Earliest(), cut(0, n)) for n in range(4)]
            stored = pool.map(lambda stop: reopen().freeze_stop(PIPELINE, stop), stops)
        assert set(stored) == {reopen().frozen_stop(PIPELINE, Earliest())}

    def test_receipts_come_in_window_order(self, reopen: Callable[[], Ledger]) -> None:
        """The receipts of a pipeline come back unchanged, in window order."""
        ledger = reopen()
        for hour in (10, 2, 30):
            ledger.record(receipt(hour))
        ledger.record(receipt(3, pipeline="other"))
        assert reopen().recorded_receipts(PIPELINE) == [receipt(2), receipt(10), receipt(30)]
        assert ledger.recorded_receipts("nobody") == []
        assert reopen().recorded_receipts(PIPELINE, 1) == [receipt(30)]
        assert reopen().recorded_receipts(PIPELINE, 2) == [receipt(10), receipt(30)]
        assert ledger.recorded_receipts(PIPELINE, 9) == ledger.recorded_receipts(PIPELINE)
        assert ledger.recorded_receipts("nobody", 1) == []

    def test_every_field_survives(self, reopen: Callable[[], Ledger]) -> None:
        """All fields come back equal, also names with quotes and other scripts."""
        odd = "p'\"; drop ключ"
        ledger = reopen()
        odd_plan = msgspec.structs.replace(plan(1, 2**62), window=window(1, odd))
        assert ledger.freeze_plans([odd_plan])[0] == reopen().plan(window(1, odd)) == odd_plan
        for i, origin in enumerate(get_args(How)):
            frozen = ledger.freeze(odd, [boundary(i, 2**62, 2**62, origin=origin)])
            assert frozen == [reopen().boundary(odd, hour_at(i))]
        assert reopen().boundary(odd, hour_at(0)) == boundary(0, 2**62, 2**62)
