"""Watermarks, and the states of windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.model.boundary import Boundary, How, Label, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Counts, Receipt, SplitCounts
from windrow.ingest.source.enumerator import completeness
from windrow.ingest.source.enumerator.completeness import Completeness, Idle, assess

FIRST = datetime(2026, 1, 5, tzinfo=UTC)
NONE: frozenset[str] = frozenset()
STAMPED = "stamped"
"""The topic whose messages the broker stamps."""

Hows = Sequence[How | None]


def hour(n: int) -> datetime:
    return FIRST + timedelta(hours=n)


def boundary(label: Label, hows: Hows, topic: str = "orders") -> Boundary:
    """Marks of partitions 0, 1, ...; None for one that isn't known there."""
    marks = [Mark(topic, p, 0, origin) for p, origin in enumerate(hows) if origin is not None]
    return Boundary.of(label, "cluster", [TopicSeen(topic, "id", len(marks))], marks)


def boundaries(*rows: Hows) -> list[Boundary]:
    """Under hours 0, 1, ..."""
    return [boundary(hour(n), hows) for n, hows in enumerate(rows)]


def receipt(start: Label, *late_by: tuple[str, int], early: int = 0) -> Receipt:
    """Of the window or micro-batch that starts there, with messages of earlier hours."""
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


# --------------------------------------------------------------------------------------------------


def test_the_slowest_topic_partition_decides() -> None:
    """A window is complete once every log has passed its end, and those that have not are named."""
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
    """No other mark of a topic-partition that is still read lets a window pass for complete."""
    assessment = assess(
        boundaries(["settled", "settled"], ["settled", origin]), hours(1), NONE, "wait"
    )
    assert (assessment.watermark, assessment.holding, states(assessment)) == (hour(0), p(1), "open")


def test_messages_that_came_later_prove_what_a_mark_did_not() -> None:
    """Where a log ended before the label, the window that begins there proves it once it is
    committed: at least half of its messages are from then or later. So a log with a message an hour
    completes each hour by the next one's.
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
    """Without a settled mark anywhere there is no watermark."""
    assessment = assess(
        boundaries(["settled", "position"], ["settled", "end"]), hours(1), NONE, "wait"
    )
    assert (assessment.watermark, assessment.holding, states(assessment)) == (None, p(1), "open")


def test_a_removed_topic_is_not_waited_for() -> None:
    """What isn't read any more holds nothing back."""
    assert assess(
        boundaries(["settled", "settled"], ["settled", "removed"]), hours(1), NONE, "wait"
    ).watermark == hour(1)


def test_an_idle_topic_that_the_broker_stamps_is_not_waited_for() -> None:
    """Its end was taken after the label, and nothing older can come; but an open
    transaction may still bring something.
    """
    idle = [boundary(hour(0), ["settled"], STAMPED), boundary(hour(1), ["end"], STAMPED)]
    assert assess(idle, hours(1), frozenset({STAMPED}), "wait").watermark == hour(1)
    assert assess(idle, hours(1), NONE, "wait").watermark == hour(0)
    open_transaction = [*idle[:1], boundary(hour(1), ["open"], STAMPED)]
    assert assess(open_transaction, hours(1), frozenset({STAMPED}), "exempt").watermark == hour(0)


def test_an_idle_topic_partition_is_exempt_by_choice() -> None:
    """Who says so doesn't wait for a log that ends before the label, also where all do;
    an open transaction is waited for all the same.
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
    """A partition that appears later holds later windows back, never those that it can
    have no message in.
    """
    assessment = assess(
        boundaries(["settled"], ["settled"], ["settled", "end"]), hours(2), NONE, "wait"
    )
    assert (assessment.watermark, assessment.holding, states(assessment)) == (
        hour(1),
        p(1),
        "complete open",
    )


def test_late_messages_are_counted_where_they_belong() -> None:
    """A complete window of which later ones hold messages is late; an open one stays
    open; both say how many.
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
    """It stands beside the state that it explains; before any label is proven there is none."""
    assessment = assess(boundaries(["settled"], ["settled"], ["end"]), hours(2), NONE, "wait")
    assert [w.watermark for w in assessment.windows.values()] == [hour(1), hour(1)]
    late = [receipt(hour(0), (key(0), 9))]
    assert assess(boundaries(["end"]), late, NONE, "wait").windows[key(0)].watermark is None


def test_micro_batches_are_not_judged() -> None:
    """They have no hours, so no watermark, and nothing holds one back."""
    assessment = assess(
        [boundary(n, ["batch"]) for n in range(3)], [receipt(0), receipt(1)], NONE, "wait"
    )
    assert assessment == Completeness(None, (), {})


def test_the_judgement_is_json() -> None:
    """It comes back as it was."""
    assessment = assess(
        boundaries(["settled", "end"], ["settled", "end"]),
        [receipt(hour(0), early=1)],
        NONE,
        "wait",
    )
    assert from_json(to_json(assessment), Completeness) == assessment
    assert assess([], [], NONE, "wait") == Completeness(None, (), {})


# --------------------------------------------------------------------------------------------------


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
    """Boundaries under ascending hours over a source that only gains topic-partitions;
    some hours have none.
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
    """Word by word: a mark at or beyond the end is settled, or exempt, or the window behind it read
    messages: each has some of partition 0.
    """
    fine = {"settled", "removed"} | ({"end"} if idle == "exempt" else set())
    return any(
        m.how in fine or (tp.partition == 0 and b.label < hour(12))  # type: ignore[operator]
        for b in history
        if b.label >= end  # type: ignore[operator]
        for m in b.marks
        if m.tp == tp
    )


def never_too_early(history: Sequence[Boundary], idle: Idle) -> None:
    """What is complete is proven by all that some boundary at or beyond its end knows."""
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
    """A window is complete exactly if every topic-partition that isn't exempt has a
    settled mark at or beyond its end.
    """
    never_too_early(history, idle)


def test_the_newest_of_all_would_be_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin that takes the highest of the topic-partitions' watermarks is found out."""
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
    """In whatever order boundaries are frozen, the watermark only rises, and no
    complete window is open again.
    """
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
    """Exactly where the watermark isn't at the newest boundary something holds it, and
    if all of that settles there, it rises.
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
