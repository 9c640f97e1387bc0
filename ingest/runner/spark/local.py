"""A local Spark for windrow: quiet, on loopback, with this Python for workers."""

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

They are read before Spark logs anything; a context's own level would come too late.
"""

JAVA = (
    f"-Dlog4j2.configurationFile={LOGGING} -XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1"
)
"""Options of the driver's Java.

It hands out tasks and never sees a message: a fast start counts, not fast loops.
"""

ARCHIVES = Path(sys.prefix) / "var" / "windrow"
"""The folder of this environment's archives of classes (`ingest.runner.spark.class_archive`).

It is trusted as much as the packages.
"""

QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java's options that hide its warnings of classes and archives that it can't use.

They are for Java's developers.
"""

MASTER = "local[*,4]"
"""A task on every core; one that failed is tried up to 4 times."""

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
"""Spark properties of every Spark that windrow starts."""

_ALONE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
    DAEMON_MODULE: "windrow.ingest.runner.spark.daemon",
}
"""Spark properties where the workers are on this machine."""

WORKER_MEMORY = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Environment variables that keep a worker small.

glibc gives each thread an arena that it rarely shrinks, and librdkafka, DuckDB and polars have
many threads. Arrow's own pool keeps what was freed: with glibc's allocator a worker that makes a
table of small messages takes 363 MB instead of 406, in the same time.
"""


_CODE = [Compiled(f"windrow.ingest.{name}") for name in ("source.reader.passes", "schema.hashes")]
"""Machine code without which no task goes on."""

_LOCAL = re.compile(r"local(\[.*\])?")


def is_local(master: str) -> bool:
    """Returns whether a master is this machine itself."""
    return _LOCAL.fullmatch(master) is not None


def local_properties(more: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Returns the properties of a Spark on this machine.

    Spark prefers the interpreter that the environment names, so it is set there: a
    `python3` on the PATH would lack windrow.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in WORKER_MEMORY.items():
        os.environ.setdefault(name, value)
    return {**_ALONE, **(more or {})}


def launch_java(master: str, more: Mapping[str, str]) -> Mapping[str, str]:
    """Launches the Java of `started_context`, and waits for nothing.

    Where machine code isn't kept yet that tasks on this machine need, it begins to be made, too.
    Returns Spark's properties.

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
    """Returns the process's SparkContext at any master, made if there is none.

    `more`: Spark properties on top of SETTINGS.

    Raises:
        UnreachableError: there is no Java.
    """
    properties = launch_java(master, more)
    # Spark is loaded only where it is used
    from pyspark import SparkConf, SparkContext
    from pyspark.errors.exceptions.captured import install_exception_handler

    with _own_interrupts(), waiting_for("Spark to start"):
        connect()
        settings = SparkConf().setMaster(master).setAppName("windrow")
        context = SparkContext.getOrCreate(settings.setAll([*properties.items()]))
    install_exception_handler()  # Spark's errors have names then, as they have once there is SQL
    context.setLogLevel("ERROR")
    context.environment["TZ"] = "UTC"  # of workers, also if another program made the context
    return context


def archive_options() -> str:
    """Returns Java's options to use the archive; an empty text without an archive.

    Java silently ignores an archive that it can't use, because it is of another build.
    """
    archive = archive_path()
    return (
        f"-XX:SharedArchiveFile={archive} {QUIET}"
        if archive is not None and archive.is_file()
        else ""
    )


def archive_path() -> Path | None:
    """Returns the path of the archive for this Spark on this Java; it may not exist yet.

    None if Java or Spark can't be found, or a path has a space in it.
    """
    java, spark = _java_home(), find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    jars = sorted((Path(spark.origin).parent / "jars").glob("*.jar"))
    path = ARCHIVES / f"spark-{_digest([java / 'lib' / 'modules', *jars])}.jsa"
    return None if " " in str(path) else path


def _java_home() -> Path | None:
    """Returns the home of Spark's Java: JAVA_HOME's, else the one on the PATH."""
    home_by_environment = os.environ.get("JAVA_HOME")
    java = shutil.which(
        Path(home_by_environment) / "bin" / "java" if home_by_environment else "java"
    )
    home = None if java is None else Path(java).resolve().parent.parent
    return home if home is not None and (home / "lib" / "modules").is_file() else None


def _digest(files: Iterable[Path]) -> str:
    """Makes a digest of the files' paths, sizes and times, which Java itself checks."""
    digest = hashlib.sha256()
    for file in files:
        state = file.stat()
        digest.update(f"{file} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keeps the process's own handler of Ctrl-C.

    pyspark replaces it by one that talks to a JVM which is busy.
    """
    main = threading.current_thread() is threading.main_thread()
    old_handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if main and old_handler is not None:
            signal.signal(signal.SIGINT, old_handler)
