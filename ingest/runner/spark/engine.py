"""Runs tasks on Spark: Python tasks that take one split after the other.

The plan is `range(n).mapInArrow`, which returns one small result row per split. A large
split is a Spark task by itself; small ones share one, for a Spark task costs more than
reading a thousand messages does. Messages never pass through the JVM. The session is
the process's own (`ingest.runner.spark.local`), one on a cluster
(`ingest.runner.spark.cluster`), or one on a server that is up already
(`ingest.runner.spark.connect`). Spark may run a task again (a lost executor, a killed
worker): every attempt stages under names of its own, and only the attempt whose result
Spark returns is committed.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged_split import Staged
from windrow.ingest.ports.engine import DataFrameWork
from windrow.ingest.runner.outcome import outcome_of, result_of
from windrow.ingest.runner.spark.cluster import sent
from windrow.ingest.runner.spark.jobs import (
    DO_AGAIN,
    DO_DOCTOR,
    RESULT,
    collected,
    dumped,
    is_connected,
    shares,
    spark_errors_as,
)
from windrow.ingest.runner.spark.worker import working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PER_CORE = 2
"""Spark tasks per core that small splits are divided among.

So no core idles while another one has several left.
"""


class SparkEngine:
    """`ports.engine.Engine` on a Spark session.

    `session` returns the session to run on, and is called at the first window that has
    something to read; its maker stops it. `launch` launches ahead what the session needs.
    """

    def __init__(
        self, session: Callable[[], SparkSession], launch: Callable[[], None] = lambda: None
    ) -> None:
        self._session, self._launch = session, launch

    def start(self) -> None:
        """Launches Java, if it isn't up yet; `run` says why there can be none."""
        with suppress(UnreachableError, OSError):
            self._launch()

    def slots(self) -> int:
        """Returns the number of tasks that run at once, as far as Spark knows by now.

        Executors may still be coming up.
        """
        return parallelism(self._session())

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """Runs the task for each split; a plan without splits never reaches Spark."""
        outcomes = self._collect(task, splits) if splits else {}
        yield from (result_of(outcomes[index]) for index in range(len(splits)))

    def transform(self, work: DataFrameWork, splits: Sequence[Split]) -> Iterator[Staged]:
        """Reads, changes and stages rows; a plan without splits never reaches Spark."""
        if not splits:
            return iter(())
        # loaded only for a pipeline with such a function
        from windrow.ingest.runner.spark.dataframe_transform import transformed

        with spark_errors_as("setup", "Java or Spark can't start", DO_DOCTOR):
            spark = self._session()
            tasks = _PER_CORE * parallelism(spark)
        return iter(transformed(spark, work, splits, tasks))

    def _collect(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> dict[int, str]:
        packed = dumped(task)
        with spark_errors_as("setup", "Java or Spark can't start", DO_DOCTOR):
            spark = self._session()
            job = Job(packed, tuple(splits), shares(splits, _PER_CORE * parallelism(spark)))
            frame = spark.range(0, len(job.shares), 1, len(job.shares)).mapInArrow(
                sent(spark, job), "index long, outcome string"
            )
        with spark_errors_as("stage", "Spark could not finish the tasks", DO_AGAIN):
            return {row["index"]: row["outcome"] for row in collected(frame)}


def parallelism(session: SparkSession) -> int:
    """Returns the number of tasks that a session runs at once.

    Of a server it is the number of parts that Spark gives to a range if nobody says how
    many.
    """
    if not is_connected(session):
        return session.sparkContext.defaultParallelism
    # Connect shows it in no other place
    plan = session.range(1 << 20)._explain_string()  # type: ignore[operator]  # noqa: SLF001
    parts = re.search(r"splits=(\d+)", plan)
    return int(parts[1]) if parts else 1


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
