"""Plans and their splits: what was decided for a window, in integers only."""

from __future__ import annotations

import hashlib

import msgspec

from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.model.window import Window


class Split(msgspec.Struct, frozen=True, order=True):
    """One offset range of one topic-partition: the unit of reading, one Spark task.

    Integers only: every sentinel was resolved before.

    `leader_epoch` and `stop_epoch` are witnesses as a mark's is, for the start and for
    the stop: no message of the split may have a later epoch than `stop_epoch`.
    """

    topic: str
    partition: int
    start: int
    stop: int
    leader_epoch: int | None = None
    stop_epoch: int | None = None

    def __post_init__(self) -> None:
        """Never negative, never empty: an empty range needs no task."""
        if not 0 <= self.start < self.stop:
            msg = (
                f"a split of {self.topic}[{self.partition}] must hold 0 <= start < stop, not"
                f" {self.start}..{self.stop}"
            )
            raise ValueError(msg)

    @property
    def tp(self) -> TopicPartition:
        """The topic-partition it reads."""
        return TopicPartition(self.topic, self.partition)


class Plan(msgspec.Struct, frozen=True):
    """What was decided for a window: integers only, frozen before anything is written."""

    window: Window
    start: Boundary
    stop: Boundary
    splits: tuple[Split, ...]
    sink: str

    @property
    def digest(self) -> str:
        """Covers source ranges and sink, not code or schema: after a refusal the usual
        cure is to fix the schema and try again.
        """
        ids = {t.topic: t.topic_id for t in self.stop.topics}
        ranges = [(ids.get(s.topic), s.topic, s.partition, s.start, s.stop) for s in self.splits]
        cuts = [
            [(m.topic, m.partition, m.offset) for m in boundary.marks]
            for boundary in (self.start, self.stop)
        ]
        named = [
            self.window,
            self.stop.cluster_id,
            ranges,
            cuts,
            self.sink,
        ]  # named one by one: a field that a later version adds is not in it
        return hashlib.sha256(msgspec.json.encode(named)).hexdigest()


class Covered(msgspec.Struct, frozen=True, order=True):
    """A committed range under the identity that offsets have: topic id, not name."""

    topic_id: str
    partition: int
    start: int
    stop: int

    def overlaps(self, other: Covered) -> bool:
        """Whether both hold an offset of the same topic-partition."""
        same = (self.topic_id, self.partition) == (other.topic_id, other.partition)
        return same and self.start < other.stop and other.start < self.stop


def covered(plan: Plan) -> tuple[Covered, ...]:
    """The ranges of a plan by topic id."""
    ids = {t.topic: t.topic_id for t in plan.stop.topics}
    return tuple(Covered(ids[s.topic], s.partition, s.start, s.stop) for s in plan.splits)
