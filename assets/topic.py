"""The topic assets, which are observable.

There is one per topic that a pipeline names, or one for its pattern. Two pipelines on one
topic define its asset twice, under one key. Dagster keeps the last definition, and both
tables depend on it.
"""

# No postponed annotations here: Dagster reads those of the decorated function itself.

from collections.abc import Mapping

import dagster as dg

from windrow.assets.dependencies import connection_of
from windrow.assets.description import selected
from windrow.assets.failures import failing
from windrow.assets.metadata import Value
from windrow.assets.names import kafka_key, topic_key, upstream_keys
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.source import Pattern, Selection, Topics, selection_text
from windrow.ingest.ports.broker import OffsetAndEpoch
from windrow.ingest.source.enumerator.topics import Discovered, discover


def topic_assets(spec: PipelineSpec) -> list[dg.SourceAsset]:
    """The assets of the topics that a pipeline reads.

    A topic is observed as a whole, even if the pipeline reads only some partitions.
    """
    selection = spec.source.selection()
    if isinstance(selection, Pattern):
        [key] = upstream_keys(spec)
        return [_observable(spec, key, selection)]
    return [_observable(spec, topic_key(t), Topics((t,))) for t in spec.source.topic_names()]


def _observable(spec: PipelineSpec, key: dg.AssetKey, selection: Selection) -> dg.SourceAsset:
    what = "Kafka" if isinstance(selection, Pattern) else "Kafka topic"

    @dg.observable_source_asset(
        key=key,
        required_resource_keys={kafka_key(spec)},
        description=f"{what} {selected(selection)}",
        tags={"dagster/kind/kafka": ""},
    )
    def observed(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        with failing(f"{what} {selection_text(selection)}"):
            broker, _ = connection_of(spec, context.resources)
            topics = discover(broker, selection, None, "fail")
            starts, ends = broker.log_starts(topics.tps), broker.stable_ends(topics.tps)
        context.log.info("Observed %s", selection_text(selection))
        ids = {name: info.topic_id for name, info in topics.topics.items()}
        return dg.ObserveResult(
            data_version=dg.DataVersion(versions(spec, topics.cluster_id, ids)[key]),
            metadata=_metadata(topics, starts, ends),
        )

    return observed


def versions(
    spec: PipelineSpec, cluster_id: str, topic_ids: Mapping[str, str]
) -> dict[dg.AssetKey, str]:
    """The data version of each topic asset. `topic_ids`: topic -> id.

    It identifies the topic: with end offsets in it, every partition of the table would
    turn stale at each new message. The version of a pattern is the cluster id: a new
    topic changes nothing about earlier windows.
    """
    if isinstance(spec.source.selection(), Pattern):
        return dict.fromkeys(upstream_keys(spec), cluster_id)
    return {topic_key(name): f"{cluster_id}.{topic_id}" for name, topic_id in topic_ids.items()}


def _metadata(
    topics: Discovered,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, OffsetAndEpoch],
) -> dict[str, Value]:
    """The entries of an observation: the offsets that can be read, and the topics."""
    ranges = [
        (tp, starts[tp], ends[tp].offset) for tp in topics.tps if starts[tp] <= ends[tp].offset
    ]
    offsets = [
        dg.TableRecord(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "start": start,
                "end": end,
                "messages": end - start,
            }
        )
        for tp, start, end in ranges
    ]
    known = [
        dg.TableRecord({"topic": name, "topic_id": info.topic_id, "partitions": info.partitions})
        for name, info in topics.topics.items()
    ]
    return {
        "cluster_id": topics.cluster_id,
        "partitions": len(ranges),
        "messages": sum(end - start for _, start, end in ranges),
        "end_offsets": dg.MetadataValue.table(offsets, schema=_OFFSETS),
        "topics": dg.MetadataValue.table(known, schema=_TOPICS),
    }


_OFFSETS = dg.TableSchema(
    [
        dg.TableColumn("topic", "string"),
        *(dg.TableColumn(name, "int") for name in ("partition", "start", "end")),
        dg.TableColumn("messages", "int", description="offsets that can be read: an upper bound"),
    ]
)

_TOPICS = dg.TableSchema(
    [
        *(dg.TableColumn(name, "string") for name in ("topic", "topic_id")),
        dg.TableColumn("partitions", "int"),
    ]
)
