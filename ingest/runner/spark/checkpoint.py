"""What was read of a window, kept in Spark by a session of its own.

Spark tasks take splits one after the other: the rows of each, and behind them one row
with what came of the split. All of it is then a local checkpoint: on the disks of
Spark's executors, and from then on all that Spark knows of it, so nothing is read
again. Should Spark lose what was read, it can't work out what is made of it: read
again, messages may be gone meanwhile that the run was told to go on without, and what
was counted would be of other rows than those that are staged. Should it have kept two
tries at a split, of which one may have failed halfway, the rows are those of the try
that was counted, or the window ends.

What is kept goes with the session, on a Spark Connect server, too, also if this process
is killed; a cache would stay for as long as the server does.
"""

from __future__ import annotations

import pickle
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.engine import Reads, Reshaping
from windrow.ingest.ports.reader import Take, batch_iterator
from windrow.ingest.runner.spark.local import variable_set
from windrow.ingest.runner.spark.outcome import brought_back, tried
from windrow.ingest.runner.spark.spark import (
    DO_AGAIN,
    SparkJob,
    dumped,
    is_connected,
    rows_of,
    shares,
    spark_troubles_as,
    waited_for,
    working,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # the function shuffles as it likes, and most windows are small
    "spark.sql.adaptive.enabled": "true",
    # What was read is a few rows by Spark's guess, which goes by splits. So it sends no
    # side of a join to all tasks before it has counted.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A function may take any of some rows that are alike to it. Done again for what an
    # executor lost, it may take others than those that were staged: Spark compares what
    # a shuffle had before with what it has now, and begins anew or gives up where they
    # differ.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableQueryLevelRollbackOnMismatch": "true",
}
"""Of the session that the function sees."""

_OWN = (
    pa.field("windrow_index", pa.int64(), nullable=False),
    pa.field("windrow_outcome", pa.string()),
    pa.field("windrow_try", pa.int64()),
)
"""Before the rows' columns: of which split; of a split's last row what came of it, and
a number by chance that names the try.
"""

_CONNECT = "SPARK_CONNECT_MODE_ENABLED"
"""The environment variable by which `pyspark.sql.functions` makes columns of a server's
session, and not of this process's own.
"""

_one_at_a_time = threading.RLock()
"""Whoever makes columns: the variable is the whole process's, and two threads' sessions
may need it differently.
"""

_OTHER_TRY = "windrow: what was counted is of another try at this split"
"""What Spark says where it comes by one."""

LOST = re.compile(
    rf"\[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND\]|\[USER_RAISED_EXCEPTION\] {re.escape(_OTHER_TRY)}"
)
"""In Spark's errors where it has not what was read, or not of the try that was counted.

Plans, which errors tell too, have the sentence.
"""


@contextmanager
def session_of_its_own(spark: SparkSession) -> Iterator[SparkSession]:
    """A session beside another one, whose settings and names are seen by nobody else."""
    from windrow.ingest.runner.spark.connect import (
        end_session,
        session_beside,
    )  # workers load this module, too

    with spark_troubles_as("setup", "Spark can't begin", DO_AGAIN):
        session = session_beside(spark) if is_connected(spark) else spark.newSession()
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
    try:
        yield session
    finally:
        if is_connected(session):  # of this process's own Spark it would be the end
            end_session(session)


@contextmanager
def functions_of(session: SparkSession) -> Iterator[None]:
    """Columns are made for that session in the block, whoever makes them.

    Another thread's block waits for the end of this one.
    """
    with (
        _one_at_a_time,
        variable_set(_CONNECT, "1" if is_connected(session) else None),
        _active(session),
    ):
        yield


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """The session is this thread's in the block: a server's client asks the thread for
    it where nobody tells which.
    """
    if not is_connected(session):
        yield
        return
    from pyspark.sql.connect.session import (
        SparkSession as ConnectedSession,
    )  # gRPC is loaded only where it is used

    of_thread: Any = (
        ConnectedSession._active_session  # noqa: SLF001
    )  # nothing public sets one that is there already
    before = getattr(of_thread, "session", None)
    of_thread.session = session
    try:
        yield
    finally:
        of_thread.session = before


@contextmanager
def kept(
    session: SparkSession,
    work: Reshaping,
    splits: Sequence[Split],
    tasks: int,
    sent: Callable[[SparkJob], Any],
) -> Iterator[DataFrame]:
    """What was read of the splits, for the block: read once, and kept where it was read.

    Raises:
        SpecError: Spark can't have such columns.
        UnreachableError: it can't finish the tasks.
    """
    from pyspark import StorageLevel  # Spark is loaded only where it is used

    columns = [*_OWN, *(pa.field(f.name, f.type) for f in work.columns)]
    _refuse_alike([f.name for f in columns])
    schema = as_spark_has_it(pa.schema(columns))
    job = ReadJob(dumped(work.read), tuple(splits), shares(splits, tasks), _as_arrow(schema))
    with spark_troubles_as("stage", "Spark could not finish the tasks", DO_AGAIN):
        reading = session.range(0, len(job.shares), 1, len(job.shares)).mapInArrow(
            sent(job), schema
        )

        def keep() -> DataFrame:
            with _active(session):
                return reading.localCheckpoint(True, StorageLevel.DISK_ONLY)

        frame = waited_for(session, keep)
    try:
        yield frame
    finally:
        # else Java would keep it until it looks for what nobody uses any more, twice an
        # hour
        if not is_connected(session):
            with suppress(Exception):  # Spark may be gone
                frame._jdf.queryExecution().analyzed().rdd().unpersist(  # noqa: SLF001
                    False
                )  # nothing public leads there


def _refuse_alike(names: Sequence[str]) -> None:
    count = Counter(map(str.casefold, names))
    if alike := [name for name in names if count[name.casefold()] > 1]:
        what = (
            "Spark doesn't tell columns apart by capital letters, and some of these are windrow's"
            f" own: {', '.join(alike)}"
        )
        raise SpecError(
            what,
            "spec",
            "Name those of the schema otherwise, or take transform out. Nothing was read.",
        )


@dataclass(frozen=True)
class ReadJob:
    """What each Spark task runs that reads splits; picklable.

    `schema`: of what it gives, of the very types that Spark's JVM expects.
    """

    task: bytes
    splits: tuple[Split, ...]
    shares: list[list[int]]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of each split, and what came of it."""
        with working():
            for batch in batches:
                for index in (
                    index for share in batch.column(0).to_pylist() for index in self.shares[share]
                ):
                    yield from self._rows(index)

    def _rows(self, index: int) -> Iterator[pa.RecordBatch]:
        task: Reads = pickle.loads(self.task)  # our own, of the driver's  # noqa: S301
        outcome = ""

        def read(give: Take) -> None:
            nonlocal outcome
            outcome = tried(partial(task, give=give), self.splits[index])

        for rows in batch_iterator(read):
            none = [pa.nulls(rows.num_rows, f.type) for f in _OWN[1:]]
            yield self._fitted(
                [pa.repeat(pa.scalar(index, pa.int64()), rows.num_rows), *none, *rows.columns]
            )
        nothing = [pa.nulls(1, f.type) for f in list(self.schema)[len(_OWN) :]]
        yield self._fitted(
            [pa.array([index]), pa.array([outcome]), pa.array([secrets.randbits(63)]), *nothing]
        )

    def _fitted(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [a.cast(f.type) for a, f in zip(arrays, self.schema, strict=True)], schema=self.schema
        )


def read_of(read: DataFrame, splits: int) -> tuple[list[Staged], list[int]]:
    """What came of each split, and by which tries.

    Raises:
        WindrowError: the first split's, in their order.
    """
    with losses_told():
        rows = rows_of(read.where("windrow_outcome is not null").select(*(f.name for f in _OWN)))
    found = {row[0]: (row[1], row[2]) for row in rows}
    return [brought_back(found[index][0]) for index in range(splits)], [
        found[index][1] for index in range(splits)
    ]


def counted_rows(read: DataFrame, tries: Sequence[int]) -> DataFrame:
    """The rows of those tries, whole, without windrow's columns but for that of deletes.

    Spark may have kept another try, too: of a task that it ran twice, or on an executor
    that it took for lost. That one may have failed halfway, or have read less. So
    whoever comes by a split's last row sees whether it is the one that was counted.
    Spark would look at a function's own conditions first, which no last row meets, but
    for the partition's number, which it takes for a matter of chance.

    Raises (in Spark's tasks):
        an error with `_OTHER_TRY`: it isn't.
    """
    known = ", ".join(map(str, tries))
    rows = read.where(
        "CASE WHEN windrow_outcome IS NULL THEN spark_partition_id() >= 0 WHEN windrow_try IN"
        f" ({known}) THEN false ELSE raise_error('{_OTHER_TRY}') END"
    )
    return rows.drop(*(f.name for f in _OWN))


@contextmanager
def losses_told() -> Iterator[None]:
    """Spark's own errors while it has what was read, as `spark_troubles_as`.

    Raises:
        UnreachableError: in their place.
    """
    with spark_troubles_as("stage", "Spark could not finish the tasks", DO_AGAIN):
        try:
            yield
        except Exception as failed:
            refuse_lost(failed)
            raise


def refuse_lost(failed: Exception) -> None:
    """Say so where Spark fails for it has no longer what was read.

    Raises:
        UnreachableError: it does.
    """
    if LOST.search(str(failed)):
        what = (
            "Spark lost what was read of the window, with an executor that ended, or has two tries"
            " at a split"
        )
        raise UnreachableError(
            what, "stage", "Nothing was committed. Run the window again."
        ) from failed


def as_spark_has_it(schema: pa.Schema) -> StructType:
    """Columns as Spark has them.

    Raises:
        SpecError: it has no such type.
    """
    from pyspark.errors import PySparkException  # as above
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        return from_arrow_schema(schema)
    except PySparkException as failed:
        kinds = ", ".join(f"{f.name} {f.type}" for f in schema)
        raise SpecError(
            f"Spark has not all of the types of {kinds}",
            "spec",
            "Change the schema, or take transform out.",
        ) from failed


def _as_arrow(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema  # as above

    found: Any = to_arrow_schema(schema, timezone="UTC")
    return found
