"""The data source `spark.read.format("windrow")`: exact ranges of topics as a DataFrame.

1. `load()` checks the options and pins the offsets to read, on the driver. PySpark asks the
   source for its columns, and pickles it. Each plan of the DataFrame has a copy of this pickle.
2. Each read runs one Spark task per split. A task gives Arrow batches to the JVM, and makes no
   Python object for a message.

Spark may read a DataFrame several times, for example for a retried task, or for a `count()`
before a `write()`. So windows and splits become offsets when the DataFrame is made, with the
ids of cluster and topics, and with leader epochs. Each later read gives the same messages. It
fails if they expired, if the log was truncated and has grown again, or if the topic was
created anew.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from windrow.ingest.assemble import assemble_to_look, reach
from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import windows_named
from windrow.ingest.dataframes.options import ReadOptions, read_options
from windrow.ingest.errors import (
    DataLossError,
    IdentityError,
    NotClosedError,
    RefusedError,
    SpecError,
    foreign_exceptions,
    format_count,
)
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.broker import Broker, TopicInfo
from windrow.ingest.ports.decoder import Decoded, Decoder, checked_verdict
from windrow.ingest.ports.reader import Reader, ReadPlan, Take, batch_iterator
from windrow.ingest.ports.transform import Transform
from windrow.ingest.runner.accounting import refuse_misread, refuse_unplaced
from windrow.ingest.runner.availability import readable_splits
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.outcome import as_error
from windrow.ingest.runner.run_windows import preview, refuse_open
from windrow.ingest.runner.spark.jobs import dump_task
from windrow.ingest.runner.task import rows_with_messages
from windrow.ingest.runner.writer_schemas import decoder_for
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.schema.metadata_arrays import columns as metadata_columns
from windrow.ingest.schema.metadata_arrays import of_message
from windrow.ingest.schema.metadata_types import TYPES, metadata_fields
from windrow.ingest.schema.row_changes import UNAVAILABLE, change_schema


@dataclass(frozen=True)
class Pinned:
    """The splits of a DataFrame, their reader, and the shape of the rows. Picklable."""

    splits: tuple[Split, ...]
    reader: Reader
    shape: Shape


def pin(options: ReadOptions) -> Pinned:
    """Asks the cluster and the pipeline's ledger for the splits to read. Writes nothing.

    Raises:
        SpecError: the spec, the window or a topic doesn't exist, or can't be used.
        NotClosedError: the window isn't closed, or the log doesn't have the offsets yet.
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
        splits, plan = _pin_splits(broker, options.splits)
        return Pinned(splits, reader(plan), AsMessages())
    pipeline = assemble_to_look(load_spec(Path(options.spec)))
    splits, plan = (
        _pin_splits(pipeline.broker, options.splits)
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
    """Returns the splits that a run of some windows reads or has read, and how to read them.

    Args:
        pipeline: the pipeline.
        named: the windows, as text.

    Raises:
        IdentityError: the windows were planned on different clusters or topics.
    """
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
        raise IdentityError(
            f"The windows {named} were planned on different clusters, or on topics of one name that"
            " were made anew between them",
            "plan",
            "Read the windows before that change and those after it one by one.",
        )
    splits = [split for plan in plans for split in readable_splits(pipeline, plan, "fail", None)]
    return tuple(splits), ReadPlan(clusters.pop(), ids, "fail")


def _pin_splits(broker: Broker, splits: Sequence[Split]) -> tuple[tuple[Split, ...], ReadPlan]:
    """Returns a user's splits with leader epochs, and how to read them.

    Raises:
        SpecError: a split names a partition that doesn't exist.
    """
    names = sorted({split.topic for split in splits})
    topics: dict[str, TopicInfo] = {name: broker.topic(name) for name in names}
    beyond = next(
        (split for split in splits if split.partition >= topics[split.topic].partitions), None
    )
    if beyond is not None:
        raise SpecError(
            f"Topic {beyond.topic} has"
            f" {format_count(topics[beyond.topic].partitions, 'partition')}, and"
            f" {beyond.tp} is none of them",
            "plan",
            "Name one that exists. Nothing was read.",
        )
    return _add_epochs(broker, splits), ReadPlan(
        broker.cluster_id(), {name: info.topic_id for name, info in topics.items()}, "fail"
    )


def _add_epochs(broker: Broker, splits: Sequence[Split]) -> tuple[Split, ...]:
    """Adds the leader epoch of the log's stable end to splits without epochs.

    The split ends before the stable end. So the log had the split's offsets under this epoch,
    and a later read can notice if the log was truncated.

    Raises:
        DataLossError: the log begins after a split's start.
        NotClosedError: a split ends after the stable end.
    """
    tps = sorted({split.tp for split in splits})
    starts, ends = broker.log_starts(tps), broker.stable_ends(tps)
    for split in splits:
        topic_partition = split.topic, split.partition
        if split.start < starts[split.tp]:
            raise DataLossError(
                f"Offsets {split.start} to {split.stop} are asked for, and the log begins at"
                f" offset {starts[split.tp]} now",
                "plan",
                "The offsets before that can't be read any more. Ask for later ones, if you can do"
                " without them.",
                *topic_partition,
                split.start,
            )
        if split.stop > ends[split.tp].offset:
            raise NotClosedError(
                f"Offsets {split.start} to {split.stop} are asked for, and the last stable offset"
                f" is {ends[split.tp].offset}",
                "plan",
                "Ask for fewer offsets, or try again later.",
                *topic_partition,
                split.stop,
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
        for split in splits
    )


def _rows(pipeline: Pipeline, splits: Sequence[Split], *, drops: bool) -> AsRows:
    """Returns the shape of the pipeline's rows.

    Args:
        pipeline: the pipeline.
        splits: the splits to read.
        drops: see `AsRows`.
    """
    if pipeline.spec.route_specs:
        raise SpecError(
            "The rows of this spec's tables have other columns, and a DataFrame has the same ones"
            " for all rows",
            "spec",
            "Set columns=messages, or name a spec of one of the tables. Nothing was read.",
        )
    spec, decoder = pipeline.spec, decoder_for(pipeline, sorted({split.topic for split in splits}))
    transform, key = pipeline.transform(), spec.sink.key
    metadata: Mapping[str, str] = spec.metadata
    # not `pipeline.columns()`: a spark step may change the columns, and it isn't run here
    columns = transform.columns(decoder.columns)
    return AsRows(
        decoder,
        transform,
        columns.arrow_schema,
        metadata,
        () if key is None else key.columns,
        drops,
        spec.has_unavailable,
    )


# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AsMessages:
    """The shape of messages with all their fields.

    A timestamp that no table can hold is null.
    """

    @property
    def schema(self) -> pa.Schema:
        kinds = {"timestamp": TYPES["timestamp"], "timestamp_type": TYPES["timestamp-type"]}
        return pa.schema(
            [pa.field(f.name, kinds.get(f.name, f.type), f.nullable) for f in MESSAGES]
        )

    def open(self, split: Split) -> Callable[[pa.RecordBatch], list[pa.Array]]:
        del split
        timestamp_index = MESSAGES.get_field_index("timestamp")
        return lambda messages: [
            metadata_columns(["timestamp"], messages, "")[0] if i == timestamp_index else column
            for i, column in enumerate(messages.columns)
        ]


@dataclass(frozen=True)
class AsRows:
    """The shape of a pipeline's rows, with the metadata columns of their messages.

    Attributes:
        decoder: the decoder.
        transform: the transform.
        rows: the columns of the rows.
        metadata: the metadata columns, metadata name -> column.
        primary_key: the table's primary key. If it isn't empty, rows are changes in the order
            of each split's log, and a column marks deletes (`ingest.schema.row_changes`).
        drops: True if messages that can't become rows are left out. Otherwise such a message
            fails the read.
        has_unavailable: whether a column names the values that a change left unchanged.
    """

    decoder: Decoder
    transform: Transform
    rows: pa.Schema
    metadata: Mapping[str, str]
    primary_key: tuple[str, ...] = ()
    drops: bool = False
    has_unavailable: bool = False

    @property
    def schema(self) -> pa.Schema:
        columns = change_schema(self.rows, self.primary_key) if self.primary_key else self.rows
        unavailable = [UNAVAILABLE] if self.has_unavailable else []
        return pa.schema([*columns, *unavailable, *metadata_fields(self._metadata_columns)])

    @property
    def _metadata_columns(self) -> dict[str, str]:
        """The metadata columns that come from messages alone."""
        return of_message(self.metadata)

    def open(self, split: Split) -> Callable[[pa.RecordBatch], list[pa.Array]]:
        """Returns the function from messages to arrays.

        Raises (when the function is called):
            RefusedError: a message can't become a row.
        """
        decode, transform, names = (
            self.decoder.open(),
            self.transform.open(),
            list(self._metadata_columns),
        )

        def shape(messages: pa.RecordBatch) -> list[pa.Array]:
            decoded = transform(checked_verdict(self.decoder, decode(messages)), messages)
            refuse_unplaced(split, messages, decoded, keyed=bool(self.primary_key))
            if len(decoded.dead_index) and not self.drops:
                raise _undecodable(split, messages, decoded)
            if self.has_unavailable and decoded.unavailable is None:
                unavailable = pa.nulls(decoded.rows.num_rows, UNAVAILABLE.type)
                decoded = replace(decoded, unavailable=unavailable)
            rows, of_rows = rows_with_messages(messages, decoded, keyed=bool(self.primary_key))
            return [*rows.columns, *metadata_columns(names, of_rows, "")]

        return shape


Shape = AsMessages | AsRows
"""The shape of a DataFrame's rows: messages, or rows of a pipeline. Picklable.

`schema` has the columns. `open(split)` returns a function from a batch of the split's messages
to one array per column. An array has the column's type, or a type that can be cast to it.
"""


def _undecodable(split: Split, messages: pa.RecordBatch, decoded: Decoded) -> RefusedError:
    """Makes the error of a batch's first message that can't become a row."""
    offset = messages.column("offset")[decoded.dead_index[0].as_py()].as_py()
    reason, detail = decoded.dead_reason[0].as_py(), decoded.dead_detail[0].as_py()
    others = (
        f", and {len(decoded.dead_index) - 1} more after it" if len(decoded.dead_index) > 1 else ""
    )
    return RefusedError(
        f"A message can't become a row: {reason}: {detail}{others}",
        "decode",
        "Fix the schema, read columns=messages, or set mode=dropmalformed, which leaves such"
        " messages out.",
        split.topic,
        split.partition,
        offset,
    )


# --------------------------------------------------------------------------------------------------


def pinned(options: Mapping[str, str]) -> tuple[StructType, bytes]:
    """Pins the offsets of a DataFrame; returns its columns, and the pickled `Pinned`.

    Raises:
        WindrowError: see `pin` and `read_options`.
    """
    frame = pin(read_options(options))
    columns: StructType = from_arrow_schema(frame.shape.schema)
    return columns, dump_task(frame)


def reader(pickled: bytes | None, schema: StructType) -> bytes:
    """Makes the reader of a DataFrame, pickled.

    Args:
        pickled: the result of `pinned`; None if Spark didn't ask for the columns.
        schema: the columns.

    Raises:
        SpecError: the user set the columns by `.schema()`.
    """
    if pickled is None:
        raise SpecError(
            "The columns of a windrow read can't be set by schema()",
            "spec",
            "Leave it out, and select or cast the columns that load() returns.",
        )
    frame = pickle.loads(pickled)  # safe: `pinned` pickled it  # noqa: S301
    return dump_task(SplitReader(frame, to_arrow_schema(schema, timezone="UTC")))


@dataclass(frozen=True)
class SplitReader:
    """The reader of a DataFrame; each task reads one split.

    Attributes:
        pinned: the splits, and how to read them.
        target: the columns, with the types that Spark's JVM expects.
    """

    pinned: Pinned
    target: pa.Schema

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yields the batches of a split, by its number.

        Raises:
            RefusedError: a message can't become a row.
            WindrowError: the reader failed.
            BugError: another exception was raised.
        """
        split = self.pinned.splits[number]
        try:
            yield from batch_iterator(partial(self._read, split))
        except foreign_exceptions() as failed:  # `as_error` drops the text of a foreign error
            raise as_error(failed, split) from None

    def _read(self, split: Split, give: Take) -> None:
        shape, position = self.pinned.shape.open(split), split.start

        def take(messages: pa.RecordBatch) -> None:
            nonlocal position
            position = refuse_misread(split, messages, position)
            columns = [
                column.cast(field.type)
                for column, field in zip(shape(messages), self.target, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.target)
            if batch.num_rows:
                give(batch)

        self.pinned.reader.read(split, take)
