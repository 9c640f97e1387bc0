"""A local Spark: with few log lines, on the loopback address, with this Python for workers."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.ingest.native.calling import Compiled
from windrow.ingest.runner.spark.java import connect, launch
from windrow.ingest.runner.spark.pyspark_internals import DAEMON_MODULE
from windrow.ingest.waiting import waiting_for

if TYPE_CHECKING:
    from pyspark import SparkContext

LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
"""The logging settings of the driver's Java.

Java reads them before Spark logs anything. A level that is set on a SparkContext comes too late.
"""

JAVA = (
    f"-Dlog4j2.configurationFile={LOGGING} -XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1"
)
"""Options of the driver's Java, for a fast start.

The driver only hands out tasks and never gets a message, so the speed of its code doesn't
matter.
"""

ARCHIVES = Path(sys.prefix) / "var" / "windrow"
"""The folder of this environment's class archives (`ingest.runner.spark.class_archive`).

Its files are trusted like the environment's packages.
"""

QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java's options that hide warnings about classes and archives that Java can't use.

These warnings are for Java's developers.
"""

MASTER = "local[*,4]"
"""The default master: one task per core, and up to 4 tries of a task."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",  # messages never enter the JVM
    "spark.sql.session.timeZone": "UTC",
    # two attempts of a task are safe, but the second one would read Kafka for nothing
    "spark.speculation": "false",
    # a job has one result row per split and no shuffle
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.pyspark.driver.python": sys.executable,
}
"""Spark properties of every Spark that windrow starts."""

_ALONE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
    DAEMON_MODULE: "windrow.ingest.runner.spark.daemon",
}
"""Spark properties if the workers are on this machine."""

WORKER_MEMORY = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Environment variables that limit the memory of a worker.

glibc gives each thread an arena that it rarely shrinks, and librdkafka, DuckDB and polars have
many threads. Arrow's own pool keeps freed memory. With glibc's allocator, a worker that makes a
table from small messages takes 363 MB instead of 406 MB, in the same time.
"""


_CODE = [Compiled(f"windrow.ingest.{name}") for name in ("source.reader.passes", "schema.hashes")]
"""Compiled functions that every task needs."""

_LOCAL = re.compile(r"local(\[.*\])?")


def is_local(master: str) -> bool:
    """Returns whether a master is this machine itself."""
    return _LOCAL.fullmatch(master) is not None


def local_properties(more: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Sets environment variables for a Spark on this machine, and returns its properties.

    `PYSPARK_PYTHON` is set, because Spark prefers it to the property. Otherwise workers could
    run a `python3` of the PATH that lacks windrow.

    Args:
        more: further Spark properties.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in WORKER_MEMORY.items():
        os.environ.setdefault(name, value)
    return {**_ALONE, **(more or {})}


def launch_java(master: str, more: Mapping[str, str]) -> Mapping[str, str]:
    """Launches the Java of `started_context`, without waiting; returns Spark's properties.

    If tasks run on this machine, it also begins to compile the functions that they need.

    Raises:
        UnreachableError: there is no Java.
    """
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    java = {"spark.driver.extraJavaOptions": f"{JAVA} {archive_options()}"}
    properties = {**SETTINGS, **java, **more}
    launch({**properties, "spark.master": master})
    if is_local(master):
        for code in _CODE:
            code.ready()
    return properties


def started_context(master: str, more: Mapping[str, str]) -> SparkContext:
    """Returns the process's SparkContext; makes one at the master if there is none.

    Args:
        master: Spark's master.
        more: Spark properties in addition to `SETTINGS`.

    Raises:
        UnreachableError: there is no Java.
    """
    properties = launch_java(master, more)
    # imported here: these modules load Spark
    from pyspark import SparkConf, SparkContext
    from pyspark.errors.exceptions.captured import install_exception_handler

    with _own_interrupts(), waiting_for("Spark to start"):
        connect()
        settings = SparkConf().setMaster(master).setAppName("windrow")
        context = SparkContext.getOrCreate(settings.setAll([*properties.items()]))
    install_exception_handler()  # gives Spark's errors names; pyspark does so only with SQL
    context.setLogLevel("ERROR")
    context.environment["TZ"] = "UTC"  # for workers, even if another program made the context
    return context


def archive_options() -> str:
    """Returns Java's options to use the class archive; "" without an archive.

    Java silently ignores an archive of another Java build.
    """
    archive = archive_path()
    return (
        f"-XX:SharedArchiveFile={archive} {QUIET}"
        if archive is not None and archive.is_file()
        else ""
    )


def archive_path() -> Path | None:
    """Returns the path of the class archive for this Spark and Java; it may not exist yet.

    None if Java or Spark can't be found, or the path has a space in it.
    """
    java, spark = _java_home(), find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    jars = sorted((Path(spark.origin).parent / "jars").glob("*.jar"))
    path = ARCHIVES / f"spark-{_digest([java / 'lib' / 'modules', *jars])}.jsa"
    return None if " " in str(path) else path


def _java_home() -> Path | None:
    """Returns the home of Spark's Java: JAVA_HOME, else the home of `java` on the PATH."""
    home_by_environment = os.environ.get("JAVA_HOME")
    java = shutil.which(
        Path(home_by_environment) / "bin" / "java" if home_by_environment else "java"
    )
    home = None if java is None else Path(java).resolve().parent.parent
    return home if home is not None and (home / "lib" / "modules").is_file() else None


def _digest(files: Iterable[Path]) -> str:
    """Returns a digest of the files' paths, sizes and times. Java compares the same data."""
    digest = hashlib.sha256()
    for file in files:
        state = file.stat()
        digest.update(f"{file} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Restores the process's own handler of Ctrl-C after the block.

    pyspark replaces it by a handler that calls the JVM, which may be busy.
    """
    main = threading.current_thread() is threading.main_thread()
    old_handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if main and old_handler is not None:
            signal.signal(signal.SIGINT, old_handler)
