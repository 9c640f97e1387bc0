"""Questions to a Kafka cluster, asked on the driver only.

An implementation has one isolation level. It holds for every answer except that of
`Broker.ends`. With read_committed, the default, "stable" means the last stable offset and
"visible" means a committed message. With read_uncommitted, "stable" means the high watermark
and "visible" means any message.

All methods raise UnreachableError if the cluster doesn't answer within a bounded number of
retries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from windrow.ingest.model.boundary import Mark, TopicPartition


class TopicInfo(msgspec.Struct, frozen=True):
    """The cluster's description of a topic.

    Attributes:
        topic: the topic's name.
        topic_id: the id that the cluster gave the topic.
        partitions: number of its partitions.
        compacted: whether the topic is compacted.
        retention_ms: time after which messages expire; None if none expires by time.
        append_time: whether the broker sets the timestamps of messages (LogAppendTime).
        delete_retention_ms: the shortest time for which compaction keeps a message without a
            value. None if compaction never removes such messages, or the topic isn't compacted.
    """

    topic: str
    topic_id: str
    partitions: int
    compacted: bool
    retention_ms: int | None
    append_time: bool = False
    delete_retention_ms: int | None = None


class OffsetAndEpoch(msgspec.Struct, frozen=True):
    """An offset that the cluster returned, with its leader epoch if the cluster knows it."""

    offset: int
    leader_epoch: int | None


@dataclass(frozen=True)
class Stamps:
    """Offsets, timestamps and leader epochs of the visible messages of a part of a log.

    Attributes:
        offsets: the offsets, ascending.
        timestamps: epoch milliseconds; -1 for a message without a timestamp.
        epochs: leader epochs; -1 for a message without an epoch.
    """

    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    epochs: npt.NDArray[np.int32]


@runtime_checkable
class TellsRights(Protocol):
    """A cluster that tells what this client may do, before the client tries it."""

    def refuse_lacking(self, topics: Sequence[str], group: str | None) -> None:
        """Checks the rights to read topics, and to commit offsets to a consumer group.

        Raises:
            SpecError: this client lacks rights; the error has the commands that grant them.
        """


class Broker(Protocol):
    """A cluster: its topics, the offsets of its logs, and the timestamps of messages."""

    def cluster_id(self) -> str:
        """Returns the cluster's id."""

    def topic(self, name: str) -> TopicInfo:
        """Returns the cluster's description of a topic now.

        Raises:
            SpecError: the topic doesn't exist, or the client may not see it.
        """

    def names(self) -> list[str]:
        """Returns the sorted names of the topics that the client may see.

        Internal topics are left out.
        """

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """Returns the cluster's descriptions of several topics now, asked in few requests.

        Topics that don't exist are left out.

        Raises:
            SpecError: the client may not see one of them.
        """

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offset that each log still holds.

        It is above 0 if retention or a deletion of records removed messages.
        """

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """Returns the stable end of each log: every message below it is committed or aborted."""

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the high watermarks, independent of the isolation level.

        While a transaction is open, its log's high watermark is above the last stable offset.
        """

    def diverged_marks(self, marks: Sequence[Mark]) -> list[Mark]:
        """Returns the marks whose log was truncated below them after they were frozen.

        The log may have grown again since then: the leader epochs show that. A mark without an
        epoch is never returned. One answer is no proof
        (`source.enumerator.cutoff.confirmed_cut_off`).
        """

    def committed_offsets(
        self, group: str, tps: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Returns the next offsets that a consumer group has committed; None where it has none."""

    def first_at_or_after(
        self, tps: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """Returns the first offset with a timestamp at or after an instant, as Kafka answers it.

        None if the log has no such offset. The offset may be that of a transaction marker,
        which has a timestamp of the broker's clock, or of an aborted message. It may be above a
        last stable offset that was asked before.
        """

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """Yields the visible messages of [start, stop), in chunks of at most a few thousand.

        The iterator is lazy, and the caller may close it early.

        Raises:
            DataLossError: `start` is below the log's start.
        """

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str | None]:
        """Commits offsets to a consumer group, for tools that monitor groups.

        It never raises for an error or a timeout of the cluster, because nothing depends on
        these commits.

        Returns:
            For each topic-partition None, or why its commit failed.
        """
