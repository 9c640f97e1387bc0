"""Assembles a pipeline from the Dagster resources under its keys, and from nothing else.

Pipelines that name a cluster and have no other connection settings share the cluster's
resource. If a resource is replaced, runs, checks, sensors and observations all use the new
one. It needs the methods that are called here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

from windrow.assets.names import kafka_key, ledger_key, sink_key, spark_key
from windrow.ingest.assemble import Dependencies, assemble, dead_topic, table_columns
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.dead_topic import DeadTopic
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import Sink
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.sinks.kind import Rows
from windrow.resources.kafka import KafkaSource


@dataclass(frozen=True)
class Clock:
    """A clock for a pipeline's runs."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep


SYSTEM = Clock()
"""The machine's clock."""


def keys_of(spec: PipelineSpec) -> set[str]:
    """Returns the keys of the resources that a pipeline's definitions require."""
    return {kafka_key(spec), ledger_key(spec), sink_key(spec), spark_key(spec)}


def source_of(spec: PipelineSpec, resources: Any) -> KafkaSource:
    """Returns the pipeline's source.

    Raises:
        SpecError: the resource under the source's key can't be used as a source.
    """
    return cast("KafkaSource", _under(kafka_key(spec), resources, "reading").reading(spec))


def ledger_of(spec: PipelineSpec, resources: Any) -> Ledger:
    """Returns the pipeline's ledger.

    Raises:
        SpecError: the resource under the ledger's key can't be used as a ledger.
        UnreachableError: the ledger's database doesn't answer.
    """
    return cast("Ledger", _under(ledger_key(spec), resources, "ledger").ledger())


def tables_of(spec: PipelineSpec, resources: Any) -> tuple[Sink, DeadLetters]:
    """Returns the pipeline's table and its dead letters, without their schema."""
    return _open_table(spec, resources, lambda: table_columns(spec).arrow_schema)


def _open_table(spec: PipelineSpec, resources: Any, rows: Rows) -> tuple[Sink, DeadLetters]:
    return _under(sink_key(spec), resources, "open").open(rows, spec.metadata)  # type: ignore[no-any-return]


def pipeline_of(spec: PipelineSpec, resources: Any, clock: Clock = SYSTEM) -> Pipeline:
    """Assembles the pipeline from the resources of a Dagster context. Only the ledger is opened.

    Raises:
        SpecError: the schema can't be loaded, or a resource can't be used.
        UnreachableError: the ledger's database doesn't answer.
    """
    source = source_of(spec, resources)
    on = Dependencies(
        source.connect(spec.source.isolation),
        ledger_of(spec, resources),
        lambda rows: _open_table(spec, resources, rows),
        _under(spark_key(spec), resources, "engine").engine(),
        _dead_topic(spec, resources),
    )
    return replace(
        assemble(spec, on=on),
        now=clock.now,
        sleep=clock.sleep,
        enumerate_splits=lambda now, plan: source.reading(spec, now, plan).enumerate_splits(
            plan.window
        ),
    )


def _dead_topic(spec: PipelineSpec, resources: Any) -> DeadTopic | None:
    """Returns the topic for dead letters.

    If it is in the source's cluster, the cluster's resource makes it.
    """
    dead = spec.dead_letters
    if dead is None:
        return None
    if spec.dead_cluster is not None:
        return dead_topic(spec.dead_cluster, dead.topic)
    resource = _under(kafka_key(spec), resources, "dead_topic")
    return cast("DeadTopic", resource.reading(spec).dead_topic(dead.topic))


def _under(key: str, resources: Any, method: str) -> Any:
    """Returns the resource under a key; refuses a resource that lacks a method."""
    resource = getattr(resources, key)
    if not callable(getattr(resource, method, None)):
        raise SpecError(
            f"The resource under the key {key} is a {type(resource).__name__}, which can't be used"
            " there",
            "spec",
            f"Give a resource with a method {method}(), like the spec's own.",
        )
    return resource
