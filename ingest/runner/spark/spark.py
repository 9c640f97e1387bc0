"""Runs tasks on Spark: Python tasks that take one split after the other.

The plan is `range(n).mapInArrow`, which returns one small result row per split. A large
split is a Spark task by itself; small ones share one, for a Spark task costs more than
reading a thousand messages does. Messages never pass through the JVM. The session is
the process's own (`ingest.runner.spark.local`) or one on a server that is up already
(`ingest.runner.spark.connect`). Spark may run a task again (a lost executor, a killed
worker): every attempt stages under names of its own, and only the attempt whose result
Spark returns is committed.
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
from windrow.ingest.runner.spark.outcome import outcome_of, result_of
from windrow.ingest.runner.spark.stale_code import end_if_stale, note_loaded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

T = TypeVar("T")

_LARGE = 20_000
"""Offsets of a split that is worth a Spark task of its own."""

_PER_CORE = 2
"""Spark tasks per core that small splits are spread over.

So no core idles while another one has several left.
"""

_CANCEL_SECONDS = 10.0
"""Seconds that an interrupted run waits for Spark to cancel its job."""

_ALONE_SECONDS = 30.0
"""Seconds without a result after which a missing executor is reported."""

_LOG = logging.getLogger("windrow.engine")

RESULT = pa.schema([("index", pa.int64()), ("outcome", pa.string())])
"""The columns of a split's outcome, with the split's index."""


class SparkJob(Protocol):
    """The code of a Spark task; picklable.

    A task gets numbers in the first column of its batches, which say its splits.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns of its output.

        The first two are those of `RESULT`, by any names.
        """

    @property
    def shares(self) -> Sequence[Sequence[int]] | None:
        """The indices of the splits of each number; None: a number is an index."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs one Spark task."""


def own_parallelism(session: SparkSession) -> int:
    """Returns the number of tasks that a session of this process's own runs at once."""
    return session.sparkContext.defaultParallelism


class SparkEngine:
    """`ports.engine.Engine` on a Spark session.

    It asks for the session at the first window that has something to read.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        parallelism: Callable[[SparkSession], int] = own_parallelism,
        shipped: Callable[[SparkJob], Any] | None = None,
    ) -> None:
        """Makes an engine on a session.

        Args:
            session: returns the session to run on; its maker stops it.
            parallelism: returns the number of tasks that it runs at once.
            shipped: makes the object that is sent to workers instead of a job, if they
                lack windrow; None: they have it.
        """
        self._session = session
        self._parallelism = parallelism
        self._shipped = shipped

    def slots(self) -> int:
        """Returns the number of tasks that run at once, as far as Spark knows by now.

        Executors may still be coming up.
        """
        return self._parallelism(self._session())

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> Iterator[Staged]:
        """Runs the task for each split; a plan without splits never reaches Spark."""
        outcomes = self._collect(task, splits) if splits else {}
        yield from (result_of(outcomes[index]) for index in range(len(splits)))

    def reshape(self, work: Reshaping, splits: Sequence[Split]) -> Iterator[Staged]:
        """Reads, changes and stages rows; a plan without splits never reaches Spark."""
        if not splits:
            return iter(())
        # loaded only for a pipeline with such a function
        from windrow.ingest.runner.spark.reshape import reshaped

        with spark_errors_as("setup", "Java or Spark can't start", DO_DOCTOR):
            spark = self._session()
            tasks = _PER_CORE * self._parallelism(spark)
        return iter(reshaped(spark, work, splits, tasks, self._sent))

    def _sent(self, job: SparkJob) -> Any:
        """Returns the object that workers get for a job."""
        return job if self._shipped is None else self._shipped(job)

    def _collect(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> dict[int, str]:
        packed = dumped(task)
        with spark_errors_as("setup", "Java or Spark can't start", DO_DOCTOR):
            spark = self._session()
            job = Job(packed, tuple(splits), shares(splits, _PER_CORE * self._parallelism(spark)))
            frame = spark.range(0, len(job.shares), 1, len(job.shares)).mapInArrow(
                self._sent(job), "index long, outcome string"
            )
        with spark_errors_as("stage", "Spark could not finish the tasks", DO_AGAIN):
            return {row["index"]: row["outcome"] for row in collected(frame)}


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
"""Matches errors of a Spark that ends, has ended or was restarted.

`SparkConnectGrpcException` is gRPC's own error, without an answer of a server.
"""

_OTHER_PYTHON = re.compile(
    r"Python in worker has different version: (\d[\d.]*) than that in driver: (\d[\d.]*)"
)
"""Matches the error of Spark's worker if it has another minor version of Python.

It comes before anything is unpickled, which could fail.
"""


@contextmanager
def spark_errors_as(stage: Stage, what: str, do: str) -> Iterator[None]:
    """Turns Spark's own errors into one that says what could not be done.

    Raises:
        UnreachableError: in their place.
    """
    from py4j.protocol import Py4JError  # Spark is loaded only where it is used
    from pyspark.errors import PySparkException

    try:
        yield
    # OSError: no such program, or the Java side is gone
    except (PySparkException, Py4JError, OSError) as failed:
        other = _OTHER_PYTHON.search(str(failed))
        if other is not None:
            python = f"The workers have Python {other[1]}, and the driver has {other[2]}"
            raise UnreachableError(python, "setup", DO_PYTHON) from failed
        raise UnreachableError(f"{what} ({error_name(failed)})", stage, do) from failed


def is_gone(failed: Exception) -> bool:
    """Returns whether Spark has ended, or isn't up yet.

    Otherwise the error is a mistake in the call.
    """
    from py4j.protocol import Py4JNetworkError  # as above
    from pyspark.errors import PySparkException

    by_spark = (
        isinstance(failed, PySparkException)
        and _GONE.search(f"{type(failed).__name__}: {failed}") is not None
    )
    return by_spark or isinstance(failed, (Py4JNetworkError, ConnectionError))


def dumped(task: object) -> bytes:
    """Pickles a task.

    Raises:
        WindrowError: a file that it takes along can't be read; BugError if it can't be
            pickled.
    """
    from pyspark import cloudpickle  # as above

    try:
        return bytes(cloudpickle.dumps(task))  # type: ignore[no-untyped-call]  # Spark's own
    except WindrowError:
        raise
    except Exception as failed:
        raise BugError.of(failed, "setup") from failed


def shares(splits: Sequence[Split], least: int) -> list[list[int]]:
    """Divides splits, by their indices, among Spark tasks.

    Neighbours in a log go together as long as they are small. Pure.

    Args:
        splits: all of a run.
        least: the least number of tasks, if there are so many splits.
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
    """Returns whether the session is on a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def collected(frame: DataFrame) -> list[Row]:
    """Returns the frame's rows; see `waited_for`."""
    return waited_for(frame.sparkSession, frame.collect)


def waited_for(spark: SparkSession, action: Callable[[], T]) -> T:
    """Runs an action on a session in a thread of its own, and returns its result.

    So an interrupt finds this thread free to cancel. (If py4j itself is interrupted,
    the connection is in the middle of an answer, and the next call to the JVM waits for
    the job's end.) Only this job is cancelled: others may run on the same session, or
    beside it on one server.
    """
    from pyspark import InheritableThread  # as above

    answer: Future[T] = Future()
    tag = uuid.uuid4().hex

    def act() -> None:
        try:
            spark.addTag(tag)  # of this thread's jobs
            answer.set_result(action())
        # handed over, not swallowed: without an answer the run would wait for ever
        except BaseException as failed:  # noqa: BLE001
            answer.set_exception(failed)

    InheritableThread(target=act, daemon=True).start()
    try:
        wait([answer], _ALONE_SECONDS)
        if not answer.done() and _is_alone(spark):
            _LOG.warning(
                "No executor has come up at %s. The run waits for one, without end: look at the"
                " master whether it has workers, with the free memory and cores that an executor"
                " asks for (spark.executor.memory, spark.executor.cores).",
                spark.sparkContext.master,
            )
        return answer.result()
    finally:
        if not answer.done():  # Ctrl-C, or the run was ended from outside
            with suppress(Exception):  # a server has a log of its own
                spark.sparkContext.setLogLevel("OFF")  # else Spark logs each cancelled task
            with suppress(Exception):  # Spark may be gone as well
                spark.interruptTag(tag)
            wait([answer], _CANCEL_SECONDS)


def _is_alone(spark: SparkSession) -> bool:
    """Returns whether a session at a cluster's master has no executor.

    Spark waits for one without a message that anybody sees. A local session is its own
    executor, and a server's executors are the server's business.
    """
    if is_connected(spark) or str(spark.sparkContext.master).startswith("local"):
        return False
    with suppress(Exception):  # Spark may be gone, which the job's own error says
        # nothing public shows it; the driver counts
        known: Any = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001
        return bool(known.size() <= 1)
    return False


def error_name(failed: Exception) -> str:
    """Returns the exception's type and Spark's name for the error.

    Its text may quote a worker's error, and that one a message's values.
    """
    condition = getattr(failed, "getCondition", lambda: None)()
    return type(failed).__name__ + (f", {condition}" if condition else "")


@dataclass(frozen=True)
class Job:
    """The job of each Spark task that runs an engine's task; picklable.

    `task` is pickled by itself: each try unpickles one of its own.
    """

    task: bytes
    splits: tuple[Split, ...]
    shares: list[list[int]]

    @property
    def schema(self) -> pa.Schema:
        return RESULT

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


@contextmanager
def working() -> Iterator[None]:
    """Prepares a worker's process for a Spark task, and cleans up behind it."""
    gc.set_threshold(_COLLECTED_AFTER)
    end_if_stale()
    with keeping():
        yield
    note_loaded()
    _spare_loaded()


_COLLECTED_AFTER = 50_000
"""New objects until Python's collector looks for cycles among them.

After 700, which is Python's own number, collecting takes a fifth of loading.
"""

_spared = 0
"""Number of loaded modules when this process last froze its collector's objects."""


def _spare_loaded() -> None:
    """Tells Python's collector that loaded objects stay.

    PySpark has it look through everything after each task, a tenth of a second. Only
    after a job that loaded something: frozen objects are never looked at again.
    """
    global _spared  # one per process, as the collector is  # noqa: PLW0603
    if len(sys.modules) > _spared:
        _spared = len(sys.modules)
        gc.freeze()
