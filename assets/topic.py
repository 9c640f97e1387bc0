"""The topic asset: an observation of what Kafka holds."""

# No postponed annotations here: Dagster reads those of the decorated function itself.

import dagster as dg

from assets.metadata import topic_metadata
from assets.names import kafka_key, topic_key
from ingest.spec import PipelineSpec


def topic_asset(spec: PipelineSpec) -> dg.SourceAsset:
    """The topic, observable.

    Its data version says which topic this is, not what it holds: with end offsets in it, every partition of the table would turn
    stale at each new message.
    """
    source, topic = kafka_key(spec), spec.source.topic

    @dg.observable_source_asset(
        key=topic_key(topic), required_resource_keys={source}, description=f"Kafka topic {topic}", tags={"dagster/kind/kafka": ""}
    )
    def observed(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        found = getattr(context.resources, source).snapshot(topic)
        return dg.ObserveResult(data_version=dg.DataVersion(f"{found.cluster_id}.{found.topic.topic_id}"), metadata=topic_metadata(found))

    return observed
