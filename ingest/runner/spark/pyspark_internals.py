"""What windrow uses of pyspark that isn't among its public names, and texts that it searches.

No other module does. All of it was seen in pyspark 4.3, and any release may change it:
`tests/shape/test_internals.py` tells what is gone. Where a docstring says "nothing public", that
would be the better way.
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
"""Environment variables: pyspark uses the Java that answers there, and launches none.

Nothing public takes a Java.
"""


def java_launch(
    properties: Mapping[str, str], answer_path: Path
) -> tuple[list[str], Mapping[str, str]]:
    """Returns the command by which pyspark launches Java, and the environment of it.

    Nothing public launches Java without waiting for it.

    Args:
        properties: Spark's, of the SparkContext to come.
        answer_path: the file in which Java writes where it answers (`java_answer`).
    """
    spark = find_spec("pyspark")
    assert spark is not None
    home = os.environ.get("SPARK_HOME") or Path(str(spark.origin)).parent
    words = [word for name, value in properties.items() for word in ("--conf", f"{name}={value}")]
    words += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    variables = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer_path)}
    return [f"{home}/bin/spark-submit", *words], {**os.environ, **variables}


def java_answer(answer_path: Path) -> tuple[str, str]:
    """Returns the port and the secret in Java's file, which is whole if it is there."""
    # Spark is loaded only where it is used
    from pyspark.serializers import UTF8Deserializer, read_int

    with answer_path.open("rb") as file:
        return str(read_int(file)), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]  # Spark's own


def has_java() -> bool:
    """Returns whether pyspark has a Java, also if its SparkContext was stopped.

    Nothing public shows it.
    """
    spark: Any = sys.modules.get("pyspark")
    return spark is not None and spark.SparkContext._gateway is not None  # noqa: SLF001


# ------------------------------------------------------------------------- objects of pyspark


def own_context() -> SparkContext | None:
    """Returns the process's SparkContext; None if there is none.

    Everything public would make one.
    """
    from pyspark import SparkContext  # loaded only where it is used

    return SparkContext._active_spark_context  # noqa: SLF001


def connect_port(session: Any) -> int:
    """Returns the port at which Spark Connect listens in the session's Java.

    Nothing public shows it.
    """
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    return int(getattr(getattr(session._jvm, service), "MODULE$").localPort())  # noqa: SLF001


@contextmanager
def active_in_thread(session: SparkSession) -> Iterator[None]:
    """Makes a session on a server this thread's own in the block.

    A server's client takes the thread's session if none is named. Nothing public replaces it.
    """
    # gRPC is loaded only where it is used
    from pyspark.sql.connect.session import SparkSession as ConnectedSession

    thread_sessions: Any = ConnectedSession._active_session  # noqa: SLF001
    old_session = getattr(thread_sessions, "session", None)
    thread_sessions.session = session
    try:
        yield
    finally:
        thread_sessions.session = old_session


def drop_checkpoint(frame: DataFrame) -> None:
    """Removes the rows of a local checkpoint of this process's own Spark.

    Spark would keep them until it looks for unused ones, twice an hour. Nothing public removes
    them.
    """
    java: Any = frame._jdf  # noqa: SLF001
    java.queryExecution().analyzed().rdd().unpersist(False)


# ------------------------------------------------------------------ names that Spark goes by

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""The environment variable that tells `pyspark.sql.functions` whose columns to make.

If it is set, they are of a server's session, else of this process's own.
"""

DAEMON_MODULE = "spark.python.daemon.module"
"""The property with the module that Spark's daemon of Python workers runs."""

SPARK_ZIPS = "pyspark.zip", "py4j-*-src.zip"
"""Names of the zips that Spark puts first on the path of its Python workers."""

BUFFER_BYTES = "spark.sql.execution.pandas.udf.buffer.size"
"""The property of a session that becomes part of its workers' environment (SPARK_BUFFER_SIZE)."""

IDLE_WORKER_SECONDS = 60
"""Seconds without any task after which Spark ends its idle Python workers.

No setting changes them (`PythonWorkerFactory.IDLE_WORKER_TIMEOUT_NS`, read in Spark 4.3;
`spark.python.worker.idleTimeoutSeconds` is about workers that are busy).
"""

REFUSE_CHANGED_SHUFFLES = {
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableQueryLevelRollbackOnMismatch": "true",
}
"""Settings by which Spark compares a shuffle's rows before and now.

It begins anew or fails if they differ.
"""

# -------------------------------------------------------------------------- texts of Spark


def range_splits(session: SparkSession) -> int:
    """Returns how many parts Spark gives to a range without a number of parts.

    That is the number of tasks that run at once; a server shows it in no other place.
    """
    plan = session.sql("EXPLAIN SELECT * FROM range(1048576)").collect()[0][0]
    parts = re.search(r"splits=(\d+)", plan)
    return int(parts[1]) if parts else 1


SPARK_GONE = re.compile(
    r"^SparkConnectGrpcException:|INVALID_HANDLE|ExecutorLostFailure|SparkContext was shut down"
)
"""Matches errors of a Spark that ends, has ended or was restarted.

`SparkConnectGrpcException` is gRPC's own error, without an answer of a server.
"""

OTHER_PYTHON = re.compile(
    r"Python in worker has different version: (\d[\d.]*) than that in driver: (\d[\d.]*)"
)
"""Matches the error of Spark's worker if it has another minor version of Python.

It comes before anything is unpickled, which could fail.
"""

LOST_OR_RAISED = r"\[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND\]|\[USER_RAISED_EXCEPTION\] "
"""A pattern of the error if rows of a local checkpoint are lost, or else of what an error has in
front of the text of `raise_error`.
"""

WRONG_TOKEN = "UNAUTHENTICATED"  # no token  # noqa: S105
"""Part of the error of a client that has no token, or a wrong one."""

RETRIES_WARNING = r"\[RETRIES_EXCEEDED\]"
"""A pattern of a client's warning, beside its error, that no server answers."""

MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
"""Matches the error of a worker that can't import a module; its group is the module."""

RAISED_ON_WORKER = re.compile(
    r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit))(?::|$)", re.MULTILINE
)
"""Matches the kinds of errors in the error of a worker; the last one is the task's own."""
