"""A local Spark session set up for windrow: quiet, on loopback, with this interpreter
for its Python workers.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.ingest.runner.spark.archive import archive_options
from windrow.ingest.waiting import waiting_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
"""What the driver's Java logs: read before Spark's first word, where a session's own
level would come too late.
"""

JAVA = (
    f"-Dlog4j2.configurationFile={LOGGING} -XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1"
    " -XX:+UseSerialGC"
)
"""What the driver's Java is told.

It hands out tasks and never sees a message: to begin soon counts, and not how fast its
loops become.
"""

MASTER = "local[*,4]"
"""A task on every core, and one that failed up to 4 times."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",  # messages never enter the JVM
    "spark.sql.session.timeZone": "UTC",
    # Two attempts of a task are safe, but reading Kafka twice on purpose is a waste.
    "spark.speculation": "false",
    # One result row per task: no shuffle, no adaptive plan.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.pyspark.driver.python": sys.executable,
}
"""Of every session."""

_ALONE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
}
"""Of one that has its workers in this process's own Java."""


def local_session(master: str = MASTER, more: Mapping[str, str] | None = None) -> SparkSession:
    """The process's session, made if there is none.

    `more`: Spark properties on top of SETTINGS.

    Spark takes its workers' interpreter from the environment too, where it wins: a
    `python3` on the PATH would lack windrow.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # glibc gives each thread an arena that it rarely shrinks; librdkafka, DuckDB and
    # polars have many threads in each worker.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    return started_session(master, {**_ALONE, **(more or {})})


def started_session(master: str, more: Mapping[str, str]) -> SparkSession:
    """The process's session at any master, made if there is none.

    `more`: Spark properties on top of SETTINGS.
    """
    from pyspark.sql import SparkSession  # Spark is loaded only where it is used

    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("windrow")
    java = {"spark.driver.extraJavaOptions": f"{JAVA} {archive_options()}"}
    for name, value in {**SETTINGS, **java, **more}.items():
        builder = builder.config(name, value)
    with _own_interrupts(), waiting_for("Spark to start"):
        _start_java({**SETTINGS, **java, **more, "spark.master": master})
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _start_java(settings: Mapping[str, str]) -> None:
    """Have Java's standard error come through this process, without the one line that
    no option of Java's turns off.
    """
    from pyspark import (
        SparkConf,
        SparkContext,
    )  # Spark is loaded only where it is used
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:  # nothing public tells  # noqa: SLF001
        return
    reading, writing = os.pipe()
    threading.Thread(target=_passed_on, args=(reading,), daemon=True).start()
    try:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    finally:
        os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway)  # what a SparkContext does first  # noqa: SLF001


def _passed_on(reading: int) -> None:
    with open(reading, "rb") as lines:
        for line in lines:
            if b"Using incubator modules" not in line:
                os.write(2, line)


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """What Ctrl-C does stays the process's own business: pyspark puts a handler in its
    place that talks to a JVM which is busy.
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if main and before is not None:
            signal.signal(signal.SIGINT, before)


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
