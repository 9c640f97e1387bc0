"""A Kafka cluster as a Dagster resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import dagster as dg
from pydantic import Field

from windrow.ingest.assemble import Connection, dead_topic, reach
from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.reading import refusal, validated
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.dead_topic import DeadTopic
from windrow.ingest.settings.document import Document
from windrow.resources.source import SourceResource


class KafkaSource(dg.ConfigurableResource[None], SourceResource):
    """A Kafka cluster to read from; its fields are those of a cluster in a windrow.yaml.

    Whatever reads from it in one process shares one client.
    """

    bootstrap_servers: str
    tuning: Mapping[str, Any] = Field(
        default_factory=dict, description="As under a cluster's tuning, or a spec's source.tuning"
    )
    client: Mapping[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="librdkafka properties, as under a cluster's client",
    )

    @classmethod
    def of(cls, cluster: ClusterSpec) -> Self:
        """The resource of a spec's cluster."""
        told = cluster.model_dump(mode="json", exclude_none=True, include={"client", "tuning"})
        return cls(
            bootstrap_servers=cluster.bootstrap_servers,
            tuning=told["tuning"],
            client=told["client"],
        )

    def connect(self, isolation: Isolation) -> Connection:
        """See `SourceResource.connect`.

        Raises:
            SpecError: its fields make no cluster.
        """
        return reach(self._cluster(), isolation)

    def dead_topic(self, name: str) -> DeadTopic:
        """A topic of this cluster that dead letters are published to. Asks nothing yet.

        Raises:
            SpecError: its fields make no cluster.
        """
        return dead_topic(self._cluster(), name)

    def _cluster(self) -> ClusterSpec:
        cluster, wrong = validated(
            ClusterSpec,
            {
                "bootstrap_servers": self.bootstrap_servers,
                "tuning": dict(self.tuning),
                "client": dict(self.client),
            },
        )
        if cluster is None:
            raise refusal("the resource KafkaSource", wrong, Document())
        return cluster
