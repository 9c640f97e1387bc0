"""Java that is launched before a session needs it ends with the process at the latest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.kafka.embedded.test_jars import program
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.runner.spark import cluster
from windrow.ingest.runner.spark.engine import SparkEngine

LAUNCHED = """
import sys, psutil
from windrow.ingest.runner.spark.cluster import launch_early, spark_session
launch_early("local[1]")
launch_early("local[1]")
(java,) = psutil.Process().children()
print(java.pid, flush=True)
"""
USED = """
session = spark_session("local[1]")
print(session.sparkContext._gateway.proc.pid, session.range(3).count(), flush=True)
"""
WAITS = "sys.stdin.read()"
LIMIT = 120


def began(more: str, **environment: str) -> subprocess.Popen[str]:
    """A process that launches Java, and does more then."""
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHED + more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.spark
def test_the_session_takes_the_java_that_was_launched(tmp_path: Path) -> None:
    """There is one Java, launched once; what it needed to tell its port is gone."""
    with began(USED, TMPDIR=str(tmp_path)) as process:
        said = process.communicate(timeout=LIMIT)[0].split()
    assert said[1:] == [said[0], "3"]
    assert not list(tmp_path.glob("windrow-java-*"))


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)"])
def test_java_that_nobody_needed_ends_before_its_process(end: str, tmp_path: Path) -> None:
    """Also if an error ends that one, while Java still starts."""
    with began(end, TMPDIR=str(tmp_path)) as process:
        said = process.communicate(timeout=LIMIT)[0]
    assert not psutil.pid_exists(int(said))
    assert not list(tmp_path.glob("windrow-java-*"))


def test_java_ends_by_itself_where_its_process_was_killed(tmp_path: Path) -> None:
    """Nobody is there who could end it: it sees that."""
    with began(WAITS, TMPDIR=str(tmp_path)) as process:
        assert process.stdout is not None
        java = psutil.Process(int(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([java], LIMIT)[1] == []


def test_a_java_that_is_missing_fails_who_needs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So does one that is too old, and ends at once. To start ahead raises nothing, for there may
    be nothing to read; the first task does.
    """
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    assert_refused("Java 17 or 21 is needed and there is none in JAVA_HOME")
    program(tmp_path / "bin", "java", "echo 'openjdk version \"11.0.2\"' >&2; exit 1")
    assert_refused(f"Java 17 or 21 is needed and {tmp_path}/bin/java is 11: correct JAVA_HOME")


def assert_refused(says: str) -> None:
    """What starts ahead says nothing; the first task is refused."""
    engine = SparkEngine(cluster.spark_context, cluster.launch_early)
    engine.start()
    assert list(engine.run(print, [])) == []  # type: ignore[arg-type]
    with pytest.raises(UnreachableError, match=says):
        next(engine.run(print, [Split("t", 0, 0, 1)]))  # type: ignore[arg-type]
