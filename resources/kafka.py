"""The Kafka source as a Dagster resource: what a topic holds now, and the splits that are there to read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import dagster as dg
import msgspec
from pydantic import Field

from ingest.broker.kafka import KafkaBroker
from ingest.model import Boundary, Split, TopicPartition
from ingest.ports import Broker, Position, TopicInfo


class Snapshot(msgspec.Struct, frozen=True):
    """A topic at one moment: offsets per topic-partition, the ends being the last stable ones."""

    cluster_id: str
    topic: TopicInfo
    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, Position]

    def splits(self, after: Boundary | None = None) -> tuple[Split, ...]:
        """What can be read, from a boundary or else from the log's start, up to the last stable offsets.

        One split per topic-partition that has any; lengths are offsets, transaction markers and all: an upper bound of the messages.
        """
        begins = {tp: max(start, after.offset(tp) if after else 0) for tp, start in self.starts.items()}
        return tuple(
            Split(tp.topic, tp.partition, begin, self.ends[tp].offset, self.ends[tp].leader_epoch)
            for tp, begin in sorted(begins.items())
            if begin < self.ends[tp].offset
        )

    def offsets(self, after: Boundary | None = None) -> int:
        """How many offsets those splits hold: the lag, if a boundary is given."""
        return sum(s.stop - s.start for s in self.splits(after))

    @property
    def digest(self) -> str:
        """Equal exactly for equal ends of the same topic."""
        ends = [f"{tp.partition}:{end.offset}" for tp, end in sorted(self.ends.items())]
        return hashlib.sha256(" ".join([self.cluster_id, self.topic.topic_id, *ends]).encode()).hexdigest()[:16]


def snapshot(broker: Broker, topic: str) -> Snapshot:
    """Ask a broker what a topic holds now.

    Raises:
        SpecError: there is no such topic.
        UnreachableError: the cluster doesn't answer.
    """
    info = broker.topic(topic)
    tps = [TopicPartition(topic, partition) for partition in range(info.partitions)]
    return Snapshot(broker.cluster_id(), info, broker.log_starts(tps), broker.stable_ends(tps))


class KafkaSource(dg.ConfigurableResource[None]):
    """A Kafka cluster to read from. `client` takes the librdkafka properties of a spec's `source.client`."""

    bootstrap_servers: str
    client: Mapping[str, Any] = Field(default_factory=dict)

    def broker(self) -> Broker:
        """Answers questions about topics.

        Raises:
            SpecError: a client property is not one that may be set.
        """
        return KafkaBroker(self.bootstrap_servers, self.client)

    def snapshot(self, topic: str) -> Snapshot:
        """See `snapshot`."""
        return snapshot(self.broker(), topic)

    def splits(self, topic: str, after: Boundary | None = None) -> tuple[Split, ...]:
        """What can be read now, from a boundary or from the log's start: see `Snapshot.splits`."""
        return self.snapshot(topic).splits(after)
