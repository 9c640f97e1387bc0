"""A standalone cluster as the engine of tasks."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.dataframes.on_cluster import BOOTSTRAP
from tests.integration.format_cases import CASES, HOUR, make_user
from tests.registry.server import RegistryServer
from tests.runner.spark.daemons import of_this_process, running
from tests.runner.spark.on_cluster import MASTER
from tests.runner.spark.standalone import Cluster, cluster, deps_only
from windrow.ingest.kafka.embedded.server import free_port

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two workers of one core each."""
    with cluster(tmp_path_factory.mktemp("cluster")) as running_cluster:
        yield running_cluster


ON_IT = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m"]


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.slow
def test_a_window_is_read_by_a_worker_that_has_nothing_of_it(
    kafka: str, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """A run with --master on workers without windrow gives a row or a dead letter for every
    message, and verify finds nothing.

    The spec has an SQL step.
    """
    case = CASES["json"]
    user = make_user(case, kafka, tmp_path, schema_registry)
    [spec] = tmp_path.glob("*.yaml")
    step = "SELECT * FROM rows WHERE _offset + 1 > 0"
    spec.write_text(f"{spec.read_text()}\ntransform: {{steps: [{{sql: '{step}'}}]}}\n")
    # one worker is enough: a second would compile everything again
    with cluster(tmp_path / "cluster", workers=1) as bare:
        ran = user.starts_and_ends("run", "--window", HOUR, "--master", bare.master, *ON_IT)
    assert ran["windows"][0]["committed"]["receipt"]["counts"]["valid"] == len(case.rows)
    assert (
        sorted((d["stage"], d["reason"]) for d in user.types("dead", "show")["dead"]) == case.dead
    )
    assert user.types("verify", "--deep")["findings"] == []


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.slow
def test_the_page_says_how_to_try_a_cluster(
    kafka: str, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """The three commands of the page, on a free port, commit the window."""
    page = (ROOT / "docs" / "clusters.md").read_text().replace("7077", str(free_port()))
    block = next(
        code for code in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "Worker" in code
    )
    master, worker, run = map(shlex.split, block.splitlines())
    case, environment = CASES["json"], of_this_process(tmp_path)
    user = make_user(case, kafka, tmp_path, schema_registry)
    master_index = run.index("--master")
    with (
        running(tmp_path / "one", master, r"Starting Spark master at (\S+)", environment),
        running(tmp_path / "two", worker, r"registered with master (\S+)", environment),
    ):
        ran = user.starts_and_ends("run", "--window", HOUR, *run[master_index:])
    assert ran["windows"][0]["committed"]["receipt"]["counts"]["valid"] == len(case.rows)


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.slow
def test_workers_that_differ_are_told_before_anything_is_read(
    two_workers: Cluster, kafka: str, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """Workers with another version of a package end the run with one sentence, which names
    machine, interpreter, package and versions.
    """
    user = make_user(CASES["json"], kafka, tmp_path, schema_registry)
    python = deps_only(tmp_path / "other")
    [packages] = (tmp_path / "other" / "lib").glob("python3*/site-packages")
    (packages / "msgspec-0.0.1.dist-info").mkdir()
    (packages / "msgspec-0.0.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: msgspec\nVersion: 0.0.1\n"
    )
    words = ["--master", two_workers.master, *ON_IT, "--conf", f"spark.pyspark.python={python}"]
    failed = user.starts_and_ends("run", "--window", HOUR, *words, code=3)
    assert re.search(
        rf"which runs {python}, is not as the driver is: msgspec is 0\.0\.1, the driver's is \d",
        failed["error"]["message"],
    )
    assert user.types("show")["windows"] == []


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.slow
def test_doctor_looks_around_on_every_worker(
    two_workers: Cluster, kafka: str, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """Doctor checks both workers before a window is run, and leaves no file."""
    user = make_user(CASES["json"], kafka, tmp_path, schema_registry)
    words = ["--cluster", "--master", two_workers.master, *ON_IT]
    paths_before = sorted(tmp_path.iterdir())
    *_, last = user.starts_and_ends("doctor", "--write", *words)["checks"]
    assert (last["name"], last["level"]) == ("executors", "ok")
    assert last["what"].startswith("2 executors on ")
    assert last["what"].endswith(
        "; code and packages are the driver's; 1 topic-partition tried, 1 place of the sink"
    )
    assert not [path for path in tmp_path.rglob("*") if "doctor" in path.name]
    assert [path for path in sorted(tmp_path.iterdir()) if path.suffix != ".db"] == paths_before


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.slow
def test_a_master_that_is_none(kafka: str, tmp_path: Path, schema_registry: RegistryServer) -> None:
    """A wrong master address ends the run with one sentence that names it and the remedy, and
    doesn't blame Java.
    """
    user = make_user(CASES["json"], kafka, tmp_path, schema_registry)
    failed = user.starts_and_ends(
        "run", "--window", HOUR, "--master", "spark:/nobody:7077", *ON_IT, code=3
    )["error"]
    assert failed["message"].startswith("Spark doesn't begin at the master spark:/nobody:7077 (")
    assert "the address is exactly that in its own log" in str(failed)
    assert user.types("show")["windows"] == []


ALONE = """
import sys
from windrow.ingest.runner.spark import jobs
from windrow.ingest.runner.spark.cluster import spark_context
from windrow.ingest.runner.spark.engine import SparkEngine
from tests.contracts.engine_contract import ONE
from tests.runner.spark.tasks import Name

jobs._ALONE_SECONDS = 0.5
words = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "4g"}
list(SparkEngine(lambda: spark_context(sys.argv[1], words)).run(Name(), ONE))
"""
"""A run whose executors need more memory than a worker has."""


@pytest.mark.long
@pytest.mark.slow
def test_a_run_that_no_worker_has_room_for_says_so(two_workers: Cluster) -> None:
    """A run logs that it waits for executors, and goes on waiting.

    Spark waits silently and for ever.
    """
    command = [sys.executable, "-c", ALONE, two_workers.master]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            log_line = next((line for line in process.stderr if "No executor" in line), "")
            assert log_line.startswith(
                f"No executor has come up at {two_workers.master}. The run waits for one"
            )
            assert "spark.executor.memory" in log_line
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.long
@pytest.mark.slow
def test_the_contract_holds(two_workers: Cluster) -> None:
    """The contract of engines holds where workers have neither windrow's code nor the driver's
    files.
    """
    runs_there("tests/runner/spark/on_cluster.py", two_workers)


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.slow
def test_dataframes_hold(two_workers: Cluster, kafka: str, tmp_path: Path) -> None:
    """Exact ranges, a window's rows, and batches that are written once hold where workers don't
    have windrow's code.
    """
    driver = {"XDG_CACHE_HOME": str(tmp_path / "cache"), BOOTSTRAP: kafka}
    runs_there("tests/dataframes/on_cluster.py", two_workers, driver)


def runs_there(module: str, cluster: Cluster, driver: Mapping[str, str] = {}) -> None:
    """Runs a module of tests in another process, whose session is on the cluster.

    Args:
        module: path of the module.
        cluster: the cluster.
        driver: more environment variables of the process.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", module],
        cwd=ROOT,
        env={**os.environ, MASTER: cluster.master, **driver},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
