"""Windows and partition keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
from dagster._utils.schedules import cron_string_iterator
from hypothesis import given
from hypothesis import strategies as st

from windrow.assets.dependencies import Clock
from windrow.assets.factory import kafka_table
from windrow.assets.partitions import (
    OFTEN,
    crons_of,
    grid_warning,
    key_of,
    key_ranges,
    partition_key,
    partitions_in_time,
    windows_of,
)
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import TimeWindows
from windrow.ingest.model.grid import is_closed, label_after, window_at
from windrow.ingest.runner.due import LEAST, SPAN, closed_windows

START = datetime(2026, 1, 5, tzinfo=UTC)
DAILY_CRONS = [
    "hourly",
    "daily",
    "*/15 * * * *",
    "7,23,55 */3 * * *",
    "30 1,13 * * *",
    "0 */7 * * *",
]
"""Grids that are the same each day."""
CRONS = [*DAILY_CRONS, "0 9-17 * * 1-5", "15 4 1,15 * *", "0 0 * * 0", "20 22 13 * 5"]
GRIDS = st.sampled_from(CRONS)
DELAYS = st.integers(0, 3 * 86_400).map(lambda s: timedelta(seconds=s))
SHORT = st.integers(0, 3 * 3600).map(lambda s: timedelta(seconds=s))
NOWS = st.integers(-86_400, 9 * 86_400).map(lambda s: START + timedelta(seconds=s))


def first(grid: str) -> datetime:
    """Returns the grid's first label in the test's time."""
    return label_after(grid, START - timedelta(minutes=1))


def window(grid: str = "hourly", delay: timedelta = timedelta(minutes=5)) -> TimeWindows:
    return TimeWindows.model_validate({"grid": grid, "start": first(grid), "delay": delay})


def spec(grid: str, delay: timedelta = timedelta(minutes=5)) -> PipelineSpec:
    return PipelineSpec.model_validate(
        {
            "id": "orders",
            "source": {"bootstrap_servers": "127.0.0.1:9092", "topic": "t"},
            "window": {"grid": grid, "start": first(grid), "delay": delay},
            "decode": {"schema": "tests.assets.things:Thing"},
            "sink": {"path": "t"},
            "folder": Path("/tmp"),
        }
    )


def keys_of_closed(grid: str, delay: timedelta, now: datetime) -> list[str]:
    """Returns the keys of the windows that a tick looks at."""
    return [
        partition_key(spec(grid), closed_window)
        for closed_window in closed_windows(spec(grid, delay), now)[1]
    ]


def starts_of(grid: str, count: int) -> list[datetime]:
    """Returns the first labels of the pipeline."""
    starts = [first(grid)]
    while len(starts) < count:
        starts.append(label_after(grid, starts[-1]))
    return starts


@pytest.mark.parametrize(
    ("grid", "key"),
    [("hourly", "2026-01-05-00:00"), ("daily", "2026-01-05"), ("20 22 13 * 5", "2026-01-09-22:20")],
)
def test_first_partition_is_the_spec_start(grid: str, key: str) -> None:
    """The first partition is the window at the spec's start, in UTC.

    The keys of a cron grid have minutes.
    """
    assert partitions_in_time(window(grid)).get_first_partition_key() == key


@pytest.mark.parametrize("grid", CRONS)
def test_dagster_cuts_time_as_the_grid_does(grid: str) -> None:
    """Dagster's partitions are exactly the grid's windows, also for irregular grids."""
    starts = starts_of(grid, 60)
    partitions = partitions_in_time(window(grid))
    assert partitions.get_partition_keys(current_time=starts[-1]) == [
        key_of(window(grid), s) for s in starts[:-1]
    ]
    dagster_windows = [
        partitions.time_window_for_partition_key(key_of(window(grid), s)) for s in starts[:-1]
    ]
    assert [(w.start, w.end) for w in dagster_windows] == list(pairwise(starts))


@given(GRIDS, st.lists(st.integers(0, 80), min_size=1, max_size=20, unique=True))
def test_keys_and_windows_are_one_to_one(grid: str, numbers: list[int]) -> None:
    """A key names exactly one window of the grid, and windows are sorted by time."""
    labels = starts_of(grid, max(numbers) + 1)
    starts = [labels[n] for n in numbers]
    keyed_windows = windows_of(spec(grid), [key_of(window(grid), s) for s in starts])
    assert [w for _, w in keyed_windows] == [window_at("orders", grid, s) for s in sorted(starts)]
    assert [k for k, _ in keyed_windows] == [key_of(window(grid), s) for s in sorted(starts)]


@given(GRIDS, DELAYS, NOWS)
def test_closed_windows_are_the_newest_closed_ones(
    grid: str, delay: timedelta, now: datetime
) -> None:
    """A tick looks at the newest closed windows, without a gap.

    They are at least 48, and all of the last two days.
    """
    closed_keys, recent_count, start = [], 0, first(grid)
    while is_closed(window_at("p", grid, start), delay, now):
        closed_keys.append(key_of(window(grid), start))
        start = label_after(grid, start)
        recent_count += start > now - delay - SPAN
    assert keys_of_closed(grid, delay, now) == closed_keys[-max(LEAST, recent_count) :]


@given(st.sampled_from(DAILY_CRONS), DELAYS, st.integers(0, 100))
def test_each_tick_finds_a_window_that_closed_since_the_last(
    grid: str, delay: timedelta, number: int
) -> None:
    """There is one tick for each window, within a minute after its end and delay."""
    start, end = starts_of(grid, number + 2)[-2:]
    tick = next(
        cron_string_iterator(
            (end + delay).timestamp(),
            earliest_cron(crons_of(window(grid, delay)), end + delay),
            "UTC",
        )
    )
    assert timedelta(0) <= tick - (end + delay) < timedelta(minutes=1)
    assert keys_of_closed(grid, delay, tick)[-1] == key_of(window(grid), start)


def earliest_cron(crons: list[str], moment: datetime) -> str:
    """Returns the expression that ticks first after an instant."""
    return min(crons, key=lambda cron: next(cron_string_iterator(moment.timestamp(), cron, "UTC")))


@given(GRIDS, SHORT, st.integers(0, 40))
def test_some_tick_comes_soon_after_any_window_closes(
    grid: str, delay: timedelta, number: int
) -> None:
    """For any grid, a tick finds a window within five minutes after its end and delay."""
    start, end = starts_of(grid, number + 2)[-2:]
    crons = crons_of(window(grid, delay))
    tick = next(
        cron_string_iterator((end + delay).timestamp(), earliest_cron(crons, end + delay), "UTC")
    )
    assert timedelta(0) <= tick - (end + delay) <= timedelta(minutes=5)
    assert key_of(window(grid), start) in keys_of_closed(grid, delay, tick)[-10:]


def test_a_grid_of_some_days_is_looked_at_often_where_no_cron_says_when() -> None:
    """A delay that reaches into the next day needs frequent ticks on a grid of some days.

    Cron's day fields can't express such a delay.
    """
    assert crons_of(window("0 22 * * 5", timedelta(hours=1))) == ["0 23 * * 5"]
    assert crons_of(window("0 22 * * 5", timedelta(hours=3))) == [OFTEN]
    assert crons_of(window("*/20 * * * *", timedelta(minutes=3))) == ["3,23,43 * * * *"]
    assert crons_of(window("50 1,13 * * *", timedelta(minutes=15))) == ["5 2,14 * * *"]


def test_an_outage_is_looked_back_on_by_time() -> None:
    """A tick looks at all windows of two days, however short they are."""
    none = timedelta(0)
    assert len(keys_of_closed("* * * * *", none, START + timedelta(days=9))) == 2880
    assert len(keys_of_closed("daily", none, START + timedelta(days=90))) == 48


@given(GRIDS, st.sets(st.integers(0, 60), max_size=40))
def test_key_ranges_cover_the_keys_and_nothing_else(grid: str, numbers: set[int]) -> None:
    """Ranges of keys cover each key once, have no gap inside, and have gaps between them."""
    labels = starts_of(grid, 61)
    ranges = key_ranges(window(grid), [key_of(window(grid), labels[n]) for n in numbers])
    covered: list[int] = []
    for s in ranges:
        begin, last = (
            labels.index(partitions_in_time(window(grid)).time_window_for_partition_key(k).start)
            for k in (s.start, s.end)
        )
        ns = list(range(begin, last + 1))
        assert not covered or ns[0] > covered[-1] + 1
        covered += ns
    assert covered == sorted(numbers)


def test_no_keys_no_ranges() -> None:
    """Without keys there are no ranges."""
    assert key_ranges(window(), []) == []


def test_a_gap_splits_a_range() -> None:
    """A gap between keys splits a range, so an existing window isn't run again."""
    keys = ["2026-01-05-00:00", "2026-01-05-01:00", "2026-01-05-03:00"]
    assert key_ranges(window(), keys) == [
        dg.PartitionKeyRange("2026-01-05-00:00", "2026-01-05-01:00"),
        dg.PartitionKeyRange("2026-01-05-03:00", "2026-01-05-03:00"),
    ]


NOW = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("grid", "start", "phrase"),
    [
        ("hourly", NOW.replace(year=2030), "starts at 2030-01-05 00:00 UTC has ended"),
        ("hourly", NOW, ""),
        ("hourly", NOW.replace(year=2016), ""),
        ("hourly", NOW.replace(year=2010), "some 140,000 partitions"),
        ("* * * * *", NOW.replace(year=2025), "some 526,000 partitions"),
        ("*/5 * * * *", NOW.replace(month=1, year=2025), "some 105,000 partitions"),
        ("0 9-17 * * 1-5", NOW.replace(year=1990), ""),
    ],
)
def test_a_grid_that_dagster_cannot_show_is_told(
    caplog: pytest.LogCaptureFixture, grid: str, start: datetime, phrase: str
) -> None:
    """A grid without a window yet, or with too many for Dagster, is reported when the
    spec is loaded.
    """
    warning = grid_warning(TimeWindows(grid=grid, start=start), NOW)
    assert (phrase in warning) == (bool(warning) or not phrase)
    assert bool(warning) == bool(phrase)
    loaded = spec(grid)
    loaded = loaded.model_copy(update={"window": TimeWindows(grid=grid, start=start)})
    kafka_table(loaded, clock=Clock(now=lambda: NOW))
    assert [r.getMessage() for r in caplog.records] == (
        [f"{loaded.id}: {warning}"] if warning else []
    )
