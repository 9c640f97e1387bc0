"""Plans and their splits: the offset ranges that a window reads."""

from __future__ import annotations

import hashlib

import msgspec

from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.model.window import Window


class Split(msgspec.Struct, frozen=True, order=True):
    """One offset range of one topic-partition; one Spark task reads it.

    All fields are resolved offsets, no sentinels. `leader_epoch` and `stop_epoch` are
    the witnesses (`Mark`) of the start and of the stop: no message of the split may
    have a later epoch than `stop_epoch`.
    """

    topic: str
    partition: int
    start: int
    stop: int
    leader_epoch: int | None = None
    stop_epoch: int | None = None

    def __post_init__(self) -> None:
        """Checks that the range isn't empty: an empty range needs no task."""
        if not 0 <= self.start < self.stop:
            msg = (
                f"a split of {self.topic}[{self.partition}] must hold 0 <= start < stop, not"
                f" {self.start}..{self.stop}"
            )
            raise ValueError(msg)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Plan(msgspec.Struct, frozen=True):
    """The boundaries and the splits of a window, frozen before anything is written."""

    window: Window
    start: Boundary
    stop: Boundary
    splits: tuple[Split, ...]
    sink: str

    @property
    def digest(self) -> str:
        """SHA-256 of the source ranges and the sink, without code and schema.

        After a refusal the usual fix is another schema, and the plan stays valid.
        """
        ids = {t.topic: t.topic_id for t in self.stop.topics}
        ranges = [(ids.get(s.topic), s.topic, s.partition, s.start, s.stop) for s in self.splits]
        cuts = [
            [(m.topic, m.partition, m.offset) for m in boundary.marks]
            for boundary in (self.start, self.stop)
        ]
        # listed one by one, so that a field that a later version adds doesn't change the digest
        content = [self.window, self.stop.cluster_id, ranges, cuts, self.sink]
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


class Covered(msgspec.Struct, frozen=True, order=True):
    """A committed offset range, with the topic's id in the place of its name."""

    topic_id: str
    partition: int
    start: int
    stop: int

    def overlaps(self, other: Covered) -> bool:
        """Returns whether both hold an offset of the same topic-partition."""
        same = (self.topic_id, self.partition) == (other.topic_id, other.partition)
        return same and self.start < other.stop and other.start < self.stop


def covered(plan: Plan) -> tuple[Covered, ...]:
    """The ranges of a plan's splits, by topic id."""
    ids = {t.topic: t.topic_id for t in plan.stop.topics}
    return tuple(Covered(ids[s.topic], s.partition, s.start, s.stop) for s in plan.splits)
