"""What is asked of a cluster, on the driver only.

An implementation has one isolation level, which every answer but `Broker.ends` goes by:
under read_committed, the default, "stable" means the last stable offset and "visible" a
committed message; under read_uncommitted they are the high watermark and any message.

All questions raise UnreachableError if the cluster doesn't answer within their bounded
retries.
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


class Broker(Protocol):
    """A cluster: its topics, the offsets of its logs, and the timestamps of messages."""

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
        """The marks below which the log was cut off since they were frozen, whatever has
        grown since, by what the cluster says of their leader epochs.

        A mark without one is never among them; one answer is no proof
        (`source.enumerator.cutoff.surely_cut_off`).
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

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """The visible messages of [start, stop) in chunks of at most a few thousand,
        lazily: the caller may close the iterator early.

        Raises:
            DataLossError: if `start` lies below the log start.
        """

    def publish(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str | None]:
        """Commit offsets to a consumer group, for the tools that watch groups; per
        topic-partition None, or why it did not work.

        Never raises for what the cluster answers or doesn't: nothing depends on it.
        """
