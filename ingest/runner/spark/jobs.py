"""Helpers for jobs on Spark: pickling, waiting, cancelling, and errors."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from windrow.ingest.errors import DeadWorkerError, Stage, UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.runner.pickling import pickle_task
from windrow.ingest.runner.spark.pyspark_internals import OTHER_PYTHON, SPARK_GONE, WORKER_DIED

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, Row, SparkSession

T = TypeVar("T")

_LARGE = 20_000
"""Number of offsets from which a split gets a Spark task of its own."""

_CANCEL_SECONDS = 10.0
"""Seconds that an interrupted run waits for Spark to cancel its job."""

_ALONE_SECONDS = 30.0
"""Seconds without a result after which a missing executor is reported."""

_LOG = logging.getLogger("windrow.waiting")

RESULT = pa.schema([("index", pa.int64()), ("outcome", pa.string())])
"""The columns of a split's outcome, with the split's index."""


class SparkJob(Protocol):
    """The code of a Spark task; picklable.

    The first column of a task's batches has numbers. They stand for splits; see `shares`.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns of its output.

        The first two have the types of `RESULT`; their names may differ.
        """

    @property
    def shares(self) -> Sequence[Sequence[int]] | None:
        """The indices of the splits for each number; None: a number is the index of a split."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs one Spark task."""


def shares(splits: Sequence[Split], least: int) -> list[list[int]]:
    """Divides splits among Spark tasks; returns the indices of each task's splits. Pure.

    Small splits that are neighbours in a log share a task.

    Args:
        splits: all splits of a job.
        least: the smallest number of tasks, if there are so many splits.
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
    """Turns Spark's errors in the block into an UnreachableError.

    Args:
        stage: the stage of the error.
        message: the text of the error.
        advice: the advice of the error.

    Raises:
        DeadWorkerError: a Python worker died, or the executor that it was on.
        UnreachableError: Spark raised another error; or the workers' Python differs from the
            driver's.
    """
    from py4j.protocol import Py4JError  # imported here: it loads Spark
    from pyspark.errors import PySparkException

    try:
        yield
    # OSError: there is no such program, or Java is gone
    except (PySparkException, Py4JError, OSError) as failed:
        error_text = ""
        with suppress(Py4JError, OSError):  # py4j asks Java for the text, and Java may be gone
            error_text = str(failed)
        versions = OTHER_PYTHON.search(error_text)
        if versions is not None:
            python = f"The workers have Python {versions[1]}, and the driver has {versions[2]}"
            raise UnreachableError(python, "setup", DO_PYTHON) from failed
        kind = DeadWorkerError if WORKER_DIED.search(error_text) else UnreachableError
        raise kind(f"{message} ({error_name(failed)})", stage, advice) from failed


def is_gone(failed: BaseException) -> bool:
    """Returns whether an error means that Spark has ended, or isn't up yet.

    Otherwise the error is a mistake in the call.
    """
    from py4j.protocol import Py4JNetworkError  # imported here: it loads Spark
    from pyspark.errors import PySparkException

    by_spark = (
        isinstance(failed, PySparkException)
        and SPARK_GONE.search(f"{type(failed).__name__}: {failed}") is not None
    )
    return by_spark or isinstance(failed, (Py4JNetworkError, ConnectionError))


def dump_task(task: object) -> bytes:
    """Pickles a task as Spark does. Lambdas and nested functions are allowed.

    Raises:
        WindrowError: see `pickling.pickle_task`.
    """
    from pyspark import cloudpickle  # imported here: it loads Spark

    return pickle_task(task, cloudpickle.dumps)


def error_name(failed: BaseException) -> str:
    """Returns the exception's type and Spark's name for the error.

    The exception's text is left out: it may quote a worker's error, with values of a message.
    """
    condition = None
    with suppress(Exception):  # py4j asks Java for the name, and Java may be gone
        condition = getattr(failed, "getCondition", lambda: None)()
    return type(failed).__name__ + (f", {condition}" if condition else "")


def is_connected(session: SparkSession) -> bool:
    """Returns whether the session is on a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def context_of(spark: SparkContext | SparkSession) -> SparkContext | None:
    """Returns the process's own SparkContext; None for a session on a Spark Connect server."""
    from pyspark import SparkContext  # imported here: it loads Spark

    if isinstance(spark, SparkContext):
        return spark
    return None if is_connected(spark) else spark.sparkContext


def session_of(spark: SparkContext | SparkSession) -> SparkSession:
    """Returns the session itself; for a SparkContext, the context's session."""
    from pyspark import SparkContext  # imported here: it loads Spark

    if not isinstance(spark, SparkContext):
        return spark
    from pyspark.sql import SparkSession

    return SparkSession(spark)  # no builder: it reads the environment, which may name a server


def collect_rows(frame: DataFrame) -> list[Row]:
    """Returns the frame's rows; see `waited_for`."""
    return waited_for(frame.sparkSession, frame.collect)


def waited_for(spark: SparkContext | SparkSession, action: Callable[[], T]) -> T:
    """Runs an action on Spark in another thread, and returns its result.

    So this thread can cancel the job after an interrupt. If the interrupt came inside py4j,
    the connection would be in the middle of an answer, and the next call to the JVM would
    wait for the job's end. Only this job is cancelled, because this process or another client
    of the server may have other jobs on the same Spark.
    """
    from pyspark import InheritableThread  # imported here: it loads Spark

    future: Future[T] = Future()
    context, tag = context_of(spark), uuid.uuid4().hex
    mark, cancel = (
        (context.addJobTag, context.cancelJobsWithTag)
        if context is not None
        else (session_of(spark).addTag, session_of(spark).interruptTag)
    )

    def act() -> None:
        try:
            mark(tag)  # it tags the jobs of this thread
            future.set_result(action())
        # the future raises it again; without this, the run would wait for ever
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
        if not future.done():  # Ctrl-C, or another program ended the run
            with suppress(Exception):  # Spark may be gone, too
                if context is not None:
                    context.setLogLevel("OFF")  # otherwise Spark logs each cancelled task
                cancel(tag)
            wait([future], _CANCEL_SECONDS)


def _is_alone(context: SparkContext) -> bool:
    """Returns whether the process's own Spark, at a cluster's master, has no executor.

    Spark would wait for an executor without a visible message. A local Spark is its own
    executor.
    """
    if str(context.master).startswith("local"):
        return False
    with suppress(Exception):  # Spark may be gone; then the job itself fails
        return len(context.statusTracker().getExecutorInfos()) <= 1  # the list has the driver, too
    return False
