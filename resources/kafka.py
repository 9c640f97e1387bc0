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
from windrow.ingest.config.settings_file import refusal, validated
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
    cluster, so it is told for which of them it is asked: `reading`.
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
        """Makes the resource of a spec's cluster."""
        settings = cluster.model_dump(mode="json", exclude_none=True, include={"client", "tuning"})
        return cls(
            bootstrap_servers=cluster.bootstrap_servers,
            tuning=settings["tuning"],
            client=settings["client"],
        )

    def reading(
        self, spec: PipelineSpec, pipeline: Pipeline | None = None, plan: Plan | None = None
    ) -> Self:
        """Returns the source as a pipeline reads it: its topics, isolation level and windows.

        `pipeline`: made of the spec already; by default it stands on the spec's own ledger.
        `plan`: of a window that a run is about to plan, so that nobody asks the ledger for it.
        """
        source = copy(self)
        source._spec, source._pipeline, source._plan = spec, pipeline, plan  # noqa: SLF001 - its own
        return source

    def enumerate_splits(self, window: Window) -> Sequence[Split]:
        """Returns the splits of a window's plan: the frozen one, else as it would be now.

        Each is one range of offsets of one topic-partition, and together they are the window.
        Freezes nothing. A run of the table's asset plans its windows with this method, when
        their boundaries are frozen.

        Raises:
            SpecError: the source wasn't told what is read (`reading`); the pipeline's files
                can't be loaded; a micro-batch that was not begun.
            GridError: the window is none of the pipeline's grid.
            RefusedError, UnreachableError: a boundary can't be resolved.
        """
        if self._plan is not None and self._plan.window == window:
            return self._plan.splits
        spec = _require_spec(self._spec)
        pipeline = self._pipeline or replace(
            assemble_to_look(spec), broker=self.connect(spec.source.isolation)[0]
        )
        return enumerate_splits(pipeline, window)

    def snapshot_offsets(self, topic: str | None = None) -> OffsetSnapshot:
        """Returns earliest, stable and latest offset of each topic-partition at one moment.

        The observation of a topic's asset is made of it.

        `topic`: all partitions of this one; by default what the pipeline reads.

        Raises:
            SpecError: the source wasn't told what is read (`reading`); a topic doesn't exist.
            UnreachableError: the cluster doesn't answer.
        """
        source = _require_spec(self._spec).source
        selection = source.selection() if topic is None else Topics((topic,))
        return snapshot_offsets(self.connect(source.isolation)[0], selection)

    def has_secrets(self) -> bool:
        """Returns whether `client` has a secret as such, not by a reference.

        A property that nobody knows counts as one.
        """
        return any(
            reference(value) is None and (name not in ALLOWED or ALLOWED[name].secret)
            for name, value in self.client.items()
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
        cluster, mistakes = validated(
            ClusterSpec,
            {
                "bootstrap_servers": self.bootstrap_servers,
                "tuning": dict(self.tuning),
                "client": dict(self.client),
            },
        )
        if cluster is None:
            raise refusal("the resource KafkaSource", mistakes, Document())
        return cluster


def _require_spec(spec: PipelineSpec | None) -> PipelineSpec:
    if spec is None:
        raise SpecError(
            "A KafkaSource is a cluster, and wasn't told which pipeline's windows are meant",
            "spec",
            "Ask source.reading(spec).",
        )
    return spec
