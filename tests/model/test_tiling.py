"""A boundary is clamped between its frozen neighbours, mark by mark.

Each limit has its own small case.
"""

from __future__ import annotations

import pytest

from tests.source.enumerator.things import boundary, hour, mark
from windrow.ingest.errors import IdentityError, UnreachableError, WindrowError
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.tiling import clamp, offset_ranges, refuse_other_source

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def move_mark(own_mark: Mark, lower: Mark | None = None, upper: Mark | None = None) -> Mark:
    """Returns a mark that is clamped between its neighbours' marks."""
    below = None if lower is None else boundary(hour(1), lower)
    above = None if upper is None else boundary(hour(3), upper)
    (moved_mark,) = clamp(boundary(hour(2), own_mark), below, above).marks
    return moved_mark


def marks(clamped_boundary: Boundary) -> list[tuple[str, int, int, str]]:
    """Returns all marks as tuples."""
    return [(m.topic, m.partition, m.offset, m.origin) for m in clamped_boundary.marks]


def error_position(error: WindrowError) -> tuple[str, str | None, int | None, int | None]:
    """Returns the place of an error."""
    return error.stage, error.topic, error.partition, error.offset


# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own_mark", "lower", "expected"),
    [
        (mark(5), mark(4), mark(5)),
        (mark(5), mark(5, "end"), mark(5)),
        (mark(5), mark(6, "end", 3), mark(6, "clamped", 3)),
        (mark(5, "log_start"), mark(4), mark(5, "log_start")),
        (mark(5, "log_start"), mark(5), mark(5, "clamped")),
        (mark(5, "log_start"), mark(5, "log_start"), mark(5, "log_start")),
        (mark(5, "log_start"), mark(6, "log_start"), mark(6, "clamped")),
        (mark(5, "end"), mark(5, "log_start"), mark(5, "end")),
    ],
)
def test_a_mark_is_at_least_its_lower_neighbours(
    own_mark: Mark, lower: Mark, expected: Mark
) -> None:
    """A mark below its lower neighbour's is raised to it.

    A log start exactly at a proven mark has lost nothing. At another log start messages may be
    lost.
    """
    assert move_mark(own_mark, lower=lower) == expected


@pytest.mark.parametrize(
    ("own_mark", "upper", "expected"),
    [
        (mark(5), mark(6), mark(5)),
        (mark(5), mark(5, "end"), mark(5)),
        (mark(5), mark(4, "end", 3), mark(4, "clamped", 3)),
        (mark(5, "log_start"), mark(4, "settled", 3), mark(4, "log_start", 3)),
        (mark(5, "log_start"), mark(5), mark(5, "log_start")),
        (mark(5, "end"), mark(4, "log_start"), mark(4, "clamped")),
    ],
)
def test_a_mark_is_at_most_its_upper_neighbours(
    own_mark: Mark, upper: Mark, expected: Mark
) -> None:
    """A mark above its upper neighbour's is lowered to it.

    A log start stays a log start, because the messages before it are gone.
    """
    assert move_mark(own_mark, upper=upper) == expected


@pytest.mark.parametrize(
    ("own_epoch", "lower", "expected"),
    [(7, 6, 6), (6, 7, 6), (7, None, 7), (None, 6, 6), (None, None, None), (0, 7, 0), (7, 0, 0)],
)
def test_of_two_witnesses_at_one_offset_the_older_counts(
    own_epoch: int | None, lower: int | None, expected: int | None
) -> None:
    """Of two leader epochs at one offset the older one is kept, because it proves more.

    Epoch 0 is a leader epoch too.
    """
    assert move_mark(mark(5, "end", own_epoch), lower=mark(5, "settled", lower)) == mark(
        5, "end", expected
    )
    assert move_mark(mark(5, "end", own_epoch), upper=mark(5, "settled", lower)) == mark(
        5, "end", expected
    )


def test_a_witness_of_another_offset_is_not_taken_over() -> None:
    """The leader epoch of another offset isn't used.

    It says nothing about the offsets between.
    """
    assert move_mark(
        mark(5, "end", None), lower=mark(4, "settled", 1), upper=mark(6, "settled", 1)
    ) == mark(5, "end", None)


# --------------------------------------------------------------------------------------------------


def test_alone_a_boundary_stays_what_it_is() -> None:
    """A boundary without neighbours stays unchanged, including its start marks."""
    own_boundary = boundary(
        hour(2),
        mark(5),
        mark(3, topic="u"),
        start_marks=(mark(2, "position", topic="u"),),
        partition_counts={"v": 4},
    )
    assert clamp(own_boundary, None, None) == own_boundary


def test_what_only_the_lower_neighbour_knows_is_carried_on() -> None:
    """A mark that only the lower neighbour has is carried on as `removed`.

    Its topic stays known.
    """
    clamped_boundary = clamp(
        boundary(hour(2), mark(5)), boundary(hour(1), mark(3), mark(9, "end", 4, topic="u")), None
    )
    assert clamped_boundary.marks == (mark(5), mark(9, "removed", 4, topic="u"))
    assert clamped_boundary.topics == (TopicSeen("t", "id-t", 1), TopicSeen("u", "id-u", 1))
    assert (clamped_boundary.label, clamped_boundary.cluster_id) == (hour(2), "c")


@pytest.mark.parametrize(("partitions", "origin"), [(1, "clamped"), (2, "removed")])
def test_a_partition_that_was_not_there_yet_is_clamped_not_removed(
    partitions: int, origin: str
) -> None:
    """A partition that was added after the boundary was resolved is `clamped` and still read.

    The lower neighbour was frozen earlier and has the partition. A partition that was seen and
    not selected is `removed`.
    """
    lower = boundary(hour(1), mark(3), mark(4, partition=1))
    clamped_boundary = clamp(
        boundary(hour(2), mark(5), partition_counts={"t": partitions}), lower, None
    )
    assert marks(clamped_boundary) == [("t", 0, 5, "settled"), ("t", 1, 4, origin)]


@pytest.mark.parametrize(("lower", "own_partitions"), [(1, 2), (2, 1)])
def test_a_topic_has_the_most_partitions_that_were_seen(lower: int, own_partitions: int) -> None:
    """A topic has the greatest number of partitions that either boundary saw.

    The boundary that was resolved later may have seen more.
    """
    clamped_boundary = clamp(
        boundary(hour(2), mark(5), partition_counts={"t": own_partitions}),
        boundary(hour(1), mark(3), partition_counts={"t": lower}),
        None,
    )
    assert clamped_boundary.topics == (TopicSeen("t", "id-t", 2),)


def test_what_the_upper_neighbour_does_not_know_is_left_out() -> None:
    """Marks, topics and start marks that the upper neighbour lacks are left out.

    They are read from a later boundary on.
    """
    own_boundary = boundary(
        hour(2), mark(5), mark(3, topic="u"), start_marks=(mark(2, "position", topic="u"),)
    )
    clamped_boundary = clamp(own_boundary, None, boundary(hour(3), mark(8)))
    assert clamped_boundary == boundary(hour(2), mark(5))


def test_a_partition_that_the_upper_neighbour_has_at_0_is_at_0() -> None:
    """A partition that the upper neighbour lacks in a known topic is at 0.

    It was added after the upper boundary was resolved, and belongs to a later window.
    """
    clamped_boundary = clamp(
        boundary(hour(2), mark(5), mark(3, partition=1)), None, boundary(hour(3), mark(8))
    )
    assert marks(clamped_boundary) == [("t", 0, 5, "settled"), ("t", 1, 0, "clamped")]


def test_a_partition_that_is_not_chosen_but_read_around_is_carried_on() -> None:
    """A partition that only the upper neighbour has is carried on at 0.

    Without this mark its messages would never be read.
    """
    lower, upper = boundary(hour(1), mark(3)), boundary(hour(3), mark(8), mark(6, partition=1))
    clamped_boundary = clamp(boundary(hour(2), mark(5), partition_counts={"t": 2}), lower, upper)
    assert marks(clamped_boundary) == [("t", 0, 5, "settled"), ("t", 1, 0, "removed")]
    assert marks(clamp(boundary(hour(2), mark(5), partition_counts={"t": 2}), lower, None)) == [
        ("t", 0, 5, "settled")
    ]


def test_a_partition_that_only_the_lower_neighbour_lacks_keeps_its_own_cut() -> None:
    """A partition that only the lower neighbour lacks keeps its own mark.

    It was added since the lower boundary, is selected here and is read above.
    """
    lower, upper = boundary(hour(1), mark(3)), boundary(hour(3), mark(8), mark(6, partition=1))
    clamped_boundary = clamp(boundary(hour(2), mark(5), mark(4, partition=1)), lower, upper)
    assert marks(clamped_boundary) == [("t", 0, 5, "settled"), ("t", 1, 4, "settled")]


def test_a_topic_that_the_lower_neighbour_lacks_is_kept_as_it_was_seen() -> None:
    """A topic that the lower neighbour lacks keeps its own number of partitions, even 0."""
    clamped_boundary = clamp(
        boundary(hour(2), mark(5), partition_counts={"u": 0}), boundary(hour(1), mark(3)), None
    )
    assert clamped_boundary.topics == (TopicSeen("t", "id-t", 1), TopicSeen("u", "id-u", 0))


def test_a_partition_that_the_lower_neighbour_cuts_keeps_that_cut() -> None:
    """A partition that is carried on from the lower neighbour keeps that mark.

    It doesn't begin at 0 again because the upper neighbour has it too.
    """
    lower, upper = (
        boundary(hour(1), mark(3), mark(4, partition=1)),
        boundary(hour(3), mark(8), mark(6, partition=1)),
    )
    clamped_boundary = clamp(boundary(hour(2), mark(5), partition_counts={"t": 2}), lower, upper)
    assert marks(clamped_boundary) == [("t", 0, 5, "settled"), ("t", 1, 4, "removed")]


def test_a_topic_that_only_the_upper_neighbour_knows_is_not_read_yet() -> None:
    """A topic that only the upper neighbour knows begins there and isn't added here."""
    clamped_boundary = clamp(
        boundary(hour(2), mark(5)),
        boundary(hour(1), mark(3)),
        boundary(hour(3), mark(8), mark(6, topic="u")),
    )
    assert clamped_boundary == boundary(hour(2), mark(5))


# --------------------------------------------------------------------------------------------------


def test_a_begin_is_kept_only_where_the_lower_neighbour_does_not_know_the_topic_partition() -> None:
    """A start mark is kept only if the lower neighbour lacks the topic-partition.

    Otherwise the window begins at the lower neighbour's mark.
    """
    own_boundary = boundary(
        hour(2),
        mark(5),
        mark(7, topic="u"),
        start_marks=(mark(1, "position"), mark(2, "position", topic="u")),
    )
    clamped_boundary = clamp(own_boundary, boundary(hour(1), mark(3)), None)
    assert clamped_boundary.start_marks == (mark(2, "position", topic="u"),)
    assert marks(clamped_boundary) == [("t", 0, 5, "settled"), ("u", 0, 7, "settled")]


def test_a_begin_is_moved_down_with_its_cut() -> None:
    """A start mark above its lowered mark is lowered with it; one below stays unchanged."""
    own_boundary = boundary(hour(2), mark(5), start_marks=(mark(4, "position"),))
    assert clamp(own_boundary, None, boundary(hour(3), mark(3))).start_marks == (
        mark(3, "clamped"),
    )
    assert clamp(own_boundary, None, boundary(hour(3), mark(4))).start_marks == (
        mark(4, "position"),
    )


def test_where_the_begin_was_not_asked_the_window_is_run_again() -> None:
    """A missing start mark raises UnreachableError, so that the window runs again.

    An earlier boundary that lacks the topic-partition was frozen meanwhile. The error names the
    first such topic-partition.
    """
    own_boundary = boundary(hour(2), mark(5), mark(7, topic="u"), mark(7, partition=1, topic="u"))
    with pytest.raises(
        UnreachableError,
        match=r"While 2026-01-02T02:00:00Z was resolved, an earlier .*\. Run the window again\.",
    ) as excinfo:
        clamp(own_boundary, boundary(hour(1), mark(3)), None)
    assert error_position(excinfo.value) == ("freeze", "u", 0, None)


# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_a_neighbour_of_another_source_is_refused(side: str) -> None:
    """A neighbour of another cluster, or with another topic id, raises IdentityError."""
    for own_boundary in (
        boundary(hour(2), mark(5), cluster="d"),
        boundary(hour(2), mark(5), t="other"),
    ):
        with pytest.raises(IdentityError):
            clamp(
                own_boundary,
                *(
                    (boundary(hour(1), mark(3)), None)
                    if side == "lower"
                    else (None, boundary(hour(3), mark(8)))
                ),
            )


def test_two_clusters_are_told_with_both_labels() -> None:
    """The error about two clusters has both labels and the consequences."""
    texts = (
        r"boundaries 2026-01-02T01:00:00Z and 2026-01-02T02:00:00Z are of two clusters, c and d"
        r" .*windrow rebase SPEC"
    )
    with pytest.raises(IdentityError, match=texts) as excinfo:
        refuse_other_source(boundary(hour(2), mark(5), cluster="d"), boundary(hour(1), mark(3)))
    assert error_position(excinfo.value) == ("plan", None, None, None)


def test_two_topics_of_one_name_are_told_with_both_ids() -> None:
    """The error about two topics of one name has both ids of the first such topic.

    Topics that only one boundary knows are ignored.
    """
    own_boundary = boundary(hour(2), mark(5), mark(5, topic="a"), mark(5, topic="u"), u="anew")
    neighbour = boundary(hour(1), mark(3), mark(3, topic="u"), mark(3, topic="z"))
    with pytest.raises(
        IdentityError,
        match=r"T01:00:00Z and .*T02:00:00Z are of two topics with ids id-u and anew .*rebase",
    ) as excinfo:
        refuse_other_source(own_boundary, neighbour)
    assert error_position(excinfo.value) == ("plan", "u", None, None)
    refuse_other_source(boundary(hour(2), mark(5), mark(5, topic="a")), neighbour)


# --------------------------------------------------------------------------------------------------


def test_a_window_goes_from_cut_to_cut() -> None:
    """A window's ranges go from mark to mark.

    A topic-partition that the start lacks begins at its start mark. Without one it isn't read.
    A new partition of a known topic begins at 0.
    """
    start = boundary(hour(1), mark(3), mark(2, topic="gone"))
    stop = boundary(
        hour(2),
        mark(5),
        mark(4, partition=1),
        mark(9, topic="u"),
        mark(8, topic="v"),
        start_marks=(mark(6, topic="u"),),
    )
    assert offset_ranges(start, stop) == {
        T0: (mark(3), mark(5)),
        T1: (mark(0, "clamped", partition=1), mark(4, partition=1)),
        U0: (mark(6, topic="u"), mark(9, topic="u")),
        TopicPartition("v", 0): (mark(8, topic="v"), mark(8, topic="v")),
    }


def test_a_begin_does_not_count_where_the_start_knows_better() -> None:
    """A start mark doesn't count if the start boundary has a mark, even at offset 0."""
    stop = boundary(hour(2), mark(5), start_marks=(mark(4),))
    assert offset_ranges(boundary(hour(1), mark(0)), stop) == {T0: (mark(0), mark(5))}


def test_inverted_boundaries_are_no_window() -> None:
    """Equal marks give an empty range, and inverted marks raise ValueError.

    Inverted marks come from another ledger.
    """
    assert offset_ranges(boundary(hour(1), mark(5)), boundary(hour(2), mark(5))) == {
        T0: (mark(5), mark(5))
    }
    with pytest.raises(ValueError, match=r"the boundaries of t\[0\] are inverted: 5\.\.4"):
        offset_ranges(boundary(hour(1), mark(5)), boundary(hour(2), mark(4)))
