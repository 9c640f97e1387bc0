"""What a pipeline stands on in Dagster: the resources of its keys, and nothing beside them.

A key is the cluster's where the spec names one and says nothing else of it, so that all
pipelines of a cluster share one resource; else it is the pipeline's own. Whoever gives
another resource under a key changes what runs, what the checks look at, and what is
observed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from windrow.assets.names import SPARK_KEY, kafka_key, ledger_key, sink_key
from windrow.ingest.assemble import Dependencies, assemble_on, dead_topic
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.dead_topic import DeadTopic
from windrow.ingest.ports.engine import Engine
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import Sink
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.sinks.kind import Rows
from windrow.resources.source import SourceResource


class HasLedger(Protocol):
    """What stands under a ledger's key."""

    def ledger(self) -> Ledger:
        """Open it."""


class HasTable(Protocol):
    """What stands under a table's key."""

    def open(self, rows: Rows, metadata: Mapping[str, str]) -> tuple[Sink, DeadLetters]:
        """Open it and its dead letters, told the columns of the rows and of the metadata."""


class HasEngine(Protocol):
    """What stands under Spark's key."""

    def engine(self) -> Engine:
        """Where tasks run."""


class HasDeadTopic(Protocol):
    """What stands under a source's key whose pipeline publishes its dead letters there."""

    def dead_topic(self, name: str) -> DeadTopic:
        """A topic of it for dead letters."""


class Clock(msgspec.Struct, frozen=True):
    """What a pipeline goes by."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep


SYSTEM = Clock()
"""The machine's."""


def keys_of(spec: PipelineSpec) -> set[str]:
    """The resources that a pipeline's definitions ask for."""
    return {kafka_key(spec), ledger_key(spec), sink_key(spec), SPARK_KEY}


def source_of(spec: PipelineSpec, resources: Any) -> SourceResource:
    """What the pipeline reads from.

    Raises:
        SpecError: what stands under its key is no source.
    """
    found: SourceResource = _under(kafka_key(spec), resources, "connect")
    return found


def pipeline_of(spec: PipelineSpec, resources: Any, clock: Clock = SYSTEM) -> Pipeline:
    """The pipeline on these resources, those of a Dagster context.

    Asks nothing of them yet, but of the ledger.

    Raises:
        SpecError: the schema can't be loaded, or a resource makes no sense.
        UnreachableError: the ledger's database doesn't answer.
    """
    ledger: HasLedger = _under(ledger_key(spec), resources, "ledger")
    table: HasTable = _under(sink_key(spec), resources, "open")
    spark: HasEngine = _under(SPARK_KEY, resources, "engine")
    on = Dependencies(
        source_of(spec, resources).connect(spec.source.isolation),
        ledger.ledger(),
        lambda rows: table.open(rows, spec.metadata),
        spark.engine(),
        _dead_topic(spec, resources),
    )
    return _at(assemble_on(spec, on), clock)


def _dead_topic(spec: PipelineSpec, resources: Any) -> DeadTopic | None:
    """Where the pipeline's dead letters are published.

    On the source's cluster it is a topic of what stands under the source's key.
    """
    dead = spec.dead_letters
    if dead is None:
        return None
    if spec.dead_cluster is not None:
        return dead_topic(spec.dead_cluster, dead.topic)
    source: HasDeadTopic = _under(kafka_key(spec), resources, "dead_topic")
    return source.dead_topic(dead.topic)


def _under(key: str, resources: Any, method: str) -> Any:
    """The resource of a key: one that can be asked for what stands there."""
    found = getattr(resources, key)
    if not callable(getattr(found, method, None)):
        do = f"Give one that has a method {method}(), as the one of its spec has."
        raise SpecError(
            f"Under the key {key} stands a {type(found).__name__}, which is no such resource",
            "spec",
            do,
        )
    return found


def _at(pipeline: Pipeline, clock: Clock) -> Pipeline:
    return pipeline if clock is SYSTEM else replace(pipeline, now=clock.now, sleep=clock.sleep)
