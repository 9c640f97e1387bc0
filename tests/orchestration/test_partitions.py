"""Windows and partition keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster._utils.schedules import cron_string_iterator
from hypothesis import given
from hypothesis import strategies as st

from assets.partitions import Stretch, closed, cron_of, key_of, partitions_of, stretches, windows_of
from ingest.grid import is_closed, step, window_at
from ingest.spec import PipelineSpec, WindowSpec

START = datetime(2026, 1, 5, tzinfo=UTC)
GRIDS = st.sampled_from(["hourly", "daily"])
DELAYS = st.integers(0, 3 * 86_400).map(lambda s: timedelta(seconds=s))
NOWS = st.integers(-86_400, 9 * 86_400).map(lambda s: START + timedelta(seconds=s))


def window(grid: str = "hourly", delay: timedelta = timedelta(minutes=5)) -> WindowSpec:
    return WindowSpec.model_validate({"grid": grid, "start": START, "delay": delay})


def spec(grid: str) -> PipelineSpec:
    return PipelineSpec.model_validate(
        {
            "id": "orders",
            "source": {"bootstrap_servers": "127.0.0.1:9092", "topic": "t"},
            "window": {"grid": grid, "start": START},
            "decode": {"schema": "a.b:C"},
            "sink": {"path": "t"},
            "folder": Path("/tmp"),
        }
    )


@pytest.mark.parametrize(("grid", "key"), [("hourly", "2026-01-05-00:00"), ("daily", "2026-01-05")])
def test_first_partition_is_the_spec_start(grid: str, key: str) -> None:
    """The first partition is the window at the spec's start, in UTC."""
    assert partitions_of(window(grid)).get_first_partition_key() == key


@given(GRIDS, st.lists(st.integers(0, 400), min_size=1, max_size=20, unique=True))
def test_keys_and_windows_are_one_to_one(grid: str, numbers: list[int]) -> None:
    """A key names exactly one window on the grid, and windows come in the order of time whatever the order of keys."""
    starts = [START + n * step(grid) for n in numbers]
    found = windows_of(spec(grid), [key_of(window(grid), s) for s in starts])
    assert [w for _, w in found] == [window_at("orders", grid, s) for s in sorted(starts)]
    assert [k for k, _ in found] == [key_of(window(grid), s) for s in sorted(starts)]


@given(GRIDS, DELAYS, NOWS, st.integers(1, 50))
def test_closed_windows_are_the_newest_closed_ones(grid: str, delay: timedelta, now: datetime, newest: int) -> None:
    """`closed` names exactly the newest windows of the pipeline whose end + delay has passed, without a gap."""
    every, at = [], START
    while is_closed(window_at("p", grid, at), delay, now):
        every.append(key_of(window(grid), at))
        at += step(grid)
    assert closed(window(grid, delay), now, newest) == every[-newest:]


@given(GRIDS, DELAYS, st.integers(0, 200))
def test_each_tick_finds_a_window_that_closed_since_the_last(grid: str, delay: timedelta, number: int) -> None:
    """There is one tick per window, never before its end + delay, and within a minute of it."""
    end = START + (number + 1) * step(grid)
    tick = next(cron_string_iterator((end + delay).timestamp(), cron_of(window(grid, delay)), "UTC"))
    assert timedelta(0) <= tick - (end + delay) < timedelta(minutes=1)
    assert closed(window(grid, delay), tick, 1) == [key_of(window(grid), end - step(grid))]


@given(GRIDS, st.sets(st.integers(0, 60), max_size=40))
def test_stretches_cover_the_keys_and_nothing_else(grid: str, numbers: set[int]) -> None:
    """Stretches hold each key once, have no gap inside, and a gap between each other."""
    found = stretches(window(grid), [key_of(window(grid), START + n * step(grid)) for n in numbers])
    covered: list[int] = []
    for s in found:
        first, last = (partitions_of(window(grid)).time_window_for_partition_key(k).start for k in (s.first, s.last))
        ns = list(range((first - START) // step(grid), (last - START) // step(grid) + 1))
        assert not covered or ns[0] > covered[-1] + 1
        covered += ns
    assert covered == sorted(numbers)


def test_no_keys_no_stretches() -> None:
    """Nothing waiting asks for no run."""
    assert stretches(window(), []) == []


def test_a_gap_splits_a_stretch() -> None:
    """A window that is there already is not run again only because its neighbours are missing."""
    keys = ["2026-01-05-00:00", "2026-01-05-01:00", "2026-01-05-03:00"]
    assert stretches(window(), keys) == [Stretch("2026-01-05-00:00", "2026-01-05-01:00"), Stretch("2026-01-05-03:00", "2026-01-05-03:00")]
