"""Boundaries: per topic-partition the offsets at which a label cuts the log, how each
was found, and its witness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from windrow.ingest.model.label import Label, label_text, require_label

How = Literal["settled", "end", "open", "clamped", "log_start", "position", "batch", "removed"]
"""How a boundary's offset was found.

settled: the settled message. end: nothing at or after the label, so the last stable
offset. open: the last stable offset, behind which a transaction was still open after
all the patience that was asked for. clamped: moved to a frozen neighbour. log_start:
the log's own start above 0, which proves nothing about what was there before. position:
where the spec's `start` says. batch: where a micro-batch ends. removed: carried on from
the lower neighbour, for a topic that is not there, or not asked for, any more.
"""


def _ascending(values: Sequence[tuple[str, int]] | Sequence[str]) -> bool:
    return all(a < b for a, b in pairwise(values))  # type: ignore[operator]  # of one kind


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A Kafka topic-partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """`topic[3]`, for people only."""
        return f"{self.topic}[{self.partition}]"


class TopicSeen(msgspec.Struct, frozen=True, order=True):
    """A topic as a boundary saw it: which one it is (made anew it has the same name and
    another id), and how many partitions it had.
    """

    topic: str
    topic_id: str
    partitions: int


class Mark(msgspec.Struct, frozen=True, order=True):
    """Where a boundary cuts one topic-partition, and how that was found.

    `leader_epoch` is the witness that the log was whole up to here: when the mark was
    cut, the messages of this epoch and of those before it reached up to the offset or
    beyond, and none below the offset had a later epoch. A log that is cut off below the
    offset grows again under a later epoch only, so the cluster can tell ever after.
    None where the cluster named no epoch, or an older version cut the mark.
    """

    topic: str
    partition: int
    offset: int
    how: How
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        """An offset is never negative: sentinels are resolved before a mark exists."""
        if self.offset < 0:
            msg = f"offset {self.offset} of {self.topic}[{self.partition}] is negative"
            raise ValueError(msg)

    @property
    def tp(self) -> TopicPartition:
        """The topic-partition it cuts."""
        return TopicPartition(self.topic, self.partition)


class Boundary(msgspec.Struct, frozen=True):
    """Per topic-partition offsets under one label, of one cluster and known topics.

    Total: a partition that was added to a known topic later is cut at 0 here. A
    topic-partition that is not read yet (a topic that is new to the pattern or the
    spec) is in no mark; the first boundary that has it says in `begins` where its first
    window begins, should that window start at a boundary that doesn't know it.
    """

    label: Label
    cluster_id: str
    topics: tuple[TopicSeen, ...]
    marks: tuple[Mark, ...]
    begins: tuple[Mark, ...] = ()

    def __post_init__(self) -> None:
        """Marks are sorted, each topic-partition is cut once and begins at or before its cut."""
        require_label("label", self.label)
        if not (
            _ascending([(m.topic, m.partition) for m in self.marks])
            and _ascending([(m.topic, m.partition) for m in self.begins])
            and _ascending([t.topic for t in self.topics])
        ):
            msg = (
                f"topics, marks and begins of boundary {label_text(self.label)} must be sorted and"
                " unique"
            )
            raise ValueError(msg)
        cuts = self.by_tp() if self.begins else {}
        if any(b.tp not in cuts or b.offset > cuts[b.tp].offset for b in self.begins):
            msg = f"a begin of boundary {label_text(self.label)} lies behind its cut, or has none"
            raise ValueError(msg)

    @classmethod
    def of(
        cls,
        label: Label,
        cluster_id: str,
        topics: Iterable[TopicSeen],
        marks: Iterable[Mark],
        begins: Iterable[Mark] = (),
    ) -> Boundary:
        """A boundary from topics and marks in any order."""
        return cls(
            label, cluster_id, tuple(sorted(topics)), tuple(sorted(marks)), tuple(sorted(begins))
        )

    def by_tp(self) -> dict[TopicPartition, Mark]:
        """Its marks by topic-partition."""
        return {m.tp: m for m in self.marks}

    def by_topic(self) -> dict[str, TopicSeen]:
        """The topics it knows, by name."""
        return {t.topic: t for t in self.topics}

    def cut(self, tp: TopicPartition) -> Mark | None:
        """Where it cuts: its mark; offset 0 for a partition that was added to one of
        its topics later; None for what it doesn't know.
        """
        return next((m for m in self.marks if m.tp == tp), self._later(tp))

    def _later(self, tp: TopicPartition) -> Mark | None:
        seen = next((t for t in self.topics if t.topic == tp.topic), None)
        return (
            None
            if seen is None or tp.partition < seen.partitions
            else Mark(tp.topic, tp.partition, 0, "clamped")
        )

    def cuts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Mark]:
        """Where it cuts each of these; what it doesn't know is left out."""
        known = self.by_tp()
        cuts = {tp: known.get(tp) or self._later(tp) for tp in tps}
        return {tp: mark for tp, mark in cuts.items() if mark is not None}
