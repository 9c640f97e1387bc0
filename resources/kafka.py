"""A Kafka cluster as a Dagster resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import dagster as dg
from pydantic import Field

from windrow.ingest.assemble import Connection, dead_topic, reach
from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.settings_file import refusal, validated
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.dead_topic import DeadTopic
from windrow.ingest.settings.document import Document


class KafkaSource(dg.ConfigurableResource[None]):
    """A Kafka cluster to read from, with the settings of a cluster in a windrow.yaml.

    All readers in one process share one client.
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
        """Makes the resource of a spec's cluster."""
        settings = cluster.model_dump(mode="json", exclude_none=True, include={"client", "tuning"})
        return cls(
            bootstrap_servers=cluster.bootstrap_servers,
            tuning=settings["tuning"],
            client=settings["client"],
        )

    def connect(self, isolation: Isolation) -> Connection:
        """The broker for planning, and the readers of splits. Doesn't ask the cluster yet.

        Raises:
            SpecError: a field is wrong.
        """
        return reach(self.cluster(), isolation)

    def dead_topic(self, name: str) -> DeadTopic:
        """A topic of this cluster for dead letters. Doesn't ask the cluster yet.

        Raises:
            SpecError: a field is wrong.
        """
        return dead_topic(self.cluster(), name)

    def cluster(self) -> ClusterSpec:
        """The cluster's settings, made of the fields.

        Raises:
            SpecError: a field is wrong.
        """
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
