"""The assets of topics, which are observable.

There is one per topic that a pipeline names, or one for its pattern. If two pipelines read
one topic, both define its asset, under one key. Dagster keeps the last definition, and both
tables depend on it.
"""

# No postponed annotations here: Dagster reads the annotations of the decorated function.

from collections.abc import Mapping

import dagster as dg
import msgspec

from windrow.assets.dependencies import SYSTEM, Clock, ledger_of, source_of
from windrow.assets.description import describe_selection
from windrow.assets.failures import raise_as_failure
from windrow.assets.metadata import Value
from windrow.assets.names import kafka_key, ledger_key, topic_key, upstream_keys
from windrow.ingest.admin.lag import measure_lag, tell_lag
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import WindrowError
from windrow.ingest.model.source import Pattern, Topics, selection_text, selects
from windrow.ingest.observers.prometheus import observer_of
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.runner.frozen_stop import bounded_source
from windrow.ingest.runner.next_start import next_start_after
from windrow.ingest.runner.ownership import refuse_other_end
from windrow.ingest.source.enumerator.topics import OffsetSnapshot


def topic_assets(spec: PipelineSpec, clock: Clock = SYSTEM) -> list[dg.SourceAsset]:
    """Returns the assets of the topics that a pipeline reads.

    A topic is observed as a whole, even if the pipeline reads only some partitions.

    Args:
        spec: the pipeline.
        clock: the clock that ages of messages are measured with.
    """
    selection = spec.source.selection()
    if isinstance(selection, Pattern):
        [key] = upstream_keys(spec)
        return [_observable(spec, key, None, clock)]
    return [
        _observable(spec, topic_key(topic), topic, clock) for topic in spec.source.topic_names()
    ]


def _observable(
    spec: PipelineSpec, key: dg.AssetKey, topic: str | None, clock: Clock
) -> dg.SourceAsset:
    """Returns the asset of a topic, or without a topic, of all topics that match the pattern."""
    selection = spec.source.selection() if topic is None else Topics((topic,))
    title = "Kafka" if topic is None else "Kafka topic"

    @dg.observable_source_asset(
        key=key,
        required_resource_keys={kafka_key(spec), ledger_key(spec)},
        description=f"{title} {describe_selection(selection)}",
        group_name=spec.dagster.group_name,
        tags={"dagster/kind/kafka": ""},
    )
    def observed(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        with raise_as_failure(f"{title} {selection_text(selection)}"):
            source = source_of(spec, context.resources)
            snapshot = source.snapshot_offsets(topic)
        lag_entries = dict[str, Value]()
        try:
            broker, _ = source.connect(spec.source.isolation)
            lag_entries = _lag_of(spec, ledger_of(spec, context.resources), broker, snapshot, clock)
        except WindrowError as error:
            context.log.warning("The lag is not shown: %s", error)
        context.log.info("Observed %s", selection_text(selection))
        ids = {name: info.topic_id for name, info in snapshot.topics.items()}
        return dg.ObserveResult(
            data_version=dg.DataVersion(versions(spec, snapshot.cluster_id, ids)[key]),
            metadata=lag_entries | _metadata(snapshot),
        )

    return observed


def versions(
    spec: PipelineSpec, cluster_id: str, topic_ids: Mapping[str, str]
) -> dict[dg.AssetKey, str]:
    """Returns the data version of each topic asset.

    The version identifies the topic. If it had end offsets in it, each new message would
    make every partition of the table stale. The version of a pattern is the cluster id,
    because a new topic changes nothing about earlier windows.

    Args:
        spec: the pipeline.
        cluster_id: the id of the cluster.
        topic_ids: topic -> id.
    """
    if isinstance(spec.source.selection(), Pattern):
        return dict.fromkeys(upstream_keys(spec), cluster_id)
    return {topic_key(name): f"{cluster_id}.{topic_id}" for name, topic_id in topic_ids.items()}


def _lag_of(
    spec: PipelineSpec, ledger: Ledger, broker: Broker, snapshot: OffsetSnapshot, clock: Clock
) -> dict[str, Value]:
    """Returns the lag of the table, over the partitions of the topic that the pipeline reads."""
    selection = spec.source.selection()
    logs = {tp: log for tp, log in snapshot.logs.items() if selects(selection, tp)}
    newest = ledger.recorded_receipts(spec.id, 1)
    for receipt in newest:
        refuse_other_end(ledger, receipt)
    start = next_start_after(ledger, newest[-1]) if newest else None
    read = msgspec.structs.replace(snapshot, logs=logs)
    unread = measure_lag(broker, bounded_source(spec, ledger), start, clock.now(), read)
    tell_lag(observer_of(spec.id), unread)
    return {
        "lag_of": spec.id,
        "lag_records": unread.records,
        "lag_seconds": round(unread.seconds, 1),
    }


def _metadata(snapshot: OffsetSnapshot) -> dict[str, Value]:
    """Returns the entries of an observation: begin and end of the logs, and the topics."""
    logs = [(tp, log) for tp, log in snapshot.logs.items() if log.earliest <= log.stable]
    offsets = [
        dg.TableRecord(
            {"topic": tp.topic, "partition": tp.partition, **msgspec.to_builtins(log)}
            | {"messages": log.stable - log.earliest}
        )
        for tp, log in logs
    ]
    topics = [
        dg.TableRecord({"topic": name, "topic_id": info.topic_id, "partitions": info.partitions})
        for name, info in snapshot.topics.items()
    ]
    return {
        "cluster_id": snapshot.cluster_id,
        "partitions": len(logs),
        "messages": sum(log.stable - log.earliest for _, log in logs),
        "head": sum(log.latest for _, log in logs),
        "offsets": dg.MetadataValue.table(offsets, schema=_OFFSETS),
        "topics": dg.MetadataValue.table(topics, schema=_TOPICS),
    }


_OFFSETS = dg.TableSchema(
    [
        dg.TableColumn("topic", "string"),
        dg.TableColumn("partition", "int"),
        dg.TableColumn("earliest", "int", description="the first offset that the log still holds"),
        dg.TableColumn("stable", "int", description="its end for readers of this pipeline"),
        dg.TableColumn("latest", "int", description="its end, open transactions included"),
        dg.TableColumn("messages", "int", description="offsets that can be read: an upper bound"),
    ]
)

_TOPICS = dg.TableSchema(
    [
        *(dg.TableColumn(name, "string") for name in ("topic", "topic_id")),
        dg.TableColumn("partitions", "int"),
    ]
)
