"""The pure part of a table's log: which windows share an offset with a plan."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.sinks.things import ROWS, plan
from windrow.ingest.model.plan import covered
from windrow.ingest.sinks.files.state import RangesHeld, WindowFiles
from windrow.ingest.testing.sink import MemorySink

SINK = MemorySink("t", ROWS)


@given(st.lists(st.integers(0, 12), min_size=2, max_size=8, unique=True).map(sorted), st.integers(0, 12), st.integers(0, 12))
def test_it_names_the_windows_that_share_an_offset(cuts: list[int], low: int, high: int) -> None:
    """Whatever the windows and the plan: those, and no others, that a look at each of them would name."""
    plans = {f"w{n}": plan(SINK, n, (start, stop)) for n, (start, stop) in enumerate(pairwise(cuts))}
    ranges = RangesHeld({key: WindowFiles(0, 1, (), covered(one)) for key, one in plans.items()})
    asked = plan(SINK, 99, (min(low, high), max(low, high)))
    expected = {key for key, one in plans.items() if any(a.overlaps(b) for a in covered(one) for b in covered(asked))}
    assert ranges.sharing(asked) == expected
