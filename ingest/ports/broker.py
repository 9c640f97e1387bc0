"""What is asked of a cluster, in small interfaces: who takes one says by it what it may ask.

    ClusterTopics  which cluster this is, and which topics there are
    Offsets        where a topic-partition begins, ends, or stands, as an offset
    Logs           the same, and the messages' timestamps
    ClusterView    all questions: what planning takes
    Publisher      the one thing that is told to a cluster
    Broker         all of it, held by one class

An implementation has one isolation level, which every answer but `Offsets.ends` goes
by: under read_committed, the default, "stable" means the last stable offset and
"visible" a committed message; under read_uncommitted they are the high watermark and
any message.

All questions raise UnreachableError if the cluster doesn't answer within its bounded
retries. Used on the driver only: a narrow helper in place of a client, an idea of
Flink's (`OffsetsInitializer.PartitionOffsetsRetriever`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from windrow.ingest.model.boundary import Mark, TopicPartition


class TopicInfo(msgspec.Struct, frozen=True):
    """What the cluster says of a topic.

    `retention_ms` is None where nothing expires by time; `append_time`: the broker stamps messages.
    """

    topic: str
    topic_id: str
    partitions: int
    compacted: bool
    retention_ms: int | None
    append_time: bool = False


class OffsetAndEpoch(msgspec.Struct, frozen=True):
    """An offset that the cluster named, with the leader epoch where it knows one."""

    offset: int
    leader_epoch: int | None


class Stamps(msgspec.Struct, frozen=True):
    """Visible messages of a piece of log: ascending offsets, timestamps in epoch
    milliseconds (-1: none), leader epochs (-1: none).
    """

    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    epochs: npt.NDArray[np.int32]


class ClusterTopics(Protocol):
    """Which cluster this is, and which topics it has."""

    def cluster_id(self) -> str:
        """The cluster's id."""

    def topic(self, name: str) -> TopicInfo:
        """What the cluster says of a topic now.

        Raises:
            SpecError: if there is no such topic, or the client may not see it.
        """

    def names(self) -> list[str]:
        """The names of all topics that the client may see, sorted, without Kafka's
        internal ones.
        """

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """What the cluster says of several topics now, in few questions; those that aren't there are left out.

        Raises:
            SpecError: one may not be seen.
        """  # noqa: E501


class Offsets(Protocol):
    """Where topic-partitions begin, end or stand: each answer is an offset."""

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there; above 0 after retention or a deletion
        of records.
        """

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """The stable ends: everything below is decided."""

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks, whatever the isolation level: above the last stable
        offset while a transaction is open.
        """

    def regrown(self, marks: Sequence[Mark]) -> list[Mark]:
        """Those below which the log was cut off since they were cut, whatever has grown
        since, by what the cluster says of their epochs.

        Of a mark without one nobody knows; one answer is no proof (`plan.cutoff.surely_regrown`).
        """

    def committed(
        self, group: str, tps: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The next offsets that a consumer group has committed; None where it has
        committed none.
        """

    def first_at_or_after(
        self, tps: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """Kafka's own answer: the first offset whose timestamp is at or after the moment, or None.

        The offset may be a transaction marker (stamped by the broker's clock) or an
        aborted message, and may lie beyond the last stable offset asked before.
        """


class Logs(Offsets, Protocol):
    """Offsets, and the timestamps of the messages between them."""

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """The visible messages of [start, stop) in chunks of at most a few thousand,
        lazily: the caller may close the iterator early.

        Raises:
            DataLossError: if `start` lies below the log start.
        """


class ClusterView(ClusterTopics, Logs, Protocol):
    """All that can be asked; nothing here changes anything."""


class Publisher(ClusterTopics, Protocol):
    """Where a pipeline stands is told to a consumer group of a cluster that is still the same."""

    def publish(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str | None]:
        """Commit offsets to a consumer group, for the tools that watch groups; per
        topic-partition None, or why it did not work.

        Never raises for what the cluster answers or doesn't: nothing depends on it.
        """


class Broker(ClusterView, Publisher, Protocol):
    """What one class holds."""
