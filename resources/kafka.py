"""The Kafka source as a Dagster resource: what topics hold now, and the splits that are there to read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Self

import dagster as dg
import msgspec
from pydantic import Field

from ingest.kafka.broker import KafkaBroker
from ingest.model.boundary import Boundary, TopicPartition
from ingest.model.plan import Split
from ingest.model.source import Isolation, Selection
from ingest.plan.topics import discover
from ingest.ports.broker import Broker, Position, TopicInfo
from ingest.spec.source import SourceSpec, TuningSpec


class Snapshot(msgspec.Struct, frozen=True):
    """Topics at one moment: offsets per topic-partition, the ends being the stable ones."""

    cluster_id: str
    topics: dict[str, TopicInfo]
    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, Position]

    def splits(self, after: Boundary | None = None) -> tuple[Split, ...]:
        """What can be read, from a boundary or else from the log's start, up to the stable ends.

        One split per topic-partition that has any; lengths are offsets, transaction markers and all: an upper bound of the messages. What
        the boundary doesn't know is there from the log's start on.
        """
        known = {} if after is None else after.cuts(self.starts)
        begins = {tp: max(start, known[tp].offset if tp in known else 0) for tp, start in self.starts.items()}
        return tuple(
            Split(tp.topic, tp.partition, begin, self.ends[tp].offset, self.ends[tp].leader_epoch)
            for tp, begin in sorted(begins.items())
            if begin < self.ends[tp].offset
        )

    @property
    def digest(self) -> str:
        """Equal exactly for equal ends of the same topics."""
        ids = [f"{name}:{info.topic_id}" for name, info in sorted(self.topics.items())]
        ends = [f"{tp}:{end.offset}" for tp, end in sorted(self.ends.items())]
        return hashlib.sha256(" ".join([self.cluster_id, *ids, *ends]).encode()).hexdigest()[:16]


def snapshot(broker: Broker, selection: Selection) -> Snapshot:
    """Ask a broker what a selection of topics holds now.

    Raises:
        SpecError: a topic or topic-partition that is named isn't there; a pattern matches nothing.
        UnreachableError: the cluster doesn't answer.
    """
    found = discover(broker, selection, None, "fail")
    return Snapshot(found.cluster_id, found.topics, broker.log_starts(found.tps), broker.stable_ends(found.tps))


class KafkaSource(dg.ConfigurableResource[None]):
    """A Kafka cluster to read from; its fields are those of a spec's `source`."""

    bootstrap_servers: str
    isolation: str = Field(default="read_committed", description="read_committed or read_uncommitted: what counts as stable")
    tuning: Mapping[str, Any] = Field(default_factory=dict, description="As under a spec's source.tuning")
    client: Mapping[str, Any] = Field(default_factory=dict, description="librdkafka properties, as under a spec's source.client")

    @classmethod
    def of(cls, source: SourceSpec) -> Self:
        """The resource of a spec's source."""
        tuning = source.tuning.model_dump(exclude_none=True)
        return cls(bootstrap_servers=source.bootstrap_servers, isolation=source.isolation, tuning=tuning, client=dict(source.client))

    def broker(self) -> Broker:
        """Answers questions about topics.

        Raises:
            SpecError: a client property is not one that may be set.
        """
        isolation = msgspec.convert(self.isolation, Isolation)
        tuning = TuningSpec.model_validate(dict(self.tuning)).client()
        return KafkaBroker(self.bootstrap_servers, self.client, isolation=isolation, tuning=tuning)

    def snapshot(self, selection: Selection) -> Snapshot:
        """Offsets of all that is selected, now: see `snapshot`."""
        return snapshot(self.broker(), selection)

    def splits(self, selection: Selection, after: Boundary | None = None) -> tuple[Split, ...]:
        """What can be read now, from a boundary or from the log's start: see `Snapshot.splits`."""
        return self.snapshot(selection).splits(after)
