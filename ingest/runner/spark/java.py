"""The driver's Java: launched while a run still plans, and ended if no SparkContext uses it.

pyspark launches Java only when it makes a SparkContext, and waits until Java answers. This is a
third of Spark's time to start. So this module launches Java in the same way, but earlier, and
tells pyspark the port of this Java.
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
    """A Java process that this module launched.

    Attributes:
        process: the process.
        answer_path: the file to which Java writes port and secret; None once pyspark uses
            this Java.
    """

    process: subprocess.Popen[bytes]
    answer_path: Path | None


_java: _Java | None = None
"""The Java of this process; pyspark also has one per process."""


def launch(properties: Mapping[str, str]) -> None:
    """Launches Java, if this process has none, without waiting for it.

    Args:
        properties: the properties of the SparkContext that will use this Java.

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
            stdin=subprocess.PIPE,  # Java ends when its input ends, so when this process ends
            stderr=writing,
            env={**environment, "TZ": "UTC"},
            process_group=0,  # a Ctrl-C of the terminal doesn't reach it
        )
    finally:
        os.close(writing)
    _java = _Java(process, answer_path)


def connect() -> None:
    """Waits until Java answers, and connects pyspark to it.

    Raises:
        UnreachableError: Java ended without an answer, because it is too old for Spark.
        PySparkRuntimeError: Java ended without an answer, for another reason.
    """
    # pyspark may have a Java already, for example from a program that launched this process
    if _java is None or _java.answer_path is None or has_java():
        return
    # imported here: it loads Spark
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
        SparkContext.getSystemProperty("java.version")  # any call makes pyspark connect
    shutil.rmtree(_java.answer_path.parent)
    _java.answer_path = None


@atexit.register
def end_unused() -> None:
    """Ends a launched Java that no SparkContext uses."""
    if _java is None or _java.answer_path is None:
        return
    if _java.process.poll() is None:
        os.killpg(_java.process.pid, signal.SIGKILL)  # safe: it has no work yet
    _java.process.communicate()
    shutil.rmtree(_java.answer_path.parent, ignore_errors=True)
    _java.answer_path = None


def is_running() -> bool:
    """Returns whether the Java that this module launched runs."""
    return _java is not None and _java.process.poll() is None


def end(seconds: float) -> None:
    """Ends the Java that this module launched. Its sessions must be stopped before.

    Args:
        seconds: the time that Java may take.

    Raises:
        TimeoutExpired: Java takes longer.
    """
    assert _java is not None
    _java.process.communicate(timeout=seconds)  # it closes Java's input, at which Java ends


def _copy_errors(reading: int) -> None:
    """Copies Java's standard error, without a warning that no option of Java turns off."""
    with open(reading, "rb") as lines:
        for line in lines:
            if b"Using incubator modules" not in line:
                os.write(2, line)


@contextmanager
def variable_set(name: str, value: str | None) -> Iterator[None]:
    """Sets a variable of this process's environment in the block; None leaves it unchanged."""
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
