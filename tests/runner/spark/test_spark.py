"""Local Spark as the engine of tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.contracts.engine_contract import SPLITS, EngineContract
from tests.runner.spark.tasks import Collects, Dies, EndsItself, Name, Raises, Where
from windrow.ingest.errors import UnreachableError
from windrow.ingest.runner.spark.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NO_JAVA = """
import sys
from windrow.ingest.runner.spark.cluster import spark_context
from windrow.ingest.runner.spark.engine import SparkEngine
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.plan import Split

try:
    next(SparkEngine(spark_context).run(print, [Split("t", 0, 0, 1)]))
except UnreachableError as error:
    print(error)
    sys.exit(error.exit_code)
"""

QUIET = """
from windrow.ingest.cli.arguments import spark_options
from windrow.ingest.cli.servers import engine_at
from windrow.ingest.model.plan import Split
from tests.runner.spark.tasks import Variable

with engine_at(spark_options("local[1,1]", ["spark.executorEnv.SEEN=by a task"], None)) as engine:
    (result,) = engine.run(Variable("SEEN"), [Split("t", 0, 0, 1)])
    print(result.rows[0])
"""


FORKS = """
import runpy
import sys
from windrow.ingest.runner.spark import daemon

runpy.run_module = lambda *_, **__: print([n for n in sys.modules if n.startswith("windrow")])
daemon.main()
"""


class TestSpark(EngineContract):
    """The contract of engines, on the tests' session."""

    dies = Dies

    @pytest.fixture
    def engine(self, spark: SparkSession) -> Iterator[SparkEngine]:
        yield SparkEngine(lambda: spark.sparkContext)
        spark.sparkContext.setLogLevel("ERROR")  # an interrupt switches it off


def test_tasks_run_in_other_processes(spark: SparkSession) -> None:
    """Each split is a task in a Python worker."""
    results = list(SparkEngine(lambda: spark.sparkContext).run(Name(), SPLITS))
    assert str(os.getpid()) not in {r.rows[0] for r in results}


def test_workers_load_the_pyspark_that_is_compiled(spark: SparkSession) -> None:
    """Workers load the environment's pyspark, not Spark's zip, which Python compiles each time."""
    (staged_split,) = SparkEngine(lambda: spark.sparkContext).run(Where("pyspark"), SPLITS[:1])
    assert staged_split.rows[0] == pyspark.__file__


def test_workers_load_the_windrow_that_is_installed_by_then() -> None:
    """Workers load the windrow that is installed when they start.

    Spark forks them from one process, which starts with the first window and may be old. It has
    loaded nothing of windrow.
    """
    process = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, check=True, timeout=60
    )
    assert process.stdout == "[]\n"


def test_what_a_worker_has_loaded_is_not_looked_through_after_each_task(
    spark: SparkSession,
) -> None:
    """After a worker's first job its garbage collector has few objects to look at.

    PySpark collects between tasks.
    """
    engine = SparkEngine(lambda: spark.sparkContext)
    list(engine.run(Collects(), SPLITS))
    assert max(int(r.rows[0]) for r in engine.run(Collects(), SPLITS)) < 20_000


def test_an_empty_plan_never_reaches_spark() -> None:
    """An empty plan asks for no session."""

    def no_session() -> SparkSession:
        raise AssertionError

    assert list(SparkEngine(no_session).run(Name(), [])) == []


def test_what_a_worker_says_is_no_part_of_the_error(spark: SparkSession) -> None:
    """Spark tries an interrupted worker again.

    When it gives up, the error doesn't repeat the worker's text.
    """
    with pytest.raises(UnreachableError, match="Spark could not finish the tasks") as caught:
        list(SparkEngine(lambda: spark.sparkContext).run(Raises(EndsItself), SPLITS[:1]))
    assert "secret-payload" not in str(caught.value)


def test_workers_of_another_python_are_told(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers with another Python end the run with one sentence that names both versions.

    It comes from Spark's own check. Such workers can't unpickle anything, not even windrow's
    check of versions.
    """
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.9")
    with pytest.raises(
        UnreachableError,
        match=r"The workers have Python 3\.\d+, and the driver has 3\.9\..*spark\.pyspark\.python",
    ):
        list(SparkEngine(lambda: spark.sparkContext).run(Name(), SPLITS[:1]))


def test_without_java_spark_cannot_be_reached(tmp_path: Path) -> None:
    """Without Java the error is UnreachableError, and says where Java was looked for."""
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", NO_JAVA],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 3, ended.stderr
    assert f"there is none in JAVA_HOME, which is {tmp_path}" in ended.stdout
    assert "correct JAVA_HOME, or unset it" in ended.stdout


def test_spark_says_nothing_of_itself() -> None:
    """A successful task prints nothing of Spark's on the terminal, and has the properties of
    --conf.
    """
    root = Path(__file__).parents[3]
    env = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"} | {
        "PYTHONPATH": str(root)
    }
    command = [sys.executable, "-c", QUIET]
    done = subprocess.run(
        command, cwd=root, env=env, capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "by a task"
    assert [line for line in done.stderr.splitlines() if line != "Waiting for Spark to start"] == []
