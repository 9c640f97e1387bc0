"""Offsets of many windows together, as few ranges as there can be."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.model.plan import Covered
from windrow.ingest.sinks.ranges import Ranges

SPANS = st.tuples(st.integers(0, 40), st.integers(1, 9)).map(
    lambda two: Covered("id", 0, two[0], sum(two))
)


@given(st.lists(SPANS), SPANS)
def test_ranges_hold_what_was_added(added: list[Covered], asked: Covered) -> None:
    """Whatever is added in whatever order: an offset is met exactly if it was added,
    and ranges are as few as there can be.
    """
    ranges = Ranges()
    for one in added:
        ranges.add([one])
    offsets = {offset for one in added for offset in range(one.start, one.stop)}
    assert ranges.meets([asked]) == (not offsets.isdisjoint(range(asked.start, asked.stop)))
    assert not ranges.meets([Covered("id", 1, 0, 99), Covered("other", 0, 0, 99)])
    every = sorted(ranges.every())
    assert {offset for one in every for offset in range(one.start, one.stop)} == offsets
    assert all(one.stop < after.start for one, after in pairwise(every))
