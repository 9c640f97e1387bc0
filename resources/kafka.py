"""A Kafka cluster as a Dagster resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import dagster as dg
from pydantic import Field, PrivateAttr

from windrow.ingest.assemble import Connection, assemble_to_look, dead_topic, reach
from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.settings_file import refusal, shared_only, shared_only_mistakes, validate
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.allowed_properties import ALLOWED
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.source import Isolation, Topics
from windrow.ingest.ports.dead_topic import DeadTopic
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.freezing import enumerate_splits
from windrow.ingest.settings.document import Document
from windrow.ingest.settings.secrets import reference
from windrow.ingest.source.enumerator.topics import OffsetSnapshot, snapshot_offsets


class KafkaSource(dg.ConfigurableResource[None]):
    """A Kafka cluster to read from, with the settings of a cluster in a windrow.yaml.

    All readers in one process share one client. Pipelines may share the resource of a
    cluster. `reading` returns the source of one pipeline.

    Example:
        from windrow import load_spec
        from windrow.dagster import KafkaSource, kafka_key, kafka_table

        spec = load_spec("payments/defs.yaml")
        staging = KafkaSource(bootstrap_servers="staging:9092")
        defs = kafka_table(spec, {kafka_key(spec): staging})
    """

    bootstrap_servers: str = Field(description="The cluster's first addresses")
    tuning: Mapping[str, Any] = Field(
        default_factory=dict, description="As under a cluster's tuning, or a spec's source.tuning"
    )
    client: Mapping[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="librdkafka properties, as under a cluster's client",
    )

    _spec: PipelineSpec | None = PrivateAttr(default=None)
    _pipeline: Pipeline | None = PrivateAttr(default=None)
    _plan: Plan | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, cluster: ClusterSpec) -> Self:
        """Makes the resource from a spec's cluster."""
        settings = cluster.model_dump(mode="json", exclude_none=True, include={"client", "tuning"})
        return cls(
            bootstrap_servers=cluster.bootstrap_servers,
            tuning=settings["tuning"],
            client={
                name: value
                for name, value in settings["client"].items()
                if name not in shared_only(settings["client"])
            },
        )

    def reading(
        self, spec: PipelineSpec, pipeline: Pipeline | None = None, plan: Plan | None = None
    ) -> Self:
        """Returns the source as a pipeline reads it: its topics, isolation level and windows.

        Args:
            spec: the pipeline's spec.
            pipeline: the pipeline of the spec. By default one is made, with the spec's own
                ledger.
            plan: the plan of a window that a run is about to freeze, so that the ledger
                isn't asked for it.
        """
        source = copy(self)
        source._spec, source._pipeline, source._plan = spec, pipeline, plan  # noqa: SLF001 - its own
        return source

    def enumerate_splits(self, window: Window) -> Sequence[Split]:
        """Returns the splits of a window's plan: the frozen plan, or else the plan of a run now.

        Each split is one range of offsets of one topic-partition. Together they are the
        window. Nothing is frozen. A run of the table's asset plans its windows with this
        method, when their boundaries are frozen.

        Raises:
            SpecError: `reading` wasn't called, so the pipeline is unknown; the pipeline's
                files can't be loaded; or the window is a micro-batch that was not begun.
            GridError: the window isn't on the pipeline's grid.
            RefusedError: a boundary can't be resolved.
            UnreachableError: the cluster or the ledger doesn't answer.
        """
        if self._plan is not None and self._plan.window == window:
            return self._plan.splits
        spec = _require_spec(self._spec)
        pipeline = self._pipeline or replace(
            assemble_to_look(spec), broker=self.connect(spec.source.isolation)[0]
        )
        return enumerate_splits(pipeline, window)

    def snapshot_offsets(self, topic: str | None = None) -> OffsetSnapshot:
        """Returns the earliest, stable and latest offset of each topic-partition at one moment.

        The observation of a topic's asset uses it.

        Args:
            topic: a topic, with all its partitions; by default the topic-partitions that
                the pipeline reads.

        Raises:
            SpecError: `reading` wasn't called, so the pipeline is unknown; or a topic
                doesn't exist.
            UnreachableError: the cluster doesn't answer.
        """
        source = _require_spec(self._spec).source
        selection = source.selection() if topic is None else Topics((topic,))
        return snapshot_offsets(self.connect(source.isolation)[0], selection)

    def has_secrets(self) -> bool:
        """Returns whether `client` has a secret in plain text, not as a reference.

        An unknown property counts as a secret.
        """
        return any(
            reference(value) is None and (name not in ALLOWED or ALLOWED[name].secret)
            for name, value in self.client.items()
        )

    def connect(self, isolation: Isolation) -> Connection:
        """Returns the broker for planning, and the function that makes readers. Asks nothing yet.

        Raises:
            SpecError: a field is wrong.
        """
        return reach(self.cluster(), isolation)

    def dead_topic(self, name: str) -> DeadTopic:
        """Returns a topic of this cluster for dead letters. Asks no cluster yet.

        Raises:
            SpecError: a field is wrong.
        """
        return dead_topic(self.cluster(), name)

    def cluster(self) -> ClusterSpec:
        """Returns the cluster's settings, made from the fields.

        Raises:
            SpecError: a field is wrong.
        """
        cluster, mistakes = validate(
            ClusterSpec,
            {
                "bootstrap_servers": self.bootstrap_servers,
                "tuning": dict(self.tuning),
                "client": {**self.client, **self._shared_properties()},
            },
            shared=True,
        )
        mistakes += shared_only_mistakes(self.client, ("client",))
        if cluster is None or mistakes:
            raise refusal("the resource KafkaSource", mistakes, Document())
        return cluster

    def _shared_properties(self) -> Mapping[str, Any]:
        """Returns the properties of the spec's cluster that only a windrow.yaml may have.

        A run's config can change the fields. It can't add such properties, and gets none for
        another address.
        """
        cluster = None if self._spec is None else self._spec.cluster
        if cluster is None or cluster.bootstrap_servers != self.bootstrap_servers:
            return {}
        return shared_only(cluster.client)


def _require_spec(spec: PipelineSpec | None) -> PipelineSpec:
    if spec is None:
        raise SpecError(
            "A KafkaSource is a cluster, and wasn't told which pipeline's windows are meant",
            "spec",
            "Ask source.reading(spec).",
        )
    return spec
