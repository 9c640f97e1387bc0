"""Completeness: watermarks, and the states of windows."""

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
