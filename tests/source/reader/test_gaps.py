"""Gaps: a limited number is remembered, and only gaps that may hold aborted messages."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.source.reader.reader import GAPS_MAX, OFFSETS_MAX, Gaps


@given(offsets=st.sets(st.integers(0, 300)), cut=st.integers(1, 20))
def test_gaps_are_the_runs_without_a_message(offsets: set[int], cut: int) -> None:
    """The gaps are exactly the runs of at least two offsets without a visible message, up to
    the limit, for any batches.
    """
    stop, offsets_in_order, gaps = 301, sorted(offsets), Gaps(0)
    for first in range(0, len(offsets_in_order), cut):
        gaps.add_visible(np.array(offsets_in_order[first : first + cut], np.int64))
    gaps.add_end(stop)
    edges = [-1, *offsets_in_order, stop]
    runs = [(a + 1, b) for a, b in pairwise(edges) if b - a > 2]
    assert gaps.ranges == runs[:GAPS_MAX]


def test_many_gaps_are_left_at_the_bound() -> None:
    """Only the first hundred gaps are kept, over all batches."""
    gaps = Gaps(0)
    for start in range(0, 30_000, 3000):
        gaps.add_visible(np.arange(start + 2, start + 3002, 3, dtype=np.int64))
    assert len(gaps.ranges) == GAPS_MAX
    assert gaps.ranges[0] == (0, 2)


def test_a_long_gap_is_cut_at_the_bound() -> None:
    """A limited number of offsets is looked at, however long a gap is."""
    gaps = Gaps(10)
    gaps.add_visible(np.array([10**12, 10**13], np.int64))
    gaps.add_end(10**14)
    assert gaps.ranges == [(10, 10 + OFFSETS_MAX)]


def test_what_is_gone_is_no_gap() -> None:
    """A range that isn't in the log is no gap, and doesn't count for the limit.

    The gaps on both sides count.
    """
    gaps = Gaps(0)
    gaps.add_visible(np.array([0, 1], np.int64))
    gaps.add_skipped(5, 10**12)
    gaps.add_visible(np.array([10**12 + 3], np.int64))
    gaps.add_skipped(10**12 + 4, 10**13)
    gaps.add_end(10**13)
    assert gaps.ranges == [(2, 5), (10**12, 10**12 + 3)]


@pytest.mark.parametrize(("end", "expected_gaps"), [(10, []), (11, []), (12, [(10, 12)])])
def test_a_gap_at_the_end_is_two_offsets(end: int, expected_gaps: list[tuple[int, int]]) -> None:
    """A gap at the end, or between messages, needs two offsets. One is a transaction's marker."""
    gaps, visible_gaps = Gaps(10), Gaps(10)
    gaps.add_end(end)
    visible_gaps.add_visible(np.array([end], np.int64))
    assert gaps.ranges == visible_gaps.ranges == expected_gaps
