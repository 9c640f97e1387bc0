"""Questions to a Kafka cluster, asked on the driver only.

An implementation has one isolation level, which holds for every answer but that of
`Broker.ends`. With read_committed, the default, "stable" means the last stable offset
and "visible" a committed message; with read_uncommitted they are the high watermark and
any message.

All questions raise UnreachableError if the cluster doesn't answer within a bounded
number of retries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from windrow.ingest.model.boundary import Mark, TopicPartition


class TopicInfo(msgspec.Struct, frozen=True):
    """The cluster's description of a topic.

    `retention_ms` is None if nothing expires by time. `delete_retention_ms` is how long
    compaction leaves messages without a value at least; None if it never takes them, or
    the topic isn't compacted. `append_time`: the broker sets the timestamps of messages
    (LogAppendTime).
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

    Offsets ascend. Timestamps are epoch milliseconds; -1 stands for no timestamp, or
    for no epoch.
    """

    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    epochs: npt.NDArray[np.int32]


class Broker(Protocol):
    """A cluster: its topics, the offsets of its logs, and the timestamps of messages."""

    def cluster_id(self) -> str:
        """The cluster's id."""

    def topic(self, name: str) -> TopicInfo:
        """The cluster's description of a topic now.

        Raises:
            SpecError: the topic doesn't exist, or the client may not see it.
        """

    def names(self) -> list[str]:
        """The sorted names of all topics that the client may see, without internal ones."""

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """The cluster's descriptions of several topics now, asked in few requests.

        Topics that don't exist are left out.

        Raises:
            SpecError: the client may not see one of them.
        """

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each log still holds.

        It is above 0 after retention or a deletion of records.
        """

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """The stable ends: every message below is committed or aborted."""

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks, independent of the isolation level.

        While a transaction is open, its log's high watermark is above the last stable
        offset.
        """

    def diverged_marks(self, marks: Sequence[Mark]) -> list[Mark]:
        """The marks below which the log was truncated since they were frozen.

        The log may have grown again since: the cluster tells by the leader epochs. A
        mark without an epoch is never returned. One answer is no proof
        (`source.enumerator.cutoff.confirmed_cut_off`).
        """

    def committed_offsets(
        self, group: str, tps: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The next offsets that a consumer group has committed; None where it has none."""

    def first_at_or_after(
        self, tps: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """Kafka's own answer: the first offset with a timestamp at or after an instant.

        None if the log has no such offset. The offset may be that of a transaction
        marker (stamped by the broker's clock) or of an aborted message, and may lie
        beyond a last stable offset that was asked before.
        """

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """The visible messages of [start, stop), in chunks of at most a few thousand.

        The iterator is lazy, and the caller may close it early.

        Raises:
            DataLossError: `start` lies below the log's start.
        """

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str | None]:
        """Commits offsets to a consumer group, for tools that monitor groups.

        Returns for each topic-partition None, or why it failed. Never raises for the
        cluster's answers or for a missing answer: nothing depends on these commits.
        """
