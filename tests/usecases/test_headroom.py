"""How long what is unread will still be there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.grid import after, labels_between
from ingest.headroom import of_unread, of_window, oldest_open
from ingest.lag import PartitionLag
from ingest.model import TopicPartition, Window
from ingest.ports import TopicInfo

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


def topic(name: str, hours: float | None) -> TopicInfo:
    return TopicInfo(name, f"id-{name}", 1, False, None if hours is None else int(hours * 3_600_000))


def unread(name: str, hours: float, records: int = 5, lost: int = 0) -> PartitionLag:
    return PartitionLag(name, 0, 7, 7 + records, records, hours * 3600, lost)


@given(st.sampled_from(["hourly", "*/20 9-17 * * 1-5"]), st.sets(st.integers(0, 30)))
def test_the_oldest_open_window_is_the_first_hole(grid: str, done: set[int]) -> None:
    """It is the first window from the pipeline's start that isn't committed, on any grid, whatever is committed behind it."""
    labels = labels_between(grid, START - HOUR, START + timedelta(days=20))[:32]
    hole = next(n for n in range(32) if n not in done)
    found = oldest_open(labels[0], grid, [labels[n] for n in done])
    assert (found.start, found.end) == (labels[hole], after(grid, labels[hole]))


@pytest.mark.parametrize(("hours_later", "level"), [(1, "ok"), (89, "ok"), (91, "warn"), (119, "warn"), (121, "warn")])
def test_a_window_near_its_retention_warns(hours_later: float, level: str) -> None:
    """The topic with the shortest retention counts; a quarter of it left is near."""
    window = Window("", START, START + HOUR)
    found = of_window(window, [topic("a", None), topic("b", 120), topic("c", 500)], [], START + hours_later * HOUR)
    assert found.level == level
    assert found.left == (120 - hours_later) * HOUR


def test_what_is_gone_fails() -> None:
    """A window whose frozen beginning is not in the log any more, and unread offsets that aren't, are told by their place."""
    window = Window("", START, START + HOUR)
    found = of_window(window, [topic("a", None)], [TopicPartition("a", 3)], START + 2 * HOUR)
    assert (found.level, "a[3]" in found.what) == ("fail", True)
    lost = of_unread([unread("a", 1, lost=4)], {"a": topic("a", None)})
    assert (lost.level, "a[0]" in lost.what) == ("fail", True)


def test_unread_messages_by_their_age() -> None:
    """Of all topic-partitions the one counts whose first unread message expires first; what is read, or never expires, does not."""
    topics = {"a": topic("a", 100), "b": topic("b", 10), "c": topic("c", None)}
    assert of_unread([unread("a", 99, records=0), unread("c", 900)], topics).level == "ok"
    assert of_unread([unread("a", 50), unread("b", 1)], topics).left == 9 * HOUR
    near = of_unread([unread("a", 50), unread("b", 9)], topics)
    assert (near.level, "b[0]@7" in near.what) == ("warn", True)
    assert of_unread([unread("b", 11)], topics).level == "warn"
    assert of_unread([unread("a", 10)], topics).level == "ok"
