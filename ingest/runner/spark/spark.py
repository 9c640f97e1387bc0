"""The direct plan on Spark: Python tasks that take one split after the other
(`range(n).mapInArrow`), one small result row per split back.

A large split is a Spark task by itself; small ones share one, for a Spark task costs
more than reading a thousand messages does. Messages never pass through the JVM. The
session is the process's own (`ingest.runner.spark.local`) or one on a server that is up
already (`ingest.runner.spark.connect`). Spark may run a task again (a lost executor, a
killed worker): every attempt stages under names of its own, and only the attempt whose
result Spark returns is committed.
"""

from __future__ import annotations

import gc
import logging
import pickle
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from windrow.ingest.client_cache import keeping
from windrow.ingest.errors import BugError, Stage, UnreachableError, WindrowError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.engine import Reshaping
from windrow.ingest.runner.spark.outcome import brought_back, tried
from windrow.ingest.runner.spark.stale_code import end_if_stale, note_loaded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

T = TypeVar("T")

_LARGE = 20_000
"""A split of so many offsets is worth a Spark task."""

_PER_CORE = 2
"""Small splits are spread over so many Spark tasks a core, so that none idles while
another one has several left.
"""

_CANCEL_SECONDS = 10.0
"""How long an interrupted run waits for Spark to have heard of it."""

_ALONE_SECONDS = 30.0
"""After so long without a result it is said that no executor is there, if none is."""

_LOG = logging.getLogger("windrow.engine")

RESULT = pa.schema([("index", pa.int64()), ("outcome", pa.string())])
"""Of a split what came of it, by the split's index."""


class SparkJob(Protocol):
    """What a Spark task runs; picklable.

    A task is given numbers, in the first column of its batches, and so it knows its splits.
    """

    @property
    def schema(self) -> pa.Schema:
        """Of what it gives, whose first two columns are those of `RESULT`, by whatever names."""

    @property
    def shares(self) -> Sequence[Sequence[int]] | None:
        """The indices of the splits that each number stands for; None: a number is such
        an index itself.
        """

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One Spark task."""


def own_parallelism(session: SparkSession) -> int:
    """How many tasks a session of this process's own runs at once."""
    return session.sparkContext.defaultParallelism


class SparkEngine:
    """`ports.engine.Engine` on a Spark session, which is asked for at the first window
    that has something to read.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        parallelism: Callable[[SparkSession], int] = own_parallelism,
        shipped: Callable[[SparkJob], Any] | None = None,
    ) -> None:
        """An engine on a session.

        Args:
            session: gives the session to run on; whoever made it stops it.
            parallelism: how many tasks it runs at once.
            shipped: what is sent to the workers instead of the job itself, where they
                have not what it needs; None: they have.
        """
        self._session = session
        self._parallelism = parallelism
        self._shipped = shipped

    def slots(self) -> int:
        """How many tasks run at once, as far as Spark knows by now: executors may still
        be coming up.
        """
        return self._parallelism(self._session())

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """A plan without splits never reaches Spark."""
        outcomes = self._collect(task, splits) if splits else {}
        yield from (brought_back(outcomes[index]) for index in range(len(splits)))

    def reshape(self, work: Reshaping, splits: Sequence[Split]) -> Iterator[Staged]:
        """A plan without splits never reaches Spark."""
        if not splits:
            return iter(())
        from windrow.ingest.runner.spark.reshape import (
            reshaped,
        )  # only where there is such a function

        with spark_troubles_as("setup", "Java or Spark can't start", DO_DOCTOR):
            spark = self._session()
            tasks = _PER_CORE * self._parallelism(spark)
        return iter(reshaped(spark, work, splits, tasks, self._sent))

    def _sent(self, job: SparkJob) -> Any:
        """What workers get in the place of a job."""
        return job if self._shipped is None else self._shipped(job)

    def _collect(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> dict[int, str]:
        packed = dumped(task)
        with spark_troubles_as("setup", "Java or Spark can't start", DO_DOCTOR):
            spark = self._session()
            job = Job(packed, tuple(splits), shares(splits, _PER_CORE * self._parallelism(spark)))
            frame = spark.range(0, len(job.shares), 1, len(job.shares)).mapInArrow(
                self._sent(job), "index long, outcome string"
            )
        with spark_troubles_as("stage", "Spark could not finish the tasks", DO_AGAIN):
            return {row["index"]: row["outcome"] for row in rows_of(frame)}


DO_DOCTOR = (
    "Nothing was read or committed. Run `windrow doctor`, which says what is missing; --debug shows"
    " Spark's own words."
)
DO_PYTHON = "Nothing was read or committed. Give the workers the driver's, by spark.pyspark.python."
DO_AGAIN = (
    "Nothing was committed. Run the window again; if it fails the same way, run with --debug, which"
    " shows Spark's own words."
)


_GONE = re.compile(
    r"^RetriesExceeded:|^SparkConnectGrpcException:|INVALID_HANDLE|ExecutorLostFailure|SparkContext"
    r" was shut down"
)
"""In errors of Spark's that ends, has ended or was begun anew; of the second kind are
gRPC's own, which no server has thought of.
"""

_OTHER_PYTHON = re.compile(
    r"Python in worker has different version: (\d[\d.]*) than that in driver: (\d[\d.]*)"
)
"""What Spark's own worker says before it unpickles anything: of another minor version
it couldn't.
"""


@contextmanager
def spark_troubles_as(stage: Stage, what: str, do: str) -> Iterator[None]:
    """Spark's own errors as one that says what could not be done.

    Raises:
        UnreachableError: in their place.
    """
    from py4j.protocol import Py4JError  # Spark is loaded only where it is used
    from pyspark.errors import PySparkException

    try:
        yield
    except (
        PySparkException,
        Py4JError,
        OSError,
    ) as failed:  # OSError: no such program, or the Java side is gone
        other = _OTHER_PYTHON.search(str(failed))
        if other is not None:
            python = f"The workers have Python {other[1]}, and the driver has {other[2]}"
            raise UnreachableError(python, "setup", DO_PYTHON) from failed
        raise UnreachableError(f"{what} ({named(failed)})", stage, do) from failed


def is_gone(failed: Exception) -> bool:
    """Whether it is Spark that has gone, or isn't there yet, and no mistake in what it
    was asked.
    """
    from py4j.protocol import Py4JNetworkError  # as above
    from pyspark.errors import PySparkException

    told = (
        isinstance(failed, PySparkException)
        and _GONE.search(f"{type(failed).__name__}: {failed}") is not None
    )
    return told or isinstance(failed, (Py4JNetworkError, ConnectionError))


def dumped(task: object) -> bytes:
    """A task as it travels.

    Raises:
        WindrowError: a file that it takes along can't be read; BugError where it can't travel.
    """
    from pyspark import cloudpickle  # as above

    try:
        return bytes(cloudpickle.dumps(task))  # type: ignore[no-untyped-call]  # Spark's own
    except WindrowError:
        raise
    except Exception as failed:
        raise BugError.of(failed, "setup") from failed


def shares(splits: Sequence[Split], least: int) -> list[list[int]]:
    """Which splits, by their indices, each Spark task takes: neighbours in a log
    together as long as they are small.

    Pure.

    Args:
        splits: all of a run.
        least: at least so many tasks, where there are so many splits.
    """
    order = sorted(range(len(splits)), key=lambda index: (splits[index].tp, splits[index].start))
    lengths = [split.stop - split.start for split in splits]
    most, many = min(_LARGE, -(-sum(lengths) // least)), -(-len(splits) // least)
    taken: list[list[int]] = []
    offsets = most
    for index in order:
        length = lengths[index]
        if offsets + length > most or len(taken[-1]) == many:
            taken.append([])
            offsets = 0
        taken[-1].append(index)
        offsets += length
    return taken


def is_connected(session: SparkSession) -> bool:
    """Whether it is on a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def rows_of(frame: DataFrame) -> list[Row]:
    """The frame's rows; see `waited_for`."""
    return waited_for(frame.sparkSession, frame.collect)


def waited_for(spark: SparkSession, action: Callable[[], T]) -> T:
    """What an action on a session gives, from a thread of its own: there the client waits for Spark.

    So an interrupt finds this thread free to cancel. (Interrupted in py4j itself, the
    connection is in the middle of an answer, and the next word to the JVM waits for the
    job's end.) What is cancelled is this job alone: others may run on the same session,
    or beside it on one server.
    """  # noqa: E501
    from pyspark import InheritableThread  # as above

    answer: Future[T] = Future()
    tag = uuid.uuid4().hex

    def act() -> None:
        try:
            spark.addTag(tag)  # of this thread's jobs
            answer.set_result(action())
        except (
            BaseException  # noqa: BLE001
        ) as failed:  # handed over, not swallowed: without an answer the run would wait for ever
            answer.set_exception(failed)

    InheritableThread(target=act, daemon=True).start()
    try:
        wait([answer], _ALONE_SECONDS)
        if not answer.done() and _is_alone(spark):
            _LOG.warning(
                "No executor has come up at %s. The run waits for one, without end: see at the"
                " master whether workers are there, and have free what an executor asks for"
                " (spark.executor.memory, spark.executor.cores).",
                spark.sparkContext.master,
            )
        return answer.result()
    finally:
        if not answer.done():  # Ctrl-C, or who runs us has ended the run
            with suppress(Exception):  # a server has a log of its own, and nothing to say here
                spark.sparkContext.setLogLevel("OFF")  # else it has a word about each task
            with suppress(Exception):  # Spark may be gone as well
                spark.interruptTag(tag)
            wait([answer], _CANCEL_SECONDS)


def _is_alone(spark: SparkSession) -> bool:
    """Whether a session at a cluster's master has no executor, for which Spark waits
    without a word that anybody sees.

    A local session is its own executor, and what a server has is its own affair.
    """
    if is_connected(spark) or str(spark.sparkContext.master).startswith("local"):
        return False
    with suppress(Exception):  # Spark may be gone, which the job's own error says
        known: Any = (
            spark.sparkContext._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001
        )  # nothing public tells; the driver is in it
        return bool(known.size() <= 1)
    return False


def named(failed: Exception) -> str:
    """The exception's type and Spark's name for the error.

    Its text may hold a worker's, and that one a message's values.
    """
    condition = getattr(failed, "getCondition", lambda: None)()
    return type(failed).__name__ + (f", {condition}" if condition else "")


@dataclass(frozen=True)
class Job:
    """What each Spark task runs; picklable.

    `task` is packed by itself: each try has one of its own.
    """

    task: bytes
    splits: tuple[Split, ...]
    shares: list[list[int]]

    @property
    def schema(self) -> pa.Schema:
        return RESULT

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One Spark task: each of its splits, one after the other."""
        with working():
            for batch in batches:
                for index in (
                    index for share in batch.column(0).to_pylist() for index in self.shares[share]
                ):
                    outcome = tried(
                        pickle.loads(self.task),  # noqa: S301
                        self.splits[index],
                    )  # our own, of the driver's
                    yield pa.RecordBatch.from_pylist(
                        [{"index": index, "outcome": outcome}], schema=RESULT
                    )


@contextmanager
def working() -> Iterator[None]:
    """A worker's process while it has a Spark task."""
    gc.set_threshold(_COLLECTED_AFTER)
    end_if_stale()
    with keeping():
        yield
    note_loaded()
    _spare_loaded()


_COLLECTED_AFTER = 50_000
"""New objects until Python's collector looks for cycles among them.

After 700, which is its own choice, it takes a fifth of loading.
"""

_spared = 0
"""Modules that were there when this process last told its collector what stays."""


def _spare_loaded() -> None:
    """Tell Python's collector that what is loaded stays: PySpark has it look through
    everything after each task, a tenth of a second.

    Only after a job that loaded something, for what is told once is never looked at again.
    """
    global _spared  # one a process, as the collector is  # noqa: PLW0603
    if len(sys.modules) > _spared:
        _spared = len(sys.modules)
        gc.freeze()
