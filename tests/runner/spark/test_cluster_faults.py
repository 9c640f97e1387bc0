"""Workers, machines and drivers of a Spark cluster that die, stop and come back, on real Kafka:
exactly once, by the checker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.integration.harness import PipelineSetup, millis, read_visible, verdict
from tests.integration.test_exactly_once import one_hour, setup, thing_value
from tests.integration.test_spark_task import OVER, status_of, until
from tests.kafka.door import Door
from tests.kafka.produce import Put, create_topic, produce
from tests.runner.spark.drivers import Answer, Driver
from tests.runner.spark.standalone import Cluster, known_cluster

__all__ = ["one_hour", "setup"]  # the fixtures
pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.long]

TRIES = 4
"""Spark's default number of tries of a task."""
COPIES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.efficiency.enabled": "false",
    "spark.python.task.killTimeout": "10m",
}
"""Properties for speculation: a task that takes longer than half of the others is run a second
time.

The slower of both isn't killed at once.
"""


@dataclass
class Ground:
    """A cluster, the tests' driver on it, and a trap for the Python workers of that driver.

    Attributes:
        cluster: the cluster.
        folder: folder of the trap and the log.
    """

    cluster: Cluster
    folder: Path
    _driver: Driver | None = field(default=None)

    @property
    def trap(self) -> Path:
        """A file that arms the trap while it doesn't exist.

        The next Python worker that has staged a batch makes it, and stops itself.
        """
        return self.folder / "trap"

    def words(self) -> dict[str, str]:
        """Returns Spark's properties for a session on half of the cluster."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.cores.max": "4",
            "spark.executorEnv.WINDROW_CRASH": f"write.middle:stop:{self.trap}",
        }

    @property
    def driver(self) -> Driver:
        """The current driver; a new one if the last has died."""
        if self._driver is None or self._driver.ended:
            self._driver = Driver(self.cluster.master, self.words(), self.folder)
        return self._driver

    def close(self) -> None:
        """Ends the driver."""
        if self._driver is not None:
            self._driver.close()


def stopped_worker(cluster: Cluster) -> psutil.Process:
    """Waits until the trap has stopped a Python worker of the cluster, and returns it."""
    stopped: list[psutil.Process] = []

    def any_stopped() -> bool:
        children = [
            process
            for worker in cluster.workers.values()
            for process in worker.children(recursive=True)
        ]
        stopped[:] = [p for p in children if status_of(p) == psutil.STATUS_STOPPED]
        return bool(stopped)

    until(any_stopped, "no worker reached its crash point")
    [process] = stopped
    return process


def end(process: psutil.Process) -> None:
    """Kills a process with SIGKILL, and waits until it is gone."""
    process.kill()
    until(lambda: status_of(process) in OVER, "a killed process is still there")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Two workers with room for two drivers; each worker runs two tasks of each driver at once."""
    folder = tmp_path_factory.mktemp("ground")
    with known_cluster(folder / "cluster", cores=4) as cluster:
        new_ground = Ground(cluster, folder)
        try:
            yield new_ground
        finally:
            new_ground.close()


@pytest.fixture(autouse=True)
def no_trap(ground: Ground) -> None:
    """A disarmed trap. A test that needs it arms it."""
    ground.trap.touch()


def list_staged(setup: PipelineSetup) -> set[str]:
    """Returns data files below the table, committed or not."""
    return {path.name for path in (setup.folder / "things" / "data").rglob("*.parquet*")}


def list_finished(setup: PipelineSetup) -> set[str]:
    """Returns the data files that were written completely."""
    return {name for name in list_staged(setup) if name.endswith(".parquet")}


def in_table(setup: PipelineSetup) -> set[str]:
    """Returns the data files of the table's current version."""
    table = setup.folder / "things"
    return (
        {Path(uri).name for uri in DeltaTable(str(table)).file_uris()}
        if (table / "_delta_log").exists()
        else set()
    )


def assert_exactly_once_beside_garbage(setup: PipelineSetup, *garbage: int) -> None:
    """Asserts that the checker finds nothing wrong.

    Args:
        setup: the pipeline.
        garbage: allowed numbers of staged files that the table doesn't name.
    """
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report
    assert len(list_staged(setup) - in_table(setup)) in garbage


def test_a_killed_executor_is_run_again(ground: Ground, setup: PipelineSetup) -> None:
    """The task of a killed executor is run again.

    1. A worker has staged a batch, and stops.
    2. Its executor is killed with SIGKILL, and the worker ends with it.
    3. Spark runs its task again.

    The other task may have run on the same executor; then its result is lost, too.
    """
    driver = ground.driver
    ground.trap.unlink()
    driver.begin(setup)
    worker = stopped_worker(ground.cluster)
    [executor] = [parent for parent in worker.parents() if parent in ground.cluster.executors()]
    executor.kill()
    until(lambda: status_of(worker) in OVER, "the worker outlived its executor")
    assert driver.answer() == Answer(recovered=False)
    assert_exactly_once_beside_garbage(setup, 1, 2)


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_killed_driver_is_followed_at_once(
    ground: Ground, setup: PipelineSetup, point: str
) -> None:
    """A second driver goes on at once after a killed one.

    1. A driver dies by SIGKILL right before or after its commit.
    2. A second driver runs the window, and says whether it was committed already.
    3. The first driver's executors end.
    """
    first = ground.driver
    first.begin(setup, crash=f"{point}:kill")
    first.dies()
    old_executors = ground.cluster.executors()
    assert ground.driver.runs(setup) == Answer(recovered=point == "commit.after")
    until(
        lambda: all(status_of(executor) in OVER for executor in old_executors),
        "executors outlived their driver",
    )
    assert_exactly_once_beside_garbage(setup, 2 if point == "commit.before" else 0)


def test_a_task_that_always_kills_its_worker_ends_the_run(
    ground: Ground, kafka: str, tmp_path: Path
) -> None:
    """A task that kills its worker at every try ends the run with the advice to try again, and
    the rerun is right.
    """
    setup = PipelineSetup(kafka, create_topic(kafka), tmp_path)
    produce(kafka, setup.topic, [Put(thing_value(i), millis(1, i)) for i in range(50)])
    driver = ground.driver
    for tried in range(TRIES):
        ground.trap.unlink()
        if not tried:
            driver.begin(setup)
        end(stopped_worker(ground.cluster))
    failed = driver.answer()
    assert failed.code == 3
    assert "Nothing was committed. Run the window again" in failed.text
    assert (len(list_staged(setup)), in_table(setup)) == (TRIES, set())
    assert driver.runs(setup) == Answer(recovered=False)
    assert_exactly_once_beside_garbage(setup, TRIES)


def test_a_broker_that_only_the_workers_do_not_reach(
    ground: Ground, kafka: str, one_hour: str, tmp_path: Path
) -> None:
    """A broker that only the workers can't reach ends the run with an error that says so.

    With the way open, the rerun is right.

    1. The driver has planned, and stops.
    2. The way to the broker is closed for new clients. The driver goes on, because it is
       connected already.
    3. Its workers can't connect.
    """
    door = Door(kafka)
    try:
        setup = PipelineSetup(
            door.bootstrap, one_hour, tmp_path, {"source": {"client": {"socket.timeout.ms": 5000}}}
        )
        driver = ground.driver
        driver.begin(setup, crash="plan.after:stop")
        until(
            lambda: status_of(driver.process) == psutil.STATUS_STOPPED,
            "the driver didn't come to its plan's end",
        )
        door.close()
        driver.process.resume()
        failed = driver.answer()
        assert failed.code == 3
        assert "from where the tasks run" in failed.text
        assert in_table(setup) == set()
        door.open()
        assert driver.runs(setup) == Answer(recovered=False)
        assert_exactly_once_beside_garbage(setup, 0)
    finally:
        door.close()


def test_a_thousand_splits_on_four_slots(ground: Ground, kafka: str, tmp_path: Path) -> None:
    """Each message of a thousand splits is there once, and all results fit into two megabytes
    of the driver's memory.
    """
    setup = PipelineSetup(
        kafka, create_topic(kafka, partitions=4), tmp_path, {"source": {"split_records": 2}}
    )
    produce(
        kafka,
        setup.topic,
        [Put(thing_value(i), millis(1, i // 60, i % 60), i % 4) for i in range(2000)],
    )
    driver = Driver(
        ground.cluster.master, ground.words() | {"spark.driver.maxResultSize": "2m"}, tmp_path
    )
    try:
        assert driver.runs(setup) == Answer(recovered=False)
    finally:
        driver.close()
    [committed] = setup.pipeline().sink.receipts()
    assert len(committed.receipt.plan.splits) == 1000
    assert_exactly_once_beside_garbage(setup, 0)


def test_a_worker_that_wakes_behind_its_copy_changes_nothing(
    ground: Ground, setup: PipelineSetup, tmp_path: Path
) -> None:
    """A worker that wakes after the copy of its task changes nothing.

    1. A worker stops in the middle of writing.
    2. Spark gives its task to the other machine, too. The driver looks, and stops.
    3. The worker wakes, and stages its file.
    4. The driver commits without that file.
    5. A rerun, and another look, change nothing.
    """
    driver = Driver(ground.cluster.master, ground.words() | COPIES, tmp_path)
    try:
        ground.trap.unlink()
        driver.begin(setup, crash="commit.before:stop")
        late = stopped_worker(ground.cluster)
        until(
            lambda: status_of(driver.process) == psutil.STATUS_STOPPED,
            "the driver didn't come to its commit",
        )
        assert status_of(late) == psutil.STATUS_STOPPED, "the worker was not waited for"
        finished_files = list_finished(setup)
        late.resume()
        until(
            lambda: list_finished(setup) > finished_files, "the worker staged nothing after it woke"
        )
        driver.process.resume()
        assert driver.answer() == Answer(recovered=False)
        assert_exactly_once_beside_garbage(setup, 1)
        assert in_table(setup) == finished_files
        assert driver.runs(setup) == Answer(recovered=True)
    finally:
        driver.close()
    assert_exactly_once_beside_garbage(setup, 1)


def test_a_function_of_dataframes(
    ground: Ground, kafka: str, one_hour: str, tmp_path: Path
) -> None:
    """A function of DataFrames is run exactly once, and its UDFs are sent to the workers.

    1. A worker stops in the middle of staging.
    2. The executors are killed, and the data that they had read is lost. The run says to try
       again.
    3. The driver runs the window again, and is killed after its commit.
    4. Another driver finds each row there once.
    """
    setup = PipelineSetup(
        kafka, one_hour, tmp_path, {"transform": {"steps": [{"spark": "functions.py:same"}]}}
    )
    trap, others = tmp_path / "trap", ground.cluster.executors()
    driver = Driver(
        ground.cluster.master,
        ground.words() | {"spark.executorEnv.WINDROW_CRASH": f"transform.middle:stop:{trap}"},
        tmp_path,
    )
    try:
        driver.begin(setup)
        stopped_worker(ground.cluster)
        for executor in ground.cluster.executors():
            if executor not in others:
                end(executor)
        failed = driver.answer()
        assert (failed.code, in_table(setup)) == (3, set())
        assert "Nothing was committed. Run the window again" in failed.text
        driver.begin(setup, crash="commit.after:kill")
        driver.dies()
    finally:
        driver.close()
    assert ground.driver.runs(setup) == Answer(recovered=True)
    report = verdict(PipelineSetup(kafka, one_hour, tmp_path), read_visible(kafka, one_hour))
    assert report.ok, report


def test_a_function_that_needs_what_workers_have_not(
    ground: Ground, kafka: str, one_hour: str, tmp_path: Path
) -> None:
    """A module that only the driver can import is named with advice, and nothing is committed."""
    setup = PipelineSetup(
        kafka, one_hour, tmp_path, {"transform": {"steps": [{"spark": "functions.py:foreign"}]}}
    )
    failed = ground.driver.runs(setup)
    assert (failed.code, in_table(setup)) == (2, set())
    assert (
        "A worker can't import tests, which a UDF of the function functions.py:foreign of"
        " the spark step needs" in failed.text
    )
