"""Java's archive of the classes that Spark loads (class data sharing).

With the archive a run's first task begins after 2.1 s, without it after 3.5 s
(`tests/bench/startup.py`). `make_archive` makes it once for each environment, and then every
local Spark uses it. The file is in the environment's folder. Its name has a digest of the files
of Java and Spark, so that another Java or Spark doesn't use it.

Source: JEP 350, "Dynamic CDS Archives".
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from windrow.ingest.errors import UnreachableError
from windrow.ingest.runner.spark.cluster import spark_session
from windrow.ingest.runner.spark.java import end
from windrow.ingest.runner.spark.local import JAVA, QUIET, archive_path

T = TypeVar("T")

_SECONDS = 300
_END_SECONDS = 120
"""Seconds that Java may take to write the archive, once its session ends."""


def make_archive() -> Path:
    """Starts Spark once, runs a task, and archives the classes that Java loaded.

    It takes half a minute. Other processes may use Spark at the same time.

    Raises:
        UnreachableError: there is no Java, Spark doesn't start, or the folder can't be
            written to.
    """
    path = archive_path()
    if path is None:
        raise UnreachableError(
            "There is no Java, or no Spark, to make an archive of",
            "setup",
            "Install Java 17 or later and set JAVA_HOME to it; the environment's path must have no"
            " space in it.",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Java writes the file piece by piece, and another Java that maps a part of an archive
        # crashes. So the archive gets its final name only when it is complete.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
            archive = Path(folder) / path.name
            record_classes(archive)
            archive.replace(path)
        # archives of an earlier Spark or Java; a process that has one open can still read it
        for old_archive in set(path.parent.glob("spark-*.jsa")) - {path}:
            old_archive.unlink(missing_ok=True)
    except OSError as failed:
        raise UnreachableError(
            f"No archive could be written to {path.parent} ({failed.strerror})",
            "setup",
            "Run it as a user that may write there; or do without: Spark only starts slower.",
        ) from failed
    return path


def record_classes(archive: Path) -> None:
    """Starts Spark in another process, whose Java writes the archive.

    If this process has a Java, it was started without the needed option.

    Args:
        archive: the file to write.

    Raises:
        UnreachableError: Spark didn't start, or Java wrote no archive.
    """
    command = [
        sys.executable,
        "-m",
        "windrow.ingest.runner.spark.class_archive",
        f"-XX:ArchiveClassesAtExit={archive} {QUIET}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode or not archive.is_file():
        raise UnreachableError(
            "Spark did not start, or Java wrote no archive of it",
            "setup",
            "Run `windrow doctor`, which says what is missing. Spark works without an archive; it"
            " only starts slower.",
        )


def _same(things: Iterable[T]) -> Iterator[T]:
    yield from things


def _main(options: str) -> None:
    """Runs jobs like those of a window, and waits for the end of Java, which writes the archive.

    Args:
        options: further options of Java.
    """
    session = spark_session("local[2,4]", {"spark.driver.extraJavaOptions": f"{JAVA} {options}"})
    session.sparkContext.parallelize(range(2), 2).mapPartitions(_same).collect()
    session.range(0, 2, 1, 2).mapInArrow(_same, "id long").collect()
    session.stop()
    end(_END_SECONDS)


if __name__ == "__main__":
    _main(sys.argv[1])
