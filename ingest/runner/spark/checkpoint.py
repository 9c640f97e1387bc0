"""The rows that were read of a window, kept in Spark by a session of its own.

Spark tasks take splits one after the other: the rows of each, and behind them one row
with the split's result. All of it is then a local checkpoint: on the disks of Spark's
executors, and from then on all that Spark knows of it, so nothing is read again. If
Spark loses the rows, it can't compute them once more: messages that the run was told to
go on without may be gone meanwhile, and the counts would be of other rows than those
that are staged. If Spark has kept two tries at a split, of which one may have failed
halfway, the rows are those of the try that was counted, or the window ends.

The rows go with the session, on a Spark Connect server, too, also if this process is
killed; a cache would stay for as long as the server does.
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
from windrow.ingest.runner.spark.cluster import sent
from windrow.ingest.runner.spark.connect import another_session, end_session
from windrow.ingest.runner.spark.java import variable_set
from windrow.ingest.runner.spark.jobs import (
    DO_AGAIN,
    collected,
    dumped,
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
from windrow.ingest.runner.spark.worker import working

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # the function may shuffle, and most windows are small
    "spark.sql.adaptive.enabled": "true",
    # Spark guesses the number of rows by that of the splits, so it guesses few. It must
    # not send a side of a join to all tasks before it has counted the rows.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A function may choose any of several rows that are alike to it. Computed again, for
    # rows that an executor lost, it may choose others than those that were staged.
    **REFUSE_CHANGED_SHUFFLES,
}
"""Settings of the session that the function sees."""

_OWN_COLUMNS = (
    pa.field("windrow_index", pa.int64(), nullable=False),
    pa.field("windrow_outcome", pa.string()),
    pa.field("windrow_try", pa.int64()),
)
"""Windrow's columns, before those of the rows.

They are the split's index; in a split's last row its result, and a random number that
names the try.
"""

_one_at_a_time = threading.RLock()
"""Held while columns are made.

The variable is the whole process's, and two threads' sessions may need it differently.
"""

_OTHER_TRY = "windrow: what was counted is of another try at this split"
"""The text of Spark's error for rows of another try than the counted one."""

LOST = re.compile(rf"{LOST_OR_RAISED}{re.escape(_OTHER_TRY)}")
"""Matches errors of Spark if it has lost rows, or has them not of the counted try.

Plans, which errors quote, too, have the text without the prefix.
"""


@contextmanager
def session_of_its_own(spark: SparkSession) -> Iterator[SparkSession]:
    """Opens a session beside another one; nobody else sees its settings and names."""
    with spark_errors_as("setup", "Spark can't begin", DO_AGAIN):
        session = another_session(spark) if is_connected(spark) else spark.newSession()
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
    try:
        yield session
    finally:
        if is_connected(session):  # this process's own Spark would end with it
            end_session(session)


@contextmanager
def columns_made_for(session: SparkSession) -> Iterator[None]:
    """Makes columns for this session in the block, in any thread, with UTC as the local zone.

    Another thread's block waits for the end of this one.
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
    """Reads the splits once, and keeps the rows on the executors for the block.

    Raises:
        SpecError: Spark can't have such columns.
        UnreachableError: it can't finish the tasks.
    """
    from pyspark import StorageLevel  # Spark is loaded only where it is used

    columns = [*_OWN_COLUMNS, *(pa.field(f.name, f.type) for f in work.columns)]
    _refuse_alike([f.name for f in columns])
    schema = spark_columns(pa.schema(columns))
    job = ReadJob(dumped(work.read), tuple(splits), shares(splits, tasks), _as_arrow(schema))
    with spark_errors_as("stage", "Spark could not finish the tasks", DO_AGAIN):
        reading = session.range(0, len(job.shares), 1, len(job.shares)).mapInArrow(
            sent(session, job), schema
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
    """Refuses columns that Spark doesn't tell apart."""
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
    """The job of each Spark task that reads splits; picklable.

    `schema`: its columns, of the very types that Spark's JVM expects.
    """

    task: bytes
    splits: tuple[Split, ...]
    shares: list[list[int]]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of each split, and its result."""
        with working():
            for batch in batches:
                for index in (
                    index for share in batch.column(0).to_pylist() for index in self.shares[share]
                ):
                    yield from self._rows(index)

    def _rows(self, index: int) -> Iterator[pa.RecordBatch]:
        task: Reads = pickle.loads(self.task)  # the driver's own bytes  # noqa: S301
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
    """Returns the result of each split, and the number of its try.

    Raises:
        WindrowError: the error of the first split that has one, in their order.
    """
    with row_loss_as_error():
        rows = collected(
            read.where("windrow_outcome is not null").select(*(f.name for f in _OWN_COLUMNS))
        )
    outcome_by_split = {row[0]: (row[1], row[2]) for row in rows}
    return [result_of(outcome_by_split[index][0]) for index in range(splits)], [
        outcome_by_split[index][1] for index in range(splits)
    ]


def counted_rows(read: DataFrame, tries: Sequence[int]) -> DataFrame:
    """Returns all rows of those tries, without windrow's columns but that of deletes.

    Spark may have kept another try, too: of a task that it ran twice, or on an executor
    that it took for lost. That try may have failed halfway, or have read less. So the
    filter checks at each split's last row whether it is the try that was counted. Spark
    would check a function's own conditions first, which no last row meets, except
    conditions on the partition's number, which it takes for random.

    Raises (in Spark's tasks):
        an error with `_OTHER_TRY`: it is another try.
    """
    known_tries = ", ".join(map(str, tries))
    rows = read.where(
        "CASE WHEN windrow_outcome IS NULL THEN spark_partition_id() >= 0 WHEN windrow_try IN"
        f" ({known_tries}) THEN false ELSE raise_error('{_OTHER_TRY}') END"
    )
    return rows.drop(*(f.name for f in _OWN_COLUMNS))


@contextmanager
def row_loss_as_error() -> Iterator[None]:
    """Turns Spark's own errors into windrow's while it has rows that were read.

    Raises:
        UnreachableError: in their place; it says if rows are lost.
    """
    with spark_errors_as("stage", "Spark could not finish the tasks", DO_AGAIN):
        try:
            yield
        except Exception as failed:
            refuse_lost_rows(failed)
            raise


def refuse_lost_rows(failed: BaseException) -> None:
    """Raises an error of its own if Spark failed because it has lost rows that were read.

    Raises:
        UnreachableError: it did.
    """
    if LOST.search(str(failed)):
        raise UnreachableError(
            "Spark lost what was read of the window, with an executor that ended, or has two tries"
            " at a split",
            "stage",
            "Nothing was committed. Run the window again.",
        ) from failed


def spark_columns(schema: pa.Schema) -> StructType:
    """Returns the columns as Spark's types.

    Raises:
        SpecError: Spark has no such type.
    """
    from pyspark.errors import PySparkException  # as above
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
    from pyspark.sql.pandas.types import to_arrow_schema  # as above

    arrow_schema: Any = to_arrow_schema(schema, timezone="UTC")
    return arrow_schema
