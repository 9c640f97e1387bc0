"""Names and keys of a pipeline's definitions in Dagster."""

from __future__ import annotations

import re

import dagster as dg

from windrow.ingest.config.cluster import TuningSpec
from windrow.ingest.config.dagster import SparkSpec
from windrow.ingest.config.pipeline import PipelineSpec


def identifier(text: str) -> str:
    """Converts a text to a name for ops, jobs and resources: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def table_key(spec: PipelineSpec) -> dg.AssetKey:
    """Returns the table's asset key: `dagster.key` of the spec, or else the pipeline's id.

    Example:
        import dagster as dg
        from windrow import load_spec
        from windrow.dagster import table_key

        spec = load_spec("payments/defs.yaml")

        @dg.asset(deps=[table_key(spec)])
        def all_sales(context: dg.AssetExecutionContext) -> None:
            context.log.info(table_key(spec).to_user_string())
    """
    return dg.AssetKey.from_user_string(spec.dagster.key or spec.id)


def dead_letters_key(spec: PipelineSpec) -> dg.AssetKey:
    """Returns the asset key of the table's dead letters."""
    return dg.AssetKey.from_user_string(f"{table_key(spec).to_user_string()}_dead")


def topic_key(topic: str) -> dg.AssetKey:
    """Returns the asset key of a topic."""
    return dg.AssetKey(["kafka", topic])


def upstream_keys(spec: PipelineSpec) -> list[dg.AssetKey]:
    """Returns the asset keys of the topics that a pipeline reads: one per name, or one per pattern.

    The UI shows only the last part of a key on a node. So the last part of a pattern's key
    must differ from the table's key.
    """
    named = spec.source.topic_names()
    return (
        [topic_key(topic) for topic in named]
        if named
        else [dg.AssetKey(["kafka", "pattern", f"topics-of-{spec.id}"])]
    )


def job_name(spec: PipelineSpec) -> str:
    """Returns the name of the job that the schedule starts."""
    return f"{identifier(spec.id)}_{'batches' if spec.window.is_batch else 'windows'}"


def batches_name(spec: PipelineSpec) -> str:
    """Returns the name of the dynamic partitions of a pipeline of micro-batches."""
    return f"{spec.id}/batches"


def dead_replay_job_name(spec: PipelineSpec) -> str:
    """Returns the name of the job that replays dead letters."""
    return f"{identifier(spec.id)}_replay_dead_letters"


def maintenance_name(spec: PipelineSpec) -> str:
    """Returns the name of the job that maintains the table, and of its schedule."""
    return f"{identifier(spec.id)}_maintenance"


def topics_name(spec: PipelineSpec) -> str:
    """Returns the name of the job that observes the pipeline's topics, and of its schedule."""
    return f"{identifier(spec.id)}_topics"


SPARK_KEY = "spark"
"""The key of the Spark that all pipelines without their own Spark settings share.

Example:
    from windrow import load_spec
    from windrow.dagster import SPARK_KEY, Spark, kafka_table

    spec = load_spec("payments/defs.yaml")
    defs = kafka_table(spec, {SPARK_KEY: Spark(master="local[2]")})
"""


def spark_key(spec: PipelineSpec) -> str:
    """Returns the key of the pipeline's Spark."""
    has_own_spark = spec.dagster.spark != SparkSpec()
    return f"{identifier(spec.id)}_spark" if has_own_spark else SPARK_KEY


def kafka_key(spec: PipelineSpec) -> str:
    """Returns the key of the pipeline's KafkaSource.

    It is the cluster's key if the spec names a cluster and has no other connection
    settings, else a key of the pipeline. Each kind of resource has its own ending, so keys
    can't collide.

    Example:
        from windrow import load_spec
        from windrow.dagster import KafkaSource, kafka_key, kafka_table, standing_on

        spec = load_spec("payments/defs.yaml")
        staging = KafkaSource(bootstrap_servers="staging:9092")
        defs = standing_on(kafka_table(spec), {kafka_key(spec): staging})
    """
    source = spec.source
    has_own_client = bool(source.client) or source.tuning != TuningSpec()
    return (
        f"{identifier(spec.id)}_kafka"
        if source.cluster is None or has_own_client
        else f"{identifier(source.cluster)}_cluster"
    )


def ledger_key(spec: PipelineSpec) -> str:
    """Returns the key of the pipeline's LedgerState.

    Example:
        from windrow import load_spec
        from windrow.dagster import LedgerState, kafka_table, ledger_key, standing_on

        spec = load_spec("payments/defs.yaml")
        ledger = LedgerState(url="/srv/windrow/state.db")
        defs = standing_on(kafka_table(spec), {ledger_key(spec): ledger})
    """
    return f"{identifier(spec.id)}_ledger"


def sink_key(spec: PipelineSpec) -> str:
    """Returns the key of the pipeline's Table.

    Example:
        from windrow import load_spec
        from windrow.dagster import Table, kafka_table, sink_key, standing_on

        spec = load_spec("payments/defs.yaml")
        table = Table(settings={"kind": "delta", "path": "staging/payments"}, folder="/srv/lake")
        defs = standing_on(kafka_table(spec), {sink_key(spec): table})
    """
    return f"{identifier(spec.id)}_sink"
