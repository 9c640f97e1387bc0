"""Differences of two boundaries with one label: none is allowed, unless the source was replaced
there.
"""

from __future__ import annotations

import pytest

from tests.source.enumerator.things import boundary, hour, mark
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.tiling import difference, same_source, stop_start_difference

HERE = boundary(hour(1), mark(5), mark(7, partition=1))


@pytest.mark.parametrize(
    ("other_boundary", "difference_text"),
    [
        (boundary(hour(1), mark(5, "clamped", 3), mark(7, partition=1)), ""),
        (boundary(hour(1), mark(5), mark(8, partition=1)), "t[1] at 7 and 8"),
        (boundary(hour(1), mark(4), mark(8, partition=1)), "t[0] at 5 and 4; t[1] at 7 and 8"),
        (boundary(hour(1), mark(5)), "t[1] at 7 and 0"),
        (boundary(hour(1), mark(5), partition_counts={"t": 2}), "t[1] at 7 and nothing"),
        (
            boundary(
                hour(1),
                mark(5),
                mark(7, partition=1),
                mark(2, partition=3),
                partition_counts={"t": 4},
            ),
            "t[3] at 0 and 2",
        ),
    ],
)
def test_a_difference_is_told_by_topic_partition(
    other_boundary: Boundary, difference_text: str
) -> None:
    """A difference is shown per topic-partition.

    A new partition is at 0, and one that is left out is "nothing".
    """
    assert difference(HERE, other_boundary) == difference_text


def test_what_one_side_left_out_is_nowhere() -> None:
    """A topic-partition that one side left out is "nothing", on either side."""
    other_boundary = boundary(hour(1), mark(5), partition_counts={"t": 2})
    assert (difference(HERE, other_boundary), difference(other_boundary, HERE)) == (
        "t[1] at 7 and nothing",
        "t[1] at nothing and 7",
    )


@pytest.mark.parametrize(
    "other_boundary",
    [
        boundary(hour(2), mark(5), mark(7, partition=1)),
        boundary(hour(1), mark(5), mark(7, partition=1), cluster="d"),
        boundary(hour(1), mark(5), mark(7, partition=1), t="anew"),
        boundary(hour(1), mark(5), mark(7, partition=1), partition_counts={"u": 1}),
    ],
)
def test_another_label_or_source_is_told_before_any_offset(other_boundary: Boundary) -> None:
    """A different label or source is reported before offsets, with both labels."""
    assert difference(HERE, other_boundary).startswith(
        "label, cluster or topic id differ (2026-01-02T01:00:00Z, 2026-01-02T0"
    )
    assert difference(other_boundary, HERE).endswith(", 2026-01-02T01:00:00Z)")


def test_one_source_may_gain_topics_and_lose_none() -> None:
    """A later boundary of the same source has all topics of the earlier one with the same ids;
    partitions don't matter.
    """
    more = boundary(hour(2), mark(5), mark(0, topic="u"), partition_counts={"t": 9})
    assert same_source(HERE, more)
    assert not same_source(more, HERE)
    assert not same_source(HERE, boundary(hour(2), mark(5), t="anew"))
    assert not same_source(HERE, boundary(hour(2), mark(5), cluster="d"))


def test_a_window_starts_where_the_one_before_ended() -> None:
    """On one source a window starts exactly where the one before ended, label included."""
    assert stop_start_difference(HERE, HERE) == ""
    assert (
        stop_start_difference(HERE, boundary(hour(1), mark(5), mark(9, partition=1)))
        == "t[1] at 7 and 9"
    )
    assert "label" in stop_start_difference(
        HERE, boundary(hour(2), mark(5), mark(7, partition=1), t="anew")
    )
    assert "label" in stop_start_difference(HERE, boundary(hour(2), mark(5), mark(7, partition=1)))


def test_a_rebase_opens_the_label_anew() -> None:
    """After a rebase to another cluster nothing is compared.

    On the same cluster, topics with the same id go on, and others begin again or are gone.
    """
    stop = boundary(hour(1), mark(5), mark(7, topic="kept"), mark(9, topic="gone"))
    assert stop_start_difference(stop, boundary(hour(1), mark(1), cluster="d")) == ""
    assert (
        stop_start_difference(
            stop, boundary(hour(1), mark(0), mark(7, topic="kept"), mark(3, topic="new"), t="anew")
        )
        == ""
    )
    assert (
        stop_start_difference(stop, boundary(hour(1), mark(0), mark(6, topic="kept"), t="anew"))
        == "kept[0] at 7 and 6"
    )
    added = boundary(
        hour(1), mark(0), mark(7, topic="kept"), mark(2, partition=1, topic="kept"), t="anew"
    )
    assert stop_start_difference(stop, added) == "kept[1] at 0 and 2"
