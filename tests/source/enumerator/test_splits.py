"""Plans: the offsets between two boundaries. A plan is refused on another cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.errors import IdentityError
from windrow.ingest.model.boundary import Boundary, How, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.source.enumerator.splits import make_plan, refuse_other_identity

A = datetime(2026, 1, 2, 3, tzinfo=UTC)
END = A + timedelta(hours=1)
WINDOW = Window("p", A, END)
T0 = TopicPartition("t", 0)
EPOCHS = range(10, 19)
"""Leader epochs of the marks at the window's end, by partition.

At the window's start the epoch is the partition's number.
"""


def boundary(
    label: datetime,
    offsets: list[int],
    origin: How = "settled",
    cluster: str = "c",
    topic_id: str = "id",
) -> Boundary:
    """Returns a boundary of topic t with these offsets and the same origin in all partitions."""
    epochs = EPOCHS if label == END else range(9)
    marks = [
        Mark("t", p, offset, origin, leader_epoch=epochs[p]) for p, offset in enumerate(offsets)
    ]
    return Boundary.of(label, cluster, [TopicSeen("t", topic_id, len(offsets))], marks)


def begun(stop: Boundary, origin: How) -> Boundary:
    """Returns the boundary as the first that knows its partition, which begins at offset 5."""
    return msgspec.structs.replace(stop, start_marks=(Mark("t", 0, 5, origin),))


def make_window_plan(start: Boundary, stop: Boundary, max_offsets: int | None = None) -> Plan:
    """Returns the window's plan between two boundaries."""
    return make_plan(WINDOW, start, stop, "sink", max_offsets)


def test_one_split_per_partition_that_holds_offsets() -> None:
    """Each partition with offsets has one split.

    A new partition begins at 0, with the end's leader epoch.
    """
    plan = make_window_plan(boundary(A, [5, 7]), boundary(END, [9, 7, 3]))
    assert plan.splits == (Split("t", 0, 5, 9, 0, 10), Split("t", 2, 0, 3, 12, 12))
    assert (plan.window, plan.sink) == (WINDOW, "sink")


def test_a_window_without_messages_is_a_plan_without_splits() -> None:
    """A window without messages has a plan without splits."""
    assert make_window_plan(boundary(A, [5]), boundary(END, [5])).splits == ()


@pytest.mark.parametrize("stop", [boundary(END, [3]), boundary(END, [])])
def test_inverted_boundaries_are_no_plan(stop: Boundary) -> None:
    """A boundary below the one before is refused: never a negative or missing split."""
    with pytest.raises(ValueError, match="inverted"):
        make_window_plan(boundary(A, [5]), stop)


def test_boundaries_of_another_window_are_no_plan() -> None:
    """Boundaries with other labels than the window's are refused."""
    with pytest.raises(ValueError, match="not those of window"):
        make_window_plan(boundary(A, [5]), boundary(END + timedelta(hours=1), [9]))


@pytest.mark.parametrize(
    "stop", [boundary(END, [9], cluster="other"), boundary(END, [9], topic_id="other")]
)
def test_boundaries_of_two_sources_are_refused(stop: Boundary) -> None:
    """Offsets of a topic that was made again can't end a window of the old topic."""
    with pytest.raises(IdentityError, match="other"):
        make_window_plan(boundary(A, [5]), stop)


def test_a_plan_is_refused_on_another_cluster() -> None:
    """On another cluster the error names both clusters and the advice."""
    plan = make_window_plan(boundary(A, [5]), boundary(END, [9]))
    refuse_other_identity(plan, "c", {"t": "id"})
    with pytest.raises(IdentityError) as refused:
        refuse_other_identity(plan, "other", {"t": "id"})
    assert (
        refused.value.message
        == f"Window {WINDOW.key} was planned on cluster c, and this is cluster other"
    )
    assert (refused.value.stage, refused.value.topic) == ("plan", None)
    assert refused.value.advice.startswith(
        "Point bootstrap_servers at the cluster that was planned on"
    )


@pytest.mark.parametrize(
    ("topics", "now"),
    [({"t": "other"}, "has id other"), ({}, "doesn't exist"), ({"u": "id"}, "doesn't exist")],
)
def test_a_plan_is_refused_on_another_topic(topics: dict[str, str], now: str) -> None:
    """For a topic that was made again or is gone, the error names it, both ids and the advice."""
    plan = make_window_plan(boundary(A, [5]), boundary(END, [9]))
    with pytest.raises(IdentityError) as refused:
        refuse_other_identity(plan, "c", topics)
    assert (
        refused.value.message
        == f"Window {WINDOW.key} was planned on topic id id, and the topic now {now}"
    )
    assert (refused.value.stage, refused.value.topic) == ("plan", "t")
    assert "windrow rebase SPEC" in refused.value.advice


def test_a_topic_that_the_window_does_not_read_may_be_another_one() -> None:
    """A topic that the window doesn't read may have another id: removed topics stay in
    boundaries for ever.
    """
    plan = make_window_plan(boundary(A, [5]), boundary(END, [5]))
    refuse_other_identity(plan, "other", {})


@pytest.mark.parametrize(
    ("start", "stop", "max_offsets", "edges"),
    [
        (5, 9, None, [5, 9]),
        (5, 9, 4, [5, 9]),
        (5, 9, 5, [5, 9]),
        (5, 9, 3, [5, 7, 9]),
        (5, 9, 1, [5, 6, 7, 8, 9]),
        (0, 10, 4, [0, 3, 6, 10]),
        (7, 7, 3, []),
    ],
)
def test_a_range_becomes_the_fewest_pieces(
    start: int, stop: int, max_offsets: int | None, edges: list[int]
) -> None:
    """A range is divided into the fewest pieces of nearly equal size.

    Each piece has the end's leader epoch. The first piece's start has its mark's own epoch.
    """
    splits = make_window_plan(boundary(A, [start]), boundary(END, [stop]), max_offsets).splits
    witnesses = [0, *[10] * len(edges)]
    assert splits == tuple(
        Split("t", 0, low, high, witness, 10)
        for (low, high), witness in zip(pairwise(edges), witnesses, strict=False)
    )


@given(st.integers(0, 50), st.integers(0, 400), st.one_of(st.none(), st.integers(1, 60)))
def test_pieces_are_small_enough_equal_and_complete(
    start: int, length: int, max_offsets: int | None
) -> None:
    """Pieces tile the range, none is empty, and their sizes differ by at most one.

    All have the end's leader epoch; the first also has its mark's.
    """
    plan = make_window_plan(
        boundary(A, [7, start]), boundary(END, [7, start + length]), max_offsets
    )
    sizes = [s.stop - s.start for s in plan.splits]
    assert sum(sizes) == length
    assert len(sizes) == (
        0 if not length else 1 if max_offsets is None else -(-length // max_offsets)
    )
    assert not sizes or (
        max(sizes) - min(sizes) <= 1 and (max_offsets is None or max(sizes) <= max_offsets)
    )
    assert [a.stop for a in plan.splits[:-1]] == [b.start for b in plan.splits[1:]]
    assert not sizes or (plan.splits[0].start, plan.splits[-1].stop) == (start, start + length)
    assert [(s.leader_epoch, s.stop_epoch) for s in plan.splits] == [
        (1, 11),
        *[(11, 11)] * len(sizes),
    ][: len(sizes)]


def test_a_new_topic_begins_where_the_boundary_says() -> None:
    """A topic that the window's start doesn't know is read from its start mark on.

    Without one it isn't read.
    """
    marks = [Mark("t", 0, 9, "settled"), Mark("u", 0, 70, "settled"), Mark("v", 0, 5, "settled")]
    topics = [TopicSeen("t", "id", 1), TopicSeen("u", "id-u", 1), TopicSeen("v", "id-v", 1)]
    stop = Boundary.of(END, "c", topics, marks, [Mark("u", 0, 60, "position")])
    assert make_window_plan(boundary(A, [5]), stop).splits == (
        Split("t", 0, 5, 9, 0),
        Split("u", 0, 60, 70),
    )


def test_boundaries_of_an_older_version_have_what_there_is() -> None:
    """Without a leader epoch at its start, a split has the end's for both, so that changes
    after the plan are noticed.
    """
    start = Boundary.of(A, "c", [TopicSeen("t", "id", 1)], [Mark("t", 0, 5, "batch")])
    assert make_window_plan(start, boundary(END, [9])).splits == (Split("t", 0, 5, 9, 10, 10),)
    assert make_window_plan(
        boundary(A, [5]),
        msgspec.structs.replace(start, label=END, marks=(Mark("t", 0, 9, "batch"),)),
    ).splits == (Split("t", 0, 5, 9, 0),)
