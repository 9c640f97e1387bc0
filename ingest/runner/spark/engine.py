"""Runs tasks on Spark: Python tasks that take one split after the other.

A job returns one small result per split. A large split is a Spark task by itself; small
ones share one, for a Spark task costs more than reading a thousand messages does.
Messages never pass through the JVM. Jobs run on the process's own Spark, here or at a
cluster's master (`ingest.runner.spark.cluster`), as RDDs: Spark's SQL needs longer to
start than a small window takes. Or they run on a server that is up already, which knows
DataFrames only (`ingest.runner.spark.connect`): `range(n).mapInArrow`.

Spark may run a task again (a lost executor, a killed worker): every attempt stages under
names of its own, and only the attempt whose result Spark returns is committed.
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
from windrow.ingest.runner.spark.cluster import sent
from windrow.ingest.runner.spark.jobs import (
    DO_AGAIN,
    DO_DOCTOR,
    RESULT,
    context_of,
    dumped,
    session_of,
    shares,
    spark_errors_as,
    waited_for,
)
from windrow.ingest.runner.spark.pyspark_internals import range_splits
from windrow.ingest.runner.spark.worker import working

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_PER_CORE = 2
"""Spark tasks per core that small splits are divided among.

So no core idles while another one has several left.
"""


class SparkEngine:
    """`ports.engine.Engine` on Spark.

    `spark` returns the process's own SparkContext, or a session on a server. It is called
    at the first window that has something to read; its maker stops what it returns.
    `launch` launches ahead what that needs.
    """

    def __init__(
        self,
        spark: Callable[[], SparkContext | SparkSession],
        launch: Callable[[], None] = lambda: None,
    ) -> None:
        self._spark, self._launch = spark, launch

    def start(self) -> None:
        """Launches Java, if it isn't up yet; `run` says why there can be none."""
        with suppress(UnreachableError, OSError):
            self._launch()

    def slots(self) -> int:
        """Returns the number of tasks that run at once, as far as Spark knows by now.

        Executors may still be coming up.
        """
        return parallelism(self._spark())

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """Runs the task for each split; a plan without splits never reaches Spark."""
        outcomes = self._collect(task, splits) if splits else {}
        yield from (result_of(outcomes[index]) for index in range(len(splits)))

    def transform(self, work: DataFrameWork, splits: Sequence[Split]) -> Iterator[Staged]:
        """Reads, changes and stages rows; a plan without splits never reaches Spark."""
        if not splits:
            return iter(())
        # loaded only for a pipeline with such a function
        from windrow.ingest.runner.spark.dataframe_transform import transform_rows

        with spark_errors_as("setup", "Java or Spark can't start", DO_DOCTOR):
            spark = self._spark()
            tasks = _PER_CORE * parallelism(spark)
            session = session_of(spark)
        return iter(transform_rows(session, work, splits, tasks))

    def _collect(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> dict[int, str]:
        packed = dumped(task)
        with spark_errors_as("setup", "Java or Spark can't start", DO_DOCTOR):
            spark = self._spark()
            job = Job(packed, tuple(splits), shares(splits, _PER_CORE * parallelism(spark)))
            outcomes = _outcomes(spark, job)
        with spark_errors_as("stage", "Spark could not finish the tasks", DO_AGAIN):
            return dict(waited_for(spark, outcomes))


def _outcomes(spark: SparkContext | SparkSession, job: Job) -> Callable[[], list[Any]]:
    """Returns the action that runs a job: a pair of index and outcome for each split."""
    from pyspark import SparkContext  # Spark is loaded only where it is used

    count, does = len(job.shares), sent(spark, job)
    if isinstance(spark, SparkContext):
        from windrow.ingest.runner.spark.worker_bootstrap import on_numbers  # as above

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
    """The job of each Spark task that runs an engine's task; picklable.

    `task` is pickled by itself: each try unpickles one of its own.
    """

    task: bytes
    splits: tuple[Split, ...]
    shares: list[list[int]]
    schema: pa.Schema = RESULT

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs one Spark task: each of its splits, one after the other."""
        with working():
            for batch in batches:
                for index in (
                    index for share in batch.column(0).to_pylist() for index in self.shares[share]
                ):
                    # the driver's own bytes
                    outcome = outcome_of(pickle.loads(self.task), self.splits[index])  # noqa: S301
                    yield pa.RecordBatch.from_pylist(
                        [{"index": index, "outcome": outcome}], schema=RESULT
                    )
