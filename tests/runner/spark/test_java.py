"""Java that is started before a session needs it: it ends with the process at the latest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.kafka.embedded.test_jars import program

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
(java,) = psutil.Process().children()
print(java.pid, session.range(3).count(), flush=True)
"""
WAITS = "sys.stdin.read()"
LIMIT = 120


def began(more: str, **environment: str) -> subprocess.Popen[str]:
    """Starts a process that launches Java, and then runs `more`."""
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHED + more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.spark
def test_the_session_takes_the_java_that_was_launched(tmp_path: Path) -> None:
    """A session uses the Java that was launched before, and the file with its port is gone."""
    with began(USED, TMPDIR=str(tmp_path)) as process:
        words = process.communicate(timeout=LIMIT)[0].split()
    assert words[1:] == [words[0], "3"]
    assert not list(tmp_path.glob("windrow-java-*"))


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)"])
def test_java_that_nobody_needed_ends_before_its_process(end: str, tmp_path: Path) -> None:
    """Java that wasn't needed ends before its process, also if an error ends the process while
    Java still starts.
    """
    with began(end, TMPDIR=str(tmp_path)) as process:
        output = process.communicate(timeout=LIMIT)[0]
    assert not psutil.pid_exists(int(output))
    assert not list(tmp_path.glob("windrow-java-*"))


def test_java_ends_by_itself_where_its_process_was_killed(tmp_path: Path) -> None:
    """Java ends by itself after its process was killed."""
    with began(WAITS, TMPDIR=str(tmp_path)) as process:
        assert process.stdout is not None
        java = psutil.Process(int(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([java], LIMIT)[1] == []


def test_a_java_that_is_missing_or_too_old_fails_the_first_task(tmp_path: Path) -> None:
    """A missing or too old Java fails the first task, not the start ahead of it, because there
    may be nothing to read.
    """
    assert "Java 17 or 21 is needed and there is none in JAVA_HOME" in refusal(tmp_path)
    program(tmp_path / "bin", "java", "echo 'openjdk version \"11.0.2\"' >&2; exit 1")
    assert f"Java 17 or 21 is needed and {tmp_path}/bin/java is 11: correct JAVA_HOME" in refusal(
        tmp_path
    )


REFUSED = """
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.runner.spark import cluster
from windrow.ingest.runner.spark.engine import SparkEngine
engine = SparkEngine(cluster.spark_context, cluster.launch_early)
engine.start()
assert list(engine.run(print, [])) == []
try:
    next(engine.run(print, [Split("t", 0, 0, 1)]))
except UnreachableError as refused:
    print(refused)
"""


def refusal(java_home: Path) -> str:
    """Returns the error of the first task in a process without Java."""
    return subprocess.run(
        [sys.executable, "-c", REFUSED],
        env={**os.environ, "JAVA_HOME": str(java_home)},
        stdout=subprocess.PIPE,
        timeout=LIMIT,
        text=True,
        check=True,
    ).stdout
