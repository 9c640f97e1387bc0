"""The data source `df.write.format("windrow-kafka")`: rows of a DataFrame become messages.

Each batch is written exactly once, by the protocol of the Kafka sink:

1. `save()` checks the file, makes the control topic if it doesn't exist, and looks the batch
   up. If the batch is committed, nothing is written.
2. Each task stages its rows as messages that no reader sees. Spark may retry a task, or run
   it twice at once.
3. The commit fences other writers, looks the batch up again, and publishes the staged messages
   and the receipt in one transaction. It takes the messages of one try at each task.

A batch is identified by its number, not by its rows. Its plan is always the same single split,
however Spark divides the rows. The first attempt that commits decides the batch's rows. A
repeated write, after a driver died or a job was run again, finds the batch committed. A
concurrent write is fenced, or finds the batch committed after its own fence.

PySpark pickles the writer for the tasks and for the commit, which run in other processes. The
writer has no secrets, because the commit reads the file again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pydantic import Field
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from windrow.ingest.config.cluster import TuningSpec
from windrow.ingest.config.load import find_cluster
from windrow.ingest.config.pipeline import PipelineId
from windrow.ingest.config.settings_file import client_mistakes, refusal, text_of, validate
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.dataframes.options import write_options
from windrow.ingest.errors import OutcomeUnknownError, SpecError, WindrowError
from windrow.ingest.model.boundary import Boundary, TopicSeen, label_text
from windrow.ingest.model.grid import BATCH
from windrow.ingest.model.metadata_columns import ALWAYS
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.receipt import Checksums, Counts, Receipt, SplitCounts, Staged, Staging
from windrow.ingest.ports.sink import Maintenance, Sink, StagerFactory, Unknown
from windrow.ingest.runner.context import written_by
from windrow.ingest.runner.outcome import outcome_of, result_of
from windrow.ingest.runner.spark.jobs import dump_task
from windrow.ingest.schema.checksum import checksum_text
from windrow.ingest.schema.metadata_arrays import messages_of
from windrow.ingest.settings.document import Document, Mistake, SettingPath, read_document
from windrow.ingest.settings.values import Section, section_of
from windrow.ingest.sinks.kind import OnClusterSection
from windrow.ingest.sinks.kinds import KafkaOfItsKind

_FIXED: Mapping[str, Any] = {"kind": "kafka", "atomic_window": True, "timestamp": "published"}
"""Settings of a write that the file may leave out."""

METADATA = dict(
    zip(ALWAYS, ("windrow_id", "windrow_partition", "windrow_row", "windrow_batch"), strict=True)
)
"""Metadata columns that each row gets, metadata name -> column.

They are the writer's id, the DataFrame's partition, the row's number in the partition, and the
batch. The sink writes them to the message as its origin (`ingest.sinks.kafka.encoder`).
"""


class WriteSpec(Section):
    """The spec of a write: the writer's id and the topics."""

    id: PipelineId
    sink: KafkaOfItsKind = Field(description="The topics, as in a pipeline's spec.")

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields settings of the sink that a write doesn't support."""
        sink = section_of(written, "sink")
        if not sink:
            return
        if sink.get("atomic_window") is not True:
            yield (
                ("sink", "atomic_window"),
                (
                    "is always true here: a batch is one transaction, for Spark may cut its rows"
                    " another way next time"
                ),
            )
        if sink.get("delivery_guarantee", "exactly-once") != "exactly-once":
            yield (
                (
                    "sink",
                    "delivery_guarantee",
                ),
                "is always exactly-once here; for less, Spark has a Kafka sink of its own",
            )
        if sink.get("mode", "append") != "append":
            yield (
                (
                    "sink",
                    "mode",
                ),
                "must be append: the rows of a DataFrame have no order",
            )
        if sink.get("timestamp") == "message":
            yield (
                (
                    "sink",
                    "timestamp",
                ),
                "must be published or a column: no row of a DataFrame comes from one message",
            )
        if sink.get("partitioner") in {"fixed", "source"}:
            yield (
                ("sink", "partitioner"),
                (
                    "goes by the splits of a topic, and there are none: let the key choose, or a"
                    " function"
                ),
            )
        if sink.get("cluster") is None and sink.get("bootstrap_servers") is None:
            yield ("sink", "bootstrap_servers"), "is missing, and so is cluster"

    def table(self, folder: Path, rows: pa.Schema) -> Sink:
        """Makes the sink.

        Args:
            folder: the folder to which relative paths in the spec are relative.
            rows: the DataFrame's columns.

        Raises:
            SpecError: a column has a name of `METADATA`, or the client properties can't be
                used.
        """
        return self.sink.make(rows, METADATA, folder)


def read_write_spec(path: Path) -> WriteSpec:
    """Loads the file of a write.

    Raises:
        SpecError: the file can't be read, or has mistakes. The text has all mistakes, each
            with its line and dotted name.
    """
    advice = "Give its path as the option spec."
    document = read_document(text_of(path, f"The file {path} of the write", advice), envelope=False)
    spec, spec_mistakes = _check_document(document, path.absolute().parent)
    mistakes = [*document.mistakes, *(m for m in spec_mistakes if not document.failed(m.path))]
    if mistakes or spec is None:
        raise refusal(str(path), mistakes, document)
    return spec


def _check_document(document: Document, folder: Path) -> tuple[WriteSpec | None, list[Mistake]]:
    written = document.attributes
    if not isinstance(written, Mapping):
        return None, [Mistake((), "a write's file is a mapping with id and sink")]
    sink = section_of(written, "sink")
    values = {**written, "sink": {**_FIXED, **sink}} if sink else written
    spec, mistakes = validate(WriteSpec, values)
    named = find_cluster(sink, "sink", folder)
    if isinstance(named, Mistake):
        return None, [named, *mistakes]
    if spec is not None and named is not None and isinstance(spec.sink, OnClusterSection):
        cluster = named.under(spec.sink.client, TuningSpec())
        section = spec.sink.with_cluster(cluster.bootstrap_servers, cluster.client, named.registry)
        spec = spec.model_copy(update={"sink": section})
    return spec, [*client_mistakes({"client": sink.get("client")}, ("sink",), named), *mistakes]


# --------------------------------------------------------------------------------------------------


_LEDGER = "dataframe"
"""Text in place of the ledger's id in owner and receipts, because a write has no ledger."""

_KEPT = timedelta(days=7)
"""Age at which a later write removes the staged files of a write that died."""


def writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> bytes:
    """Makes the writer of a DataFrame, pickled.

    Args:
        options: Spark's options of the write.
        schema: the DataFrame's columns.
        overwrite: True for Spark's mode `overwrite`, which is refused.

    Raises:
        SpecError: the options, the file or the columns can't be used, or the mode is
            overwrite.
        RefusedError: the control topic belongs to another writer, or is damaged.
        UnreachableError: the cluster doesn't answer.
    """
    if overwrite:
        raise SpecError(
            "Messages can't be taken back, so nothing can be overwritten",
            "spec",
            'Write with mode("append").',
        )
    settings, rows = write_options(options), to_arrow_schema(schema, timezone="UTC")
    path, attempt = Path(settings.spec).absolute(), uuid.uuid4().hex
    spec = read_write_spec(path)
    sink = spec.table(path.parent, rows)
    sink.refuse_unwritable()
    sink.prepare(TableOwner(spec.id, _LEDGER, BATCH))
    plan = plan_of(spec.id, settings.batch, sink.identity)
    stager = None if sink.look(plan.window) is not None else sink.stager(plan, 0, attempt)
    return dump_task(BatchWriter(path, plan, attempt, datetime.now(UTC), rows, stager))


def plan_of(write: str, batch: int, sink: str) -> Plan:
    """Makes the plan of a batch: one split of a topic with its own topic id.

    So no two batches overlap.

    Args:
        write: the writer's id.
        batch: the number of the batch.
        sink: the identity of the sink.
    """
    window = Window(write, batch, batch + 1)
    topics = (TopicSeen(write, label_text(window.start), 1),)
    start, stop = (Boundary(label, _LEDGER, topics, ()) for label in (window.start, window.end))
    return Plan(window, start, stop, (Split(write, 0, 0, 1),), sink)


@dataclass(frozen=True)
class BatchWriter:
    """The writer of a batch of rows. Picklable.

    Attributes:
        path: the file of the write.
        plan: the plan of the batch.
        attempt: the id of this attempt.
        began: the time at which the attempt began.
        rows: the columns of the rows.
        stager: makes the stager of a task; None if the batch is committed already.
    """

    path: Path
    plan: Plan
    attempt: str
    began: datetime
    rows: pa.Schema
    stager: StagerFactory | None

    def write(self, partition: int, batches: Iterator[pa.RecordBatch]) -> str | None:
        """Stages a partition, and returns its outcome as text (`runner.outcome`).

        None if the batch is committed already.
        """
        if self.stager is None:
            return None
        task = StageRows(self.stager, self.rows, partition)
        return outcome_of(partial(task, batches=batches), *self.plan.splits)

    def commit(self, tasks: Mapping[int, str | None]) -> None:
        """Publishes the staged rows, unless the batch is committed already.

        Args:
            tasks: the outcome of each partition.

        Raises:
            WindrowError: a task or the sink failed; nothing was published.
            OutcomeUnknownError: the commit was sent, and its outcome is unknown.
        """
        if self.stager is None:
            return
        outcomes = [outcome for _, outcome in sorted(tasks.items()) if outcome is not None]
        staged = merge_staged([result_of(outcome) for outcome in outcomes], *self.plan.splits)
        spec = read_write_spec(self.path)
        sink = spec.table(self.path.parent, self.rows)
        outcome = sink.commit(self._receipt(staged), [staged])
        if isinstance(outcome, Unknown):
            batch, advice = self.plan.window.key, "Write it again under the same number"
            raise OutcomeUnknownError.of(f"of batch {batch} of {spec.id}", outcome.reason, advice)
        # the batch is committed: an error here isn't raised, and the next write sweeps again
        with suppress(WindrowError):
            sink.maintain(Maintenance(_KEPT))

    def _receipt(self, staged: Staged) -> Receipt:
        now = datetime.now(UTC)
        return Receipt(
            plan=self.plan,
            digest=self.plan.digest,
            generation=0,
            attempt=self.attempt,
            request=self.attempt,
            ledger=_LEDGER,
            grid=BATCH,
            counts=Counts.total([staged.counts]),
            splits=(staged.counts,),
            schema=tuple((f.name, str(f.type)) for f in self.rows),
            code=written_by(),
            staged_at=now,
            seconds=round((now - self.began).total_seconds(), 3),
        )


@dataclass(frozen=True)
class StageRows:
    """The task that stages one partition.

    Attributes:
        stagers: makes the stager.
        rows: the columns of the DataFrame.
        partition: the number of the partition.
    """

    stagers: StagerFactory
    rows: pa.Schema
    partition: int

    def __call__(self, split: Split, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Stages all batches. Readers of the topics don't see them yet.

        Raises:
            RefusedError: a row can't become a message.
            UnreachableError: the staging area can't be written.
        """
        stager, written = self.stagers(split), 0
        try:
            for batch in batches:
                columns = [
                    column.cast(field.type)
                    for column, field in zip(batch.columns, self.rows, strict=True)
                ]
                stager.add(
                    pa.RecordBatch.from_arrays(columns, schema=self.rows),
                    self._positions(split.topic, written, batch.num_rows),
                )
                written += batch.num_rows
                crash_point("write.middle")
            return _counted(split, written, stager.finish())
        except BaseException:
            stager.discard()
            raise

    def _positions(self, topic: str, first: int, count: int) -> pa.RecordBatch:
        """Makes the source messages of rows, with the fields that the headers need.

        Args:
            topic: the writer's id.
            first: the number of the first row in the partition.
            count: the number of rows.
        """
        offsets = pa.array(np.arange(first, first + count))
        return messages_of(
            {
                "topic": pa.repeat(topic, count),
                "partition": pa.repeat(self.partition, count),
                "offset": offsets,
            }
        )


def _counted(split: Split, written: int, staging: Staging) -> Staged:
    """Returns the result of a split whose only message became all `written` rows."""
    counts = msgspec.structs.replace(
        SplitCounts.of_nothing(split),
        read=1,
        valid=min(written, 1),
        filtered=1 - min(written, 1),
        rows=written,
        rows_staged=staging.rows,
        checksums=Checksums(staging.checksum),
    )
    return Staged(split, counts, staging.committables, ())


def merge_staged(tasks: Sequence[Staged], split: Split) -> Staged:
    """Joins the results of all tasks. Rows are published in the order of `tasks`."""
    rows = sum(task.counts.rows for task in tasks)
    checksum = checksum_text(sum(int(task.counts.checksums.rows, 16) for task in tasks))
    return _counted(
        split, rows, Staging(rows, checksum, tuple(word for task in tasks for word in task.rows))
    )
