"""What every job on Spark needs: how it is packed, waited for and cancelled, and its errors."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from windrow.ingest.errors import Stage, UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.runner.pickling import pickled
from windrow.ingest.runner.spark.pyspark_internals import GONE, OTHER_PYTHON

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, Row, SparkSession

T = TypeVar("T")

_LARGE = 20_000
"""Offsets of a split that is worth a Spark task of its own."""

_CANCEL_SECONDS = 10.0
"""Seconds that an interrupted run waits for Spark to cancel its job."""

_ALONE_SECONDS = 30.0
"""Seconds without a result after which a missing executor is reported."""

_LOG = logging.getLogger("windrow.waiting")

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


def shares(splits: Sequence[Split], least: int) -> list[list[int]]:
    """Divides splits, by their indices, among Spark tasks.

    Neighbours in a log go together as long as they are small. Pure.

    Args:
        splits: all of a run.
        least: the least number of tasks, if there are so many splits.
    """
    order = sorted(range(len(splits)), key=lambda index: (splits[index].tp, splits[index].start))
    lengths = [split.stop - split.start for split in splits]
    max_offsets, max_splits = min(_LARGE, -(-sum(lengths) // least)), -(-len(splits) // least)
    task_shares: list[list[int]] = []
    offsets = max_offsets
    for index in order:
        length = lengths[index]
        if offsets + length > max_offsets or len(task_shares[-1]) == max_splits:
            task_shares.append([])
            offsets = 0
        task_shares[-1].append(index)
        offsets += length
    return task_shares


DO_DOCTOR = (
    "Nothing was read or committed. Run `windrow doctor`, which says what is missing; --debug shows"
    " Spark's own words."
)
DO_PYTHON = "Nothing was read or committed. Give the workers the driver's, by spark.pyspark.python."
DO_AGAIN = (
    "Nothing was committed. Run the window again; if it fails the same way, run with --debug, which"
    " shows Spark's own words."
)


@contextmanager
def spark_errors_as(stage: Stage, message: str, advice: str) -> Iterator[None]:
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
        error_text = ""
        with suppress(Py4JError, OSError):  # Java says it, and may be gone
            error_text = str(failed)
        versions = OTHER_PYTHON.search(error_text)
        if versions is not None:
            python = f"The workers have Python {versions[1]}, and the driver has {versions[2]}"
            raise UnreachableError(python, "setup", DO_PYTHON) from failed
        raise UnreachableError(f"{message} ({error_name(failed)})", stage, advice) from failed


def is_gone(failed: BaseException) -> bool:
    """Returns whether Spark has ended, or isn't up yet.

    Otherwise the error is a mistake in the call.
    """
    from py4j.protocol import Py4JNetworkError  # as above
    from pyspark.errors import PySparkException

    by_spark = (
        isinstance(failed, PySparkException)
        and GONE.search(f"{type(failed).__name__}: {failed}") is not None
    )
    return by_spark or isinstance(failed, (Py4JNetworkError, ConnectionError))


def dumped(task: object) -> bytes:
    """Pickles a task as Spark does, functions without a module of their own included.

    Raises:
        WindrowError: as `pickling.pickled`.
    """
    from pyspark import cloudpickle  # as above

    return pickled(task, cloudpickle.dumps)


def error_name(failed: BaseException) -> str:
    """Returns the exception's type and Spark's name for the error.

    Its text may quote a worker's error, and that one a message's values.
    """
    condition = None
    with suppress(Exception):  # Java says it, and may be gone
        condition = getattr(failed, "getCondition", lambda: None)()
    return type(failed).__name__ + (f", {condition}" if condition else "")


def is_connected(session: SparkSession) -> bool:
    """Returns whether the session is on a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def context_of(spark: SparkContext | SparkSession) -> SparkContext | None:
    """Returns the process's own SparkContext; None of a Spark Connect server."""
    from pyspark import SparkContext  # as above

    if isinstance(spark, SparkContext):
        return spark
    return None if is_connected(spark) else spark.sparkContext


def session_of(spark: SparkContext | SparkSession) -> SparkSession:
    """Returns the session itself, or that of the process's own context, made if there is none."""
    from pyspark import SparkContext  # as above

    if not isinstance(spark, SparkContext):
        return spark
    from pyspark.sql import SparkSession

    return SparkSession(spark)  # a builder asks the environment, which may name a server


def collected(frame: DataFrame) -> list[Row]:
    """Returns the frame's rows; see `waited_for`."""
    return waited_for(frame.sparkSession, frame.collect)


def waited_for(spark: SparkContext | SparkSession, action: Callable[[], T]) -> T:
    """Runs an action on Spark in a thread of its own, and returns its result.

    So an interrupt finds this thread free to cancel. (If py4j itself is interrupted,
    the connection is in the middle of an answer, and the next call to the JVM waits for
    the job's end.) Only this job is cancelled: others may run on the same Spark, of this
    process or of another client of the server.
    """
    from pyspark import InheritableThread  # as above

    future: Future[T] = Future()
    context, tag = context_of(spark), uuid.uuid4().hex
    mark, cancel = (
        (context.addJobTag, context.cancelJobsWithTag)
        if context is not None
        else (session_of(spark).addTag, session_of(spark).interruptTag)
    )

    def act() -> None:
        try:
            mark(tag)  # this thread's jobs
            future.set_result(action())
        # handed over, not swallowed: without an answer the run would wait for ever
        except BaseException as failed:  # noqa: BLE001
            future.set_exception(failed)

    InheritableThread(target=act, daemon=True).start()
    try:
        wait([future], _ALONE_SECONDS)
        if not future.done() and context is not None and _is_alone(context):
            _LOG.warning(
                "No executor has come up at %s. The run waits for one, without end: look at the"
                " master whether it has workers, with the free memory and cores that an executor"
                " asks for (spark.executor.memory, spark.executor.cores).",
                context.master,
            )
        return future.result()
    finally:
        if not future.done():  # Ctrl-C, or the run was ended from outside
            with suppress(Exception):  # Spark may be gone as well
                if context is not None:
                    context.setLogLevel("OFF")  # else Spark logs each cancelled task
                cancel(tag)
            wait([future], _CANCEL_SECONDS)


def _is_alone(context: SparkContext) -> bool:
    """Returns whether the process's own Spark, at a cluster's master, has no executor.

    Spark waits for one without a message that anybody sees. A local Spark is its own
    executor, and a server's executors are the server's business.
    """
    if str(context.master).startswith("local"):
        return False
    with suppress(Exception):  # Spark may be gone, which the job's own error says
        return len(context.statusTracker().getExecutorInfos()) <= 1  # the driver counts
    return False
