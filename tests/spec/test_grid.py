"""Windows lie on a grid in UTC; what lies beside it is refused with the nearest way back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.errors import GridError, SpecError
from ingest.grid import is_closed, labels_between, parse_windows, window_at

MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - Hypothesis wants naive bounds


@settings(deadline=None)
@given(MOMENTS, st.integers(0, 60), st.sampled_from(["hourly", "daily"]))
def test_windows_of_a_range_touch(start: datetime, count: int, grid: str) -> None:
    """A parsed range is its windows, one after the other, without a gap."""
    length = timedelta(hours=1) if grid == "hourly" else timedelta(days=1)
    first = start.replace(hour=start.hour if grid == "hourly" else 0, minute=0, second=0, microsecond=0)
    windows = parse_windows("p", grid, f"{first.isoformat()}/{(first + (count + 1) * length).isoformat()}")
    assert [w.start for w in windows] == [first + i * length for i in range(count + 1)]
    assert [w.end for w in windows] == [w.start + length for w in windows]


@settings(deadline=None)
@given(MOMENTS, st.timedeltas(timedelta(0), timedelta(days=2)))
def test_labels_lie_after_the_first_and_up_to_the_last(after: datetime, length: timedelta) -> None:
    """Exactly the grid's instants of (after, upto]."""
    upto = after + length
    expected = []
    at = after.replace(minute=0, second=0, microsecond=0)
    while at <= upto:
        expected += [at] * (after < at)
        at += timedelta(hours=1)
    assert labels_between("hourly", after, upto) == expected


def test_an_instant_names_one_window_in_any_zone() -> None:
    """The same instant, written with another offset, is the same window."""
    (utc,) = parse_windows("p", "hourly", "2026-01-02T03:00:00Z")
    assert utc.key == "2026-01-02T03:00:00Z"
    assert parse_windows("p", "hourly", "2026-01-02T05:00:00+02:00") == [utc]


def test_an_instant_beside_the_grid_names_the_nearest() -> None:
    """The error says which starts there are."""
    with pytest.raises(GridError, match=r"2026-01-02T03:00:00Z or 2026-01-02T04:00:00Z"):
        parse_windows("p", "hourly", "2026-01-02T03:20:00Z")
    with pytest.raises(GridError, match=r"2026-01-02T00:00:00Z or 2026-01-03T00:00:00Z"):
        window_at("p", "daily", datetime(2026, 1, 2, 3, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yesterday", "not an instant"),
        ("2026-01-02T03:00:00", "no time zone"),
        ("2026-01-02T03:00:00Z/2026-01-02T03:00:00Z", "ends before it starts"),
        ("2026-01-02T03:00:00Z/", "not an instant"),
        ("1969-12-31T23:00:00Z", "before 1970"),
    ],
)
def test_what_is_no_window_says_why(text: str, says: str) -> None:
    """Each wrong text has its own reason."""
    with pytest.raises(SpecError, match=says):
        parse_windows("p", "hourly", text)


def test_an_unknown_grid_names_the_known_ones() -> None:
    """A grid is hourly or daily."""
    with pytest.raises(SpecError, match="hourly, daily"):
        window_at("p", "weekly", datetime(2026, 1, 2, tzinfo=UTC))


def test_a_window_is_closed_when_its_delay_is_over() -> None:
    """At the end + delay exactly, and not a microsecond before."""
    window, delay = window_at("p", "hourly", datetime(2026, 1, 2, 3, tzinfo=UTC)), timedelta(minutes=5)
    assert is_closed(window, delay, window.end + delay)
    assert not is_closed(window, delay, window.end + delay - timedelta(microseconds=1))
