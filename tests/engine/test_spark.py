"""Spark as the place where tasks run."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingest.engine.spark import SparkEngine
from ingest.errors import DataLossError, UnreachableError
from ingest.model.plan import Split
from tests.engine.tasks import Breaks, KillsItsWorkerOnce, Name, Panics, Refuses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SPLITS = [Split("t", partition, 0, 10) for partition in range(5)]
NO_JAVA = """
import sys
from ingest.engine.local import local_session
from ingest.engine.spark import SparkEngine
from ingest.errors import UnreachableError
from ingest.model.plan import Split

try:
    SparkEngine(local_session).run(print, [Split("t", 0, 0, 1)])
except UnreachableError as error:
    print(error)
    sys.exit(error.exit_code)
"""

QUIET = """
from ingest.engine.local import local_session
from ingest.engine.spark import SparkEngine
from ingest.model.plan import Split
from tests.engine.tasks import Name

print(len(SparkEngine(lambda: local_session("local[1,1]")).run(Name(), [Split("t", 0, 0, 1)])))
"""

INCUBATOR = "WARNING: Using incubator modules: jdk.incubator.vector"
"""What Java itself says of a module that Spark asks for, before any of our settings counts."""


@pytest.fixture
def engine(spark: SparkSession) -> SparkEngine:
    """On the tests' session."""
    return SparkEngine(lambda: spark)


def test_one_result_per_split_in_order_from_other_processes(engine: SparkEngine) -> None:
    """Each split is a task of its own in a Python worker, and the results come back in the order of the splits."""
    results = engine.run(Name(), SPLITS)
    assert [r.split for r in results] == SPLITS
    assert str(os.getpid()) not in {r.rows[0] for r in results}


def test_an_empty_plan_never_reaches_spark() -> None:
    """No splits: no session is asked for."""

    def no_session() -> SparkSession:
        raise AssertionError

    assert SparkEngine(no_session).run(Name(), []) == []


def test_a_killed_worker_costs_one_attempt(engine: SparkEngine, tmp_path: Path) -> None:
    """A worker that dies with SIGKILL is replaced, its task runs again, and each split has one result."""
    results = engine.run(KillsItsWorkerOnce(tmp_path / "mark"), SPLITS)
    assert (tmp_path / "mark").exists()
    assert [r.split for r in results] == SPLITS


def test_a_refusal_comes_back_as_itself_and_is_not_tried_again(engine: SparkEngine, tmp_path: Path) -> None:
    """A task's own error keeps type, coordinates and text, and Spark doesn't repeat the task."""
    with pytest.raises(DataLossError) as caught:
        engine.run(Refuses(tmp_path), SPLITS)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 1, 0)
    assert len(list(tmp_path.iterdir())) == len(SPLITS)


def test_a_bug_in_a_task_is_told_without_its_text(engine: SparkEngine) -> None:
    """A bug names its type and place, and with the stack trace how it came there; what its text quotes stays in the worker."""
    with pytest.raises(UnreachableError, match=r"ArrowInvalid at .+:\d+ ended a task .*t\[1\]@0.*--debug") as caught:
        engine.run(Breaks(), SPLITS)
    shown = "".join(traceback.format_exception(caught.value))
    assert "in __call__" in shown
    assert "tests/engine/tasks.py" in shown
    assert "secret-payload" not in shown.replace('value = "secret-payload"', "")


def test_what_a_worker_says_is_no_part_of_the_error(engine: SparkEngine) -> None:
    """An end that is no Exception is Spark's to try again; when it gives up, its words, which hold the worker's, are not repeated."""
    with pytest.raises(UnreachableError, match="Spark could not finish the tasks") as caught:
        engine.run(Panics(), SPLITS[:1])
    assert "secret-payload" not in str(caught.value)


def test_without_java_spark_cannot_be_reached(tmp_path: Path) -> None:
    """Where Java is missing the error is that of something that can't be reached, and names the command that looks."""
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", NO_JAVA], env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 3, ended.stderr
    assert "Java or Spark can't start" in ended.stdout
    assert "windrow doctor" in ended.stdout


def test_spark_says_nothing_of_itself() -> None:
    """A task that succeeds leaves nothing on the terminal: no profile, no level, no library that isn't there."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", QUIET], cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=300,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "1"
    assert done.stderr.replace(INCUBATOR, "").strip() == ""
