"""Topics of the cluster that match the pattern of a file's pipelines, and have none."""

from __future__ import annotations

from windrow.ingest.errors import format_count, join_first_few
from windrow.ingest.runner.context import Pipeline

ADVICE = (
    "Add their names to for_each.topics, with schemas (as `windrow help infer` says), or have the"
    " pattern leave them out"
)


def find_new_topics(pipeline: Pipeline) -> list[str]:
    """Asks the cluster for topics that match `for_each.topic_pattern` and have no pipeline.

    None are found for a pipeline that doesn't look for them (`PipelineSpec.watched_pattern`).

    Raises:
        UnreachableError: the cluster doesn't answer.
    """
    pattern, for_each = pipeline.spec.watched_pattern, pipeline.spec.for_each
    if pattern is None or for_each is None:
        return []
    names = sorted(filter(pattern.matches, pipeline.broker.names()))
    return [name for name in names if name not in for_each.topics]


def describe_new_topics(names: list[str]) -> str:
    """Returns the sentence about new topics, without its period."""
    if not names:
        return "each topic that matches for_each.topic_pattern has its pipeline"
    count = format_count(len(names), "topic")
    return (
        f"without a pipeline, though for_each.topic_pattern matches: {count},"
        f" {join_first_few(names, 10)}"
    )
