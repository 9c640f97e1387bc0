"""A window's decoded rows, kept in Spark for a DataFrame function.

Spark tasks read splits one after the other. A task gives the rows of a split, and then one row
with the split's result. All these rows become a local checkpoint on the disks of Spark's
executors. Spark forgets how they were made, so it never reads messages again. If Spark loses
rows, the window fails. A second reading could give other rows, and the counts would be wrong:
with `on_loss: skip`, messages may be gone by then.

Spark may keep the rows of two tries at a split, and one of the tries may have failed halfway.
Only rows of the try whose result was counted may be used. If Spark gives rows of the other try,
the window fails.

The rows are removed with their session, even if this process is killed, and even on a Spark
Connect server. A cache would stay until the server ends.
"""

from __future__ import annotations

import pickle
import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.model.instants import in_utc
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.ports.engine import DataFrameWork, Reads
from windrow.ingest.ports.reader import Take, batch_iterator
from windrow.ingest.runner.outcome import outcome_of, result_of
from windrow.ingest.runner.spark.cluster import job_for_workers
from windrow.ingest.runner.spark.connect import another_session, end_session
from windrow.ingest.runner.spark.java import variable_set
from windrow.ingest.runner.spark.jobs import (
    DO_AGAIN,
    collect_rows,
    dump_task,
    is_connected,
    shares,
    spark_errors_as,
    waited_for,
)
from windrow.ingest.runner.spark.pyspark_internals import (
    CONNECT_MODE,
    LOST_OR_RAISED,
    REFUSE_CHANGED_SHUFFLES,
    active_in_thread,
    drop_checkpoint,
)
from windrow.ingest.runner.spark.worker import prepared_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # the function may shuffle, and most windows need few partitions
    "spark.sql.adaptive.enabled": "true",
    # Spark estimates the number of rows by the number of splits, which is too low. It must not
    # send a side of a join to all tasks before it has counted the rows.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A function may choose any of several equal rows. If Spark computes rows again, because an
    # executor lost them, the function may choose other rows than the staged ones.
    **REFUSE_CHANGED_SHUFFLES,
}
"""Settings of the session in which the function runs."""

_OWN_COLUMNS = (
    pa.field("windrow_index", pa.int64(), nullable=False),
    pa.field("windrow_outcome", pa.string()),
    pa.field("windrow_try", pa.int64()),
)
"""Windrow's own columns, before the columns of the rows.

They are the split's index; the split's result; and a random number that identifies the try. The
last two are null, except in a split's last row.
"""

_one_at_a_time = threading.RLock()
"""Lock for the block of `columns_of_session`.

The environment variable `CONNECT_MODE` is the whole process's, and the sessions of two threads
may need different values.
"""

_OTHER_TRY = "windrow: what was counted is of another try at this split"
"""The text of Spark's error if rows are not of the counted try."""

LOST_ROWS = re.compile(rf"{LOST_OR_RAISED}{re.escape(_OTHER_TRY)}")
"""Matches errors of Spark if it has lost rows, or if rows are not of the counted try.

An error may also quote the query's plan, which has the text without the prefix. The pattern
doesn't match that.
"""


@contextmanager
def session_of_its_own(spark: SparkSession) -> Iterator[SparkSession]:
    """Opens a new session beside `spark`. Its settings and temporary views aren't shared.

    The thread's active session is the same after the block as before it.
    """
    from pyspark.sql import SparkSession  # imported here: it loads Spark

    active = SparkSession.getActiveSession() or spark
    with spark_errors_as("setup", "Spark can't begin", DO_AGAIN):
        session = another_session(spark) if is_connected(spark) else spark.newSession()
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
    try:
        yield session
    finally:
        if is_connected(session):  # otherwise stopping the session would stop this process's Spark
            end_session(session)
        else:
            with suppress(Exception):  # Spark may be gone
                # Each session becomes the active one when it makes a DataFrame of given rows.
                # Spark looks up the sinks of DataFrames in the active session.
                active.createDataFrame([], "nothing int")


@contextmanager
def columns_of_session(session: SparkSession) -> Iterator[None]:
    """Makes `pyspark.sql.functions` work for this session in the block, with UTC as local zone.

    Only one thread can be in such a block; other threads wait.
    """
    with (
        _one_at_a_time,
        in_utc(),
        variable_set(CONNECT_MODE, "1" if is_connected(session) else None),
        active_in_thread(session) if is_connected(session) else nullcontext(),
    ):
        yield


@contextmanager
def rows_kept(
    session: SparkSession,
    work: DataFrameWork,
    splits: Sequence[Split],
    tasks: int,
) -> Iterator[DataFrame]:
    """Reads the splits once, and keeps the rows on the executors during the block.

    Args:
        session: the session.
        work: the work on the window.
        splits: the splits of the window.
        tasks: the smallest number of Spark tasks, if there are so many splits.

    Raises:
        SpecError: Spark can't have such columns.
        UnreachableError: Spark can't finish the tasks.
    """
    from pyspark import StorageLevel  # imported here: it loads Spark

    columns = [*_OWN_COLUMNS, *(pa.field(f.name, f.type) for f in work.columns)]
    _refuse_alike([f.name for f in columns])
    schema = spark_schema(pa.schema(columns))
    job = ReadJob(dump_task(work.read), tuple(splits), shares(splits, tasks), _as_arrow(schema))
    with spark_errors_as("stage", "Spark could not finish the tasks", DO_AGAIN):
        reading = session.range(0, len(job.shares), 1, len(job.shares)).mapInArrow(
            job_for_workers(session, job), schema
        )

        def keep() -> DataFrame:
            with active_in_thread(session) if is_connected(session) else nullcontext():
                return reading.localCheckpoint(True, StorageLevel.DISK_ONLY)

        frame = waited_for(session, keep)
    try:
        yield frame
    finally:
        if not is_connected(session):
            with suppress(Exception):  # Spark may be gone
                drop_checkpoint(frame)


def _refuse_alike(names: Sequence[str]) -> None:
    """Refuses columns whose names are equal for Spark, which ignores case."""
    count = Counter(map(str.casefold, names))
    if alike := [name for name in names if count[name.casefold()] > 1]:
        raise SpecError(
            "Spark doesn't tell columns apart by capital letters, and some of these are windrow's"
            f" own: {', '.join(alike)}",
            "spec",
            "Rename those of the schema, or leave transform out. Nothing was read.",
        )


@dataclass(frozen=True)
class ReadJob:
    """The code of a Spark task that reads splits; picklable.

    Attributes:
        task: the `ports.engine.Reads`, pickled.
        splits: all splits of the job.
        shares: see `SparkJob`.
        schema: the columns of its output, with exactly the types that Spark's JVM expects.
    """

    task: bytes
    splits: tuple[Split, ...]
    shares: list[list[int]]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of each split, and then one row with its result."""
        with prepared_worker():
            for batch in batches:
                for index in (
                    index for share in batch.column(0).to_pylist() for index in self.shares[share]
                ):
                    yield from self._rows(index)

    def _rows(self, index: int) -> Iterator[pa.RecordBatch]:
        task: Reads = pickle.loads(self.task)  # safe: the driver pickled it  # noqa: S301
        outcome = ""

        def read(give: Take) -> None:
            nonlocal outcome
            outcome = outcome_of(partial(task, give=give), self.splits[index])

        for rows in batch_iterator(read):
            none = [pa.nulls(rows.num_rows, f.type) for f in _OWN_COLUMNS[1:]]
            yield self._fit_columns(
                [pa.repeat(pa.scalar(index, pa.int64()), rows.num_rows), *none, *rows.columns]
            )
        nothing = [pa.nulls(1, f.type) for f in list(self.schema)[len(_OWN_COLUMNS) :]]
        yield self._fit_columns(
            [pa.array([index]), pa.array([outcome]), pa.array([secrets.randbits(63)]), *nothing]
        )

    def _fit_columns(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [a.cast(f.type) for a, f in zip(arrays, self.schema, strict=True)], schema=self.schema
        )


def split_results(read: DataFrame, splits: int) -> tuple[list[Staged], list[int]]:
    """Returns the result of each split, and the number of the try that gave it.

    Raises:
        WindrowError: a split failed; the error of the first such split.
    """
    with row_loss_as_error():
        rows = collect_rows(
            read.where("windrow_outcome is not null").select(*(f.name for f in _OWN_COLUMNS))
        )
    outcome_by_split = {row[0]: (row[1], row[2]) for row in rows}
    return [result_of(outcome_by_split[index][0]) for index in range(splits)], [
        outcome_by_split[index][1] for index in range(splits)
    ]


def rows_of_counted_tries(read: DataFrame, tries: Sequence[int]) -> DataFrame:
    """Returns the rows of the counted tries, without `_OWN_COLUMNS`.

    Spark may have kept another try at a split, because it ran a task twice or believed that an
    executor was lost. That try may have failed halfway. So the filter checks in each split's
    last row whether the try was counted.

    Spark could evaluate a condition of the user's function before this filter, and so drop the
    last rows unchecked. `spark_partition_id()` prevents this: Spark treats it as random, and
    doesn't move conditions across it.

    Args:
        read: all rows that were kept.
        tries: the numbers of the counted tries.

    Raises (in Spark's tasks):
        an error with `_OTHER_TRY`: rows are of another try.
    """
    known_tries = ", ".join(map(str, tries))
    rows = read.where(
        "CASE WHEN windrow_outcome IS NULL THEN spark_partition_id() >= 0 WHEN windrow_try IN"
        f" ({known_tries}) THEN false ELSE raise_error('{_OTHER_TRY}') END"
    )
    return rows.drop(*(f.name for f in _OWN_COLUMNS))


@contextmanager
def row_loss_as_error() -> Iterator[None]:
    """Turns Spark's errors in the block into an UnreachableError, with a text for lost rows.

    Raises:
        UnreachableError: Spark raised an error.
    """
    with spark_errors_as("stage", "Spark could not finish the tasks", DO_AGAIN):
        try:
            yield
        except Exception as failed:
            refuse_lost_rows(failed)
            raise


def refuse_lost_rows(failed: BaseException) -> None:
    """Raises an error if Spark failed because it has lost rows that were read.

    Raises:
        UnreachableError: Spark has lost rows, or has two tries at a split.
    """
    if LOST_ROWS.search(str(failed)):
        raise UnreachableError(
            "Spark lost what was read of the window, with an executor that ended, or has two tries"
            " at a split",
            "stage",
            "Nothing was committed. Run the window again.",
        ) from failed


def spark_schema(schema: pa.Schema) -> StructType:
    """Returns the columns with Spark's types.

    Raises:
        SpecError: Spark has no type for a column.
    """
    from pyspark.errors import PySparkException  # imported here: it loads Spark
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        return from_arrow_schema(schema)
    except PySparkException as failed:
        kinds = ", ".join(f"{f.name} {f.type}" for f in schema)
        raise SpecError(
            f"Spark lacks the type of one of these columns: {kinds}",
            "spec",
            "Change the schema, or leave transform out.",
        ) from failed


def _as_arrow(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema  # imported here: it loads Spark

    arrow_schema: Any = to_arrow_schema(schema, timezone="UTC")
    return arrow_schema
