"""Pins what a DataFrame reads: exact offsets of topics that are identified by their ids.

Spark may read a DataFrame again and again: a retried task, a `count()` before a
`write()`. So windows and splits become offsets when the DataFrame is made, with the ids
of the cluster and the topics, and with leader epochs as witnesses. Each later read
gives the same messages, or fails if they expired, if the log was truncated and has
grown again, or if the topic was created anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from windrow.ingest.assemble import assemble_to_look, reach
from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import windows_named
from windrow.ingest.dataframes.options import ReadOptions
from windrow.ingest.dataframes.shape import AsMessages, AsRows, Shape
from windrow.ingest.errors import DataLossError, IdentityError, NotClosedError, SpecError
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.broker import Broker, TopicInfo
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.runner.availability import readable_splits
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.run_windows import preview, refuse_open
from windrow.ingest.runner.writer_schemas import decoder_for


@dataclass(frozen=True)
class Pinned:
    """The splits to read, their reader, and the columns of their messages. Picklable."""

    splits: tuple[Split, ...]
    reader: Reader
    shape: Shape


def pin(options: ReadOptions) -> Pinned:
    """Asks the cluster and the pipeline's ledger what to read. Writes nothing.

    Raises:
        SpecError: the spec, the window or a topic doesn't exist, or can't be used.
        NotClosedError: the window isn't closed, or the log doesn't reach so far yet.
        DataLossError: messages are gone.
        IdentityError: the window was planned on another cluster or topic.
        UnreachableError: the cluster doesn't answer.
    """
    if options.spec is None:
        assert options.bootstrap_servers is not None, (
            "ReadOptions refuses a read that names no cluster"
        )
        assert options.splits is not None, "ReadOptions refuses a window without its spec"
        cluster = ClusterSpec(bootstrap_servers=options.bootstrap_servers, client=options.client)
        broker, reader = reach(cluster, options.isolation)
        splits, plan = _given(broker, options.splits)
        return Pinned(splits, reader(plan), AsMessages())
    pipeline = assemble_to_look(load_spec(Path(options.spec)))
    splits, plan = (
        _given(pipeline.broker, options.splits)
        if options.splits
        else _planned(pipeline, str(options.window))
    )
    shape = (
        AsMessages()
        if options.columns == "messages"
        else _rows(pipeline, splits, drops=options.mode == "dropmalformed")
    )
    return Pinned(splits, pipeline.reader(plan), shape)


def _planned(pipeline: Pipeline, named: str) -> tuple[tuple[Split, ...], ReadPlan]:
    """Returns the splits that a run of these windows reads, or has read."""
    windows = windows_named(pipeline.spec, named)
    for window in windows:
        refuse_open(pipeline, window)
    plans = [preview(pipeline, window) for window in windows]
    sources = {
        (plan.stop.cluster_id, topic.topic, topic.topic_id)
        for plan in plans
        for topic in plan.stop.topics
    }
    ids = {name: topic_id for _, name, topic_id in sources}
    clusters = {cluster for cluster, _, _ in sources} or {pipeline.broker.cluster_id()}
    if len(ids) < len(sources) or len(clusters) > 1:
        what = (
            f"The windows {named} were planned on different clusters, or on topics of one name that"
            " were made anew between them"
        )
        raise IdentityError(
            what, "plan", "Read the windows before that change and those after it one by one."
        )
    splits = [split for plan in plans for split in readable_splits(pipeline, plan, "fail", None)]
    return tuple(splits), ReadPlan(clusters.pop(), ids, "fail")


def _given(broker: Broker, asked: Sequence[Split]) -> tuple[tuple[Split, ...], ReadPlan]:
    """Returns the splits that a user gave, with the leader epochs that they lack."""
    names = sorted({split.topic for split in asked})
    topics: dict[str, TopicInfo] = {name: broker.topic(name) for name in names}
    beyond = next(
        (split for split in asked if split.partition >= topics[split.topic].partitions), None
    )
    if beyond is not None:
        what = (
            f"Topic {beyond.topic} has {topics[beyond.topic].partitions} partitions, and"
            f" {beyond.tp} is none of them"
        )
        raise SpecError(what, "plan", "Name one that exists. Nothing was read.")
    return _witnessed(broker, asked), ReadPlan(
        broker.cluster_id(), {name: info.topic_id for name, info in topics.items()}, "fail"
    )


def _witnessed(broker: Broker, asked: Sequence[Split]) -> tuple[Split, ...]:
    """Adds the leader epoch of the log's stable end to each split.

    Under that epoch the log reached beyond the split.
    """
    tps = sorted({split.tp for split in asked})
    starts, ends = broker.log_starts(tps), broker.stable_ends(tps)
    for split in asked:
        at = split.topic, split.partition
        if split.start < starts[split.tp]:
            what = (
                f"Offsets {split.start} to {split.stop} are asked for, and the log begins at"
                f" offset {starts[split.tp]} now"
            )
            raise DataLossError(
                what,
                "plan",
                "The offsets before that can't be read any more. Ask for later ones, if you can do"
                " without them.",
                *at,
                split.start,
            )
        if split.stop > ends[split.tp].offset:
            what = (
                f"Offsets {split.start} to {split.stop} are asked for, and the last stable offset"
                f" is {ends[split.tp].offset}"
            )
            raise NotClosedError(
                what, "plan", "Ask for fewer offsets, or try again later.", *at, split.stop
            )
    return tuple(
        msgspec.structs.replace(
            split,
            leader_epoch=(
                ends[split.tp].leader_epoch if split.leader_epoch is None else split.leader_epoch
            ),
            stop_epoch=(
                ends[split.tp].leader_epoch if split.stop_epoch is None else split.stop_epoch
            ),
        )
        for split in asked
    )


def _rows(pipeline: Pipeline, splits: Sequence[Split], *, drops: bool) -> AsRows:
    """Returns the rows that the pipeline would make."""
    spec, decoder = pipeline.spec, decoder_for(pipeline, sorted({split.topic for split in splits}))
    transform, key = pipeline.transform(), spec.sink.key
    metadata: Mapping[str, str] = spec.metadata
    # not the table's columns, which a Spark transform may have changed: it isn't run here
    columns = transform.columns(decoder.columns)
    return AsRows(
        decoder,
        transform,
        columns.arrow_schema,
        metadata,
        () if key is None else key.columns,
        drops,
    )
