"""The time for which unread messages are still kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.admin.lag import PartitionLag
from windrow.ingest.admin.retention_margin import (
    margin_of_unread,
    margin_of_window,
    next_window,
    retention_margin,
)
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.grid import labels_between, window_at
from windrow.ingest.model.source import Earliest, Source, Topics
from windrow.ingest.ports.broker import TopicInfo
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.testing.broker import MemoryBroker

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
FIRST = window_at("p", "hourly", START)
ODD = "0 0,1,9 * * *"
"""A grid whose windows are one, eight and fifteen hours long."""


def topic_keeping(kept_hours: int | None, name: str = "t") -> TopicInfo:
    """Returns a topic that keeps messages for so many hours; None: for ever."""
    return TopicInfo(
        name,
        "id",
        1,
        compacted=False,
        retention_ms=None if kept_hours is None else kept_hours * 3_600_000,
    )


def unread_partition(
    records: int, age: int, lost_offsets: int = 0, name: str = "t"
) -> PartitionLag:
    """Returns a topic-partition whose first unread message is `age` hours old."""
    return PartitionLag(name, 0, 0, records, records, age * 3600.0, lost_offsets)


def next_open(grid: str, committed: set[datetime], now: datetime) -> datetime:
    """Returns the start of a pipeline's next window, if these windows are committed."""
    sink = SimpleNamespace(committed=lambda windows: {w for w in windows if w.start in committed})
    pipeline: Any = SimpleNamespace(spec=SimpleNamespace(id="p"), sink=sink, now=lambda: now)
    window = next_window(pipeline, SimpleNamespace(start=START, grid=grid))  # type: ignore[arg-type]
    assert window == window_at("p", grid, window.start)  # type: ignore[arg-type]
    return window.start  # type: ignore[return-value]


def test_the_next_window() -> None:
    """The next window is the first one after the pipeline's start that is not committed.

    Neither the time nor windows before the start matter.
    """
    later = START + 10 * HOUR
    assert next_open("hourly", set(), later) == START
    assert next_open("hourly", {START, START + 2 * HOUR}, later) == START + HOUR
    three = {START - HOUR, *(START + i * HOUR for i in range(3))}
    assert next_open("hourly", three, later) == START + 3 * HOUR
    assert next_open("hourly", three, START + 3 * HOUR) == START + 3 * HOUR
    assert next_open("hourly", set(), START - 5 * HOUR) == START
    assert next_open(ODD, {START}, later) == START + HOUR


def test_an_early_gap_costs_little() -> None:
    """On a fine grid that began long ago, windows far after the first gap aren't asked for."""
    window_counts = list[int]()
    sink = SimpleNamespace(committed=lambda windows: window_counts.append(len(windows)) or set())
    later = START + timedelta(days=3000)
    pipeline: Any = SimpleNamespace(spec=SimpleNamespace(id="p"), sink=sink, now=lambda: later)
    grid: Any = SimpleNamespace(start=START, grid="*/5 * * * *")
    assert next_window(pipeline, grid).start == START
    assert sum(window_counts) < 3000


@given(st.sets(st.integers(0, 20)), st.sampled_from(["hourly", "daily", ODD]))
def test_the_next_window_is_the_lowest_gap(committed: set[int], grid: str) -> None:
    """The next window is the lowest one that isn't committed, in any order of commits."""
    labels = [START, *labels_between(grid, START, START + timedelta(days=30))][:22]
    lowest = next(i for i in range(22) if i not in committed)
    done = {labels[i] for i in committed}
    assert next_open(grid, done, labels[-1]) == labels[lowest]


@pytest.mark.parametrize(
    ("kept_hours", "age", "level"),
    [
        (None, 1000, "ok"),
        (48, 10, "ok"),
        (12, 10, "warn"),
        (48, 36, "ok"),
        (48, 37, "warn"),
        (48, 40, "warn"),
        (9, 10, "warn"),
    ],
)
def test_windows(kept_hours: int | None, age: int, level: str) -> None:
    """A margin is a warning before and after the oldest open window begins to expire.

    It warns when a quarter of the retention or two windows are left.
    """
    assert (
        margin_of_window(
            FIRST, [topic_keeping(kept_hours)], [], START + age * HOUR, deletes=False
        ).level
        == level
    )


def test_the_topic_that_forgets_first_counts() -> None:
    """The topic with the shortest retention is named."""
    margin = margin_of_window(
        FIRST,
        [topic_keeping(500, "a"), topic_keeping(12, "b"), topic_keeping(None, "c")],
        [],
        START + 10 * HOUR,
        deletes=False,
    )
    assert (margin.level, margin.remaining_time) == ("warn", 2 * HOUR)
    assert "in b in 2.0 h" in margin.message


def test_windows_that_lost_their_beginning() -> None:
    """If messages at a frozen start are deleted, the margin fails with the topic-partition.

    The retention doesn't matter.
    """
    margin = margin_of_window(
        FIRST, [topic_keeping(None)], [TopicPartition("t", 0)], START, deletes=False
    )
    assert margin.level == "fail"
    assert "t[0]" in margin.message


@pytest.mark.parametrize(
    ("part", "kept_hours", "level"),
    [
        (unread_partition(0, 0), 1, "ok"),
        (unread_partition(5, 1000), None, "ok"),
        (unread_partition(5, 10), 48, "ok"),
        (unread_partition(5, 40), 48, "warn"),
        (unread_partition(5, 50), 48, "warn"),
        (unread_partition(5, 1, lost_offsets=2), None, "fail"),
    ],
)
def test_batches(part: PartitionLag, kept_hours: int | None, level: str) -> None:
    """For micro-batches, the age of the first unread message is compared with the retention.

    Lost offsets fail.
    """
    assert (
        margin_of_unread(
            [unread_partition(0, 0), part], {"t": topic_keeping(kept_hours)}, deletes=False
        ).level
        == level
    )


def test_the_message_that_expires_first_counts() -> None:
    """The topic-partition whose message expires first is named, not the one with the oldest
    message.
    """
    margin = margin_of_unread(
        [unread_partition(1, 90, name="a"), unread_partition(1, 2, name="b")],
        {"a": topic_keeping(500, "a"), "b": topic_keeping(4, "b")},
        deletes=False,
    )
    assert margin.remaining_time == 2 * HOUR
    assert "b[0]@0" in margin.message


def compacted_topic(deletes_kept: int | None) -> TopicInfo:
    """Returns a compacted topic that keeps deletes for so many hours; None: for ever."""
    delete_retention_ms = None if deletes_kept is None else deletes_kept * 3_600_000
    return TopicInfo(
        "t", "id", 1, compacted=True, retention_ms=None, delete_retention_ms=delete_retention_ms
    )


@pytest.mark.parametrize(
    ("kept_hours", "age", "level"),
    [(None, 1000, "ok"), (48, 36, "ok"), (48, 37, "warn"), (9, 10, "warn")],
)
def test_deletes_of_a_compacted_topic(kept_hours: int | None, age: int, level: str) -> None:
    """If deletes remove rows, a compacted topic's delete.retention.ms counts as retention.

    The advice names the setting. If rows are only appended, it doesn't count.
    """
    window_margin = margin_of_window(
        FIRST, [compacted_topic(kept_hours)], [], START + age * HOUR, deletes=True
    )
    waiting = margin_of_unread(
        [unread_partition(5, age)], {"t": compacted_topic(kept_hours)}, deletes=True
    )
    assert window_margin.level == waiting.level == level
    for margin in (window_margin, waiting) if level == "warn" else ():
        assert "raise the topic's delete.retention.ms" in margin.advice
    assert (
        margin_of_window(
            FIRST, [compacted_topic(kept_hours)], [], START + age * HOUR, deletes=False
        ).level
        == "ok"
    )
    assert (
        margin_of_unread(
            [unread_partition(5, age)], {"t": compacted_topic(kept_hours)}, deletes=False
        ).level
        == "ok"
    )


def test_what_went_with_the_deletes() -> None:
    """If deletes may be gone already, the message says that their rows stay in the table."""
    late = margin_of_window(FIRST, [compacted_topic(9)], [], START + 10 * HOUR, deletes=True)
    waiting = margin_of_unread([unread_partition(5, 10)], {"t": compacted_topic(9)}, deletes=True)
    for margin in (late, waiting):
        assert "deletes may be gone, and their rows stay in the table" in margin.message


@pytest.mark.parametrize(("kept_hours", "level"), [(24, "warn"), (25, "ok"), (None, "ok")])
def test_a_window_that_is_longer_than_its_messages_are_kept(
    kept_hours: int | None, level: str
) -> None:
    """If a window is longer than its deletes are kept, there is a warning before it ends.

    After its end it would be too late. Kafka keeps deletes for a day by default.
    """
    day = window_at("p", "daily", START)
    margin = margin_of_window(day, [compacted_topic(kept_hours)], [], START + HOUR, deletes=True)
    assert margin.level == level
    assert ("delete.retention.ms" in margin.advice) == (level == "warn")


def test_for_ever_as_a_number() -> None:
    """The largest retention that Kafka accepts never expires."""
    ever = 2**63 - 1
    topics = [TopicInfo("t", "id", 1, True, ever, delete_retention_ms=ever)]
    margin = margin_of_window(FIRST, topics, [], START + 10 * HOUR, deletes=True)
    assert (margin.level, margin.remaining_time) == ("ok", None)


# --------------------------------------------------------------------------------------------------


def batch_pipeline(
    frozen: list[int], committed: set[int], log_start: int, key: PrimaryKey | None = None
) -> Any:
    """Returns a pipeline of micro-batches with ten offsets each.

    Its log has 100 messages that are 10 hours old. The topic keeps messages for 48 hours, and
    deletes for 9.
    """
    broker = MemoryBroker(clock=lambda: 0)
    hour_ms = 3_600_000
    broker.create_topic(
        "t", compacted=True, retention_ms=48 * hour_ms, delete_retention_ms=9 * hour_ms
    )
    for _ in range(100):
        broker.produce(TopicPartition("t", 0), b"", timestamp=START - 10 * HOUR)
    broker.delete_records(TopicPartition("t", 0), log_start)
    topics_seen = [TopicSeen("t", broker.topic("t").topic_id, 1)]
    cuts = {
        n: Boundary.of(n, "memory", topics_seen, [Mark("t", 0, 10 * n, "batch")]) for n in frozen
    }
    return SimpleNamespace(
        spec=SimpleNamespace(
            id="p",
            sink=SimpleNamespace(key=key),
            route_specs={},
            window=SimpleNamespace(is_batch=True, grid="batch"),
            stop=None,
            source=SimpleNamespace(for_planning=lambda _: Source(Topics(("t",)), Earliest())),
        ),
        broker=broker,
        ledger=SimpleNamespace(
            newest=lambda _: [cuts[n] for n in frozen], start=lambda _, label: cuts.get(label)
        ),
        sink=SimpleNamespace(look=lambda window: True if window.start in committed else None),
        now=lambda: START,
    )


def test_a_batch_that_is_not_committed_is_unread() -> None:
    """A micro-batch that is frozen but not committed counts as unread from its start."""
    uncommitted, committed = batch_pipeline([1, 2], {0}, 15), batch_pipeline([1, 2], {0, 1}, 15)
    assert "t[0]@20, is kept for 38.0 h more" in retention_margin(committed).message
    assert retention_margin(uncommitted).level == "fail"
    assert "t[0]" in retention_margin(uncommitted).message


def test_the_boundary_0_has_no_batch_before_it() -> None:
    """No micro-batch ends at boundary 0, so messages after it are unread."""
    assert "t[0]@0" in retention_margin(batch_pipeline([0], set(), 0)).message


def test_before_anything_was_cut_nothing_is_lost() -> None:
    """A pipeline that hasn't begun loses nothing; one that has begun does."""
    assert retention_margin(batch_pipeline([], set(), 15)).level == "ok"
    assert retention_margin(batch_pipeline([0], set(), 15)).level == "fail"


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (None, "is kept for 38.0 h more"),
        (PrimaryKey(("id",)), "is older than the delete.retention.ms of t"),
        (PrimaryKey(("id",), marks=True), "is older than the delete.retention.ms of t"),
        (PrimaryKey(("id",), version="at"), "is kept for 38.0 h more"),
    ],
)
def test_whose_deletes_count(key: PrimaryKey | None, says: str) -> None:
    """Deletes count for a table with a primary key, unless a version column decides."""
    assert says in retention_margin(batch_pipeline([1, 2], {0, 1}, 15, key)).message
