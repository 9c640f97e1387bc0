"""Labels, and boundaries: the offsets at which a label cuts the logs of all topic-partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

import msgspec

Label = datetime | int
"""An instant of the pipeline's grid, or the sequence number of a micro-batch."""


def instant(moment: datetime) -> str:
    """Returns the text of an instant: `2026-01-02T03:00:00Z`. There is no other form."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def label_text(label: Label) -> str:
    """Returns the text of a label: an instant, or `batch-000000007`. There is no other form.

    The texts of sequence numbers sort as the numbers do.
    """
    return instant(label) if isinstance(label, datetime) else f"batch-{label:09d}"


def number_of(label: Label) -> int:
    """Returns a label that is a sequence number.

    Raises:
        TypeError: it is an instant.
    """
    if isinstance(label, datetime):
        msg = f"{instant(label)} is no sequence number"
        raise TypeError(msg)
    return label


def is_later(label: Label, other_label: Label) -> bool:
    """Returns whether one label comes after another label of the same pipeline.

    For an instant and a sequence number it is False, because they have no order.
    """
    if isinstance(label, datetime) or isinstance(other_label, datetime):
        return (
            isinstance(label, datetime)
            and isinstance(other_label, datetime)
            and label > other_label
        )
    return label > other_label


def require_label(name: str, label: Label) -> None:
    """Checks the invariants of a label.

    Args:
        name: the field that holds the label.
        label: the label.

    Raises:
        ValueError: the label is a negative number, or an instant that isn't in UTC.
    """
    if isinstance(label, int):
        if label < 0:
            msg = f"{name} must not be negative: {label}"
            raise ValueError(msg)
    elif label.utcoffset() != UTC.utcoffset(None):
        msg = f"{name} must be an aware datetime in UTC, not {label!r}"
        raise ValueError(msg)


How = Literal["settled", "end", "open", "clamped", "log_start", "position", "batch", "removed"]
"""The way in which the offset of a mark was determined.

- settled: by the settled rule (`ingest.source.enumerator.label_cut`).
- end: the last stable offset, because no message has a timestamp at or after the label.
- open: the last stable offset. A transaction after it was still open when the wait for the
  transaction was over.
- clamped: moved to a frozen neighbour.
- log_start: the first offset of a log that begins above 0. Earlier messages may have
  existed and be lost.
- position: resolved from the spec's `start`.
- batch: the end of a micro-batch.
- removed: copied from the boundary before, because the topic was deleted or isn't selected
  any more.
"""


HOW_WORDS: dict[How, str] = {
    "settled": "timestamps",
    "end": "log-end",
    "open": "open-transaction",
    "clamped": "neighbour",
    "log_start": "log-start",
    "position": "position",
    "batch": "micro-batch",
    "removed": "removed",
}
"""The word for each way that is shown to people."""


def _ascending(values: Sequence[tuple[str, int]] | Sequence[str]) -> bool:
    return all(a < b for a, b in pairwise(values))  # type: ignore[operator]  # of one kind


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """One partition of a Kafka topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Returns `topic[3]`, which is meant for people only."""
        return f"{self.topic}[{self.partition}]"


class TopicSeen(msgspec.Struct, frozen=True, order=True):
    """A topic at the time when a boundary was resolved.

    A topic that is deleted and created again keeps its name and gets another id.

    Attributes:
        topic: the topic's name.
        topic_id: its id.
        partitions: the number of its partitions.
    """

    topic: str
    topic_id: str
    partitions: int


class Mark(msgspec.Struct, frozen=True, order=True):
    """The offset at which a boundary cuts one topic-partition.

    The leader epoch proves that the log was whole up to the offset. When the mark was made,
    two facts held. The messages of this epoch and of earlier ones reached at least to the
    offset. No message below the offset had a later epoch. A log that is truncated below the
    offset grows again only under a later epoch, so the cluster can always show that it was
    truncated.

    Attributes:
        topic: the topic.
        partition: its partition.
        offset: the offset of the first message after the cut.
        origin: how the offset was determined.
        leader_epoch: the leader epoch; None if the cluster reported none, or if an older
            version of windrow made the mark.
    """

    topic: str
    partition: int
    offset: int
    origin: How = msgspec.field(name="how")
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        """Checks that the offset isn't negative, as Kafka's special offsets are."""
        if self.offset < 0:
            msg = f"offset {self.offset} of {self.tp} is negative"
            raise ValueError(msg)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Boundary(msgspec.Struct, frozen=True):
    """The offsets at which one label cuts all topic-partitions of one cluster.

    A partition that was later added to one of `topics` is cut at 0. A topic-partition whose
    topic is new to the pattern or to the spec has no mark in older boundaries. It joins
    with the first boundary that has a mark for it. That boundary has a start mark for it
    too, at which its first window begins.

    Attributes:
        label: the label.
        cluster_id: the id of the cluster.
        topics: the topics that the boundary knows.
        marks: the cut of each topic-partition, sorted.
        start_marks: the offsets at which joining topic-partitions begin. A start mark is
            used for a window whose start boundary doesn't know the topic-partition.
    """

    label: Label
    cluster_id: str
    topics: tuple[TopicSeen, ...]
    marks: tuple[Mark, ...]
    start_marks: tuple[Mark, ...] = msgspec.field(default=(), name="begins")

    def __post_init__(self) -> None:
        """Checks that marks are sorted and unique, and that no start mark is above its mark."""
        require_label("label", self.label)
        if not (
            _ascending([(m.topic, m.partition) for m in self.marks])
            and _ascending([(m.topic, m.partition) for m in self.start_marks])
            and _ascending([t.topic for t in self.topics])
        ):
            msg = (
                f"topics, marks and start marks of boundary {label_text(self.label)} must be sorted"
                " and unique"
            )
            raise ValueError(msg)
        cuts = self.by_tp() if self.start_marks else {}
        if any(b.tp not in cuts or b.offset > cuts[b.tp].offset for b in self.start_marks):
            label = label_text(self.label)
            msg = f"a start mark of boundary {label} lies above the boundary's mark, or has none"
            raise ValueError(msg)

    @classmethod
    def of(
        cls,
        label: Label,
        cluster_id: str,
        topics: Iterable[TopicSeen],
        marks: Iterable[Mark],
        start_marks: Iterable[Mark] = (),
    ) -> Boundary:
        """Makes a boundary from topics and marks in any order."""
        return cls(
            label,
            cluster_id,
            tuple(sorted(topics)),
            tuple(sorted(marks)),
            tuple(sorted(start_marks)),
        )

    def by_tp(self) -> dict[TopicPartition, Mark]:
        return {m.tp: m for m in self.marks}

    def by_topic(self) -> dict[str, TopicSeen]:
        return {t.topic: t for t in self.topics}

    def joining_marks(self, start: Boundary) -> dict[TopicPartition, Mark]:
        """Returns the start marks of topic-partitions that join between `start` and this one."""
        marks_at_start = start.cuts(start_mark.tp for start_mark in self.start_marks)
        return {
            start_mark.tp: start_mark
            for start_mark in self.start_marks
            if start_mark.tp not in marks_at_start
        }

    def cut(self, tp: TopicPartition) -> Mark | None:
        """Returns the mark of a topic-partition; None if the boundary doesn't know the partition.

        A partition that was later added to one of the topics is cut at offset 0.
        """
        return next((m for m in self.marks if m.tp == tp), self._added_mark(tp))

    def _added_mark(self, tp: TopicPartition) -> Mark | None:
        """Returns the mark at 0 of a partition that was added to a topic later; else None."""
        topic = next((t for t in self.topics if t.topic == tp.topic), None)
        return (
            None
            if topic is None or tp.partition < topic.partitions
            else Mark(tp.topic, tp.partition, 0, "clamped")
        )

    def cuts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Mark]:
        """Returns the marks that `cut` gives for these topic-partitions, without unknown ones."""
        mark_by_tp = self.by_tp()
        cuts = {tp: mark_by_tp.get(tp) or self._added_mark(tp) for tp in tps}
        return {tp: mark for tp, mark in cuts.items() if mark is not None}
