"""The figures of lookups, merged over parts of a window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.model.lookup import LookedUp, merge_parts

_FIRST = datetime(2026, 1, 5, tzinfo=UTC)
_moments = st.none() | st.integers(0, 9).map(lambda hour: _FIRST + timedelta(hours=hour))
_parts = st.builds(
    LookedUp,
    st.sampled_from("ba"),
    *[st.integers(0, 9)] * 4,
    first_at=_moments,
    last_at=_moments,
    answers=st.integers(0, 2**64 - 1).map(lambda n: f"{n:016x}"),
)


@given(st.lists(_parts, max_size=6))
def test_the_parts_of_each_lookup_are_summed_up(parts: list[LookedUp]) -> None:
    """The parts of each lookup are merged by name.

    Numbers and checksums are added, and the time is from the first part to the last.
    """
    assert [total.lookup for total in merge_parts(parts)] == sorted({part.lookup for part in parts})
    for total in merge_parts(parts):
        own_parts = [part for part in parts if part.lookup == total.lookup]
        for name in ("keys", "hits", "misses", "requests"):
            assert getattr(total, name) == sum(getattr(part, name) for part in own_parts)
        assert int(total.answers, 16) == sum(int(part.answers, 16) for part in own_parts) % 2**64
        begins = [part.first_at for part in own_parts if part.first_at is not None]
        ends = [part.last_at for part in own_parts if part.last_at is not None]
        assert (total.first_at, total.last_at) == (
            min(begins, default=None),
            max(ends, default=None),
        )


@given(st.lists(_parts, max_size=4), st.lists(_parts, max_size=4))
def test_sums_of_sums_are_sums(parts: list[LookedUp], more: list[LookedUp]) -> None:
    """Figures can be merged in any order and grouping: batches of a split, splits of a window."""
    assert merge_parts([*merge_parts(parts), *merge_parts(more)]) == merge_parts([*parts, *more])
    assert merge_parts([*more, *parts]) == merge_parts([*parts, *more])
