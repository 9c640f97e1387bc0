"""Small boundaries, written in one line each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from windrow.ingest.model.boundary import Boundary, How, Label, Mark, TopicSeen

FIRST = datetime(2026, 1, 2, tzinfo=UTC)


def hour(n: int) -> datetime:
    """The label n hours after the first."""
    return FIRST + timedelta(hours=n)


def mark(
    offset: int,
    origin: How = "settled",
    epoch: int | None = None,
    partition: int = 0,
    topic: str = "t",
) -> Mark:
    """A mark of topic t's partition 0, unless it says otherwise."""
    return Mark(topic, partition, offset, origin, epoch)


def boundary(
    label: Label,
    *marks: Mark,
    seen: dict[str, int] | None = None,
    start_marks: tuple[Mark, ...] = (),
    **ids: str,
) -> Boundary:
    """A boundary that has seen the partitions of its marks and no others, unless `seen`
    says how many; topic x has the id `id-x`.
    """
    counts = {m.topic: 1 + max(n.partition for n in marks if n.topic == m.topic) for m in marks} | (
        seen or {}
    )
    topics = [
        TopicSeen(topic, ids.get(topic, f"id-{topic}"), count) for topic, count in counts.items()
    ]
    return Boundary.of(label, ids.get("cluster", "c"), topics, marks, start_marks)
