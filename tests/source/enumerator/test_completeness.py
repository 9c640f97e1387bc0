"""Completeness: watermarks, and the states of windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.admin.completeness import describe_holding
from windrow.ingest.model.boundary import Boundary, How, Label, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Counts, Receipt, SplitCounts
from windrow.ingest.source.enumerator import completeness
from windrow.ingest.source.enumerator.completeness import (
    Completeness,
    EventTime,
    Idle,
    assess,
)

FIRST = datetime(2026, 1, 5, tzinfo=UTC)
NONE: frozenset[str] = frozenset()
STAMPED = "stamped"
"""The topic whose messages get their timestamps from the broker."""

Hows = Sequence[How | None]


def hour(n: int) -> datetime:
    return FIRST + timedelta(hours=n)


def boundary(label: Label, hows: Hows, topic: str = "orders") -> Boundary:
    """Returns a boundary with marks of the partitions 0, 1, ...; None for an unknown partition."""
    marks = [Mark(topic, p, 0, origin) for p, origin in enumerate(hows) if origin is not None]
    return Boundary.of(label, "cluster", [TopicSeen(topic, "id", len(marks))], marks)


def boundaries(*rows: Hows) -> list[Boundary]:
    """Returns boundaries of the hours 0, 1, ..."""
    return [boundary(hour(n), hows) for n, hows in enumerate(rows)]


def receipt(start: Label, *late_by: tuple[str, int], early: int = 0) -> Receipt:
    """Returns the receipt of a window or micro-batch that starts at `start`.

    Args:
        start: the start.
        late_by: key and number of late messages of each earlier window.
        early: number of early messages.
    """
    window = Window(
        "orders", start, start + 1 if isinstance(start, int) else start + timedelta(hours=1)
    )
    plan = Plan(
        window, boundary(window.start, ["settled"]), boundary(window.end, ["settled"]), (), "sink"
    )
    late = sum(n for _, n in late_by)
    split = SplitCounts(
        "orders",
        0,
        0,
        9,
        9,
        9,
        9,
        9,
        0,
        0,
        9,
        0,
        0,
        late=late,
        early=early,
        late_by=late_by,
        rows=9,
    )
    return Receipt(
        plan,
        plan.digest,
        0,
        "a",
        "r",
        "ledger",
        "hourly",
        Counts.total([split]),
        (split,),
        (),
        "code",
        FIRST,
        0.1,
    )


def key(n: int) -> str:
    return receipt(hour(n)).window.key


def p(*partitions: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("orders", n) for n in partitions)


def states(assessment: Completeness) -> str:
    return " ".join(w.state for w in assessment.windows.values())


def hours(n: int) -> list[Receipt]:
    return [receipt(hour(i)) for i in range(n)]


# --- examples


def test_the_slowest_topic_partition_decides() -> None:
    """A window is complete once every log has passed its end. Logs that have not are named."""
    assessment = assess(
        boundaries(["settled"] * 3, ["settled", "settled", "end"], ["settled", "end", "end"]),
        hours(2),
        NONE,
        "wait",
    )
    assert (assessment.watermark, assessment.holding, states(assessment)) == (
        hour(0),
        p(2),
        "open open",
    )
    assessment = assess(
        boundaries(["settled"] * 3, ["settled"] * 3, ["settled", "end", "end"]),
        hours(2),
        NONE,
        "wait",
    )
    assert (assessment.watermark, assessment.holding, states(assessment)) == (
        hour(1),
        p(1, 2),
        "complete open",
    )
    assessment = assess(
        boundaries(["settled"] * 2, ["end"] * 2, ["settled"] * 2), hours(2), NONE, "wait"
    )
    assert (assessment.watermark, assessment.holding, states(assessment)) == (
        hour(2),
        (),
        "complete complete",
    )


@pytest.mark.parametrize("origin", sorted(set(get_args(How)) - {"settled", "removed"}))
def test_only_a_settled_mark_proves_something(origin: How) -> None:
    """Only a settled mark of a topic-partition that is still read makes a window complete."""
    assessment = assess(
        boundaries(["settled", "settled"], ["settled", origin]), hours(1), NONE, "wait"
    )
    assert (assessment.watermark, assessment.holding, states(assessment)) == (hour(0), p(1), "open")


def test_messages_that_came_later_prove_what_a_mark_did_not() -> None:
    """If a log ended before the label, the window that begins there proves the label once it is
    committed.

    At least half of that window's messages must be from then or later. So a log with one
    message an hour completes each hour with the next hour's message.
    """
    sparse = boundaries(["end"], ["end"], ["end"], ["end"])
    assessment = assess(sparse, hours(3), NONE, "wait")
    assert (assessment.watermark, states(assessment)) == (hour(2), "complete complete open")
    assert assessment.holding == p(0)
    late = [receipt(hour(0)), receipt(hour(1), (key(0), 5)), receipt(hour(2), (key(0), 4))]
    assert assess(sparse, late[:2], NONE, "wait").watermark == hour(0)
    assert assess(sparse, late, NONE, "wait").watermark == hour(2)
    both = boundaries(["end", "end"], ["end", "end"])
    assert assess(both, hours(2), NONE, "wait").watermark is None


def test_one_that_never_proved_anything_holds_all_back() -> None:
    """A topic-partition without a settled mark gives no watermark."""
    assessment = assess(
        boundaries(["settled", "position"], ["settled", "end"]), hours(1), NONE, "wait"
    )
    assert (assessment.watermark, assessment.holding, states(assessment)) == (None, p(1), "open")


def test_a_removed_topic_is_not_waited_for() -> None:
    """A removed topic doesn't hold back the watermark."""
    assert assess(
        boundaries(["settled", "settled"], ["settled", "removed"]), hours(1), NONE, "wait"
    ).watermark == hour(1)


def test_an_idle_topic_that_the_broker_stamps_is_not_waited_for() -> None:
    """An idle topic with broker timestamps doesn't hold back the watermark, because no older
    message can come.

    An open transaction does.
    """
    idle = [boundary(hour(0), ["settled"], STAMPED), boundary(hour(1), ["end"], STAMPED)]
    assert assess(idle, hours(1), frozenset({STAMPED}), "wait").watermark == hour(1)
    assert assess(idle, hours(1), NONE, "wait").watermark == hour(0)
    open_transaction = [*idle[:1], boundary(hour(1), ["open"], STAMPED)]
    assert assess(open_transaction, hours(1), frozenset({STAMPED}), "exempt").watermark == hour(0)


def test_an_idle_topic_partition_is_exempt_by_choice() -> None:
    """With `exempt`, logs that end before the label don't hold back the watermark, even all of
    them; open transactions do.
    """
    assert assess(
        boundaries(["settled"] * 2, ["settled", "end"]), hours(1), NONE, "exempt"
    ).watermark == hour(1)
    assert assess(
        boundaries(["settled"] * 2, ["end", "end"]), hours(1), NONE, "exempt"
    ).watermark == hour(1)
    assert assess(
        boundaries(["settled"] * 2, ["settled", "open"]), hours(1), NONE, "exempt"
    ).watermark == hour(0)


def test_a_new_partition_leaves_what_is_complete_alone() -> None:
    """A new partition holds back only later windows, never those in which it has no message."""
    assessment = assess(
        boundaries(["settled"], ["settled"], ["settled", "end"]), hours(2), NONE, "wait"
    )
    assert (assessment.watermark, assessment.holding, states(assessment)) == (
        hour(1),
        p(1),
        "complete open",
    )


def test_late_messages_are_counted_where_they_belong() -> None:
    """A complete window is late if later windows hold its messages; an open one stays open.

    Both have the number.
    """
    receipts = [
        receipt(hour(0), early=3),
        receipt(hour(1), (key(0), 2)),
        receipt(hour(2), (key(0), 5), (key(1), 1)),
    ]
    assessment = assess(
        boundaries(["settled"], ["settled"], ["end"], ["end"]), receipts, NONE, "wait"
    )
    assert states(assessment) == "late open open"
    assert [(w.late, w.early, w.late_elsewhere) for w in assessment.windows.values()] == [
        (0, 3, 7),
        (2, 0, 1),
        (6, 0, 0),
    ]


def test_each_window_is_judged_with_the_watermark() -> None:
    """Each window's state has the watermark that explains it; before any label is proven there
    is none.
    """
    assessment = assess(boundaries(["settled"], ["settled"], ["end"]), hours(2), NONE, "wait")
    assert [w.watermark for w in assessment.windows.values()] == [hour(1), hour(1)]
    late = [receipt(hour(0), (key(0), 9))]
    assert assess(boundaries(["end"]), late, NONE, "wait").windows[key(0)].watermark is None


def test_micro_batches_are_not_judged() -> None:
    """Micro-batches have no hours, so they have no watermark, and no topic-partition holds it
    back.
    """
    assessment = assess(
        [boundary(n, ["batch"]) for n in range(3)], [receipt(0), receipt(1)], NONE, "wait"
    )
    assert assessment == Completeness(None, (), {})


def test_the_judgement_is_json() -> None:
    """The assessment survives JSON."""
    assessment = assess(
        boundaries(["settled", "end"], ["settled", "end"]),
        [receipt(hour(0), early=1)],
        NONE,
        "wait",
    )
    assert from_json(to_json(assessment), Completeness) == assessment
    assert assess([], [], NONE, "wait") == Completeness(None, (), {})


# --- by event time

HOUR = timedelta(hours=1)
BY_EVENT = EventTime("created_at", HOUR)


def events(
    n: int,
    reached: Sequence[float | None],
    *late_by: tuple[str, int],
    column: str | None = "created_at",
    hows: Hows | None = None,
) -> Receipt:
    """Returns the receipt of the n-th hour.

    Args:
        n: the hour.
        reached: the latest event time of each partition, in hours; None: it has none.
        late_by: key and number of late messages of each earlier window.
        column: the column that the receipt counts by.
        hows: how the marks of the window's end were determined.
    """
    first = receipt(hour(n), *late_by)
    plan = msgspec.structs.replace(
        first.plan, stop=boundary(hour(n + 1), hows or ["settled"] * len(reached))
    )
    splits = tuple(
        msgspec.structs.replace(
            first.splits[0],
            partition=p,
            latest_event=None if end is None else FIRST + end * HOUR,
            late_by=late_by if p == 0 else (),
        )
        for p, end in enumerate(reached)
    )
    return msgspec.structs.replace(
        first, plan=plan, digest=plan.digest, splits=splits, event_time=column
    )


def by_event(*receipts: Receipt, idle: Idle = "wait", delay: timedelta = HOUR) -> Completeness:
    return assess([], receipts, NONE, idle, EventTime("created_at", delay))


def test_events_complete_a_window_and_make_it_late_again() -> None:
    """A window is complete once each topic-partition has a message of its end + `event_delay`.

    Messages of its hours in the windows up to then aren't late. Those in later ones are.
    """
    first, second = events(0, [0.9, 0.8]), events(1, [1.9, 1.9], (key(0), 3))
    assessment = by_event(first, second)
    assert states(assessment) == "open open"
    assert (assessment.event_watermark, assessment.holding) == (hour(0) + 1.9 * HOUR, p(0, 1))
    third = events(2, [2.5, 1.95])
    assert (states(by_event(first, second, third)), by_event(first, second, third).holding) == (
        "open open open",
        p(1),
    )
    fourth = events(3, [3.1, 2.0], (key(0), 1))
    assessment = by_event(fourth, third, second, first)
    assert states(assessment) == "complete open open open"
    assert assessment.windows[key(0)].late_elsewhere == 0
    assessment = by_event(first, second, third, fourth, events(4, [4.9, 4.9], (key(0), 5)))
    assert states(assessment) == "late complete complete open open"
    assert [window.late_elsewhere for window in assessment.windows.values()] == [5, 0, 0, 0, 0]
    assert {w.event_watermark for w in assessment.windows.values()} == {hour(0) + 4.9 * HOUR}


def test_a_missing_window_keeps_those_before_it_open() -> None:
    """Windows after a gap complete none before it, because the gap may have their messages."""
    first, second, third = (events(n, [n + 0.9]) for n in range(3))
    assert states(by_event(first, third, delay=timedelta(0))) == "open open"
    assert states(by_event(first, second, third, delay=timedelta(0))) == "complete complete open"


def test_receipts_by_other_times_prove_nothing() -> None:
    """Receipts by the broker's timestamps or another column stay valid, and complete no window.

    Later windows complete theirs, so that nothing is replayed when the column changes.
    """
    old = [events(0, [0.9], column=None), events(1, [1.9], column="updated_at")]
    for idle in get_args(Idle):
        assert states(by_event(*old, events(2, [None]), idle="wait")) == "open open open"
        assert states(by_event(*old, idle=idle, delay=timedelta(0))) == "open open"
        assert states(by_event(*old, events(2, [2.9]), idle=idle)) == "complete open open"


def test_messages_that_are_late_by_another_time_make_no_window_late() -> None:
    """A receipt that counts by the broker's timestamps, or by another column, says nothing of the
    event times of its messages.
    """
    receipts = [events(0, [0.9]), events(1, [1.9]), events(2, [2.9])]
    for column in (None, "updated_at"):
        later = events(3, [None], (key(0), 7), column=column)
        assessment = by_event(*receipts, later)
        assert states(assessment) == "complete open open open"
        assert assessment.windows[key(0)].late_elsewhere == 0


def test_an_idle_topic_partition_is_exempt_from_event_time_by_choice() -> None:
    """With `exempt`, a topic-partition without an event time in a window isn't waited for.

    A topic that was removed isn't waited for in any case. What was complete stays complete.
    """
    receipts = [events(0, [0.9, 0.9]), events(1, [1.9, None]), events(2, [2.9, None])]
    assert states(by_event(*receipts)) == "open open open"
    assert by_event(*receipts).holding == p(1)
    assert states(by_event(*receipts, idle="exempt")) == "complete open open"
    removed = [
        receipts[0],
        *(events(n, [n + 0.9, None], hows=["settled", "removed"]) for n in (1, 2)),
    ]
    assert states(by_event(*removed)) == "complete open open"
    still = by_event(events(0, [None, None]), idle="exempt")
    assert (states(still), still.holding, still.event_watermark) == ("open", (), hour(1))
    assert describe_holding(still, boundary(hour(1), [])) == (
        "The event watermark is at 2026-01-05T01:00:00Z, and every topic-partition is idle: wait."
    )
    back = events(3, [3.9, 0.95], (key(0), 2))
    assert states(by_event(*receipts, back, idle="exempt")) == "late open open open"


def test_the_broker_s_watermark_stays() -> None:
    """Event times change nothing about the labels that the broker's timestamps prove.

    Windows are complete by these unless the spec has an `event_delay`.
    """
    sparse = boundaries(["end"], ["end"])
    late_events = events(0, [-1.0], (key(0), 9))
    stamped = msgspec.structs.replace(
        late_events,
        splits=(msgspec.structs.replace(late_events.splits[0], late_stamps=0),),
    )
    assert assess(sparse, [stamped], NONE, "wait").watermark == hour(0)
    assert assess(sparse, [stamped], NONE, "wait", BY_EVENT).watermark == hour(0)
    unsettled = msgspec.structs.replace(
        stamped, splits=(msgspec.structs.replace(stamped.splits[0], late=0, late_stamps=9),)
    )
    assert assess(sparse, [unsettled], NONE, "wait").watermark is None


@st.composite
def event_histories(draw: st.DrawFn) -> list[Receipt]:
    """Draws receipts of ascending hours with gaps, over a source that only gains
    topic-partitions.
    """
    label_hours = draw(st.lists(st.integers(0, 8), unique=True, max_size=8).map(sorted))
    counts = draw(
        st.lists(st.integers(1, 3), min_size=len(label_hours), max_size=len(label_hours)).map(
            sorted
        )
    )
    quarters = st.none() | st.integers(-8, 3)
    return [
        events(
            n,
            [
                None if q is None else n + q / 4
                for q in draw(st.lists(quarters, min_size=count, max_size=count))
            ],
            *draw(st.lists(st.tuples(st.integers(0, 8).map(key), st.integers(1, 3)), max_size=2)),
        )
        for n, count in zip(label_hours, counts, strict=True)
    ]


def completing_window(
    history: Sequence[Receipt], first: int, idle: Idle, delay: timedelta
) -> int | None:
    """Returns the index of the receipt that completes a window, by the definition."""
    end = history[first].window.end
    assert isinstance(end, datetime)
    reached: dict[int, datetime] = {}
    for i in range(first, len(history)):
        if i > first and history[i].window.start != history[i - 1].window.end:
            return None
        seen = {s.partition: s.latest_event for s in history[i].splits if s.latest_event}
        reached |= {n: max(t, reached.get(n, t)) for n, t in seen.items()}
        window_end = history[i].window.end
        assert isinstance(window_end, datetime)
        if window_end >= end + delay and all(
            (idle == "exempt" and s.partition not in seen)
            or reached.get(s.partition, FIRST - 99 * HOUR) >= end + delay
            for s in history[i].splits
        ):
            return i
    return None


@given(event_histories(), st.sampled_from(get_args(Idle)), st.integers(0, 8))
def test_windows_are_complete_by_event_time_exactly_by_the_definition(
    history: list[Receipt], idle: Idle, quarters: int
) -> None:
    """A window is complete exactly from the first window on that ends a series in which each
    topic-partition has reached its end + delay, and late by the messages after that one.

    So a further window reopens none.
    """
    delay = quarters * HOUR / 4
    assessment = by_event(*history, idle=idle, delay=delay)
    for i, judged in enumerate(history):
        completing = completing_window(history, i, idle, delay)
        state = assessment.windows[judged.window.key]
        after = [] if completing is None else history[completing + 1 :]
        late = sum(
            n for r in after for s in r.splits for k, n in s.late_by if k == judged.window.key
        )
        expected = "open" if completing is None else "late" if late else "complete"
        assert (state.state, state.late_elsewhere) == (expected, late)


# --- properties


HOWS: list[How | None] = ["settled"] * 4 + [
    "end",
    "end",
    "open",
    "clamped",
    "log_start",
    "position",
    "removed",
]


@st.composite
def histories(draw: st.DrawFn) -> list[Boundary]:
    """Draws boundaries of ascending hours, some missing, over a source that only gains
    topic-partitions.
    """
    label_hours = draw(st.lists(st.integers(0, 12), unique=True, max_size=7).map(sorted))
    sizes = draw(
        st.lists(st.integers(0, 3), min_size=len(label_hours), max_size=len(label_hours)).map(
            sorted
        )
    )
    return [
        boundary(hour(n), draw(st.lists(st.sampled_from(HOWS), min_size=size, max_size=size)))
        for n, size in zip(label_hours, sizes, strict=True)
    ]


def proven(history: Sequence[Boundary], tp: TopicPartition, end: datetime, idle: Idle) -> bool:
    """Returns whether the definition proves an end for a topic-partition.

    A mark at or after the end is settled or exempt, or the window after it read messages. Each
    window has some of partition 0.
    """
    fine = {"settled", "removed"} | ({"end"} if idle == "exempt" else set())
    return any(
        m.origin in fine or (tp.partition == 0 and b.label < hour(12))  # type: ignore[operator]
        for b in history
        if b.label >= end  # type: ignore[operator]
        for m in b.marks
        if m.tp == tp
    )


def never_too_early(history: Sequence[Boundary], idle: Idle) -> None:
    """Asserts that exactly those windows are complete whose end a boundary proves with all its
    topic-partitions.
    """
    assessment = assess(history, hours(12), NONE, idle)
    for n in range(12):
        end = hour(n + 1)
        is_proven = any(
            all(proven(history[: i + 1], m.tp, end, idle) for m in b.marks)
            for i, b in enumerate(history)
            if b.label >= end  # type: ignore[operator]
        )
        assert (assessment.windows[key(n)].state == "complete") == is_proven


@given(histories(), st.sampled_from(get_args(Idle)))
def test_complete_is_never_said_too_early(history: list[Boundary], idle: Idle) -> None:
    """A window is complete exactly if every topic-partition that isn't exempt has a settled
    mark at or after its end.
    """
    never_too_early(history, idle)


def test_the_newest_of_all_would_be_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that takes the highest watermark of all topic-partitions fails the check."""
    history = boundaries(["settled", "settled"], ["settled", "end"])
    never_too_early(history, "wait")
    monkeypatch.setattr(
        completeness, "least_passed", lambda passed, _: max(filter(None, passed), default=None)
    )
    with pytest.raises(AssertionError):
        never_too_early(history, "wait")


@given(histories(), st.data(), st.sampled_from(get_args(Idle)))
def test_a_further_boundary_takes_nothing_back(
    history: list[Boundary], data: st.DataObject, idle: Idle
) -> None:
    """A further frozen boundary never lowers the watermark, and never reopens a complete window."""
    earlier_history = [b for b in history if data.draw(st.booleans())]
    earlier, later = (
        assess(earlier_history, hours(12), NONE, idle),
        assess(history, hours(12), NONE, idle),
    )
    assert earlier.watermark is None or (
        later.watermark is not None and later.watermark >= earlier.watermark
    )
    assert all(
        later.windows[k].state == "complete"
        for k, w in earlier.windows.items()
        if w.state == "complete"
    )


@given(histories(), st.sampled_from(get_args(Idle)))
def test_the_named_ones_hold_the_watermark_back(history: list[Boundary], idle: Idle) -> None:
    """The named topic-partitions hold back the watermark exactly if it isn't at the newest
    boundary.

    If they settle, it rises.
    """
    assessment = assess(history, [], NONE, idle)
    assert bool(assessment.holding) == bool(history and assessment.watermark != history[-1].label)
    if assessment.holding:
        newest = history[-1]
        marks = [
            Mark(m.topic, m.partition, 0, "settled") if m.tp in assessment.holding else m
            for m in newest.marks
        ]
        fixed = assess(
            [*history[:-1], Boundary.of(newest.label, "cluster", newest.topics, marks)],
            [],
            NONE,
            idle,
        )
        assert fixed.watermark is not None
        assert assessment.watermark is None or fixed.watermark > assessment.watermark
