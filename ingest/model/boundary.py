"""Boundaries: the offsets at which a label cuts the logs of all topic-partitions; and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

import msgspec

Label = datetime | int
"""An instant of the pipeline's grid, or the sequence number of a micro-batch."""


def instant(moment: datetime) -> str:
    """The only text form of an instant: `2026-01-02T03:00:00Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def label_text(label: Label) -> str:
    """The only text form of a label: an instant, or `batch-000000007`.

    Texts of sequence numbers sort as the numbers do.
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

    An instant and a sequence number are in no order: neither comes after the other.
    """
    if isinstance(label, datetime) or isinstance(other_label, datetime):
        return (
            isinstance(label, datetime)
            and isinstance(other_label, datetime)
            and label > other_label
        )
    return label > other_label


def require_label(name: str, label: Label) -> None:
    """Checks the invariants of a label; `name` is the field that holds it."""
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
- end: the last stable offset, because no message lies at or after the label.
- open: the last stable offset, although a transaction was still open behind it when the
  wait for it was over.
- clamped: moved to a frozen neighbour.
- log_start: the first offset of a log that begins above 0. It proves nothing about the
  messages that were before it.
- position: resolved from the spec's `start`.
- batch: the end of a micro-batch.
- removed: copied from the lower neighbour, because the topic was deleted or isn't
  selected any more.
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
"""What people read for each way."""


def _ascending(values: Sequence[tuple[str, int]] | Sequence[str]) -> bool:
    return all(a < b for a, b in pairwise(values))  # type: ignore[operator]  # of one kind


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """One partition of a Kafka topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """`topic[3]`, for people only."""
        return f"{self.topic}[{self.partition}]"


class TopicSeen(msgspec.Struct, frozen=True, order=True):
    """A topic as it was when a boundary was resolved: its id and its number of partitions.

    A topic that is deleted and created again keeps its name and gets another id.
    """

    topic: str
    topic_id: str
    partitions: int


class Mark(msgspec.Struct, frozen=True, order=True):
    """The offset at which a boundary cuts one topic-partition.

    `how` says how the offset was determined. `leader_epoch` is its witness: it proves
    that the log was whole up to here. When the mark was made, the messages of this
    epoch and of earlier ones reached at least to the offset, and no message below the
    offset had a later epoch. A log that is truncated below the offset grows again only
    under a later epoch, so the cluster can tell for ever. None if the cluster named no
    epoch, or if an older version made the mark.
    """

    topic: str
    partition: int
    offset: int
    how: How
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        """Checks that the offset isn't negative: sentinels are resolved before."""
        if self.offset < 0:
            msg = f"offset {self.offset} of {self.tp} is negative"
            raise ValueError(msg)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Boundary(msgspec.Struct, frozen=True):
    """The offsets at which one label cuts all topic-partitions of one cluster.

    A boundary knows the topics in `topics`. A partition that was added to one of them
    later is cut at 0. A topic-partition that isn't read yet, because its topic is new
    to the pattern or to the spec, has no mark. It joins with the first boundary that has
    a mark for it, which also has its start mark: there its first window begins, if that
    window starts at a boundary that doesn't know it.
    """

    label: Label
    cluster_id: str
    topics: tuple[TopicSeen, ...]
    marks: tuple[Mark, ...]
    start_marks: tuple[Mark, ...] = msgspec.field(default=(), name="begins")

    def __post_init__(self) -> None:
        """Checks that marks are sorted and unique, and that no start mark lies above its mark."""
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

    def joined(self, start: Boundary) -> dict[TopicPartition, Mark]:
        """Returns the start marks of what joins in the window from `start` to here."""
        marks_at_start = start.cuts(start_mark.tp for start_mark in self.start_marks)
        return {
            start_mark.tp: start_mark
            for start_mark in self.start_marks
            if start_mark.tp not in marks_at_start
        }

    def cut(self, tp: TopicPartition) -> Mark | None:
        """Its mark in a topic-partition, or None if it doesn't know that one.

        A partition that was added to one of its topics later is cut at offset 0.
        """
        return next((m for m in self.marks if m.tp == tp), self._added_mark(tp))

    def _added_mark(self, tp: TopicPartition) -> Mark | None:
        """The mark of a partition that was added to one of its topics later, or None."""
        topic = next((t for t in self.topics if t.topic == tp.topic), None)
        return (
            None
            if topic is None or tp.partition < topic.partitions
            else Mark(tp.topic, tp.partition, 0, "clamped")
        )

    def cuts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Mark]:
        """The marks that `cut` gives for these topic-partitions, without unknown ones."""
        mark_by_tp = self.by_tp()
        cuts = {tp: mark_by_tp.get(tp) or self._added_mark(tp) for tp in tps}
        return {tp: mark for tp, mark in cuts.items() if mark is not None}
