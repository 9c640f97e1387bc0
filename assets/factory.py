"""Makes all Dagster definitions of one spec: topics, table, checks, schedules, resources."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

import dagster as dg

from windrow.assets.attributes import lookup_specs_of
from windrow.assets.checks import table_checks
from windrow.assets.dagster_internals import JobOfPipeline
from windrow.assets.dead_letters import dead_letters_asset
from windrow.assets.dependencies import SYSTEM, Clock
from windrow.assets.maintenance import maintenance_of
from windrow.assets.names import (
    dead_replay_job_name,
    job_name,
    kafka_key,
    ledger_key,
    sink_key,
    spark_key,
    topics_name,
    upstream_keys,
)
from windrow.assets.partitions import grid_warning
from windrow.assets.schedule import schedule_of, topics_schedule_of
from windrow.assets.topic import topic_assets
from windrow.assets.window_asset import table_asset
from windrow.ingest.assemble import declared_columns, refuse_no_spec
from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.dagster import SparkSpec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time
from windrow.ingest.errors import SpecError
from windrow.ingest.runner.spark.connect import ConnectedSpark
from windrow.ingest.runner.spark.local import MASTER
from windrow.resources.kafka import KafkaSource
from windrow.resources.spark import Spark
from windrow.resources.table import LedgerState, Table

SPARK = Spark()
"""The Spark of all pipelines of a code location, because a process has only one Spark."""

_NONE: Mapping[str, Any] = {}

AssetSpecs: TypeAlias = Callable[[dg.AssetSpec], dg.AssetSpec]
"""A function that changes an asset's spec."""


def kafka_table(
    spec: PipelineSpec,
    resources: Mapping[str, Any] = _NONE,
    clock: Clock = SYSTEM,
    get_asset_spec: AssetSpecs = lambda spec: spec,
) -> dg.Definitions:
    """Makes a pipeline's definitions. Reads the schema; doesn't ask Kafka, ledger or table.

    Args:
        spec: the pipeline.
        resources: replacements for the spec's own resources, by the keys of `assets.names`.
        clock: the clock of runs and checks; tests set it.
        get_asset_spec: changes the asset specs of the table and of its dead letters.

    Raises:
        SpecError: `spec` isn't a PipelineSpec; the schema can't be loaded, or has a type
            that the table doesn't have; a resource has an unknown key; or `get_asset_spec`
            changed a key or partitions.

    Example:
        from windrow import load_spec
        from windrow.dagster import kafka_table

        defs = kafka_table(load_spec("payments/defs.yaml"))
    """
    refuse_no_spec(spec)
    with warnings.catch_warnings():
        # dagster is pinned, and the user can do nothing about its warnings
        warnings.simplefilter("ignore", dg.BetaWarning)
        definitions = _definitions(spec, clock, get_asset_spec)
    return standing_on(definitions, resources)


def _definitions(spec: PipelineSpec, clock: Clock, get_asset_spec: AssetSpecs) -> dg.Definitions:
    warning = "" if spec.window.is_batch else grid_warning(in_time(spec.window), clock.now())
    if warning:
        logging.getLogger("windrow").warning("%s: %s", spec.id, warning)
    columns = declared_columns(spec)
    table = table_asset(spec, columns, clock)
    dead = dead_letters_asset(spec, table.partitions_def)
    noun = "Micro-batches" if spec.window.is_batch else "Windows"
    rows = dg.AssetSelection.assets(table.key)
    job = JobOfPipeline(job_name(spec), rows, description=f"{noun} of {spec.id}")
    topics = JobOfPipeline(
        topics_name(spec),
        dg.AssetSelection.assets(*upstream_keys(spec)),
        description=f"Observes what {spec.id} reads",
    )
    # The job's name tells a run that it replays dead letters. A config of the job doesn't do
    # that, because Dagster gives it only to runs of one partition, not of a range.
    dead_replay = JobOfPipeline(
        dead_replay_job_name(spec), rows, description=f"Replays dead letters of {spec.id}"
    )
    return dg.Definitions(
        assets=[
            *topic_assets(spec, clock),
            *lookup_specs_of(spec),
            *dg.map_asset_specs(
                lambda asset_spec: _check_same_asset(get_asset_spec(asset_spec), asset_spec),
                [table, dead],
            ),
        ],
        asset_checks=table_checks(spec, clock),
        jobs=[job, topics, dead_replay],
        schedules=[
            schedule_of(spec, job),
            topics_schedule_of(spec, topics),
            *maintenance_of(spec),
        ],
        resources=_resources(spec),
    )


def _check_same_asset(changed: dg.AssetSpec, original: dg.AssetSpec) -> dg.AssetSpec:
    """Refuses a spec of another asset, because windrow's runs use the key and the partitions."""
    if not isinstance(changed, dg.AssetSpec) or (
        (changed.key, changed.partitions_def) != (original.key, original.partitions_def)
    ):
        raise SpecError(
            f"get_asset_spec gave no AssetSpec with the key {original.key.to_user_string()} and its"
            " partitions",
            "spec",
            "Have it return what spec.merge_attributes(...) or spec.replace_attributes(...) gives;"
            " another key is set as dagster.key.",
        )
    return changed


def standing_on(definitions: dg.Definitions, resources: Mapping[str, Any]) -> dg.Definitions:
    """Replaces resources of definitions.

    This can run all pipelines of a code location on a staging cluster.

    Raises:
        SpecError: the definitions have no resource with such a key.

    Example:
        from windrow import dagster as wd, load_spec

        spec = load_spec("payments/defs.yaml")
        staging = {
            wd.kafka_key(spec): wd.KafkaSource(bootstrap_servers="staging:9092"),
            wd.ledger_key(spec): wd.LedgerState(url="/srv/staging/state.db"),
            wd.sink_key(spec): wd.Table(settings={"path": "payments"}, folder="/srv/staging"),
        }
        defs = wd.standing_on(wd.kafka_table(spec), staging)
    """
    required = definitions.resources or {}
    unknown = sorted(resources.keys() - required.keys())
    if unknown:
        raise SpecError(
            f"No definition requires a resource {', '.join(unknown)}",
            "spec",
            f"These are required: {', '.join(sorted(required))}.",
        )
    return dg.Definitions(
        assets=definitions.assets,
        schedules=definitions.schedules,
        sensors=definitions.sensors,
        jobs=definitions.jobs,
        resources={**required, **{key: _hide(resource) for key, resource in resources.items()}},
        executor=definitions.executor,
        loggers=definitions.loggers,
        asset_checks=definitions.asset_checks,
        metadata=definitions.metadata,
        component_tree=definitions.component_tree,
    )


def _resources(spec: PipelineSpec) -> dict[str, Any]:
    """Returns the resources of a spec, by their keys."""
    return {
        spark_key(spec): _spark(spec.dagster.spark),
        kafka_key(spec): _resource_of_cluster(spec.cluster.model_dump_json()),
        ledger_key(spec): _hide(LedgerState.of(spec)),
        sink_key(spec): _hide(Table.of(spec)),
    }


def _spark(spark: SparkSpec) -> Any:
    """Returns the Spark resource of a spec.

    Raises:
        SpecError: the address of the Spark Connect server is invalid.
    """
    if spark == SparkSpec():
        return SPARK
    if spark.connect is not None:
        ConnectedSpark(spark.connect)
        return Spark(connect=spark.connect)
    return _hide(Spark(master=spark.master or MASTER, spark_config=dict(spark.conf)))


@cache
def _resource_of_cluster(cluster: str) -> Any:
    """Returns the resource of a cluster, the same object for all its pipelines.

    Dagster merges definitions only if they have the same object under a key.
    """
    return _hide(KafkaSource.of(ClusterSpec.model_validate_json(cluster)))


def _hide(resource: Any) -> Any:
    """Hides the configuration of windrow's own resources if it may contain a password.

    Dagster's UI would show the configuration.
    """
    is_kafka_source = type(resource) is KafkaSource  # a user's subclass may have secret fields
    is_windrows_own = isinstance(resource, KafkaSource | LedgerState | Table) or (
        isinstance(resource, Spark) and bool(resource.spark_config)
    )
    if not is_windrows_own or (is_kafka_source and not resource.has_secrets()):
        return resource

    def initialize(context: dg.InitResourceContext) -> Iterator[Any]:
        """Initializes the resource, with `dg.EnvVar` filled in, until the run ends.

        Without the instance, Dagster makes one with databases in memory for each resource.
        """
        with dg.build_resources({"hidden": resource}, instance=context.instance) as resources:
            yield resources.hidden

    # Dagster's UI shows the first paragraph, without the example in Python
    description = (type(resource).__doc__ or "").partition("\n\n")[0] + (
        "\n\nIts fields are hidden, for `client` has a password, or a"
        " property that windrow doesn't know. As a reference, `{env: NAME}` or `{file: PATH}`, a"
        " password stays secret, and the fields are shown."
        if is_kafka_source
        else ""
    )
    return dg.ResourceDefinition(initialize, description=description)
