"""Java's archive of the classes that Spark loads (class data sharing).

With it a run's first task begins after 2.1 s, without it after 3.5 s
(`tests/bench/startup.py`). `make_archive` makes it once for each environment, and every
local Spark uses it after that. It lies in the environment itself, under a name made
of all that it depends on, so that another Spark or another Java never meets it.

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
    """Starts Spark once, lets it run a task, and keeps the classes that it loaded.

    Takes half a minute; others may use Spark meanwhile.

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
        # Java writes the file bit by bit, and one that maps half an archive crashes: so
        # the archive gets its name only when it is whole.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
            archive = Path(folder) / path.name
            record_classes(archive)
            archive.replace(path)
        # archives of an earlier Spark or Java; a process that has one open keeps it
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
    """Starts Spark in a process of its own, whose Java writes the archive.

    The Java of this process, if it has one, was started without that option.
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
    """Runs jobs of the shapes that windows' have, and waits for Java's end.

    At its end Java writes the archive.
    """
    session = spark_session("local[2,4]", {"spark.driver.extraJavaOptions": f"{JAVA} {options}"})
    session.sparkContext.parallelize(range(2), 2).mapPartitions(_same).collect()
    session.range(0, 2, 1, 2).mapInArrow(_same, "id long").collect()
    session.stop()
    end(_END_SECONDS)


if __name__ == "__main__":
    _main(sys.argv[1])
