"""A boundary is sorted and unique, without negative offsets, and its start marks are low.

A start mark is at most at its topic-partition's mark. This is checked when it is made and when
it is read back.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.codec import from_json, to_json

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
SEEN = (TopicSeen("t", "id", 2),)
M0, M1 = Mark("t", 0, 5, "settled", 3), Mark("t", 1, 7, "end")


def test_a_topic_partition_in_words() -> None:
    """A topic-partition is written `topic[partition]`, and is ordered by topic and partition."""
    assert str(TopicPartition("orders", 3)) == "orders[3]"
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)])[
        :2
    ] == [
        TopicPartition("a", 9),
        TopicPartition("a", 10),
    ]


def test_an_offset_is_never_negative() -> None:
    """A mark's offset is never negative; -1 would be an unresolved sentinel."""
    assert Mark("t", 0, 0, "end").tp == T0
    with pytest.raises(ValueError, match=r"^offset -1 of t\[4\] is negative$"):
        Mark("t", 4, -1, "end")


def test_marks_and_topics_come_in_any_order() -> None:
    """`Boundary.of` sorts marks, topics and start marks. Start marks are empty by default."""
    other_topic = TopicSeen("a", "id-a", 1)
    start_marks = (Mark("t", 0, 1, "position"), Mark("t", 1, 2, "position"))
    boundary = Boundary.of(7, "c", [*SEEN, other_topic], [M1, M0], start_marks[::-1])
    assert boundary == Boundary(7, "c", (other_topic, *SEEN), (M0, M1), start_marks)
    assert Boundary.of(7, "c", SEEN, [M0]) == Boundary(7, "c", SEEN, (M0,), ())


@pytest.mark.parametrize(
    ("topics", "marks", "start_marks"),
    [
        (SEEN, (M1, M0), ()),
        (SEEN, (M0, M0), ()),
        (SEEN * 2, (M0,), ()),
        ((*SEEN, TopicSeen("a", "id", 1)), (M0,), ()),
        (SEEN, (M0, M1), (M1, M0)),
        (SEEN, (M0, M1), (M0, M0)),
    ],
)
def test_what_is_not_sorted_and_unique_is_no_boundary(
    topics: tuple[TopicSeen, ...], marks: tuple[Mark, ...], start_marks: tuple[Mark, ...]
) -> None:
    """Unsorted or repeated marks raise ValueError with the boundary's label.

    Each topic-partition has one mark, and readers of a boundary rely on the order.
    """
    with pytest.raises(
        ValueError,
        match=r"^topics, marks and start marks of boundary \S+ must be sorted and unique$",
    ):
        Boundary(7, "c", topics, marks, start_marks)


def test_marks_are_sorted_by_topic_then_number() -> None:
    """Marks are sorted by topic and then by number, so partition 10 comes after 9."""
    marks = [Mark("a", 9, 0, "end"), Mark("a", 10, 0, "end"), Mark("b", 0, 0, "end")]
    assert Boundary.of(7, "c", (), marks[::-1]).marks == tuple(marks)


@pytest.mark.parametrize("begin", [Mark("t", 0, 6, "position"), Mark("t", 2, 0, "position")])
def test_a_begin_lies_before_its_cut(begin: Mark) -> None:
    """A start mark above its mark, or without one, raises ValueError.

    The window would have a negative length. A start mark at its mark gives an empty window.
    """
    with pytest.raises(
        ValueError,
        match=r"^a start mark of boundary \S+ lies above the boundary's mark, or has none$",
    ):
        Boundary(7, "c", SEEN, (M0, M1), (begin,))
    assert (
        Boundary(7, "c", SEEN, (M0, M1), (Mark("t", 0, 5, "position"),)).start_marks[0].offset == 5
    )


@pytest.mark.parametrize("label", [-1, datetime(2026, 1, 2)])  # noqa: DTZ001
def test_a_boundarys_label_is_one(label: int | datetime) -> None:
    """A boundary's label must be a valid label, and the error names the field."""
    with pytest.raises(ValueError, match=r"^label must"):
        Boundary(label, "c", (), ())


def test_a_boundary_says_where_it_cuts() -> None:
    """`cut` returns the mark of a topic-partition.

    It returns 0 for a partition that was added to a known topic later. It returns None for a
    partition that was left out, and for other topics.
    """
    boundary = Boundary(
        datetime(2026, 1, 2, tzinfo=UTC),
        "c",
        (TopicSeen("t", "id", 2), TopicSeen("u", "id-u", 0)),
        (M1,),
    )
    later = Mark("t", 2, 0, "clamped")
    mark_by_tp = {
        T0: None,
        T1: M1,
        T2: later,
        TopicPartition("u", 0): Mark("u", 0, 0, "clamped"),
        TopicPartition("v", 0): None,
    }
    assert {tp: boundary.cut(tp) for tp in mark_by_tp} == mark_by_tp
    assert boundary.cuts(mark_by_tp) == {
        tp: mark for tp, mark in mark_by_tp.items() if mark is not None
    }
    assert boundary.by_tp() == {T1: M1}
    assert boundary.by_topic() == {t.topic: t for t in boundary.topics}


def test_a_boundary_is_json() -> None:
    """A boundary is canonical JSON: fields in their order, without spaces.

    It is the same after it is read back. JSON that breaks an invariant is refused.
    """
    boundary = Boundary(7, "c", SEEN, (M0,), (Mark("t", 0, 1, "position"),))
    text = to_json(boundary)
    assert (
        text
        == '{"label":7,"cluster_id":"c","topics":[{"topic":"t","topic_id":"id","partitions":2}],'
        '"marks":[{"topic":"t","partition":0,"offset":5,"how":"settled","leader_epoch":3}],'
        '"begins":[{"topic":"t","partition":0,"offset":1,"how":"position","leader_epoch":null}]}'
    )
    assert from_json(text, Boundary) == from_json(text.encode(), Boundary) == boundary
    for broken in (
        text.replace('"offset":5', '"offset":-5'),
        text.replace("settled", "guessed"),
        text.replace('"offset":1', '"offset":6'),
    ):
        with pytest.raises(msgspec.ValidationError):
            from_json(broken, Boundary)
