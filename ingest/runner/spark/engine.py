"""The engine on Spark. Its jobs are Python tasks that take one split after the other.

A job returns one small result per split. A large split has its own Spark task. Small splits
share a task, because a Spark task costs more than reading a thousand messages. Messages never
pass through the JVM.

A job runs on the process's own Spark, local or at a cluster's master
(`ingest.runner.spark.cluster`). There the job is an RDD, because Spark's SQL takes longer to
start than a small window takes. Or the job runs on a server that is up already
(`ingest.runner.spark.connect`). A server has DataFrames only, so there the job is
`range(n).mapInArrow`.

Spark may run a task again, after it lost an executor or a worker. Each attempt stages files
under its own names, and only the attempt whose result Spark returns is committed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.ports.engine import DataFrameWork
from windrow.ingest.runner.outcome import outcome_of, result_of
from windrow.ingest.runner.spark.cluster import job_for_workers
from windrow.ingest.runner.spark.jobs import (
    DO_AGAIN,
    DO_DOCTOR,
    RESULT,
    context_of,
    dump_task,
    session_of,
    shares,
    spark_errors_as,
    waited_for,
)
from windrow.ingest.runner.spark.pyspark_internals import MEMORY_SIZE, range_splits
from windrow.ingest.runner.spark.worker import prepared_worker

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_PER_CORE = 2
"""Number of Spark tasks per core for small splits.

With several tasks per core, no core is idle while another core has many splits left.
"""


class SparkEngine:
    """A `ports.engine.Engine` on Spark.

    Args:
        spark: returns the process's own SparkContext, or a session on a server. It is
            called at the first window that has splits. The engine doesn't stop its result.
        launch: launches Java ahead of the call of `spark`.
    """

    def __init__(
        self,
        spark: Callable[[], SparkContext | SparkSession],
        launch: Callable[[], None] = lambda: None,
    ) -> None:
        self._spark, self._launch = spark, launch

    def start(self) -> None:
        """Launches Java, if it isn't up yet. If it fails, `run` raises the error."""
        with suppress(UnreachableError, OSError):
            self._launch()

    def slots(self) -> int:
        """Returns the number of tasks that Spark can run at once now.

        It may grow while executors start.
        """
        return parallelism(self._spark())

    def worker_memory(self) -> int | None:
        """Returns the bytes of address space that Spark gives to each Python worker.

        None if `spark.executor.pyspark.memory` isn't set. Spark divides it among the cores.
        """
        settings = session_of(self._spark()).conf
        text = str(settings.get("spark.executor.pyspark.memory", ""))
        size = MEMORY_SIZE.fullmatch(text.lower())
        if size is None:
            return None
        size_bytes = int(size[1]) << 10 * (1 + "kmgtp".index(size[2] or "m"))
        return size_bytes // int(str(settings.get("spark.executor.cores", "1")))

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """Runs the task for each split. Without splits, Spark isn't started."""
        outcomes = self._collect(task, splits) if splits else {}
        yield from (result_of(outcomes[index]) for index in range(len(splits)))

    def transform(self, work: DataFrameWork, splits: Sequence[Split]) -> Iterator[Staged]:
        """Reads, changes and stages rows. Without splits, Spark isn't started."""
        if not splits:
            return iter(())
        # imported here: only pipelines with a DataFrame function need it
        from windrow.ingest.runner.spark.dataframe_transform import transform_rows

        with spark_errors_as("setup", "Java or Spark can't start", DO_DOCTOR):
            spark = self._spark()
            tasks = _PER_CORE * parallelism(spark)
            session = session_of(spark)
        return iter(transform_rows(session, work, splits, tasks))

    def _collect(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> dict[int, str]:
        packed = dump_task(task)
        with spark_errors_as("setup", "Java or Spark can't start", DO_DOCTOR):
            spark = self._spark()
            job = Job(packed, tuple(splits), shares(splits, _PER_CORE * parallelism(spark)))
            outcomes = _outcomes(spark, job)
        with spark_errors_as("stage", "Spark could not finish the tasks", DO_AGAIN):
            return dict(waited_for(spark, outcomes))


def _outcomes(spark: SparkContext | SparkSession, job: Job) -> Callable[[], list[Any]]:
    """Returns the action that runs a job, and returns index and outcome of each split."""
    from pyspark import SparkContext  # imported here: it loads Spark

    count, does = len(job.shares), job_for_workers(spark, job)
    if isinstance(spark, SparkContext):
        # imported here: it loads Spark
        from windrow.ingest.runner.spark.worker_bootstrap import on_numbers

        numbers = spark.parallelize(range(count), count)
        return numbers.mapPartitions(partial(on_numbers, does)).collect
    columns = "index long, outcome string"
    return spark.range(0, count, 1, count).mapInArrow(does, columns).collect


def parallelism(spark: SparkContext | SparkSession) -> int:
    """Returns the number of tasks that Spark runs at once."""
    context = context_of(spark)
    return range_splits(session_of(spark)) if context is None else context.defaultParallelism


@dataclass(frozen=True)
class Job:
    """The code of a Spark task that runs an engine's task; picklable.

    Attributes:
        task: the engine's task, pickled. Each try at a split unpickles its own copy.
        splits: all splits of the job.
        shares: see `SparkJob`.
        schema: see `SparkJob`.
    """

    task: bytes
    splits: tuple[Split, ...]
    shares: list[list[int]]
    schema: pa.Schema = RESULT

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs one Spark task: each of its splits, one after the other."""
        with prepared_worker():
            for batch in batches:
                for index in (
                    index for share in batch.column(0).to_pylist() for index in self.shares[share]
                ):
                    # safe: the driver pickled these bytes
                    outcome = outcome_of(pickle.loads(self.task), self.splits[index])  # noqa: S301
                    yield pa.RecordBatch.from_pylist(
                        [{"index": index, "outcome": outcome}], schema=RESULT
                    )
