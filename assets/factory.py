"""From one spec: the topics, the table, its checks, its schedule, and the resources they need."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import dagster as dg

from windrow.assets.batches import batch_asset
from windrow.assets.checks import receipts_check
from windrow.assets.dependencies import SYSTEM, Clock
from windrow.assets.health import health_checks
from windrow.assets.names import SPARK_KEY, kafka_key, ledger_key, sink_key
from windrow.assets.schedule import (
    dead_replay_job_of,
    job_of,
    schedule_of,
    topics_job_of,
    topics_schedule_of,
)
from windrow.assets.table import window_asset
from windrow.assets.topic import topic_assets
from windrow.ingest.assemble import table_columns
from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.resources.kafka import KafkaSource
from windrow.resources.ledger import LedgerState
from windrow.resources.spark import Spark
from windrow.resources.table import Table

SPARK = Spark()
"""One for all pipelines of a code location: a Spark session belongs to a process."""

_NONE: Mapping[str, Any] = {}


def kafka_table(
    spec: PipelineSpec, resources: Mapping[str, Any] = _NONE, clock: Clock = SYSTEM
) -> dg.Definitions:
    """All of a pipeline's definitions. Reads the schema, asks nothing of Kafka, ledger or table.

    Args:
        spec: the pipeline's.
        resources: others than the spec's, by the keys of `assets.names`: they are what
            runs, and what the checks look at.
        clock: another than the machine's.

    Raises:
        SpecError: the schema can't be loaded, or holds a type that the table can't; or
            a resource has a key that nothing asks for.
    """
    with warnings.catch_warnings():
        # windrow's choice, and pinned: its user can do nothing about it
        warnings.simplefilter("ignore", dg.BetaWarning)
        definitions = _made(spec, clock)
    return standing_on(definitions, resources)


def _made(spec: PipelineSpec, clock: Clock) -> dg.Definitions:
    columns = table_columns(spec)
    table = (batch_asset if spec.window.is_batch else window_asset)(spec, columns, clock)
    job, topics = job_of(spec, table), topics_job_of(spec)
    dead_replay = [] if spec.window.is_batch else [dead_replay_job_of(spec, table)]
    return dg.Definitions(
        assets=[*topic_assets(spec), table],
        asset_checks=[receipts_check(spec), *health_checks(spec, clock)],
        jobs=[job, topics, *dead_replay],
        schedules=[schedule_of(spec, job), topics_schedule_of(spec, topics)],
        resources=_named(spec),
    )


def standing_on(definitions: dg.Definitions, resources: Mapping[str, Any]) -> dg.Definitions:
    """Definitions with other resources under some of their keys: all pipelines of a
    code location on a staging cluster, for instance.

    Raises:
        SpecError: a key is none of theirs.
    """
    there = definitions.resources or {}
    strange = sorted(resources.keys() - there.keys())
    if strange:
        raise SpecError(
            f"Nothing asks for a resource {', '.join(strange)}",
            "spec",
            f"These are asked for: {', '.join(sorted(there))}.",
        )
    return dg.Definitions(
        assets=definitions.assets,
        schedules=definitions.schedules,
        sensors=definitions.sensors,
        jobs=definitions.jobs,
        resources={**there, **{key: _hidden(resource) for key, resource in resources.items()}},
        executor=definitions.executor,
        loggers=definitions.loggers,
        asset_checks=definitions.asset_checks,
        metadata=definitions.metadata,
        component_tree=definitions.component_tree,
    )


def _named(spec: PipelineSpec) -> dict[str, Any]:
    """The resources that the spec names."""
    return {
        SPARK_KEY: SPARK,
        kafka_key(spec): _of_cluster(spec.cluster.model_dump_json()),
        ledger_key(spec): _hidden(LedgerState(url=spec.state_url())),
        sink_key(spec): _hidden(Table.of(spec)),
    }


@cache
def _of_cluster(cluster: str) -> Any:
    """One resource for all pipelines of a cluster: Dagster merges definitions that have
    the very same one under a key, and no others.
    """
    return _hidden(KafkaSource.of(ClusterSpec.model_validate_json(cluster)))


def _hidden(resource: Any) -> Any:
    """The resource without its configuration, which the UI would show: a password may be in it.

    Others' are given on as they are.
    """
    if not isinstance(resource, KafkaSource | LedgerState | Table):
        return resource

    def made(_: dg.InitResourceContext) -> Iterator[Any]:
        """With what it takes from the environment (`dg.EnvVar`) filled in; what it sets
        up is there until the run ends.
        """
        with resource.process_config_and_initialize_cm() as initialized:
            yield initialized

    return dg.ResourceDefinition(made, description=type(resource).__doc__)
