"""Java's archive of the classes that Spark loads (class data sharing): with it Spark
begins in about half the time.

Made once for each environment by `make_archive`, and used by every `local_session`
after that. It lies in the environment itself, under a name made of all that it depends
on, so that another Spark or another Java never meets it.

Source: JEP 350, "Dynamic CDS Archives".
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import UnreachableError

FOLDER = Path(sys.prefix) / "var" / "windrow"
"""Where this environment's archives are: what is in there is trusted as much as the
packages beside it.
"""

_SECONDS = 300
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""What Java has to say of classes that it leaves out, and of an archive that it won't
have, is for its developers.
"""


def archive_options() -> str:
    """What Java is told to use the archive; nothing where there is none.

    An archive that Java can't use, because it is of another build, is passed over without a word.
    """
    archive = archive_path()
    return (
        f"-XX:SharedArchiveFile={archive} {_QUIET}"
        if archive is not None and archive.is_file()
        else ""
    )


def archive_path() -> Path | None:
    """Where the archive for this Spark on this Java is, or would be; None where either
    can't be found, or a path has a space in it.
    """
    java, spark = _java_home(), find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    jars = sorted((Path(spark.origin).parent / "jars").glob("*.jar"))
    path = FOLDER / f"spark-{_digest([java / 'lib' / 'modules', *jars])}.jsa"
    return None if " " in str(path) else path


def make_archive() -> Path:
    """Start Spark once, let it run a task, and keep the classes that it loaded.

    Takes half a minute; others may use Spark meanwhile.

    Raises:
        UnreachableError: there is no Java, Spark doesn't start, or the folder can't be written to.
    """
    path = archive_path()
    if path is None:
        do = (
            "Install Java 17 or later and set JAVA_HOME to it; the environment's path must have no"
            " space in it."
        )
        raise UnreachableError("There is no Java, or no Spark, to make an archive of", "setup", do)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Java writes as it goes, and a later one that maps half an archive ends with
        # it: so under its name only when it is whole.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
            made = Path(folder) / path.name
            record_classes(made)
            made.replace(path)
        for other in set(path.parent.glob("spark-*.jsa")) - {
            path
        }:  # of a Spark or a Java that was here before; whoever has it open keeps it
            other.unlink(missing_ok=True)
    except OSError as failed:
        do = "Run it as who may write there; or do without: Spark only starts slower."
        raise UnreachableError(
            f"No archive could be written to {path.parent} ({failed.strerror})", "setup", do
        ) from failed
    return path


def record_classes(made: Path) -> None:
    """In a process of its own, for the Java of this one, if it has one, was begun without."""
    command = [
        sys.executable,
        "-m",
        "windrow.ingest.runner.spark.archive",
        f"-XX:ArchiveClassesAtExit={made} {_QUIET}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode or not made.is_file():
        do = (
            "Run `windrow doctor`, which says what is missing. Spark works without an archive; it"
            " only starts slower."
        )
        raise UnreachableError("Spark did not start, or Java wrote no archive of it", "setup", do)


def _java_home() -> Path | None:
    """The home of the Java that Spark takes: JAVA_HOME's, else the one on the PATH."""
    told = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(told) / "bin" / "java" if told else "java")
    home = None if java is None else Path(java).resolve().parent.parent
    return home if home is not None and (home / "lib" / "modules").is_file() else None


def _digest(files: Iterable[Path]) -> str:
    """Of where they are, how long, and how old: what Java itself holds an archive against."""
    digest = hashlib.sha256()
    for file in files:
        state = file.stat()
        digest.update(f"{file} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


_END_SECONDS = 120
"""How long Java may take to write the archive, once it was told to end."""


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _main(options: str) -> None:
    """Runs one job of the shape that every window's has, and waits for Java's end, at
    which it writes its archive.
    """
    from windrow.ingest.runner.spark.local import JAVA, local_session

    session = local_session("local[2,4]", {"spark.driver.extraJavaOptions": f"{JAVA} {options}"})
    session.range(0, 2, 1, 2).mapInArrow(_same, "id long").collect()
    gateway: Any = session.sparkContext._gateway  # its process is Java; nothing public leads there  # noqa: SLF001
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_SECONDS)


if __name__ == "__main__":
    _main(sys.argv[1])
