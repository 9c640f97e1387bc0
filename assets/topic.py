"""The topic assets: observations of what Kafka holds.

One per topic that a pipeline names, or one for its pattern.

Two pipelines on one topic define its asset twice, under one key. Dagster takes
observable sources by their keys and keeps the last one, so that both tables hang on one
asset; which pipeline's client observes it is the same to everybody as long as they mean
one cluster.
"""

# No postponed annotations here: Dagster reads those of the decorated function itself.

import dagster as dg

from windrow.assets.dependencies import source_of
from windrow.assets.describing import selected
from windrow.assets.failing import failing
from windrow.assets.metadata import Value
from windrow.assets.names import kafka_key, topic_key, upstream_keys
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.model.boundary import Boundary, Mark
from windrow.ingest.model.source import Pattern, Selection, Topics, selection_text
from windrow.resources.source import TopicsSnapshot


def topic_assets(spec: PipelineSpec) -> list[dg.SourceAsset]:
    """What the pipeline reads, observable.

    A topic is observed whole, also where the pipeline reads some of its partitions
    only: the asset is the topic's, not the pipeline's.
    """
    selection = spec.source.selection()
    if isinstance(selection, Pattern):
        [key] = upstream_keys(spec)
        return [_observable(spec, key, selection)]
    return [_observable(spec, topic_key(t), Topics((t,))) for t in spec.source.topic_names()]


def _observable(spec: PipelineSpec, key: dg.AssetKey, selection: Selection) -> dg.SourceAsset:
    what, description = (
        ("Kafka" if isinstance(selection, Pattern) else "Kafka topic"),
        selected(selection),
    )

    @dg.observable_source_asset(
        key=key,
        required_resource_keys={kafka_key(spec)},
        description=f"{what} {description}",
        tags={"dagster/kind/kafka": ""},
    )
    def observed(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        with failing(f"{what} {selection_text(selection)}"):
            snapshot = source_of(spec, context.resources).snapshot(selection, spec.source.isolation)
        context.log.info("Observed %s", selection_text(selection))
        return dg.ObserveResult(
            data_version=dg.DataVersion(versions(spec, snapshot.stop)[key]),
            metadata=topic_metadata(snapshot),
        )

    return observed


def versions(spec: PipelineSpec, seen: Boundary) -> dict[dg.AssetKey, str]:
    """The data version of each topic asset, as a boundary saw the topics.

    It says which topic this is, not what it holds: with end offsets in it, every
    partition of the table would turn stale at each new message. Of a pattern it is only
    the cluster: a topic that is new to it changes nothing about the windows before.
    """
    if isinstance(spec.source.selection(), Pattern):
        return dict.fromkeys(upstream_keys(spec), seen.cluster_id)
    return {topic_key(topic.topic): f"{seen.cluster_id}.{topic.topic_id}" for topic in seen.topics}


def topic_metadata(snapshot: TopicsSnapshot) -> dict[str, Value]:
    """What an observation shows: what is there to read, per topic-partition, and which
    topics they are.
    """
    ranges = snapshot.ranges()
    return {
        "cluster_id": snapshot.cluster_id,
        "partitions": len(ranges),
        "messages": sum(stop.offset - start.offset for start, stop in ranges.values()),
        "end_offsets": dg.MetadataValue.table(
            [_line(start, stop) for start, stop in ranges.values()], schema=_OFFSETS
        ),
        "end_offsets_digest": snapshot.digest,
        "topics": dg.MetadataValue.table(
            [_topic_line(snapshot, name) for name in sorted(snapshot.topics)], schema=_TOPICS
        ),
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


def _line(start: Mark, stop: Mark) -> dg.TableRecord:
    messages = stop.offset - start.offset
    return dg.TableRecord(
        {
            "topic": stop.topic,
            "partition": stop.partition,
            "start": start.offset,
            "end": stop.offset,
            "messages": messages,
        }
    )


def _topic_line(snapshot: TopicsSnapshot, name: str) -> dg.TableRecord:
    info = snapshot.topics[name]
    return dg.TableRecord({"topic": name, "topic_id": info.topic_id, "partitions": info.partitions})
