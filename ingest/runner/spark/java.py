"""The driver's Java: launched while a run still plans, and ended if no SparkContext came to use it.

pyspark launches one only when it makes a SparkContext, and waits until it answers, which is a
third of the time that Spark takes to start. So it is launched here as pyspark does it
(`pyspark.java_gateway`), and pyspark is told where it answers.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from windrow.ingest.errors import UnreachableError
from windrow.ingest.java import java_command, java_problem

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"  # names, no secret
"""The environment variables by which pyspark is told of a Java that is up already."""

_unused: tuple[subprocess.Popen[bytes], Path] | None = None
"""The Java that no SparkContext uses yet, and the file in which it writes port and secret."""


def launch(properties: Mapping[str, str]) -> None:
    """Launches Java, if this process has none, and waits for nothing.

    `properties`: Spark's, of the SparkContext to come.

    Raises:
        UnreachableError: no Java is installed.
    """
    global _unused  # one per process, as pyspark's is  # noqa: PLW0603
    if java_command() is None:
        raise UnreachableError(java_problem() or "", "setup", "Then run this again.")
    if _unused is not None or _PORT in os.environ or _gateway() is not None:
        return
    spark = find_spec("pyspark")
    assert spark is not None
    home = os.environ.get("SPARK_HOME") or Path(str(spark.origin)).parent
    words = [word for name, value in properties.items() for word in ("--conf", f"{name}={value}")]
    words += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    answer = Path(tempfile.mkdtemp(prefix="windrow-java-")) / "answer"
    told = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer), "TZ": "UTC"}
    reading, writing = os.pipe()
    threading.Thread(target=_copy_errors, args=(reading,), daemon=True).start()
    try:
        process = subprocess.Popen(
            [f"{home}/bin/spark-submit", *words],
            stdin=subprocess.PIPE,  # Java ends when this process does
            stderr=writing,
            env={**os.environ, **told},
            process_group=0,  # no Ctrl-C of the terminal
        )
    finally:
        os.close(writing)
    _unused = process, answer


def connect() -> None:
    """Waits until Java answers, and makes it pyspark's.

    Raises:
        UnreachableError: it ended before, because it is too old for Spark.
        PySparkRuntimeError: it ended before, for another reason.
    """
    global _unused  # as above
    # Spark is loaded only where it is used
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.serializers import UTF8Deserializer, read_int

    if _gateway() is not None:
        return
    if _unused is None:  # another program has launched this one, with Java
        gateway = launch_gateway()  # type: ignore[no-untyped-call]  # Spark's own
    else:
        process, answer = _unused
        while not answer.exists():
            if process.poll() is not None:
                end_unused()
                if problem := java_problem():
                    raise UnreachableError(problem, "setup", "Then run this again.")
                raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
            time.sleep(0.02)
        with answer.open("rb") as file:
            port, secret = read_int(file), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]  # as above
        with variable_set(_PORT, str(port)), variable_set(_SECRET, secret):
            gateway = launch_gateway()  # type: ignore[no-untyped-call]  # as above
        gateway.proc, _unused = process, None
        shutil.rmtree(answer.parent)
    SparkContext._ensure_initialized(gateway=gateway)  # what a SparkContext does first  # noqa: SLF001


@atexit.register
def end_unused() -> None:
    """Ends Java that was launched and that no SparkContext uses."""
    global _unused  # as above
    if _unused is None:
        return
    (process, answer), _unused = _unused, None
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)  # it has written nothing yet
    process.communicate()
    shutil.rmtree(answer.parent, ignore_errors=True)


def _gateway() -> Any:
    """The Java that pyspark uses; None without one."""
    spark: Any = sys.modules.get("pyspark")
    # nothing public shows it
    return None if spark is None else spark.SparkContext._gateway  # noqa: SLF001


def _copy_errors(reading: int) -> None:
    """Copies Java's standard error, without a line that none of Java's options turns off."""
    with open(reading, "rb") as lines:
        for line in lines:
            if b"Using incubator modules" not in line:
                os.write(2, line)


@contextmanager
def variable_set(name: str, value: str | None) -> Iterator[None]:
    """Sets a variable of this process's environment for the block; None: leaves it."""
    if value is None:
        yield
        return
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
