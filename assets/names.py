"""How a pipeline's things are called in Dagster."""

from __future__ import annotations

import re

import dagster as dg

from windrow.ingest.config.cluster import TuningSpec
from windrow.ingest.config.pipeline import PipelineSpec


def identifier(text: str) -> str:
    """A name that Dagster takes for ops, jobs and resources: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def table_key(spec: PipelineSpec) -> dg.AssetKey:
    """The table's asset key: the pipeline's id."""
    return dg.AssetKey([spec.id])


def topic_key(topic: str) -> dg.AssetKey:
    """The asset key of a topic that is named."""
    return dg.AssetKey(["kafka", topic])


def upstream_keys(spec: PipelineSpec) -> list[dg.AssetKey]:
    """The asset keys of what a pipeline reads: one per topic that it names, or one for
    its pattern, whatever that matches.

    The UI's graph writes only the last part of a key on a node, so the pattern's must
    not be the table's.
    """
    named = spec.source.topic_names()
    return (
        [topic_key(topic) for topic in named]
        if named
        else [dg.AssetKey(["kafka", "pattern", f"topics-of-{spec.id}"])]
    )


def job_name(spec: PipelineSpec) -> str:
    """The name of the job that the schedule starts."""
    return f"{identifier(spec.id)}_{'batches' if spec.window.is_batch else 'windows'}"


def dead_replay_job_name(spec: PipelineSpec) -> str:
    """The name of the job that replays dead letters."""
    return f"{identifier(spec.id)}_replay_dead_letters"


def topics_name(spec: PipelineSpec) -> str:
    """The name of the job that observes what the pipeline reads, and of its schedule."""
    return f"{identifier(spec.id)}_topics"


SPARK_KEY = "spark"
"""The engine among the resources, one for all pipelines."""


def kafka_key(spec: PipelineSpec) -> str:
    """The pipeline's KafkaSource among the resources: its cluster's, or its own where
    it says more than which cluster.

    No two kinds of resources have names that end alike, so none can be taken for another.
    """
    return (
        f"{identifier(spec.id)}_kafka"
        if spec.source.cluster is None or reached_its_own_way(spec)
        else cluster_key(spec.source.cluster)
    )


def cluster_key(name: str) -> str:
    """The KafkaSource of a cluster of windrow.yaml among the resources."""
    return f"{identifier(name)}_cluster"


def reached_its_own_way(spec: PipelineSpec) -> bool:
    """Whether a pipeline's source says how its cluster is reached or read."""
    return bool(spec.source.client) or spec.source.tuning != TuningSpec()


def ledger_key(spec: PipelineSpec) -> str:
    """The pipeline's LedgerState among the resources."""
    return f"{identifier(spec.id)}_ledger"


def sink_key(spec: PipelineSpec) -> str:
    """The pipeline's Table among the resources."""
    return f"{identifier(spec.id)}_sink"
