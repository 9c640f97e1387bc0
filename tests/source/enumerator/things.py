"""Small boundaries, each written in one line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from windrow.ingest.model.boundary import Boundary, How, Label, Mark, TopicSeen

FIRST = datetime(2026, 1, 2, tzinfo=UTC)


def hour(n: int) -> datetime:
    """Returns the label n hours after the first."""
    return FIRST + timedelta(hours=n)


def mark(
    offset: int,
    origin: How = "settled",
    epoch: int | None = None,
    partition: int = 0,
    topic: str = "t",
) -> Mark:
    """Returns a mark, by default of topic t and partition 0."""
    return Mark(topic, partition, offset, origin, epoch)


def boundary(
    label: Label,
    *marks: Mark,
    partition_counts: dict[str, int] | None = None,
    start_marks: tuple[Mark, ...] = (),
    **ids: str,
) -> Boundary:
    """Returns a boundary with these marks.

    Args:
        label: its label.
        marks: its marks.
        partition_counts: number of partitions by topic; by default those of the marks.
        start_marks: its start marks.
        ids: id of a topic, by default `id-` and the topic; or of the cluster.
    """
    counts = {m.topic: 1 + max(n.partition for n in marks if n.topic == m.topic) for m in marks} | (
        partition_counts or {}
    )
    topics = [
        TopicSeen(topic, ids.get(topic, f"id-{topic}"), count) for topic, count in counts.items()
    ]
    return Boundary.of(label, ids.get("cluster", "c"), topics, marks, start_marks)
