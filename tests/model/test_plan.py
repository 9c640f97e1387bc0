"""A plan's splits hold offsets, and its digest covers what it reads and where it writes.

Digests must never be edited, because receipts hold them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.plan import Covered, Plan, Split, Window, covered_ranges

START = datetime(2026, 1, 2, 3, tzinfo=UTC)
END = START + timedelta(hours=1)
SEEN = (TopicSeen("t", "id", 1),)
PLAN = Plan(
    Window("p", START, END),
    Boundary(START, "c", SEEN, (Mark("t", 0, 5, "settled"),)),
    Boundary(END, "c", SEEN, (Mark("t", 0, 9, "end", 3),)),
    (Split("t", 0, 5, 9, 2, 3),),
    "delta:/x",
)
DIGEST = "0105b1dbd3a4f42d5a9b3bff06b502e33fea4235a478812f9d9a203f9567ab20"


def test_a_split_holds_offsets() -> None:
    """A split holds at least one offset, from 0 on."""
    assert Split("t", 3, 0, 1).tp == TopicPartition("t", 3)
    for start, stop in ((-1, 2), (5, 5), (6, 5)):
        with pytest.raises(
            ValueError,
            match=rf"^a split of t\[3\] must hold 0 <= start < stop, not {start}\.\.{stop}$",
        ):
            Split("t", 3, start, stop)


def test_the_digest_of_a_plan_never_changes() -> None:
    """The digest of a plan never changes, because it is compared with the receipts of tables."""
    assert PLAN.digest == DIGEST


def but(**change: object) -> str:
    """Returns the digest of the plan with these changes."""
    return msgspec.structs.replace(PLAN, **change).digest


def test_what_a_digest_covers() -> None:
    """A digest covers the window, cluster, topic ids, ranges, marks and sink."""
    others = [
        but(window=Window("q", START, END)),
        but(stop=msgspec.structs.replace(PLAN.stop, cluster_id="d")),
        but(stop=msgspec.structs.replace(PLAN.stop, topics=(TopicSeen("t", "anew", 1),))),
        but(stop=msgspec.structs.replace(PLAN.stop, marks=(Mark("t", 0, 10, "end"),))),
        but(start=msgspec.structs.replace(PLAN.start, marks=(Mark("t", 0, 4, "end"),))),
        but(splits=(Split("t", 0, 5, 8),)),
        but(sink="delta:/y"),
    ]
    assert len({PLAN.digest, *others}) == len(others) + 1


def test_what_a_digest_does_not_cover() -> None:
    """A digest doesn't cover a mark's origin and leader epoch, which change no messages."""
    assert (
        but(stop=msgspec.structs.replace(PLAN.stop, marks=(Mark("t", 0, 9, "settled", 7),)))
        == PLAN.digest
    )
    assert but(splits=(Split("t", 0, 5, 9),)) == PLAN.digest


def test_ranges_are_covered_under_their_topics_ids() -> None:
    """Covered ranges have topic ids, because a recreated topic has other offsets."""
    assert covered_ranges(PLAN) == (Covered("id", 0, 5, 9),)


@pytest.mark.parametrize(
    ("other_range", "overlap"),
    [
        (Covered("id", 0, 4, 6), True),
        (Covered("id", 0, 6, 7), True),
        (Covered("id", 0, 8, 20), True),
        (Covered("id", 0, 0, 50), True),
        (Covered("id", 0, 9, 20), False),
        (Covered("id", 0, 2, 5), False),
        (Covered("id", 1, 5, 9), False),
        (Covered("anew", 0, 5, 9), False),
    ],
)
def test_an_overlap_is_an_offset_in_both(other_range: Covered, overlap: bool) -> None:
    """Two ranges overlap if they share an offset of a topic-partition, asked in either order.

    Ranges that only touch don't overlap.
    """
    offset_range = Covered("id", 0, 5, 9)
    assert (offset_range.overlaps(other_range), other_range.overlaps(offset_range)) == (
        overlap,
        overlap,
    )
