"""Private names of pyspark that windrow uses, and texts of Spark that it searches.

No other module uses private names of pyspark. All are those of pyspark 4.3, and any release may
change them: `tests/shape/test_internals.py` fails if one is missing. "Nothing public ..." in a
docstring is the reason for the private name.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

# ----------------------------------------------------------------------- the launch of Java

JAVA_PORT, JAVA_SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"  # names, no secret
"""Environment variables with the port and secret of a Java that runs already.

If they are set, pyspark connects to this Java and launches none. Nothing public does this.
"""


def java_launch(
    properties: Mapping[str, str], answer_path: Path
) -> tuple[list[str], Mapping[str, str]]:
    """Returns the command by which pyspark launches Java, and the command's environment.

    Nothing public launches Java without waiting for it.

    Args:
        properties: the properties of the SparkContext that will use this Java.
        answer_path: the file to which Java writes its port and secret (`java_answer`).
    """
    spark = find_spec("pyspark")
    assert spark is not None
    home = os.environ.get("SPARK_HOME") or Path(str(spark.origin)).parent
    words = [word for name, value in properties.items() for word in ("--conf", f"{name}={value}")]
    words += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    variables = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer_path)}
    return [f"{home}/bin/spark-submit", *words], {**os.environ, **variables}


def java_answer(answer_path: Path) -> tuple[str, str]:
    """Returns the port and the secret in Java's file. The file is complete if it exists."""
    # imported here: it loads Spark
    from pyspark.serializers import UTF8Deserializer, read_int

    with answer_path.open("rb") as file:
        return str(read_int(file)), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]  # Spark's own


def has_java() -> bool:
    """Returns whether pyspark has a Java, even if its SparkContext was stopped.

    Nothing public shows this.
    """
    spark: Any = sys.modules.get("pyspark")
    return spark is not None and spark.SparkContext._gateway is not None  # noqa: SLF001


# ------------------------------------------------------------------------- objects of pyspark


def own_context() -> SparkContext | None:
    """Returns the process's SparkContext; None if there is none.

    Nothing public returns it without making one.
    """
    from pyspark import SparkContext  # imported here: it loads Spark

    return SparkContext._active_spark_context  # noqa: SLF001


def connect_port(session: Any) -> int:
    """Returns the port at which Spark Connect listens in the session's Java.

    Nothing public shows this.
    """
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    return int(getattr(getattr(session._jvm, service), "MODULE$").localPort())  # noqa: SLF001


@contextmanager
def active_in_thread(session: SparkSession) -> Iterator[None]:
    """Makes a session on a server the active session of this thread in the block.

    The client of a server uses the thread's active session if a call names none. Nothing
    public replaces this session.
    """
    # imported here: it loads gRPC
    from pyspark.sql.connect.session import SparkSession as ConnectedSession

    thread_sessions: Any = ConnectedSession._active_session  # noqa: SLF001
    old_session = getattr(thread_sessions, "session", None)
    thread_sessions.session = session
    try:
        yield
    finally:
        thread_sessions.session = old_session


def drop_checkpoint(frame: DataFrame) -> None:
    """Removes the rows of a local checkpoint in this process's own Spark.

    Otherwise Spark keeps them until it looks for unused data, twice an hour. Nothing public
    removes them.
    """
    java: Any = frame._jdf  # noqa: SLF001
    java.queryExecution().analyzed().rdd().unpersist(False)


# ------------------------------------------------------------------ names that Spark goes by

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""The environment variable that decides which columns `pyspark.sql.functions` makes.

If it is set, they are columns for a server's session, otherwise for this process's own session.
"""

DAEMON_MODULE = "spark.python.daemon.module"
"""The property with the module that Spark runs as its daemon of Python workers."""

SPARK_ZIPS = "pyspark.zip", "py4j-*-src.zip"
"""Patterns of the zips that Spark puts first on the path of its Python workers."""

BUFFER_BYTES = "spark.sql.execution.pandas.udf.buffer.size"
"""A session's property that becomes a variable of its workers' environment, SPARK_BUFFER_SIZE."""

IDLE_WORKER_SECONDS = 60
"""Seconds without a task after which Spark ends its idle Python workers.

No setting changes this (`PythonWorkerFactory.IDLE_WORKER_TIMEOUT_NS` in Spark 4.3).
`spark.python.worker.idleTimeoutSeconds` is for busy workers.
"""

REFUSE_CHANGED_SHUFFLES = {
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableQueryLevelRollbackOnMismatch": "true",
}
"""Settings by which Spark compares a shuffle's rows, if it computes them a second time.

If they differ from the first time, Spark repeats the whole query or fails.
"""

# -------------------------------------------------------------------------- texts of Spark


def range_splits(session: SparkSession) -> int:
    """Returns Spark's default number of partitions of a range.

    This is the number of tasks that run at once. Nothing public on a server shows it.
    """
    plan = session.sql("EXPLAIN SELECT * FROM range(1048576)").collect()[0][0]
    parts = re.search(r"splits=(\d+)", plan)
    return int(parts[1]) if parts else 1


SPARK_GONE = re.compile(
    r"^SparkConnectGrpcException:|INVALID_HANDLE|ExecutorLostFailure|SparkContext was shut down"
)
"""Matches errors of a Spark that ends, has ended or was restarted.

`SparkConnectGrpcException` is gRPC's own error, if no server answers.
"""

MEMORY_SIZE = re.compile(r"(\d+)([kmgtp]?)b?")
"""Matches a size of memory in a property, in lower case: `512` and `512m` are mebibytes."""

WORKER_DIED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure")
"""Matches errors of a job whose tasks lost their Python workers."""

OTHER_PYTHON = re.compile(
    r"Python in worker has different version: (\d[\d.]*) than that in driver: (\d[\d.]*)"
)
"""Matches the error of a worker that has another minor version of Python than the driver.

The worker raises it before it unpickles anything.
"""

LOST_OR_RAISED = r"\[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND\]|\[USER_RAISED_EXCEPTION\] "
"""Pattern of the error for lost rows of a local checkpoint, or of the prefix of `raise_error`.

An error of SQL's `raise_error` has this prefix before its text.
"""

WRONG_TOKEN = "UNAUTHENTICATED"  # no token  # noqa: S105
"""Part of the error of a client that has no token, or a wrong token."""

RETRIES_WARNING = r"\[RETRIES_EXCEEDED\]"
"""Pattern of a client's warning that no server answers. The client raises an error, too."""

MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
"""Matches the error of a worker that can't import a module; its group is the module."""

RAISED_ON_WORKER = re.compile(
    r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit))(?::|$)", re.MULTILINE
)
"""Matches the types of exceptions in the error of a worker; the last one is the task's own."""
