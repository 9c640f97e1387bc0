"""What a run reads from, whatever it stands on: the questions that planning asks, and
the readers of the splits that come of the answers.

A run's splits are those of its plan: planning asks the source's broker, freezes the
answers as boundaries, and cuts what lies between two of them; the tasks read these
splits with the source's readers. Who replaces a resource by another `SourceResource`
replaces what runs.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod

import msgspec

from windrow.ingest.assemble import Connection
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.plan import Split
from windrow.ingest.model.source import Isolation, Selection
from windrow.ingest.ports.broker import Broker, TopicInfo
from windrow.ingest.source.enumerator.splits import cut
from windrow.ingest.source.enumerator.topics import discover


class TopicsSnapshot(msgspec.Struct, frozen=True):
    """Topics at one moment, as what lies between two boundaries: where their logs
    start, and their stable ends.
    """

    topics: dict[str, TopicInfo]
    start: Boundary
    stop: Boundary

    @property
    def cluster_id(self) -> str:
        """The cluster's."""
        return self.stop.cluster_id

    def ranges(self, after: Boundary | None = None) -> dict[TopicPartition, tuple[Mark, Mark]]:
        """Per topic-partition where reading would begin and end.

        It would begin at a boundary, where that knows the topic-partition and its log
        still reaches back to it, else at the log's start.
        """
        known = {} if after is None else after.cuts(self.start.by_tp())
        marks = [
            max(mark, known.get(mark.tp, mark), key=lambda m: m.offset) for mark in self.start.marks
        ]
        ends = self.stop.by_tp()
        return {
            mark.tp: (mark, ends[mark.tp]) for mark in marks if mark.offset <= ends[mark.tp].offset
        }

    def splits(self, after: Boundary | None = None) -> tuple[Split, ...]:
        """What can be read now, cut as a plan is: one split per topic-partition that has any.

        Lengths are offsets, transaction markers and all: an upper bound of the messages.
        """
        return tuple(cut(self.ranges(after)))

    @property
    def digest(self) -> str:
        """Equal exactly for equal ends of the same topics."""
        ids = [f"{name}:{info.topic_id}" for name, info in sorted(self.topics.items())]
        ends = [f"{mark.tp}:{mark.offset}" for mark in self.stop.marks]
        return hashlib.sha256(" ".join([self.cluster_id, *ids, *ends]).encode()).hexdigest()[:16]


def snapshot(broker: Broker, selection: Selection) -> TopicsSnapshot:
    """Ask a broker what a selection of topics holds now.

    Raises:
        SpecError: a topic or topic-partition that is named isn't there; a pattern matches nothing.
        UnreachableError: the cluster doesn't answer.
    """
    found = discover(broker, selection, None, "fail")
    starts, ends = broker.log_starts(found.tps), broker.stable_ends(found.tps)
    seen = [TopicSeen(name, info.topic_id, info.partitions) for name, info in found.topics.items()]
    begins = [Mark(tp.topic, tp.partition, offset, "log_start") for tp, offset in starts.items()]
    stops = [
        Mark(tp.topic, tp.partition, end.offset, "end", end.leader_epoch)
        for tp, end in ends.items()
    ]
    return TopicsSnapshot(
        found.topics,
        Boundary.of(0, found.cluster_id, seen, begins),
        Boundary.of(1, found.cluster_id, seen, stops),
    )


class SourceResource(ABC):
    """A cluster to read from."""

    @abstractmethod
    def connect(self, isolation: Isolation) -> Connection:
        """What planning asks, and what tasks read with, at an isolation level. Asks nothing yet.

        Raises:
            SpecError: a client property is not one that may be set.
        """

    def snapshot(
        self, selection: Selection, isolation: Isolation = "read_committed"
    ) -> TopicsSnapshot:
        """Offsets of all that is selected, now: see `snapshot`."""
        return snapshot(self.connect(isolation)[0], selection)
