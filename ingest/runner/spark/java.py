"""The driver's Java: launched while a run still plans, and ended if no SparkContext came to use it.

pyspark launches one only when it makes a SparkContext, and waits until it answers, which is a
third of the time that Spark takes to start. So it is launched here as pyspark does it, and pyspark
is told where it answers.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from windrow.ingest.errors import UnreachableError
from windrow.ingest.java import java_command, java_problem
from windrow.ingest.runner.spark.pyspark_internals import (
    JAVA_PORT,
    JAVA_SECRET,
    has_java,
    java_answer,
    java_launch,
)


@dataclass
class _Java:
    """Java that was launched here.

    `answer_path`: the file in which it writes port and secret; None once pyspark uses it.
    """

    process: subprocess.Popen[bytes]
    answer_path: Path | None


_java: _Java | None = None
"""One per process, as pyspark's is."""


def launch(properties: Mapping[str, str]) -> None:
    """Launches Java, if this process has none, and waits for nothing.

    `properties`: Spark's, of the SparkContext to come.

    Raises:
        UnreachableError: no Java is installed.
    """
    global _java  # one per process  # noqa: PLW0603
    if java_command() is None:
        raise UnreachableError(java_problem() or "", "setup", "Then run this again.")
    if (
        (_java is not None and _java.answer_path is not None)
        or JAVA_PORT in os.environ
        or has_java()
    ):
        return
    answer_path = Path(tempfile.mkdtemp(prefix="windrow-java-")) / "answer"
    command, environment = java_launch(properties, answer_path)
    reading, writing = os.pipe()
    threading.Thread(target=_copy_errors, args=(reading,), daemon=True).start()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # Java ends when this process does
            stderr=writing,
            env={**environment, "TZ": "UTC"},
            process_group=0,  # no Ctrl-C of the terminal
        )
    finally:
        os.close(writing)
    _java = _Java(process, answer_path)


def connect() -> None:
    """Waits until Java answers, and makes it pyspark's.

    Raises:
        UnreachableError: it ended before, because it is too old for Spark.
        PySparkRuntimeError: it ended before, for another reason.
    """
    # there may be one that another program has launched, with this process
    if _java is None or _java.answer_path is None or has_java():
        return
    # Spark is loaded only where it is used
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError

    while not _java.answer_path.exists():
        if _java.process.poll() is not None:
            end_unused()
            if problem := java_problem():
                raise UnreachableError(problem, "setup", "Then run this again.")
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        time.sleep(0.02)
    port, secret = java_answer(_java.answer_path)
    with variable_set(JAVA_PORT, port), variable_set(JAVA_SECRET, secret):
        SparkContext.getSystemProperty("java.version")  # any question makes pyspark connect
    shutil.rmtree(_java.answer_path.parent)
    _java.answer_path = None


@atexit.register
def end_unused() -> None:
    """Ends Java that was launched and that no SparkContext uses."""
    if _java is None or _java.answer_path is None:
        return
    if _java.process.poll() is None:
        os.killpg(_java.process.pid, signal.SIGKILL)  # it has written nothing yet
    _java.process.communicate()
    shutil.rmtree(_java.answer_path.parent, ignore_errors=True)
    _java.answer_path = None


def is_running() -> bool:
    """Returns whether the Java that was launched here runs."""
    return _java is not None and _java.process.poll() is None


def end(seconds: float) -> None:
    """Ends the Java that was launched here, once its sessions are stopped.

    Raises:
        TimeoutExpired: it takes longer.
    """
    assert _java is not None
    _java.process.communicate(timeout=seconds)  # Java ends by the end of its input


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
    old_value = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if old_value is not None:
            os.environ[name] = old_value
