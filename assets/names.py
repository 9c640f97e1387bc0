"""How a pipeline's things are called in Dagster."""

from __future__ import annotations

import re

import dagster as dg

from ingest.spec.pipeline import PipelineSpec


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
    """The asset keys of what a pipeline reads: one per topic that it names, or one for its pattern, whatever that matches.

    The UI's graph writes only the last part of a key on a node, so the pattern's must not be the table's.
    """
    named = spec.source.topic_names()
    return [topic_key(topic) for topic in named] if named else [dg.AssetKey(["kafka", "pattern", f"topics-of-{spec.id}"])]


def job_name(spec: PipelineSpec) -> str:
    """The name of the job that the schedule starts."""
    return f"{identifier(spec.id)}_{'batches' if spec.window.is_batch else 'windows'}"


def topics_name(spec: PipelineSpec) -> str:
    """The name of the job that observes what the pipeline reads, and of its schedule."""
    return f"{identifier(spec.id)}_topics"


def kafka_key(spec: PipelineSpec) -> str:
    """The pipeline's KafkaSource among the resources."""
    return f"{identifier(spec.id)}_kafka"


def ledger_key(spec: PipelineSpec) -> str:
    """The pipeline's LedgerState among the resources."""
    return f"{identifier(spec.id)}_ledger"
